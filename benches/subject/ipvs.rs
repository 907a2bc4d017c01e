//! IPVS mode's kernel adapters, counted and recorded: virtual servers, sets and the device, beside the rules.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result};
use svcproxy::kernel::dummy::{AddressChange, AddressState, Device, Rtnetlink};
use svcproxy::kernel::ipset::{Nfnetlink, Set, SetChange, SetHeader, Sets};
use svcproxy::kernel::ipvs::{Destinations, Genetlink, ServerChange, ServerKey, ServerSpec, Servers};
use svcproxy::kernel::netlink::NetlinkError;
use svcproxy::mode::iptables_family::ipvs::kernel::IpvsAdapters;
use svcproxy::model::Family;

use super::kernel::{Log, ObservedNetlink, Sent};

/// What changes something other than rules.
#[derive(Debug, Clone)]
pub enum Call {
    /// Virtual servers and destinations.
    Servers(Vec<ServerChange>),
    /// A set comes.
    CreateSet(SetHeader),
    /// Members of sets.
    Sets(Vec<SetChange>),
    /// Two sets change names.
    SwapSets(String, String),
    /// A set goes.
    DestroySet(String),
    /// The device comes.
    Device,
    /// Addresses of the device.
    Addresses(Vec<AddressChange>),
}

/// The kernel's adapters as they are, to send calls once more.
pub struct Bare {
    servers: Genetlink,
    sets: Nfnetlink,
    device: Rtnetlink,
}

impl Bare {
    /// Opens their sockets in this thread's network namespace.
    ///
    /// # Errors
    /// When the kernel has no IPVS or no IP sets.
    pub fn open() -> Result<Bare> {
        Ok(Bare { servers: Genetlink::open()?, sets: Nfnetlink::open()?, device: Rtnetlink::open()? })
    }

    /// Sends a call.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn send(&mut self, call: &Call) -> Result<()> {
        match call {
            Call::Servers(changes) => self.servers.change_servers(changes),
            Call::CreateSet(header) => self.sets.create_set(header),
            Call::Sets(changes) => self.sets.change_sets(changes),
            Call::SwapSets(one, other) => self.sets.swap_sets(one, other),
            Call::DestroySet(name) => self.sets.destroy_set(name),
            Call::Device => self.device.ensure_device(),
            Call::Addresses(changes) => self.device.change_addresses(changes),
        }
        .with_context(|| format!("send once more: {call:?}"))
    }
}

/// An adapter whose calls are counted, timed and recorded.
pub struct Observed<K> {
    kernel: K,
    log: Log,
}

/// The kernel of IPVS mode.
pub type ObservedIpvs = IpvsAdapters<ObservedNetlink, Observed<Genetlink>, Observed<Nfnetlink>, Observed<Rtnetlink>>;

/// Opens all adapters.
///
/// # Errors
/// When the kernel lacks one of them.
pub fn open(family: Family, log: &Log) -> Result<ObservedIpvs> {
    Ok(IpvsAdapters {
        rules: ObservedNetlink::open(family, log.clone())?,
        servers: Observed { kernel: Genetlink::open()?, log: log.clone() },
        sets: Observed { kernel: Nfnetlink::open()?, log: log.clone() },
        device: Observed { kernel: Rtnetlink::open()?, log: log.clone() },
    })
}

impl<K> Observed<K> {
    fn list<T>(&mut self, list: impl FnOnce(&mut K) -> Result<T, NetlinkError>) -> Result<T, NetlinkError> {
        let kernel = &mut self.kernel;
        self.log.watch(|| list(kernel), |asked| asked.lists += 1)
    }

    /// `messages`: netlink messages that the call sends.
    fn change(
        &mut self,
        messages: usize,
        call: impl FnOnce() -> Call,
        change: impl FnOnce(&mut K) -> Result<(), NetlinkError>,
    ) -> Result<(), NetlinkError> {
        let kernel = &mut self.kernel;
        self.log.watch(|| change(kernel), |asked| asked.messages += messages)?;
        if messages > 0 {
            self.record(call);
        }
        Ok(())
    }

    fn record(&self, call: impl FnOnce() -> Call) {
        if let Some(sent) = &mut self.log.lock().sent {
            sent.push(Sent::Call(call()));
        }
    }
}

impl Servers for Observed<Genetlink> {
    fn servers(&mut self, family: Family) -> Result<BTreeMap<ServerKey, ServerSpec>, NetlinkError> {
        self.list(|kernel| kernel.servers(family))
    }

    fn destinations(&mut self, keys: &[ServerKey]) -> Result<Vec<Destinations>, NetlinkError> {
        self.list(|kernel| kernel.destinations(keys))
    }

    fn change_servers(&mut self, changes: &[ServerChange]) -> Result<(), NetlinkError> {
        let call = || Call::Servers(changes.to_vec());
        self.change(changes.len(), call, |kernel| kernel.change_servers(changes))
    }
}

impl Sets for Observed<Nfnetlink> {
    fn set(&mut self, name: &str) -> Result<Option<Set>, NetlinkError> {
        self.list(|kernel| kernel.set(name))
    }

    fn create_set(&mut self, header: &SetHeader) -> Result<(), NetlinkError> {
        self.change(1, || Call::CreateSet(header.clone()), |kernel| kernel.create_set(header))
    }

    fn change_sets(&mut self, changes: &[SetChange]) -> Result<(), NetlinkError> {
        let call = || Call::Sets(changes.to_vec());
        self.change(changes.len(), call, |kernel| kernel.change_sets(changes))
    }

    fn swap_sets(&mut self, one: &str, other: &str) -> Result<(), NetlinkError> {
        let call = || Call::SwapSets(one.to_owned(), other.to_owned());
        self.change(1, call, |kernel| kernel.swap_sets(one, other))
    }

    fn destroy_set(&mut self, name: &str) -> Result<(), NetlinkError> {
        self.change(1, || Call::DestroySet(name.to_owned()), |kernel| kernel.destroy_set(name))
    }
}

impl Device for Observed<Rtnetlink> {
    fn ensure_device(&mut self) -> Result<(), NetlinkError> {
        // Asked for at every full sync: it changes nothing where the device is there.
        self.list(Device::ensure_device)?;
        self.record(|| Call::Device);
        Ok(())
    }

    fn addresses(&mut self, family: Family) -> Result<BTreeMap<IpAddr, AddressState>, NetlinkError> {
        self.list(|kernel| kernel.addresses(family))
    }

    fn change_addresses(&mut self, changes: &[AddressChange]) -> Result<(), NetlinkError> {
        let call = || Call::Addresses(changes.to_vec());
        self.change(changes.len(), call, |kernel| kernel.change_addresses(changes))
    }

    fn remove_device(&mut self) -> Result<(), NetlinkError> {
        self.kernel.remove_device()
    }
}
