//! Takes away what this mode, in this proxy or in kube-proxy, has left besides rules: virtual servers, addresses, sets and
//! the device. What other programs made stays.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::kernel::IpvsObjects;
use super::observed::ObservedState;
use super::sets::SetId;
use crate::kernel::conntrack::{Conntrack, Filter};
use crate::kernel::dummy::AddressChange;
use crate::kernel::ipvs::{ServerChange, ServerKey};
use crate::kernel::netlink::NetlinkError;
use crate::model::Family;
use crate::plan::flows::{Flow, needs_conntrack_cleanup};

/// How often what is left is looked at while something needs it.
const LOOK: Duration = Duration::from_secs(5);

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum TeardownError {
    /// With virtual servers, sets or addresses.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// With conntrack's entries.
    #[error("cannot delete conntrack's entries of flows that IPVS has led: {0}")]
    Flows(std::io::Error),
    /// With reading conntrack's entries.
    #[error("cannot read who has flows through conntrack: {0}")]
    Clients(std::io::Error),
}

/// How much is still there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Left {
    /// Things taken away.
    pub removed: usize,
    /// Virtual servers and addresses that were spared.
    pub spared: usize,
}

/// Takes away what is left in one family: all of it, or (`gently`) only virtual servers without connections, and the rest
/// when none is left. Rules that refer to the sets must be gone.
///
/// # Errors
/// When the kernel refuses; what could be taken away before it is.
pub fn leave<K: IpvsObjects>(kernel: &mut K, family: Family, gently: bool) -> Result<Left, NetlinkError> {
    TeardownBatch::look(kernel, family, gently)?.go(kernel, &BTreeSet::new())
}

/// What of one family is about to go.
struct TeardownBatch {
    family: Family,
    observed: ObservedState,
    /// Virtual servers that go.
    idle: Keys,
    /// Those that are spared.
    busy: Keys,
}

impl TeardownBatch {
    fn look<K: IpvsObjects>(kernel: &mut K, family: Family, gently: bool) -> Result<TeardownBatch, NetlinkError> {
        let observed = sets_that_are(kernel, family)?;
        let ours: Keys = kernel.servers().servers(family)?.into_keys().filter(|key| observed.owns(key)).collect();
        let (busy, idle) = if gently { busy(kernel, ours)? } else { (Vec::new(), ours) };
        Ok(TeardownBatch { family, observed, idle, busy })
    }

    /// Our addresses that are still there.
    fn addresses<K: IpvsObjects>(&self, kernel: &mut K) -> Result<BTreeSet<IpAddr>, NetlinkError> {
        let ours = |address: &IpAddr| self.observed.has(SetId::IpvsIps, crate::kernel::ipset::Member::Ip(*address));
        Ok(kernel.device().addresses(self.family)?.into_keys().filter(ours).collect())
    }

    /// Makes them go, but for the addresses that are in use.
    fn go<K: IpvsObjects>(self, kernel: &mut K, used: &BTreeSet<IpAddr>) -> Result<Left, NetlinkError> {
        let addresses = self.addresses(kernel)?;
        let TeardownBatch { family, observed, idle, busy } = self;
        let mut left = Left { removed: idle.len(), spared: busy.len() };
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

/// Removes the device, if no address is left on it.
///
/// # Errors
/// When the kernel refuses.
pub fn remove_empty_device<K: IpvsObjects>(kernel: &mut K) -> Result<(), NetlinkError> {
    for family in Family::ALL {
        if !kernel.device().addresses(family)?.is_empty() {
            return Ok(());
        }
    }
    kernel.device().remove_device()
}

/// The sets that are there, with their members.
fn sets_that_are<K: IpvsObjects>(kernel: &mut K, family: Family) -> Result<ObservedState, NetlinkError> {
    let mut observed = ObservedState::default();
    for set in SetId::ALL {
        if let Some(found) = kernel.sets().set(&set.name(family))?.filter(|found| found.kind == set.kind().as_str()) {
            observed.sets.insert(set, found.members);
        }
    }
    Ok(observed)
}

type Keys = Vec<ServerKey>;

/// Virtual servers with connections, and those without.
fn busy<K: IpvsObjects>(kernel: &mut K, keys: Keys) -> Result<(Keys, Keys), NetlinkError> {
    let states = kernel.servers().destinations(&keys)?;
    let has_connections: Vec<bool> =
        states.iter().map(|all| all.values().any(|destination| destination.connections > 0)).collect();
    let (busy, idle): (Vec<_>, Vec<_>) = keys.into_iter().zip(has_connections).partition(|(_, busy)| *busy);
    let keys = |pairs: Vec<(ServerKey, bool)>| pairs.into_iter().map(|(key, _)| key).collect();
    Ok((keys(busy), keys(idle)))
}

/// What another mode's start finds of this one, which it takes away when its own rules stand: connections that IPVS leads go
/// on until they end, or their time is over.
///
/// Flows of datagrams never end while their client talks, and conntrack would keep rules from ever seeing them: they are
/// forgotten before the virtual server goes that led them, and their next packet meets the rules.
///
/// What the node itself sends to a service's address that it has bound comes from that very address, whatever leads it on.
/// So such an address stays for as long as flows come from it, and new ones come from the node's own address.
pub struct IpvsTeardown<K, C> {
    kernel: K,
    conntrack: C,
    own: Vec<IpAddr>,
    yielded: BTreeSet<IpAddr>,
    began: Option<Instant>,
    limit: Duration,
}

impl<K: IpvsObjects, C: Conntrack> IpvsTeardown<K, C> {
    /// By these kernel adapters, on a node whose own addresses are these, the preferred one of each family first; with so much
    /// time for connections.
    pub fn new(kernel: K, conntrack: C, own: Vec<IpAddr>, limit: Duration) -> IpvsTeardown<K, C> {
        IpvsTeardown { kernel, conntrack, own, yielded: BTreeSet::new(), began: None, limit }
    }

    /// Takes away what can go; when to come again, if anything is left.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn work(&mut self, now: Instant) -> Result<Option<Instant>, TeardownError> {
        let began = *self.began.get_or_insert(now);
        let gently = now.saturating_duration_since(began) < self.limit;
        let mut spared = 0;
        for family in Family::ALL {
            let batch = TeardownBatch::look(&mut self.kernel, family, gently)?;
            self.forget_flows(family, &batch.idle)?;
            let used = if gently { self.used(&batch)? } else { BTreeSet::new() };
            spared += batch.go(&mut self.kernel, &used)?.spared;
        }
        if spared > 0 {
            return Ok(Some(now + LOOK));
        }
        remove_empty_device(&mut self.kernel)?;
        Ok(None)
    }

    /// Lets addresses yield, and then says which of them flows still come from.
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

    fn forget_flows(&mut self, family: Family, led_by: &[ServerKey]) -> Result<(), TeardownError> {
        let keys: BTreeSet<&ServerKey> = led_by.iter().filter(|key| needs_conntrack_cleanup(key.protocol)).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let was_led = |flow: &Flow| {
            flow.by_ipvs && keys.contains(&ServerKey { protocol: flow.protocol, address: flow.destination })
        };
        self.conntrack.delete(family, &[Filter::None], &was_led).map(drop).map_err(TeardownError::Flows)
    }

    /// The kernel adapters, for tests.
    pub fn into_kernel(self) -> (K, C) {
        (self.kernel, self.conntrack)
    }
}
