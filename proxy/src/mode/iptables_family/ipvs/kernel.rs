//! Everything of the kernel's that this mode uses, in one.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::kernel::dummy::{self, AddressChange, AddressState, Device, Rtnetlink};
use crate::kernel::ipset::{self, Nfnetlink, Set, SetChange, SetHeader, Sets};
use crate::kernel::iptables::{self, IptablesError};
use crate::kernel::ipvs::{self, Destinations, Genetlink, ServerChange, ServerKey, ServerSpec, Servers};
use crate::kernel::netlink::NetlinkError;
use crate::kernel::packet_filter::{Compare, PacketFilter};
use crate::kernel::writer::Writer;
use crate::model::Family;
use crate::ruleset::{Rule, Saved, Table, Transaction};

/// Rules, virtual servers, sets and the device.
pub trait Kernel: PacketFilter + Servers + Sets + Device {}

impl<K: PacketFilter + Servers + Sets + Device> Kernel for K {}

/// Four adapters as one.
#[derive(Debug, Clone, Default)]
pub struct Parts<R, V, S, D> {
    /// Rules.
    pub rules: R,
    /// Virtual servers.
    pub servers: V,
    /// Sets.
    pub sets: S,
    /// The device.
    pub device: D,
}

/// The node's own kernel.
pub type Linux = Parts<Writer, Genetlink, Nfnetlink, Rtnetlink>;
/// A kernel in memory.
pub type Fake = Parts<iptables::Fake, ipvs::Fake, ipset::Fake, dummy::Fake>;

impl Linux {
    /// With this writer of rules.
    ///
    /// # Errors
    /// When the kernel has no IPVS or no IP sets.
    pub fn open(rules: Writer) -> Result<Linux, NetlinkError> {
        let (servers, sets, device) = (Genetlink::open()?, Nfnetlink::open()?, Rtnetlink::open()?);
        Ok(Parts { rules, servers, sets, device })
    }
}

impl Parts<(), Genetlink, Nfnetlink, Rtnetlink> {
    /// What takes away what IPVS mode left, if it was ever here: its device is the last thing that goes.
    ///
    /// # Errors
    /// When the kernel has no IPVS or no IP sets, though the device is there.
    pub fn left_behind() -> Result<Option<Self>, NetlinkError> {
        if nix::net::if_::if_nametoindex(dummy::DEVICE).is_err() {
            return Ok(None);
        }
        let (servers, sets, device) = (Genetlink::open()?, Nfnetlink::open()?, Rtnetlink::open()?);
        Ok(Some(Parts { rules: (), servers, sets, device }))
    }
}

impl<R: PacketFilter, V, S, D> PacketFilter for Parts<R, V, S, D> {
    fn look(&mut self, tables: &[Table], unread: &dyn Fn(Table, &str) -> bool) -> Result<Saved, IptablesError> {
        self.rules.look(tables, unread)
    }

    fn rules(&mut self, table: Table, chain: &str, present: &[String]) -> Result<Vec<String>, IptablesError> {
        self.rules.rules(table, chain, present)
    }

    fn holds(
        &mut self,
        table: Table,
        chain: &str,
        present: &[String],
        rules: &mut dyn Iterator<Item = &Rule>,
    ) -> Result<bool, IptablesError> {
        self.rules.holds(table, chain, present, rules)
    }

    fn comparer(&mut self) -> Option<Box<dyn Compare>> {
        self.rules.comparer()
    }

    fn takes_chains_ahead(&self) -> bool {
        self.rules.takes_chains_ahead()
    }

    fn commit(&mut self, change: &Transaction) -> Result<(), IptablesError> {
        self.rules.commit(change)
    }

    fn uses(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        self.rules.uses(table, chains)
    }

    fn generation(&mut self) -> Result<Option<u32>, IptablesError> {
        self.rules.generation()
    }

    fn is_untouched(&mut self, now: Option<u32>) -> bool {
        self.rules.is_untouched(now)
    }

    fn trust(&mut self, generation: Option<u32>) {
        self.rules.trust(generation);
    }

    fn random_fully(&self) -> bool {
        self.rules.random_fully()
    }
}

impl<R, V: Servers, S, D> Servers for Parts<R, V, S, D> {
    fn servers(&mut self, family: Family) -> Result<BTreeMap<ServerKey, ServerSpec>, NetlinkError> {
        self.servers.servers(family)
    }

    fn destinations(&mut self, keys: &[ServerKey]) -> Result<Vec<Destinations>, NetlinkError> {
        self.servers.destinations(keys)
    }

    fn change_servers(&mut self, changes: &[ServerChange]) -> Result<(), NetlinkError> {
        self.servers.change_servers(changes)
    }
}

impl<R, V, S: Sets, D> Sets for Parts<R, V, S, D> {
    fn set(&mut self, name: &str) -> Result<Option<Set>, NetlinkError> {
        self.sets.set(name)
    }

    fn create_set(&mut self, header: &SetHeader) -> Result<(), NetlinkError> {
        self.sets.create_set(header)
    }

    fn change_sets(&mut self, changes: &[SetChange]) -> Result<(), NetlinkError> {
        self.sets.change_sets(changes)
    }

    fn swap_sets(&mut self, one: &str, other: &str) -> Result<(), NetlinkError> {
        self.sets.swap_sets(one, other)
    }

    fn destroy_set(&mut self, name: &str) -> Result<(), NetlinkError> {
        self.sets.destroy_set(name)
    }
}

impl<R, V, S, D: Device> Device for Parts<R, V, S, D> {
    fn ensure_device(&mut self) -> Result<(), NetlinkError> {
        self.device.ensure_device()
    }

    fn addresses(&mut self, family: Family) -> Result<BTreeMap<IpAddr, AddressState>, NetlinkError> {
        self.device.addresses(family)
    }

    fn change_addresses(&mut self, changes: &[AddressChange]) -> Result<(), NetlinkError> {
        self.device.change_addresses(changes)
    }

    fn remove_device(&mut self) -> Result<(), NetlinkError> {
        self.device.remove_device()
    }
}
