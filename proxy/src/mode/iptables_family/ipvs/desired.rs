//! What all service ports together want. Several may want the same: a backend behind two services is one member of a set, a
//! shared load-balancer IP is one address. So each thing counts who wants it, and what one service port changes costs
//! nothing for the others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::objects::{Right, Server, ServiceObjects};
use super::sets::SetId;
use crate::kernel::ipset::Member;
use crate::kernel::ipvs::ServerKey;
use crate::model::ServicePortName;

/// The shares of all service ports.
#[derive(Debug, Default)]
pub struct DesiredState {
    objects: BTreeMap<ServicePortName, ServiceObjects>,
    servers: BTreeMap<ServerKey, BTreeSet<(Right, ServicePortName)>>,
    members: BTreeMap<(SetId, Member), u32>,
    addresses: BTreeMap<IpAddr, u32>,
}

/// Keys whose owners came, went or want something else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirtyKeys {
    /// Virtual servers.
    pub servers: BTreeSet<ServerKey>,
    /// Members of sets.
    pub members: BTreeSet<(SetId, Member)>,
    /// Addresses.
    pub addresses: BTreeSet<IpAddr>,
}

impl DesiredState {
    /// A service port wants this now, or nothing any more.
    pub fn replace(&mut self, name: &ServicePortName, objects: Option<ServiceObjects>, dirty: &mut DirtyKeys) {
        let before = self.objects.remove(name).unwrap_or_default();
        let after = objects.as_ref();
        let nothing = ServiceObjects::default();
        let now = after.unwrap_or(&nothing);
        for (key, server) in &before.servers {
            if now.servers.get(key) != Some(server) {
                dirty.servers.insert(*key);
            }
            if now.servers.get(key).is_none_or(|now| now.right != server.right)
                && let Some(names) = self.servers.get_mut(key)
            {
                names.remove(&(server.right, name.clone()));
                if names.is_empty() {
                    self.servers.remove(key);
                }
            }
        }
        let is_new = |key: &ServerKey, server: &Server| before.servers.get(key).is_none_or(|b| b.right != server.right);
        for (key, server) in now.servers.iter().filter(|(key, server)| is_new(key, server)) {
            dirty.servers.insert(*key);
            self.servers.entry(*key).or_default().insert((server.right, name.clone()));
        }
        count(&mut self.members, &before.members, &now.members, &mut dirty.members);
        count(&mut self.addresses, &before.addresses, &now.addresses, &mut dirty.addresses);
        if let Some(objects) = objects {
            self.objects.insert(name.clone(), objects);
        }
    }

    /// A virtual server, if it is wanted.
    pub fn server(&self, key: &ServerKey) -> Option<&Server> {
        let (_, first) = self.servers.get(key)?.first()?;
        self.objects.get(first)?.servers.get(key)
    }

    /// Whether a member is wanted.
    pub fn has_member(&self, set: SetId, member: Member) -> bool {
        self.members.contains_key(&(set, member))
    }

    /// Whether an address is wanted on the device.
    pub fn has_address(&self, address: &IpAddr) -> bool {
        self.addresses.contains_key(address)
    }

    /// All virtual servers.
    pub fn servers(&self) -> impl Iterator<Item = &ServerKey> {
        self.servers.keys()
    }

    /// All members of a set, in order.
    pub fn members(&self, set: SetId) -> impl Iterator<Item = &Member> {
        let least = (set, Member::Port(0));
        self.members.range(least..).map(|(key, _)| key).take_while(move |key| key.0 == set).map(|(_, member)| member)
    }

    /// All addresses.
    pub fn addresses(&self) -> impl Iterator<Item = &IpAddr> {
        self.addresses.keys()
    }
}

/// One claimant's things were these and are those.
fn count<T: Ord + Copy>(
    counts: &mut BTreeMap<T, u32>,
    before: &BTreeSet<T>,
    now: &BTreeSet<T>,
    dirty: &mut BTreeSet<T>,
) {
    for thing in now.difference(before) {
        let desired = counts.entry(*thing).or_default();
        *desired += 1;
        if *desired == 1 {
            dirty.insert(*thing);
        }
    }
    for thing in before.difference(now) {
        if let Some(desired) = counts.get_mut(thing) {
            *desired -= 1;
            if *desired == 0 {
                counts.remove(thing);
                dirty.insert(*thing);
            }
        }
    }
}
