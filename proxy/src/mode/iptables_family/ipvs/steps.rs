//! Orders the changes from the observed to the desired objects so that no packet meets half a service:
//!
//! 1. add members to sets, because rules match them;
//! 2. add virtual servers and destinations, and give removed destinations weight 0;
//! 3. bind addresses to the device: from now on packets to them reach IPVS;
//! 4. remove members of service addresses, so that the filter refuses packets that would reach programs of the host;
//! 5. unbind addresses, then delete virtual servers;
//! 6. remove all other members, which record what this proxy owns.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::IpvsError;
use super::desired::{DesiredState, DirtyKeys};
use super::kernel::IpvsObjects;
use super::objects::DesiredServer;
use super::observed::{ObservedServer, ObservedState};
use super::sets::SetId;
use crate::kernel::dummy::{AddressChange, AddressState};
use crate::kernel::ipset::{SetChange, SetMember};
use crate::kernel::ipvs::{ServerChange, ServerKey};
use crate::model::{Family, Protocol};

/// The weight of every destination that gets new connections.
pub const WEIGHT: u32 = 1;

type Members = BTreeMap<SetId, Vec<SetMember>>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Steps {
    add_members: Members,
    servers: Vec<ServerChange>,
    bind: Vec<IpAddr>,
    remove_members_first: Members,
    unbind: Vec<IpAddr>,
    delete_servers: Vec<ServerKey>,
    remove_members_last: Members,
}

impl Steps {
    pub fn full(desired: &DesiredState, observed: &ObservedState) -> Steps {
        let mut dirty = DirtyKeys::default();
        dirty.servers.extend(desired.servers().chain(observed.servers.keys()).copied());
        dirty.addresses.extend(desired.addresses().chain(observed.addresses.keys()).copied());
        for (set, members) in &observed.sets {
            dirty.members.extend(desired.members(*set).chain(members).map(|member| (*set, *member)));
        }
        Steps::of(&dirty, desired, observed)
    }

    pub fn of(dirty: &DirtyKeys, desired: &DesiredState, observed: &ObservedState) -> Steps {
        let mut steps = Steps::default();
        for (set, member) in &dirty.members {
            match (desired.has_member(*set, *member), observed.has(*set, *member)) {
                (true, false) => steps.add_members.entry(*set).or_default().push(*member),
                (false, true) => {
                    let told_by_address = |address| observed.has(SetId::IpvsIps, SetMember::Ip(address));
                    let first = *set != SetId::IpvsIps && member.address().is_some_and(told_by_address);
                    let list = if first { &mut steps.remove_members_first } else { &mut steps.remove_members_last };
                    list.entry(*set).or_default().push(*member);
                }
                _ => {}
            }
        }
        for key in &dirty.servers {
            match (desired.server(key), observed.servers.get(key)) {
                (Some(wanted), observed) => steps.server(key, wanted, observed),
                (None, Some(_)) => steps.delete_servers.push(*key),
                (None, None) => {}
            }
        }
        for address in &dirty.addresses {
            let there = observed.addresses.get(address).copied();
            match desired.has_address(address) {
                true if there != Some(AddressState::of_bound(address)) => steps.bind.push(*address),
                false if there.is_some() => steps.unbind.push(*address),
                _ => {}
            }
        }
        steps
    }

    fn server(&mut self, key: &ServerKey, wanted: &DesiredServer, observed: Option<&ObservedServer>) {
        match observed {
            None => self.servers.push(ServerChange::Add(*key, wanted.spec.clone())),
            Some(observed) if observed.spec != wanted.spec => {
                self.servers.push(ServerChange::Set(*key, wanted.spec.clone()));
            }
            Some(_) => {}
        }
        let nobody = BTreeMap::new();
        let there = observed.map_or(&nobody, |observed| &observed.destinations);
        for address in &wanted.destinations {
            match there.get(address) {
                None => self.servers.push(ServerChange::AddDestination(*key, *address, WEIGHT)),
                Some(weight) if *weight != WEIGHT => {
                    self.servers.push(ServerChange::SetWeight(*key, *address, WEIGHT));
                }
                Some(_) => {}
            }
        }
        for (address, weight) in there.iter().filter(|(address, _)| wanted.destinations.binary_search(address).is_err())
        {
            // UDP flows have no end, so their destinations do not drain.
            let drains = key.protocol == Protocol::Tcp || wanted.keeps.binary_search(address).is_ok();
            if !drains {
                self.servers.push(ServerChange::DeleteDestination(*key, *address));
            } else if *weight != 0 {
                self.servers.push(ServerChange::SetWeight(*key, *address, 0));
            }
        }
    }

    pub fn len(&self) -> usize {
        let members = [&self.add_members, &self.remove_members_first, &self.remove_members_last];
        let members: usize = members.iter().flat_map(|members| members.values().map(Vec::len)).sum();
        members + self.servers.len() + self.delete_servers.len() + self.bind.len() + self.unbind.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs steps 1 and 2 of [the list](self).
    pub fn prepare(&self, kernel: &mut impl IpvsObjects, family: Family) -> Result<(), IpvsError> {
        kernel.sets().change_sets(&changes(&self.add_members, true, family))?;
        kernel.servers().change_servers(&self.servers)?;
        Ok(())
    }

    /// Runs step 3.
    pub fn bind(&self, kernel: &mut impl IpvsObjects) -> Result<(), IpvsError> {
        let binds: Vec<AddressChange> = self.bind.iter().copied().map(AddressChange::Bind).collect();
        kernel.device().change_addresses(&binds)?;
        Ok(())
    }

    /// Runs steps 4 to 6.
    pub fn remove(&self, kernel: &mut impl IpvsObjects, family: Family) -> Result<(), IpvsError> {
        kernel.sets().change_sets(&changes(&self.remove_members_first, false, family))?;
        let unbinds: Vec<AddressChange> = self.unbind.iter().copied().map(AddressChange::Unbind).collect();
        kernel.device().change_addresses(&unbinds)?;
        let deletions: Vec<ServerChange> = self.delete_servers.iter().copied().map(ServerChange::Delete).collect();
        kernel.servers().change_servers(&deletions)?;
        kernel.sets().change_sets(&changes(&self.remove_members_last, false, family))?;
        Ok(())
    }

    pub fn apply_to(&self, observed: &mut ObservedState) {
        for (set, members) in &self.add_members {
            observed.sets.entry(*set).or_default().extend(members);
        }
        for (set, members) in self.remove_members_first.iter().chain(&self.remove_members_last) {
            let there = observed.sets.entry(*set).or_default();
            members.iter().for_each(|member| {
                there.remove(member);
            });
        }
        self.servers.iter().for_each(|change| apply_server_change(change, observed));
        for key in &self.delete_servers {
            observed.servers.remove(key);
        }
        observed.addresses.extend(self.bind.iter().map(|address| (*address, AddressState::of_bound(address))));
        let gone: BTreeSet<IpAddr> = self.unbind.iter().copied().collect();
        observed.addresses.retain(|address, _| !gone.contains(address));
    }
}

pub fn apply_server_change(change: &ServerChange, observed: &mut ObservedState) {
    match change {
        ServerChange::Add(key, spec) => {
            let server = ObservedServer { spec: spec.clone(), destinations: BTreeMap::new() };
            observed.servers.insert(*key, server);
        }
        ServerChange::Set(key, spec) => {
            if let Some(server) = observed.servers.get_mut(key) {
                server.spec = spec.clone();
            }
        }
        ServerChange::Delete(key) => {
            observed.servers.remove(key);
        }
        ServerChange::AddDestination(key, address, weight) | ServerChange::SetWeight(key, address, weight) => {
            if let Some(server) = observed.servers.get_mut(key) {
                server.destinations.insert(*address, *weight);
            }
        }
        ServerChange::DeleteDestination(key, address) => {
            if let Some(server) = observed.servers.get_mut(key) {
                server.destinations.remove(address);
            }
        }
    }
}

/// Members of allowing sets are added before members of forbidding sets, and removed after them.
fn changes(members: &Members, add: bool, family: Family) -> Vec<SetChange> {
    let change =
        |(set, members): (&SetId, &Vec<SetMember>)| SetChange { set: set.name(family), add, members: members.clone() };
    let mut changes: Vec<SetChange> = members.iter().map(change).collect();
    if !add {
        changes.reverse();
    }
    changes
}
