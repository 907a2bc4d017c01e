//! A node's proxy at work on a node's namespaces, by way of everything that lies between its library and the kernel:
//! `work` is what it does, `dump` what the commands then print, `same` whether that is what a clean start leaves.

mod clean_start;
mod commands;
mod start;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::try_join_all;
use svclab_cluster::Cluster as Lab;
use svclab_cluster::traffic::probe::ClusterHost;
use svclab_oracle::ClusterModel;
use svclab_properties::node;
use svclab_properties::proxies::{Dump, Proxies, changes};
use svcproxy::config::{Config, Mode, Variant, WriterChoice};
use svcproxy::kernel::conntrack::{Conntrack, Filter, Netlink};
use svcproxy::model::{Change, Family};

use commands::{Commands, rules};
use start::{RelayThread, SyncJob};

/// What proxies have left. Relays of userspace mode go on until this is dropped.
pub struct AppliedRules {
    /// What the commands print, by node.
    pub dumps: BTreeMap<String, Dump>,
    relays: Vec<RelayThread>,
}

impl AppliedRules {
    /// Ends the relays, as when proxies are killed; the rules that lead to them stay.
    pub fn end_relays(&mut self) {
        self.relays.clear();
    }
}

fn commands(variant: Variant, cluster: &ClusterModel, node: &str) -> Commands {
    let mode = node::config(&cluster.world, node).mode;
    Commands { variant, mode, families: node::families(&cluster.world) }
}

/// Has `work` done on the thread of every node; what came of it, by node.
async fn everywhere<T: Send + 'static>(
    lab: &Lab,
    cluster: &ClusterModel,
    work: impl Fn(&str) -> Box<dyn FnOnce() -> Result<T, String> + Send>,
) -> Result<BTreeMap<String, T>, String> {
    let done = try_join_all(cluster.world.nodes.iter().map(async |place| {
        let at = ClusterHost::Node(place.name.clone());
        let done = lab.run(&at, work(&place.name)).await.map_err(|error| error.to_string())?;
        done.map(|done| (place.name.clone(), done)).map_err(|error| format!("{at}: {error}"))
    }));
    Ok(done.await?.into_iter().collect())
}

/// Brings every node's kernel to the cluster, over whatever stands there.
///
/// As when a proxy is started anew with other settings: a full sync of some of the objects, and when the others have come, a
/// partial one. How many are there at the start is a function of `salt`. What comes out must be what a proxy leaves on a
/// machine that nobody has touched.
///
/// # Errors
/// What a command or the kernel has refused, or what is too much or too little.
pub async fn apply(lab: &Lab, variant: Variant, cluster: &ClusterModel, salt: u64) -> Result<AppliedRules, String> {
    let (changes, refused) = changes(&cluster.objects);
    if !refused.is_empty() {
        return Err(format!("refused: {}", refused.join("; ")));
    }
    let changes: Arc<[Change]> = changes.into();
    let nodes = cluster.objects.nodes.len();
    let first = nodes + usize::try_from(salt).unwrap_or_default() % (changes.len() - nodes + 1);
    let done = everywhere(lab, cluster, |name| {
        // Tables of iptables-nft are written by both writers in turn.
        let by_netlink = variant == Variant::Nft && salt.is_multiple_of(2);
        let writer = if by_netlink { WriterChoice::Netlink } else { WriterChoice::Commands };
        let config = Config { variant, writer, ..node::config(&cluster.world, name) };
        let work = SyncJob { config, families: node::families(&cluster.world), changes: Arc::clone(&changes), first };
        let commands = commands(variant, cluster, name);
        Box::new(move || {
            let at_work = work.carry_out()?;
            commands.forget_clients()?;
            Ok((commands.dump()?, at_work))
        })
    });
    let mut applied = AppliedRules { dumps: BTreeMap::new(), relays: Vec::new() };
    for (node, (mut dump, at_work)) in done.await? {
        dump.relays = at_work.as_ref().map(|at_work| at_work.relays.clone()).unwrap_or_default();
        let mut fresh = Proxies::fresh(&cluster.world, &node);
        fresh.apply(&changes);
        fresh.sync()?;
        clean_start::compare(&dump, &fresh.dump()).map_err(|why| format!("node/{node}: {why}"))?;
        applied.dumps.insert(node, dump);
        applied.relays.extend(at_work);
    }
    Ok(applied)
}

/// Puts rules in the place of all of a node's; what stands there after it, where `before` stood.
///
/// # Errors
/// What the kernel does not take.
pub async fn replace(
    lab: &Lab,
    variant: Variant,
    node: &str,
    texts: Vec<(Family, String)>,
    before: &Dump,
) -> Result<Dump, String> {
    let families = texts.iter().map(|(family, _)| *family).collect();
    let commands = Commands { variant, mode: Mode::Iptables, families };
    let work = move || {
        commands.replace(&texts)?;
        commands.dump().map(|dump| (commands.families, dump))
    };
    let done = lab.run(&ClusterHost::Node(node.to_owned()), work).await.map_err(|error| error.to_string())?;
    let (families, mut dump) = done?;
    let mut all = before.clone();
    for family in families {
        *rules(&mut all, family) = std::mem::take(rules(&mut dump, family));
    }
    Ok(all)
}

/// Puts a table of nftables in the place of the proxy's; what stands there after it, where `before` stood. Relays go on.
///
/// # Errors
/// What the kernel does not take.
pub async fn replace_tables(
    lab: &Lab,
    variant: Variant,
    cluster: &ClusterModel,
    node: &str,
    text: String,
    before: &Dump,
) -> Result<Dump, String> {
    let commands = commands(variant, cluster, node);
    let work = move || {
        commands.replace_tables(&text)?;
        commands.dump()
    };
    let dump = lab.run(&ClusterHost::Node(node.to_owned()), work).await.map_err(|error| error.to_string())??;
    Ok(Dump { relays: before.relays.clone(), ..dump })
}

/// Has every node forget all connections: the next cluster's packets must not be taken for this one's. In IPVS mode servers that
/// drain are gone after it, and the others stand in the order in which `ipvsadm` prints them (the kernel's own, by which its
/// hashes go, it does not print); so what is known of virtual servers before holds no longer.
///
/// # Errors
/// What the kernel has refused.
pub async fn forget(
    lab: &Lab,
    variant: Variant,
    cluster: &ClusterModel,
    dumps: &mut BTreeMap<String, Dump>,
) -> Result<(), String> {
    for dump in dumps.values_mut() {
        dump.servers =
            dump.servers.lines().filter(|line| !line.ends_with(" -w 0")).flat_map(|line| [line, "\n"]).collect();
    }
    let done = everywhere(lab, cluster, |name| {
        let commands = commands(variant, cluster, name);
        let servers = dumps.get(name).map(|dump| dump.servers.clone()).unwrap_or_default();
        Box::new(move || {
            if commands.mode == Mode::Ipvs {
                commands.restore_servers(&servers)?;
            }
            let delete = |family: &Family| Netlink::default().delete(*family, &[Filter::None], &|_| true).map(|_| ());
            commands.families.iter().try_for_each(delete).map_err(|error| format!("forgetting connections: {error}"))
        })
    });
    done.await.map(|_| ())
}
