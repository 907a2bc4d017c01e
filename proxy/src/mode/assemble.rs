//! Assembles one family's proxy from the configuration and the mode's kernel adapters: for the daemon, `svcproxy
//! render`, tests and benchmarks.

use std::net::IpAddr;

use super::family::FamilyProxy;
use super::iptables_family::ipvs::kernel::IpvsKernel;
use super::iptables_family::{iptables, ipvs, userspace};
use super::localhost::LocalhostNodePorts;
use super::nftables;
use crate::config::Config;
use crate::kernel::nftables::NftTable;
use crate::kernel::packet_filter::PacketFilter;
use crate::model::Family;
use crate::plan::node::node_port_relay;
use crate::relay::Relays;

pub fn iptables<K: PacketFilter>(
    config: &Config,
    family: Family,
    kernel: K,
) -> FamilyProxy<iptables::syncer::IptablesSyncer<K>> {
    let mode = iptables::syncer::IptablesSyncer::new(kernel, config.service_counters.is_some());
    FamilyProxy::with_mode(config.clone(), family, mode)
}

pub fn ipvs<K: IpvsKernel>(config: &Config, family: Family, kernel: K) -> FamilyProxy<ipvs::syncer::IpvsSyncer<K>> {
    FamilyProxy::with_mode(config.clone(), family, ipvs::syncer::IpvsSyncer::new(kernel, config.ipvs.clone()))
}

pub fn userspace<K: PacketFilter, R: Relays>(
    config: &Config,
    family: Family,
    kernel: K,
    relays: R,
) -> FamilyProxy<userspace::syncer::UserspaceSyncer<K, R>> {
    let mode = userspace::syncer::UserspaceSyncer::new(kernel, relays, config.port_range);
    FamilyProxy::with_mode(config.clone(), family, mode)
}

/// `relays` opens the relays of node ports on the given loopback address. Called only if the configuration asks for
/// relays.
pub fn nftables<T: NftTable, R: Relays + Send + 'static>(
    config: &Config,
    family: Family,
    table: T,
    relays: impl FnOnce(IpAddr) -> R,
) -> FamilyProxy<nftables::syncer::NftablesSyncer<T>> {
    let proxy = FamilyProxy::with_mode(
        config.clone(),
        family,
        nftables::syncer::NftablesSyncer::new(table).counting(config.service_counters.clone()),
    );
    match node_port_relay(config, family) {
        Some(address) => proxy.with_companion(LocalhostNodePorts::new(relays(address))),
        None => proxy,
    }
}
