//! A node's proxy at work on a node's namespaces, by way of everything that lies between its library and the kernel.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::try_join_all;
use svclab::cluster::Cluster as Lab;
use svclab::traffic::probe::Place;
use svclab_oracle::Cluster;
use svclab_properties::node;
use svclab_properties::proxies::{Dump, Proxies, changes};
use svcproxy::config::{Config, Mode, Variant};
use svcproxy::kernel::conntrack::{Conntrack, Netlink};
use svcproxy::kernel::iptables::Commands;
use svcproxy::kernel::{addresses, command, sysctl};
use svcproxy::mode::iptables::family::FamilyProxy;
use svcproxy::model::Family;
use svcproxy::source::Change;

/// Brings every node's rules to the cluster, over whatever stands there; what the commands print after it, by node.
///
/// As when a proxy is started anew with other settings: a full sync of some of the objects, and when the others have come, a
/// partial one. How many are there at the start is a function of `salt`. What comes out must be what a proxy writes on a
/// machine that nobody has touched.
///
/// # Errors
/// What a command or the kernel has refused, or which rules are too many or too few.
pub async fn apply(
    lab: &Lab,
    variant: Variant,
    cluster: &Cluster,
    salt: u64,
) -> Result<BTreeMap<String, Dump>, String> {
    let (changes, refused) = changes(&cluster.objects);
    if !refused.is_empty() {
        return Err(format!("refused: {}", refused.join("; ")));
    }
    let changes: Arc<[Change]> = changes.into();
    let families = node::families(&cluster.world);
    let dumps = try_join_all(cluster.world.nodes.iter().map(async |place| {
        let config = Config { variant, ..node::config(&cluster.world, &place.name) };
        let (changes, families) = (Arc::clone(&changes), families.clone());
        let nodes = cluster.objects.nodes.len();
        let first = nodes + usize::try_from(salt).unwrap_or_default() % (changes.len() - nodes + 1);
        let at = Place::Node(place.name.clone());
        let work = move || sync(&config, &families, &changes, first).and_then(|()| dump(variant, &families));
        let dump = lab.run(&at, work).await.map_err(|error| error.to_string())?;
        dump.map(|dump| (place.name.clone(), dump)).map_err(|error| format!("{at}: {error}"))
    }));
    let dumps: BTreeMap<String, Dump> = dumps.await?.into_iter().collect();
    for (node, dump) in &dumps {
        let mut fresh = Proxies::fresh(&cluster.world, node);
        fresh.apply(&changes);
        fresh.sync()?;
        same(dump, &fresh.dump()).map_err(|why| format!("node/{node}: {why}"))?;
    }
    Ok(dumps)
}

/// On the node's thread: what the daemon does at its start and when objects come.
fn sync(config: &Config, families: &[Family], changes: &[Change], first: usize) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    // The settings of the cluster before may have needed it; a proxy only ever sets it.
    sysctl::ensure(sysctl::ROUTE_LOCALNET, "0").map_err(|error| said(&error))?;
    if config.localhost_node_ports && config.mode == Mode::Iptables {
        sysctl::ensure(sysctl::ROUTE_LOCALNET, "1").map_err(|error| said(&error))?;
    }
    let own = addresses::read().map_err(|error| said(&error))?;
    for family in families {
        let commands = Commands::find(*family, config.variant).map_err(|error| said(&error))?;
        let mut proxy = FamilyProxy::new(config.clone(), *family, commands);
        proxy.set_addresses(&own);
        for part in [&changes[..first], &changes[first..]] {
            proxy.apply(part);
            proxy.sync().map_err(|error| said(&error))?;
        }
    }
    Ok(())
}

/// The name of a command of a family and variant, such as `ip6tables-nft-save`.
fn name(variant: Variant, family: Family, what: &str) -> String {
    let command = if family == Family::V4 { "iptables" } else { "ip6tables" };
    let variant = match variant {
        Variant::Auto => "",
        Variant::Nft => "-nft",
        Variant::Legacy => "-legacy",
    };
    format!("{command}{variant}-{what}")
}

/// On the node's thread: what the commands print.
fn dump(variant: Variant, families: &[Family]) -> Result<Dump, String> {
    let mut dump = Dump::default();
    for family in families {
        let text = run(&name(variant, *family, "save"), None)?;
        match family {
            Family::V4 => dump.v4 = text,
            Family::V6 => dump.v6 = text,
        }
    }
    Ok(dump)
}

fn run(command: &str, input: Option<&str>) -> Result<String, String> {
    let output = command::run(command, &[], input).map_err(|error| format!("cannot run {command}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command} failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Puts rules in the place of all of a node's; what the commands print after it.
///
/// # Errors
/// What the kernel does not take.
pub async fn replace(lab: &Lab, variant: Variant, node: &str, rules: Vec<(Family, String)>) -> Result<Dump, String> {
    let work = move || {
        for (family, text) in &rules {
            run(&name(variant, *family, "restore"), Some(text))?;
        }
        let families: Vec<Family> = rules.iter().map(|(family, _)| *family).collect();
        dump(variant, &families)
    };
    lab.run(&Place::Node(node.to_owned()), work).await.map_err(|error| error.to_string())?
}

/// Has every node forget all connections: the next cluster's packets must not be taken for this one's.
///
/// # Errors
/// What the kernel has refused.
pub async fn forget(lab: &Lab, cluster: &Cluster) -> Result<(), String> {
    let families = node::families(&cluster.world);
    try_join_all(cluster.world.nodes.iter().map(async |place| {
        let families = families.clone();
        let work = move || families.iter().try_for_each(|family| Netlink.delete(*family, &|_| true).map(|_| ()));
        let done = lab.run(&Place::Node(place.name.clone()), work).await.map_err(|error| error.to_string())?;
        done.map_err(|error| format!("node/{}: forgetting connections: {error}", place.name))
    }))
    .await
    .map(|_| ())
}

/// Rules by table and chain. The kernel's own chains are there or not, and say nothing while they are empty.
fn by_chain(text: &str) -> BTreeMap<(&str, &str), Vec<&str>> {
    let mut chains: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    let mut table = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some(declared) = line.strip_prefix(':') {
            let mut words = declared.split(' ');
            if let (Some(chain), Some("-")) = (words.next(), words.next()) {
                chains.entry((table, chain)).or_default();
            }
        } else if let Some(rule) = line.strip_prefix("-A ") {
            let (chain, rule) = rule.split_once(' ').unwrap_or((rule, ""));
            chains.entry((table, chain)).or_default().push(rule);
        }
    }
    chains
}

/// The guard of the loopback range, and the jump to it. It stays when a proxy needs it no more, on purpose: `route_localnet`
/// may have been set for good.
const GUARD: &str = "KUBE-FIREWALL";
const GUARDED: &str = "-j KUBE-FIREWALL";

/// Lets the order of jumps in the kernel's own chains go: one that somebody has taken away comes back before the others, and no two
/// of them lead to rules about the same packets.
fn sort_jumps(chains: &mut BTreeMap<(&str, &str), Vec<&str>>) {
    let own = chains.iter_mut().filter(|((_, chain), _)| !chain.starts_with("KUBE-"));
    own.for_each(|(_, rules)| rules.sort_unstable());
}

/// Whether the tables are those of a clean start.
fn same(found: &Dump, fresh: &Dump) -> Result<(), String> {
    for (found, fresh) in [(&found.v4, &fresh.v4), (&found.v6, &fresh.v6)] {
        let (mut found, mut fresh) = (by_chain(found), by_chain(fresh));
        sort_jumps(&mut found);
        sort_jumps(&mut fresh);
        if !fresh.contains_key(&("filter", GUARD)) {
            found.remove(&("filter", GUARD));
            found.values_mut().for_each(|rules| rules.retain(|rule| *rule != GUARDED));
        }
        let chains = found.keys().chain(fresh.keys());
        if let Some(at) = chains.into_iter().find(|at| found.get(at) != fresh.get(at)) {
            let rules = |of: &BTreeMap<_, Vec<&str>>| match of.get(at) {
                Some(rules) => format!("  {}", rules.join("\n  ")),
                None => "  no such chain".to_owned(),
            };
            let (table, chain) = at;
            let (found, fresh) = (rules(&found), rules(&fresh));
            return Err(format!("{table} {chain} is\n{found}\nand after a clean start it is\n{fresh}"));
        }
    }
    Ok(())
}
