//! `start` runs proxies with the real kernel, `commands` lists the rules, `clean_start` compares them with a clean
//! start's.

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
use svclab_properties::proxies::{Dump, Proxies, accepted};
use svcproxy::config::{Config, Mode, Variant, WriterChoice};
use svcproxy::kernel::conntrack::{Conntrack, ConntrackNetlink, FlowFilter};
use svcproxy::model::{Change, Family};

use commands::{Commands, rules};
use start::{RelayThread, SyncJob};

/// Rules of all nodes; relays run until this is dropped.
pub struct AppliedRules {
    pub dumps: BTreeMap<String, Dump>,
    relays: Vec<RelayThread>,
}

impl AppliedRules {
    /// Ends the relays as if the proxies were killed: the rules stay.
    pub fn end_relays(&mut self) {
        self.relays.clear();
    }
}

fn commands(variant: Variant, cluster: &ClusterModel, node: &str) -> Commands {
    let mode = node::config(&cluster.world, node).mode;
    Commands { variant, mode, families: node::families(&cluster.world) }
}

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

/// Runs proxies over the previous cluster's rules, like a restart with new settings: a full sync of the first objects
/// (`salt` decides how many), then a partial sync of the rest. Fails unless the rules equal a clean start's.
pub async fn apply(lab: &Lab, variant: Variant, cluster: &ClusterModel, salt: u64) -> Result<AppliedRules, String> {
    let changes: Arc<[Change]> = accepted(&cluster.objects)?.into();
    let nodes = cluster.objects.nodes.len();
    let first = nodes + usize::try_from(salt).unwrap_or_default() % (changes.len() - nodes + 1);
    let done = everywhere(lab, cluster, |name| {
        // Alternates between the two writers of iptables-nft tables.
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
        let fresh = Proxies::synced(cluster, &node)?.dump();
        clean_start::compare(&dump, &fresh).map_err(|why| format!("node/{node}: {why}"))?;
        applied.dumps.insert(node, dump);
        applied.relays.extend(at_work);
    }
    Ok(applied)
}

/// Replaces the rules of the families in `texts`. `before` has the listings of the other families.
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

/// Replaces the proxy's nftables tables; relays continue.
pub async fn replace_tables(
    lab: &Lab,
    variant: Variant,
    cluster: &ClusterModel,
    node: &str,
    text: String,
    before: &Dump,
) -> Result<Dump, String> {
    change_tables(lab, commands(variant, cluster, node), node, before, move |commands| commands.replace_tables(&text))
        .await
}

/// Runs commands of `nft -f`.
pub async fn load_tables(
    lab: &Lab,
    variant: Variant,
    cluster: &ClusterModel,
    node: &str,
    text: String,
    before: &Dump,
) -> Result<Dump, String> {
    change_tables(lab, commands(variant, cluster, node), node, before, move |commands| commands.load_tables(&text))
        .await
}

async fn change_tables(
    lab: &Lab,
    commands: Commands,
    node: &str,
    before: &Dump,
    change: impl FnOnce(&Commands) -> Result<(), String> + Send + 'static,
) -> Result<Dump, String> {
    let work = move || {
        change(&commands)?;
        commands.dump()
    };
    let dump = lab.run(&ClusterHost::Node(node.to_owned()), work).await.map_err(|error| error.to_string())??;
    Ok(Dump { relays: before.relays.clone(), ..dump })
}

/// Deletes all conntrack entries. In IPVS mode also recreates the virtual servers in the listed order: hashes depend on
/// the kernel's order, which `ipvsadm` does not print. Draining destinations (weight 0) are not recreated.
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
            let delete = |family: &Family| {
                ConntrackNetlink::default().delete(*family, &[FlowFilter::None], &|_| true).map(|_| ())
            };
            commands.families.iter().try_for_each(delete).map_err(|error| format!("forgetting connections: {error}"))
        })
    });
    done.await.map(|_| ())
}
