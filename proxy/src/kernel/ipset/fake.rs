//! Sets in memory, with the kernel's checks of types and sizes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use nix::libc::{EEXIST, EINVAL, ENOENT, ENOSPC};

use super::{IpSets, Set, SetChange, SetHeader, SetMember, SetType};
use crate::kernel::netlink::NetlinkError;
use crate::model::Family;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FakeIpSets {
    pub sets: BTreeMap<String, (SetHeader, BTreeSet<SetMember>)>,
    pub changes: Vec<SetChange>,
}

fn refuse<T>(operation: String, code: i32) -> Result<T, NetlinkError> {
    Err(NetlinkError::new(operation, io::Error::from_raw_os_error(code)))
}

impl FakeIpSets {
    fn fits(header: &SetHeader, member: &SetMember) -> bool {
        let range_is_storable = match member {
            SetMember::IpPortNet(_, _, _, range) => range.prefix_len() > 0 && *range == range.trunc(),
            _ => true,
        };
        let of_family = member.address().is_none_or(|address| Family::of(&address) == header.family);
        member.kind() == header.kind && of_family && range_is_storable
    }
}

impl IpSets for FakeIpSets {
    fn set(&mut self, name: &str) -> Result<Option<Set>, NetlinkError> {
        let read = |(header, members): &(SetHeader, BTreeSet<SetMember>)| Set {
            kind: header.kind.as_str().to_owned(),
            maxelem: if header.kind == SetType::BitmapPort { 0 } else { header.maxelem },
            members: members.clone(),
        };
        Ok(self.sets.get(name).map(read))
    }

    fn create_set(&mut self, header: &SetHeader) -> Result<(), NetlinkError> {
        if header.name.len() > 31 {
            return refuse(format!("create {}", header.name), EINVAL);
        }
        match self.sets.insert(header.name.clone(), (header.clone(), BTreeSet::new())) {
            None => Ok(()),
            Some(_) => refuse(format!("create {}", header.name), EEXIST),
        }
    }

    fn change_sets(&mut self, changes: &[SetChange]) -> Result<(), NetlinkError> {
        for change in changes {
            let operation = format!("{change:?}");
            let Some((header, members)) = self.sets.get_mut(&change.set) else { return refuse(operation, ENOENT) };
            for member in &change.members {
                if !FakeIpSets::fits(header, member) {
                    return refuse(operation, EINVAL);
                }
                if change.add {
                    members.insert(*member);
                } else {
                    members.remove(member);
                }
                if header.kind != SetType::BitmapPort && members.len() > header.maxelem as usize {
                    members.remove(member);
                    return refuse(operation, ENOSPC);
                }
            }
            self.changes.push(change.clone());
        }
        Ok(())
    }

    fn swap_sets(&mut self, one: &str, other: &str) -> Result<(), NetlinkError> {
        let operation = format!("swap {one} and {other}");
        let (Some(first), Some(second)) = (self.sets.get(one).cloned(), self.sets.get(other).cloned()) else {
            return refuse(operation, ENOENT);
        };
        if first.0.kind != second.0.kind || first.0.family != second.0.family {
            return refuse(operation, EINVAL);
        }
        let named = |(header, members): (SetHeader, BTreeSet<SetMember>), name: &str| {
            (SetHeader { name: name.to_owned(), ..header }, members)
        };
        self.sets.insert(one.to_owned(), named(second, one));
        self.sets.insert(other.to_owned(), named(first, other));
        Ok(())
    }

    fn destroy_set(&mut self, name: &str) -> Result<(), NetlinkError> {
        self.sets.remove(name);
        Ok(())
    }
}
