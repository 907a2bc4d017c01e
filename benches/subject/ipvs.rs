//! IPVS mode's kernel adapters with counts and recording.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result};
use svcproxy::kernel::dummy::{AddressChange, AddressState, Rtnetlink, ServiceDevice};
use svcproxy::kernel::ipset::{IpSets, Nfnetlink, Set, SetChange, SetHeader};
use svcproxy::kernel::ipvs::{Destinations, Genetlink, ServerChange, ServerKey, ServerSpec, VirtualServers};
use svcproxy::kernel::netlink::NetlinkError;
use svcproxy::mode::iptables_family::ipvs::kernel::IpvsAdapters;
use svcproxy::model::Family;

use super::kernel::{CallLog, CountedNetlink, SentTransaction};

#[derive(Debug, Clone)]
pub enum IpvsCall {
    Servers(Vec<ServerChange>),
    CreateSet(SetHeader),
    Sets(Vec<SetChange>),
    SwapSets(String, String),
    DestroySet(String),
    Device,
    Addresses(Vec<AddressChange>),
}

/// The plain kernel adapters, to send calls again.
pub struct Bare {
    servers: Genetlink,
    sets: Nfnetlink,
    device: Rtnetlink,
}

impl Bare {
    pub fn open() -> Result<Bare> {
        Ok(Bare { servers: Genetlink::open()?, sets: Nfnetlink::open()?, device: Rtnetlink::open()? })
    }

    pub fn send(&mut self, call: &IpvsCall) -> Result<()> {
        match call {
            IpvsCall::Servers(changes) => self.servers.change_servers(changes),
            IpvsCall::CreateSet(header) => self.sets.create_set(header),
            IpvsCall::Sets(changes) => self.sets.change_sets(changes),
            IpvsCall::SwapSets(one, other) => self.sets.swap_sets(one, other),
            IpvsCall::DestroySet(name) => self.sets.destroy_set(name),
            IpvsCall::Device => self.device.ensure_device(),
            IpvsCall::Addresses(changes) => self.device.change_addresses(changes),
        }
        .with_context(|| format!("send once more: {call:?}"))
    }
}

pub struct CountedAdapter<K> {
    kernel: K,
    log: CallLog,
}

pub type CountedIpvs =
    IpvsAdapters<CountedNetlink, CountedAdapter<Genetlink>, CountedAdapter<Nfnetlink>, CountedAdapter<Rtnetlink>>;

pub fn open(family: Family, log: &CallLog) -> Result<CountedIpvs> {
    Ok(IpvsAdapters {
        rules: CountedNetlink::open(family, log.clone())?,
        servers: CountedAdapter { kernel: Genetlink::open()?, log: log.clone() },
        sets: CountedAdapter { kernel: Nfnetlink::open()?, log: log.clone() },
        device: CountedAdapter { kernel: Rtnetlink::open()?, log: log.clone() },
    })
}

impl<K> CountedAdapter<K> {
    fn list<T>(&mut self, list: impl FnOnce(&mut K) -> Result<T, NetlinkError>) -> Result<T, NetlinkError> {
        let kernel = &mut self.kernel;
        self.log.watch(|| list(kernel), |asked| asked.lists += 1)
    }

    fn change(
        &mut self,
        messages: usize,
        call: impl FnOnce() -> IpvsCall,
        change: impl FnOnce(&mut K) -> Result<(), NetlinkError>,
    ) -> Result<(), NetlinkError> {
        let kernel = &mut self.kernel;
        self.log.watch(|| change(kernel), |asked| asked.messages += messages)?;
        if messages > 0 {
            self.record(call);
        }
        Ok(())
    }

    fn record(&self, call: impl FnOnce() -> IpvsCall) {
        if let Some(sent) = &mut self.log.lock().sent {
            sent.push(SentTransaction::Call(call()));
        }
    }
}

impl VirtualServers for CountedAdapter<Genetlink> {
    fn servers(&mut self, family: Family) -> Result<BTreeMap<ServerKey, ServerSpec>, NetlinkError> {
        self.list(|kernel| kernel.servers(family))
    }

    fn destinations(&mut self, keys: &[ServerKey]) -> Result<Vec<Destinations>, NetlinkError> {
        self.list(|kernel| kernel.destinations(keys))
    }

    fn change_servers(&mut self, changes: &[ServerChange]) -> Result<(), NetlinkError> {
        let call = || IpvsCall::Servers(changes.to_vec());
        self.change(changes.len(), call, |kernel| kernel.change_servers(changes))
    }
}

impl IpSets for CountedAdapter<Nfnetlink> {
    fn set(&mut self, name: &str) -> Result<Option<Set>, NetlinkError> {
        self.list(|kernel| kernel.set(name))
    }

    fn create_set(&mut self, header: &SetHeader) -> Result<(), NetlinkError> {
        self.change(1, || IpvsCall::CreateSet(header.clone()), |kernel| kernel.create_set(header))
    }

    fn change_sets(&mut self, changes: &[SetChange]) -> Result<(), NetlinkError> {
        let call = || IpvsCall::Sets(changes.to_vec());
        self.change(changes.len(), call, |kernel| kernel.change_sets(changes))
    }

    fn swap_sets(&mut self, one: &str, other: &str) -> Result<(), NetlinkError> {
        let call = || IpvsCall::SwapSets(one.to_owned(), other.to_owned());
        self.change(1, call, |kernel| kernel.swap_sets(one, other))
    }

    fn destroy_set(&mut self, name: &str) -> Result<(), NetlinkError> {
        self.change(1, || IpvsCall::DestroySet(name.to_owned()), |kernel| kernel.destroy_set(name))
    }
}

impl ServiceDevice for CountedAdapter<Rtnetlink> {
    fn ensure_device(&mut self) -> Result<(), NetlinkError> {
        // Every full sync calls this, and it changes nothing if the device exists.
        self.list(ServiceDevice::ensure_device)?;
        self.record(|| IpvsCall::Device);
        Ok(())
    }

    fn addresses(&mut self, family: Family) -> Result<BTreeMap<IpAddr, AddressState>, NetlinkError> {
        self.list(|kernel| kernel.addresses(family))
    }

    fn change_addresses(&mut self, changes: &[AddressChange]) -> Result<(), NetlinkError> {
        let call = || IpvsCall::Addresses(changes.to_vec());
        self.change(changes.len(), call, |kernel| kernel.change_addresses(changes))
    }

    fn remove_device(&mut self) -> Result<(), NetlinkError> {
        self.kernel.remove_device()
    }
}
