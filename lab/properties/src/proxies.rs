//! Proxies with kernels in memory, and these kernels' listings.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use svclab_oracle::{ClusterModel, Mode, Objects, World};
use svclab_sim::protocol::Protocol as Number;
use svcproxy::config::Config;
use svcproxy::kernel;
use svcproxy::kernel::dummy::{AddressState, DEVICE};
use svcproxy::kernel::nftables::NftTable as _;
use svcproxy::kernel::{iptables, ipvs as servers};
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::iptables_family::iptables::syncer::IptablesSyncer;
use svcproxy::mode::iptables_family::ipvs::kernel::FakeIpvsKernel as IpvsKernel;
use svcproxy::mode::iptables_family::ipvs::syncer::IpvsSyncer;
use svcproxy::mode::iptables_family::rules::cleanup::cleanup;
use svcproxy::mode::iptables_family::userspace::syncer::UserspaceSyncer;
use svcproxy::mode::localhost::LocalhostNodePorts;
use svcproxy::mode::nftables::layout;
use svcproxy::mode::nftables::syncer::NftablesSyncer;
use svcproxy::model::{Change, Family, Protocol, ServicePortName};
use svcproxy::nftables::Element;
use svcproxy::nftables::text::Table;
use svcproxy::relay::{self, Listener, RelayBackends};
use svcproxy::source;

use crate::node;
use svclab_sim::relays::{Relay, RelayPort, Relays};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dump {
    /// `iptables-save`.
    pub v4: String,
    /// `ip6tables-save`.
    pub v6: String,
    /// `nft list ruleset`.
    pub nft: String,
    /// `ipset save`.
    pub sets: String,
    /// `ipvsadm -Sn`.
    pub servers: String,
    /// The addresses of `kube-ipvs0` as `ip addr add` lines.
    pub addresses: String,
    /// The listening ports of relays, which no command lists.
    pub relays: Relays,
}

#[derive(Debug, Clone)]
pub enum Kernel {
    Iptables(iptables::FakeIptables),
    Ipvs(Box<IpvsKernel>),
    /// Userspace mode; the relays' sockets close with the proxy.
    Userspace(Box<(iptables::FakeIptables, relay::FakeRelays)>),
    /// nftables mode, with relays for loopback addresses.
    Nftables(Box<(kernel::nftables::FakeNftTable, Option<relay::FakeRelays>)>),
}

impl Kernel {
    pub fn new(mode: Mode, family: Family) -> Kernel {
        match mode {
            Mode::Ipvs => Kernel::Ipvs(Box::default()),
            // svcproxy has no other mode.
            Mode::Iptables | Mode::Other => Kernel::Iptables(iptables::FakeIptables::default()),
            Mode::Userspace => Kernel::Userspace(Box::default()),
            Mode::Nftables => Kernel::Nftables(Box::new((kernel::nftables::FakeNftTable::new(family), None))),
        }
    }

    /// Returns the iptables tables; `None` in nftables mode.
    pub fn rules(&mut self) -> Option<&mut iptables::FakeIptables> {
        match self {
            Kernel::Iptables(rules) => Some(rules),
            Kernel::Ipvs(all) => Some(&mut all.rules),
            Kernel::Userspace(all) => Some(&mut all.0),
            Kernel::Nftables(_) => None,
        }
    }

    pub fn clean_up(&mut self) -> Result<(), String> {
        match self {
            Kernel::Nftables(all) => all.0.delete().map(drop).map_err(|error| error.to_string()),
            _ => match self.rules() {
                Some(rules) => cleanup(rules).map(drop).map_err(|error| error.to_string()),
                None => Ok(()),
            },
        }
    }

    fn dump(&self, family: Family, into: &mut Dump) {
        let rules = match self {
            Kernel::Iptables(rules) => rules,
            Kernel::Ipvs(all) => &all.rules,
            Kernel::Userspace(all) => &all.0,
            Kernel::Nftables(all) => {
                into.nft.push_str(&listed(family, &all.0));
                let Some(listeners) = &all.1 else { return };
                let listening = listeners.listening.iter().map(|(listener, port)| (listener, *port));
                let mut found = relays(family, listening, |name| listeners.active.get(name).cloned());
                found.values_mut().for_each(|relay| relay.address = Some(family.localhost()));
                into.relays.extend(found);
                return;
            }
        };
        let text = saved(rules);
        match family {
            Family::V4 => into.v4 = text,
            Family::V6 => into.v6 = text,
        }
        match self {
            Kernel::Iptables(_) | Kernel::Nftables(_) => {}
            Kernel::Ipvs(all) => dump_ipvs(all, into),
            Kernel::Userspace(all) => {
                let listening = all.1.listening.iter().map(|(listener, port)| (listener, *port));
                into.relays.extend(relays(family, listening, |name| all.1.active.get(name).cloned()));
            }
        }
    }
}

fn of_simulator(family: Family) -> svclab_sim::protocol::Family {
    match family {
        Family::V4 => svclab_sim::protocol::Family::V4,
        Family::V6 => svclab_sim::protocol::Family::V6,
    }
}

/// `led` returns the backends of a service port.
pub fn relays<'a>(
    family: Family,
    listening: impl IntoIterator<Item = (&'a Listener, u16)>,
    led: impl Fn(&ServicePortName) -> Option<RelayBackends>,
) -> Relays {
    let family = of_simulator(family);
    let endpoints = |listener: &Listener| led(&listener.name).map(|led| led.set(listener.set).to_vec());
    let relays = listening.into_iter().map(|(listener, port)| {
        let protocol = match listener.name.protocol {
            Protocol::Tcp => Number::TCP,
            Protocol::Udp => Number::UDP,
            Protocol::Sctp => Number::SCTP,
        };
        // The name stays empty: comparisons use the backends.
        let relay = Relay { to: endpoints(listener).unwrap_or_default(), ..Relay::default() };
        ((family, protocol, port), relay)
    });
    relays.collect()
}

pub fn localhost_relay(family: Family, address: IpAddr, port: u16, to: &[SocketAddr]) -> (RelayPort, Relay) {
    let family = of_simulator(family);
    let relay = Relay { to: to.to_vec(), address: Some(address), ..Relay::default() };
    ((family, Number::TCP, port), relay)
}

fn dump_ipvs(all: &IpvsKernel, into: &mut Dump) {
    for (header, members) in all.sets.sets.values() {
        let _ = writeln!(into.sets, "{header}");
        for member in members {
            let _ = writeln!(into.sets, "add {} {member}", header.name);
        }
    }
    for (key, (spec, destinations)) in &all.servers.servers {
        let _ = write!(into.servers, "-A {key} -s {}", spec.scheduler);
        if let Some(seconds) = spec.persistence {
            let _ = write!(into.servers, " -p {seconds}");
        }
        if spec.flags & servers::FLAG_SCHED2 != 0 {
            let _ = write!(into.servers, " -b {}-port", spec.scheduler);
        }
        into.servers.push('\n');
        for (address, state) in destinations {
            let _ = writeln!(into.servers, "-a {key} -r {address} -m -w {}", state.weight);
        }
    }
    for (address, state) in all.device.addresses.iter().flatten() {
        let length = if address.is_ipv4() { 32 } else { 128 };
        let preferred = if *state == AddressState::Deprecated { " preferred_lft 0" } else { "" };
        let _ = writeln!(into.addresses, "ip addr add {address}/{length} dev {DEVICE}{preferred}");
    }
}

fn listed(family: Family, kernel: &kernel::nftables::FakeNftTable) -> String {
    let Some(content) = &kernel.table else { return String::new() };
    let sets: Vec<_> = content.sets.iter().map(|(name, set)| (name.clone(), set.clone())).collect();
    let chains: Vec<_> = content.chains.iter().map(|(name, chain)| (name.clone(), chain.clone())).collect();
    let elements = content.elements.iter().map(|((set, key), value)| Element { set, key: *key, value: value.clone() });
    let elements: Vec<Element> = elements.collect();
    let (name, comment) = (layout::TABLE, layout::COMMENT);
    let counters: Vec<_> = content.counters.iter().cloned().collect();
    let (counters, sets, chains, elements) = (&counters, &sets, &chains, &elements);
    Table { name, comment, family, counters, sets, flowtable: None, chains, elements }.to_string()
}

fn saved(kernel: &iptables::FakeIptables) -> String {
    let built_in = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
    let mut text = String::new();
    for (table, chains) in &kernel.tables {
        let _ = writeln!(text, "*{table}");
        for chain in chains.keys() {
            let policy = if built_in.contains(&chain.as_str()) { "ACCEPT" } else { "-" };
            let _ = writeln!(text, ":{chain} {policy} [0:0]");
        }
        for (chain, rules) in chains {
            for rule in rules {
                let _ = writeln!(text, "{}", format!("-A {chain} {rule}").trim_end());
            }
        }
        text.push_str("COMMIT\n");
    }
    text
}

enum ModeProxy {
    Iptables(Box<FamilyProxy<IptablesSyncer<iptables::FakeIptables>>>),
    Ipvs(Box<FamilyProxy<IpvsSyncer<IpvsKernel>>>),
    Userspace(Box<FamilyProxy<UserspaceSyncer<iptables::FakeIptables, relay::FakeRelays>>>),
    Nftables(Box<FamilyProxy<NftablesSyncer<kernel::nftables::FakeNftTable>>>),
}

pub struct Proxies {
    of: Vec<(Family, ModeProxy)>,
}

macro_rules! each {
    ($proxy:expr, $name:ident => $body:expr) => {
        match $proxy {
            ModeProxy::Iptables($name) => $body,
            ModeProxy::Ipvs($name) => $body,
            ModeProxy::Userspace($name) => $body,
            ModeProxy::Nftables($name) => $body,
        }
    };
}

impl Proxies {
    pub fn start(world: &World, node: &str, kernels: Vec<Kernel>) -> Proxies {
        let config = node::config(world, node);
        let place = world.nodes.iter().find(|place| place.name == node);
        let addresses = place.map(|place| node::addresses(world, place)).unwrap_or_default();
        let of = node::families(world).into_iter().zip(kernels).map(|(family, kernel)| {
            let mut proxy = ModeProxy::new(&config, family, kernel);
            each!(&mut proxy, proxy => proxy.set_addresses(&addresses));
            (family, proxy)
        });
        Proxies { of: of.collect() }
    }

    pub fn fresh(world: &World, node: &str) -> Proxies {
        let kernels = node::families(world).iter().map(|family| Kernel::new(world.proxy.mode, *family)).collect();
        Proxies::start(world, node, kernels)
    }

    pub fn synced(cluster: &ClusterModel, node: &str) -> Result<Proxies, String> {
        let mut proxies = Proxies::fresh(&cluster.world, node);
        proxies.apply(&accepted(&cluster.objects)?);
        proxies.sync()?;
        Ok(proxies)
    }

    pub fn apply(&mut self, changes: &[Change]) {
        for (_, proxy) in &mut self.of {
            each!(proxy, proxy => proxy.apply(changes));
        }
    }

    pub fn require_full_sync(&mut self) {
        for (_, proxy) in &mut self.of {
            each!(proxy, proxy => proxy.require_full_sync());
        }
    }

    pub fn sync(&mut self) -> Result<bool, String> {
        let mut sent = false;
        for (_, proxy) in &mut self.of {
            let report = each!(proxy, proxy => proxy.sync().map_err(|error| error.to_string())?);
            sent |= !report.is_empty();
        }
        Ok(sent)
    }

    /// Runs delayed work, such as the deletion of unused nftables chains.
    pub fn finish(&mut self) -> Result<(), String> {
        let later = Instant::now() + Duration::from_secs(60);
        for (_, proxy) in &mut self.of {
            if let ModeProxy::Nftables(proxy) = proxy {
                proxy.follow_up(later).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    pub fn kernels(&mut self) -> Vec<Kernel> {
        let kernels = self.of.iter_mut().map(|(_, proxy)| match proxy {
            ModeProxy::Iptables(proxy) => Kernel::Iptables(proxy.mode().kernel().clone()),
            ModeProxy::Ipvs(proxy) => Kernel::Ipvs(Box::new(proxy.mode().kernel().clone())),
            ModeProxy::Nftables(proxy) => {
                let relays = proxy
                    .companion()
                    .map(|companion: &mut LocalhostNodePorts<relay::FakeRelays>| companion.relays().clone());
                Kernel::Nftables(Box::new((proxy.mode().table().clone(), relays)))
            }
            ModeProxy::Userspace(proxy) => {
                let syncer = proxy.mode();
                Kernel::Userspace(Box::new((syncer.kernel().clone(), syncer.relays().clone())))
            }
        });
        kernels.collect()
    }

    pub fn dump(&mut self) -> Dump {
        let families: Vec<Family> = self.of.iter().map(|(family, _)| *family).collect();
        dump(&families, &self.kernels())
    }
}

pub fn dump(families: &[Family], kernels: &[Kernel]) -> Dump {
    let mut dump = Dump::default();
    for (family, kernel) in families.iter().zip(kernels) {
        kernel.dump(*family, &mut dump);
    }
    dump
}

impl ModeProxy {
    fn new(config: &Config, family: Family, kernel: Kernel) -> ModeProxy {
        match kernel {
            Kernel::Iptables(kernel) => ModeProxy::Iptables(Box::new(assemble::iptables(config, family, kernel))),
            Kernel::Ipvs(kernel) => ModeProxy::Ipvs(Box::new(assemble::ipvs(config, family, *kernel))),
            Kernel::Nftables(kernel) => {
                let proxy = assemble::nftables(config, family, kernel.0, |_| relay::FakeRelays::default());
                ModeProxy::Nftables(Box::new(proxy))
            }
            Kernel::Userspace(all) => {
                ModeProxy::Userspace(Box::new(assemble::userspace(config, family, all.0, relay::FakeRelays::default())))
            }
        }
    }
}

/// Returns the changes, and errors of objects that the source refuses.
pub fn changes(objects: &Objects) -> (Vec<Change>, Vec<String>) {
    let (mut changes, mut refused) = (Vec::new(), Vec::new());
    let mut take = |outcome: Result<Option<Change>, String>| match outcome {
        Ok(change) => changes.extend(change),
        Err(why) => refused.push(why),
    };
    for node in &objects.nodes {
        take(source::admit_node(node.clone()).map(Some));
    }
    for cidr in &objects.service_cidrs {
        take(source::admit_service_cidr(cidr.clone()).map(Some));
    }
    for service in &objects.services {
        take(source::admit_service(service.clone()).map(Some));
    }
    for slice in &objects.slices {
        take(source::admit_endpoint_slice(slice.clone()));
    }
    (changes, refused)
}

/// The error lists refused objects.
pub fn accepted(objects: &Objects) -> Result<Vec<Change>, String> {
    match changes(objects) {
        (changes, refused) if refused.is_empty() => Ok(changes),
        (_, refused) => Err(format!("refused: {}", refused.join("; "))),
    }
}
