//! Opens the kernel's tables in each mode, after a probe of what they need.

use std::sync::Arc;

use anyhow::Context;
use tracing::{info, warn};

use super::leftovers::{self, all};
use super::other_variant;
use crate::config::{Config, Variant};
use crate::daemon::LeftoverCleanup;
use crate::kernel::descriptors::DescriptorShares;
use crate::kernel::nftables::{FlowtableSpec, NetlinkFlowtable, NetlinkTable};
use crate::kernel::writer::{CounterReader, IptablesWriter, OpenedWriter};
use crate::kernel::{input_policy, limits};
use crate::metrics::{AtScrape, localhost, relays, rules, traffic};
use crate::mode::Mode;
use crate::mode::assemble;
use crate::mode::family::FamilyProxy;
use crate::mode::flowtable::LongConnections;
use crate::mode::iptables_family::ipvs::kernel::LinuxIpvs;
use crate::mode::iptables_family::{iptables, ipvs, userspace};
use crate::mode::nftables::flowtable as of_flowtable;
use crate::mode::nftables::{self, layout};
use crate::model::{Family, LoadBalancing};
use crate::plan::BalancingIgnored;
use crate::plan::node::ranges_without_relay;
use crate::relay::{self, RelayEngine};

pub(super) struct OpenedMode<M> {
    pub(super) proxies: Vec<FamilyProxy<M>>,
    pub(super) counters: Vec<(Family, CounterReader)>,
    pub(super) nft: bool,
    pub(super) leftovers: Option<LeftoverCleanup>,
    pub(super) metrics: Vec<AtScrape>,
}

fn open_iptables<M: Mode>(
    config: &Config,
    mut assemble: impl FnMut(Family, IptablesWriter) -> anyhow::Result<FamilyProxy<M>>,
) -> anyhow::Result<OpenedMode<M>> {
    let (mut proxies, mut counters) = (Vec::new(), Vec::new());
    let mut nft = config.variant == Variant::Nft;
    for family in Family::ALL {
        let opened = IptablesWriter::open(family, config.variant, config.writer).and_then(|mut opened| {
            nft = opened.writer.is_nft();
            opened.writer.probe()?;
            Ok(opened)
        });
        match opened {
            Ok(OpenedWriter { writer, because }) => {
                info!(%family, writer = writer.name(), "how the tables are written: {because}");
                other_variant::warn_about_rules(family, nft);
                counters.push((family, writer.counters()));
                proxies.push(assemble(family, writer)?);
            }
            // As in kube-proxy: a node may lack one family.
            Err(error) if family != config.primary_family => warn!(%family, %error, "this family is not proxied"),
            Err(error) => return Err(error).with_context(|| format!("cannot proxy {family}, the primary family")),
        }
    }
    Ok(OpenedMode { proxies, counters, nft, leftovers: None, metrics: Vec::new() })
}

pub(super) fn ipvs(config: &Config) -> anyhow::Result<OpenedMode<ipvs::syncer::IpvsSyncer<LinuxIpvs<IptablesWriter>>>> {
    let mut usable =
        open_iptables(config, |family, writer| Ok(assemble::ipvs(config, family, LinuxIpvs::open(writer)?)))?;
    for family in usable.proxies.iter().map(FamilyProxy::family) {
        for chain in input_policy::dropping(family) {
            warn!(
                %family,
                "{chain} has policy drop: in IPVS mode packets to services pass the hook input, and are dropped unless a rule \
                 accepts them; accept the addresses and node ports of services there"
            );
        }
    }
    usable.leftovers = all(vec![leftovers::nftables(&usable.proxies)]);
    Ok(usable)
}

pub(super) fn userspace(
    config: &Config,
    shares: DescriptorShares,
) -> anyhow::Result<OpenedMode<userspace::syncer::UserspaceSyncer<IptablesWriter, RelayEngine>>> {
    let (shared, mut stats) = (relays(config, shares), Vec::new());
    let mut usable = open_iptables(config, |family, writer| {
        let relays = RelayEngine::new(family, Arc::clone(&shared));
        stats.push((family, relays.stats()));
        Ok(assemble::userspace(config, family, writer, relays))
    })?;
    usable.leftovers = all(vec![leftovers::ipvs(config), leftovers::nftables(&usable.proxies)]);
    usable.metrics.extend(invalid_packets(config, &usable.counters)?);
    usable.metrics.push(relays::metrics(stats)?);
    Ok(usable)
}

pub(super) fn iptables(
    config: &Config,
) -> anyhow::Result<OpenedMode<iptables::syncer::IptablesSyncer<IptablesWriter>>> {
    let mut usable = open_iptables(config, |family, writer| Ok(assemble::iptables(config, family, writer)))?;
    usable.leftovers = all(vec![leftovers::ipvs(config), leftovers::nftables(&usable.proxies)]);
    usable.metrics.extend(invalid_packets(config, &usable.counters)?);
    if config.count_localhost_node_ports {
        let counters = usable.counters.iter().map(|(_, one)| one.clone()).collect();
        usable.metrics.push(rules::localhost_node_ports(counters)?);
    }
    if let Some(selection) = &config.service_counters {
        usable.metrics.push(rules::service_ports(usable.counters.clone(), selection.clone())?);
    }
    Ok(usable)
}

/// Relayed connections may be idle as long as conntrack keeps their entries.
fn relays(config: &Config, shares: DescriptorShares) -> Arc<relay::engine::RelayShared> {
    let limits = relay::limits::RelayLimits::of(shares.relays);
    info!(
        listeners = limits.listeners,
        connections = limits.connections,
        associations = limits.associations,
        "limits of the relays"
    );
    let timeouts = limits::timeouts(&config.conntrack);
    let tcp = relay::tcp::TcpTimeouts { idle: timeouts.tcp_established, half_closed: timeouts.tcp_close_wait };
    let udp = relay::udp::UdpTimeouts { single: timeouts.udp, conversation: timeouts.udp_stream };
    relay::engine::RelayShared::new(limits, tcp, udp)
}

/// `None` if no rule drops INVALID packets, to save reading counters.
fn invalid_packets(config: &Config, counters: &[(Family, CounterReader)]) -> anyhow::Result<Option<AtScrape>> {
    let of_all_families = || rules::invalid_packets(counters.iter().map(|(_, one)| one.clone()).collect());
    Ok((!config.tcp_be_liberal).then(of_all_families).transpose()?)
}

/// Probes the kernel's features first.
pub(super) fn nftables(
    config: &Config,
    shares: DescriptorShares,
) -> anyhow::Result<OpenedMode<nftables::syncer::NftablesSyncer<NetlinkTable>>> {
    let (mut proxies, mut stats) = (Vec::new(), Vec::new());
    for range in ranges_without_relay(config) {
        warn!(
            "nodePortAddresses (--nodeport-addresses): node ports do not answer in {range}: the only loopback addresses for them are 127.0.0.1 and ::1"
        );
    }
    let mut shared = None;
    for family in Family::ALL {
        let probe = nftables::syncer::probe(family, config.service_counters.is_some());
        let opened = NetlinkTable::probe(family, layout::PROBE, &probe)
            .and_then(|()| NetlinkTable::open(family, layout::TABLE, layout::COMMENT));
        match opened {
            Ok(table) => {
                let config = &Config { kernel_hashes: hashes(config, family), ..config.clone() };
                let proxy = assemble::nftables(config, family, table, |address| {
                    let shared = shared.get_or_insert_with(|| relays(config, shares));
                    let relays = RelayEngine::on(address, Arc::clone(shared));
                    stats.push((family, relays.stats()));
                    relays
                });
                proxies.push(match flowtable(config, family) {
                    Some(flowtable) => proxy.with_companion(LongConnections::new(flowtable)),
                    None => proxy,
                });
            }
            Err(error) if family != config.primary_family => warn!(%family, %error, "this family is not proxied"),
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot proxy {family}, the primary family, in nftables mode"));
            }
        }
    }
    let families: Vec<Family> = proxies.iter().map(FamilyProxy::family).collect();
    let counted = proxies.iter_mut().map(|proxy| (proxy.family(), proxy.mode().left_out())).collect();
    let without = if config.flowtable { None } else { leftovers::flowtables(&proxies) };
    let leftovers = all(vec![leftovers::ipvs(config), leftovers::iptables(families), without]);
    let mut metrics = if stats.is_empty() {
        Vec::new()
    } else {
        vec![
            localhost::listeners(stats.clone())?,
            localhost::rejected(stats.iter().map(|(family, _)| *family))?,
            relays::metrics(stats)?,
        ]
    };
    if config.service_counters.is_some() {
        metrics.push(traffic::service_ports(counted)?);
    }
    Ok(OpenedMode { proxies, counters: Vec::new(), nft: true, leftovers, metrics })
}

/// Returns whether the kernel can choose endpoints by a hash.
fn hashes(config: &Config, family: Family) -> bool {
    let probed = NetlinkTable::probe(family, layout::PROBE, &nftables::syncer::hash_probe(family));
    if let (Err(error), true) = (&probed, config.load_balancing != LoadBalancing::Random) {
        let wanted = config.load_balancing;
        warn!(%family, %error, "loadBalancing (--load-balancing) {wanted} has no effect: {}", BalancingIgnored::Kernel);
    }
    probed.is_ok()
}

fn flowtable(config: &Config, family: Family) -> Option<NetlinkFlowtable> {
    let spec = |table| FlowtableSpec {
        table,
        comment: of_flowtable::COMMENT,
        name: of_flowtable::FLOWTABLE,
        priority: of_flowtable::PRIORITY,
        chain: of_flowtable::chain(),
    };
    let opened = || {
        NetlinkFlowtable::probe(family, spec(of_flowtable::PROBE))?;
        NetlinkFlowtable::open(family, spec(of_flowtable::TABLE))
    };
    let opened = config.flowtable.then(opened)?;
    opened
        .inspect_err(|error| {
            warn!(%family, %error, "nftables.flowtable (--nftables-flowtable) has no effect: this kernel, or this namespace, has no flowtables");
        })
        .ok()
}
