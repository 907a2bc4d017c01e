//! Removes IPVS mode's objects, also kube-proxy's.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::kernel::IpvsObjects;
use super::observed::ObservedState;
use super::sets::SetId;
use crate::kernel::conntrack::{Conntrack, FlowFilter};
use crate::kernel::dummy::AddressChange;
use crate::kernel::ipvs::{ServerChange, ServerKey};
use crate::kernel::netlink::NetlinkError;
use crate::model::Family;
use crate::plan::stale_flows::{Flow, needs_conntrack_cleanup};

const POLL_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum TeardownError {
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    #[error("cannot delete the conntrack entries of flows through IPVS: {0}")]
    Flows(std::io::Error),
    #[error("cannot read the source addresses of conntrack entries: {0}")]
    Clients(std::io::Error),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TeardownCount {
    pub removed: usize,
    pub spared: usize,
}

/// Removes one family's objects; with `gently` only virtual servers without connections, and the sets once all servers
/// are gone. The caller has removed the rules that refer to the sets.
pub fn tear_down<K: IpvsObjects>(kernel: &mut K, family: Family, gently: bool) -> Result<TeardownCount, NetlinkError> {
    TeardownBatch::list(kernel, family, gently)?.remove(kernel, &BTreeSet::new())
}

struct TeardownBatch {
    family: Family,
    observed: ObservedState,
    idle: ServerKeys,
    busy: ServerKeys,
}

impl TeardownBatch {
    fn list<K: IpvsObjects>(kernel: &mut K, family: Family, gently: bool) -> Result<TeardownBatch, NetlinkError> {
        let observed = existing_sets(kernel, family)?;
        let ours: ServerKeys = kernel.servers().servers(family)?.into_keys().filter(|key| observed.owns(key)).collect();
        let (busy, idle) = if gently { busy(kernel, ours)? } else { (Vec::new(), ours) };
        Ok(TeardownBatch { family, observed, idle, busy })
    }

    fn addresses<K: IpvsObjects>(&self, kernel: &mut K) -> Result<BTreeSet<IpAddr>, NetlinkError> {
        let ours = |address: &IpAddr| self.observed.has(SetId::IpvsIps, crate::kernel::ipset::SetMember::Ip(*address));
        Ok(kernel.device().addresses(self.family)?.into_keys().filter(ours).collect())
    }

    fn remove<K: IpvsObjects>(self, kernel: &mut K, used: &BTreeSet<IpAddr>) -> Result<TeardownCount, NetlinkError> {
        let addresses = self.addresses(kernel)?;
        let TeardownBatch { family, observed, idle, busy } = self;
        let mut left = TeardownCount { removed: idle.len(), spared: busy.len() };
        let deletions: Vec<ServerChange> = idle.into_iter().map(ServerChange::Delete).collect();
        kernel.servers().change_servers(&deletions)?;
        let served: BTreeSet<IpAddr> = busy.iter().map(|key| key.address.ip()).collect();
        let (kept, gone): (Vec<IpAddr>, Vec<IpAddr>) =
            addresses.into_iter().partition(|address| served.contains(address) || used.contains(address));
        left.removed += gone.len();
        left.spared += kept.len();
        kernel.device().change_addresses(&gone.into_iter().map(AddressChange::Unbind).collect::<Vec<_>>())?;
        if left.spared == 0 {
            for set in observed.sets.keys() {
                kernel.sets().destroy_set(&set.name(family))?;
                left.removed += 1;
            }
        }
        Ok(left)
    }
}

pub fn remove_empty_device<K: IpvsObjects>(kernel: &mut K) -> Result<(), NetlinkError> {
    for family in Family::ALL {
        if !kernel.device().addresses(family)?.is_empty() {
            return Ok(());
        }
    }
    kernel.device().remove_device()
}

fn existing_sets<K: IpvsObjects>(kernel: &mut K, family: Family) -> Result<ObservedState, NetlinkError> {
    let mut observed = ObservedState::default();
    for set in SetId::ALL {
        if let Some(found) = kernel.sets().set(&set.name(family))?.filter(|found| found.kind == set.kind().as_str()) {
            observed.sets.insert(set, found.members);
        }
    }
    Ok(observed)
}

type ServerKeys = Vec<ServerKey>;

fn busy<K: IpvsObjects>(kernel: &mut K, keys: ServerKeys) -> Result<(ServerKeys, ServerKeys), NetlinkError> {
    let states = kernel.servers().destinations(&keys)?;
    let has_connections: Vec<bool> =
        states.iter().map(|all| all.values().any(|destination| destination.connections > 0)).collect();
    let (busy, idle): (Vec<_>, Vec<_>) = keys.into_iter().zip(has_connections).partition(|(_, busy)| *busy);
    let keys = |pairs: Vec<(ServerKey, bool)>| pairs.into_iter().map(|(key, _)| key).collect();
    Ok((keys(busy), keys(idle)))
}

/// A teardown after a start in another mode. TCP connections through IPVS continue until they end or the time limit is
/// over. UDP flows last while their client sends, so their conntrack entries are deleted before their virtual server.
///
/// The node's own connections to a bound service address have it as source in every mode. The address stays while flows
/// use it; new connections use the node's own address.
pub struct IpvsTeardown<K, C> {
    kernel: K,
    conntrack: C,
    own: Vec<IpAddr>,
    yielded: BTreeSet<IpAddr>,
    began: Option<Instant>,
    limit: Duration,
}

impl<K: IpvsObjects, C: Conntrack> IpvsTeardown<K, C> {
    /// `own`: the node's addresses, each family's preferred one first.
    pub fn new(kernel: K, conntrack: C, own: Vec<IpAddr>, limit: Duration) -> IpvsTeardown<K, C> {
        IpvsTeardown { kernel, conntrack, own, yielded: BTreeSet::new(), began: None, limit }
    }

    /// Removes unused objects. Returns the time of the next call, if needed.
    pub fn work(&mut self, now: Instant) -> Result<Option<Instant>, TeardownError> {
        let began = *self.began.get_or_insert(now);
        let gently = now.saturating_duration_since(began) < self.limit;
        let mut spared = 0;
        for family in Family::ALL {
            let batch = TeardownBatch::list(&mut self.kernel, family, gently)?;
            self.forget_flows(family, &batch.idle)?;
            let used = if gently { self.used(&batch)? } else { BTreeSet::new() };
            spared += batch.remove(&mut self.kernel, &used)?.spared;
        }
        if spared > 0 {
            return Ok(Some(now + POLL_INTERVAL));
        }
        remove_empty_device(&mut self.kernel)?;
        Ok(None)
    }

    /// Makes the kernel prefer the node's own address. Returns bound addresses that are sources of existing flows.
    fn used(&mut self, batch: &TeardownBatch) -> Result<BTreeSet<IpAddr>, TeardownError> {
        let addresses = batch.addresses(&mut self.kernel)?;
        if let Some(own) = self.own.iter().copied().find(|own| Family::of(own) == batch.family) {
            let fresh: Vec<IpAddr> = addresses.difference(&self.yielded).copied().collect();
            let changes: Vec<AddressChange> =
                fresh.iter().map(|address| AddressChange::Yield { address: *address, to: own }).collect();
            self.kernel.device().change_addresses(&changes)?;
            self.yielded.extend(fresh);
        }
        if addresses.is_empty() {
            return Ok(addresses);
        }
        let clients = self.conntrack.clients(batch.family).map_err(TeardownError::Clients)?;
        Ok(addresses.intersection(&clients).copied().collect())
    }

    fn forget_flows(&mut self, family: Family, servers: &[ServerKey]) -> Result<(), TeardownError> {
        let keys: BTreeSet<&ServerKey> = servers.iter().filter(|key| needs_conntrack_cleanup(key.protocol)).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let by_ipvs = |flow: &Flow| {
            flow.by_ipvs && keys.contains(&ServerKey { protocol: flow.protocol, address: flow.destination })
        };
        self.conntrack.delete(family, &[FlowFilter::None], &by_ipvs).map(drop).map_err(TeardownError::Flows)
    }

    pub fn into_kernel(self) -> (K, C) {
        (self.kernel, self.conntrack)
    }
}
