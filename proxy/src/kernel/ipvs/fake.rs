//! Virtual servers in memory, with the kernel's checks.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use nix::libc::{EEXIST, ENOENT, ESRCH};

use super::{Destinations, IpvsDestination, ServerChange, ServerKey, ServerSpec, VirtualServers};
use crate::kernel::netlink::NetlinkError;
use crate::model::Family;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FakeIpvs {
    pub servers: BTreeMap<ServerKey, (ServerSpec, Destinations)>,
    pub changes: Vec<ServerChange>,
    pub asked: usize,
}

impl FakeIpvs {
    pub fn connect(&mut self, key: &ServerKey, destination: &SocketAddr, connections: u64) {
        if let Some(one) = self.servers.get_mut(key).and_then(|(_, all)| all.get_mut(destination)) {
            one.connections = connections;
        }
    }

    fn take(&mut self, change: &ServerChange) -> Result<(), i32> {
        match change {
            ServerChange::Add(key, _) if self.servers.contains_key(key) => return Err(EEXIST),
            ServerChange::Add(key, spec) => {
                self.servers.insert(*key, (spec.clone(), Destinations::new()));
            }
            ServerChange::Set(key, spec) => self.servers.get_mut(key).ok_or(ESRCH)?.0 = spec.clone(),
            ServerChange::Delete(key) => {
                self.servers.remove(key).ok_or(ESRCH)?;
            }
            ServerChange::AddDestination(key, address, weight) => {
                let (_, destinations) = self.servers.get_mut(key).ok_or(ESRCH)?;
                if destinations.contains_key(address) {
                    return Err(EEXIST);
                }
                destinations.insert(*address, IpvsDestination { weight: *weight, connections: 0 });
            }
            ServerChange::SetWeight(key, address, weight) => {
                let (_, destinations) = self.servers.get_mut(key).ok_or(ESRCH)?;
                destinations.get_mut(address).ok_or(ENOENT)?.weight = *weight;
            }
            ServerChange::DeleteDestination(key, address) => {
                let (_, destinations) = self.servers.get_mut(key).ok_or(ESRCH)?;
                destinations.remove(address).ok_or(ENOENT)?;
            }
        }
        Ok(())
    }
}

impl VirtualServers for FakeIpvs {
    fn servers(&mut self, family: Family) -> Result<BTreeMap<ServerKey, ServerSpec>, NetlinkError> {
        let of_family = self.servers.iter().filter(|(key, _)| key.family() == family);
        Ok(of_family.map(|(key, (spec, _))| (*key, spec.clone())).collect())
    }

    fn destinations(&mut self, keys: &[ServerKey]) -> Result<Vec<Destinations>, NetlinkError> {
        self.asked += keys.len();
        Ok(keys.iter().map(|key| self.servers.get(key).map(|(_, all)| all.clone()).unwrap_or_default()).collect())
    }

    fn change_servers(&mut self, changes: &[ServerChange]) -> Result<(), NetlinkError> {
        for change in changes {
            self.take(change)
                .map_err(|code| NetlinkError::new(format!("{change:?}"), io::Error::from_raw_os_error(code)))?;
            self.changes.push(change.clone());
        }
        Ok(())
    }
}
