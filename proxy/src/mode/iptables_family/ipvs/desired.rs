//! All service ports' objects, with reference counts: two services' common backend is one set member, their common
//! load-balancer IP one address. A change costs the same whatever the number of service ports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::objects::{DesiredServer, IpvsServiceObjects, ServerClaim};
use super::sets::SetId;
use crate::kernel::ipset::SetMember;
use crate::kernel::ipvs::ServerKey;
use crate::model::ServicePortName;

#[derive(Debug, Default)]
pub struct DesiredState {
    objects: BTreeMap<ServicePortName, IpvsServiceObjects>,
    servers: BTreeMap<ServerKey, BTreeSet<(ServerClaim, ServicePortName)>>,
    members: BTreeMap<(SetId, SetMember), u32>,
    addresses: BTreeMap<IpAddr, u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirtyKeys {
    pub servers: BTreeSet<ServerKey>,
    pub members: BTreeSet<(SetId, SetMember)>,
    pub addresses: BTreeSet<IpAddr>,
}

impl DesiredState {
    pub fn replace(&mut self, name: &ServicePortName, objects: Option<IpvsServiceObjects>, dirty: &mut DirtyKeys) {
        let before = self.objects.remove(name).unwrap_or_default();
        let after = objects.as_ref();
        let nothing = IpvsServiceObjects::default();
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
        let is_new =
            |key: &ServerKey, server: &DesiredServer| before.servers.get(key).is_none_or(|b| b.right != server.right);
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

    pub fn server(&self, key: &ServerKey) -> Option<&DesiredServer> {
        let (_, first) = self.servers.get(key)?.first()?;
        self.objects.get(first)?.servers.get(key)
    }

    pub fn has_member(&self, set: SetId, member: SetMember) -> bool {
        self.members.contains_key(&(set, member))
    }

    pub fn has_address(&self, address: &IpAddr) -> bool {
        self.addresses.contains_key(address)
    }

    pub fn servers(&self) -> impl Iterator<Item = &ServerKey> {
        self.servers.keys()
    }

    pub fn members(&self, set: SetId) -> impl Iterator<Item = &SetMember> {
        let least = (set, SetMember::Port(0));
        self.members.range(least..).map(|(key, _)| key).take_while(move |key| key.0 == set).map(|(_, member)| member)
    }

    pub fn addresses(&self) -> impl Iterator<Item = &IpAddr> {
        self.addresses.keys()
    }
}

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
