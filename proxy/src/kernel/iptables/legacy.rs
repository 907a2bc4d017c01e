//! Reads the legacy tables by socket options (`include/uapi/linux/netfilter_ipv4/ip_tables.h`,
//! `netfilter_ipv6/ip6_tables.h`, `netfilter/x_tables.h`).
#![allow(unsafe_code, reason = "getsockopt(2) with the legacy tables' own structures, which no crate binds")]

use std::collections::HashMap;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use super::Table;
use crate::model::Family;

const SO_GET_INFO: i32 = 64;
const SO_GET_ENTRIES: i32 = 65;
/// Name and size, padded to eight bytes (`struct ipt_get_entries`).
const ENTRIES_HEADER: usize = 40;
/// The most attempts while another program keeps replacing the table.
const TRIES: usize = 100;

/// `XT_STANDARD_TARGET`: a verdict or jump; `XT_ERROR_TARGET`: a chain's head.
const STANDARD: &str = "";
const ERROR: &str = "ERROR";
const TARGET_DATA: usize = 32;

const LOCAL_IN: usize = 1;
/// `-NF_DROP - 1`, as in a standard target.
const DROP: i32 = -1;

pub type TableSize = (u32, u32);

#[derive(Debug)]
pub struct LegacyTables {
    family: Family,
    /// An `IPPROTO_RAW` socket, which receives nothing; stays open for the watch.
    socket: OwnedFd,
}

/// `struct ipt_getinfo`, which equals `struct ip6t_getinfo`.
#[repr(C)]
struct GetInfo {
    name: [u8; 32],
    valid_hooks: u32,
    hook_entry: [u32; 5],
    underflow: [u32; 5],
    num_entries: u32,
    size: u32,
}

impl LegacyTables {
    pub fn open(family: Family) -> io::Result<LegacyTables> {
        let domain = match family {
            Family::V4 => AddressFamily::Inet,
            Family::V6 => AddressFamily::Inet6,
        };
        Ok(LegacyTables { family, socket: socket(domain, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw)? })
    }

    pub fn names(family: Family) -> String {
        let file = match family {
            Family::V4 => "/proc/net/ip_tables_names",
            Family::V6 => "/proc/net/ip6_tables_names",
        };
        std::fs::read_to_string(file).unwrap_or_default()
    }

    /// Returns `None` without a readable table.
    pub fn size(&self, table: Table) -> Option<TableSize> {
        self.info(table).ok().map(|info| (info.num_entries, info.size))
    }

    /// Whether the policy of INPUT is DROP. Does not load the table's module.
    pub fn drops_input(&self) -> bool {
        let filter = Table::Filter;
        if !LegacyTables::names(self.family).lines().any(|name| name == filter.as_str()) {
            return false;
        }
        let Ok(Some((info, entries))) = self.read(filter) else { return false };
        drops(self.family, &entries, info.underflow[LOCAL_IN])
    }

    fn info(&self, table: Table) -> io::Result<GetInfo> {
        let mut info = GetInfo {
            name: name_of(table),
            valid_hooks: 0,
            hook_entry: [0; 5],
            underflow: [0; 5],
            num_entries: 0,
            size: 0,
        };
        // SAFETY: a repr(C) struct of plain integers.
        unsafe { self.option(SO_GET_INFO, (&raw mut info).cast(), size_of::<GetInfo>()) }?;
        Ok(info)
    }

    /// Counts each user-defined chain's rules and references. Reads the whole table.
    pub fn reference_counts(&self, table: Table) -> io::Result<HashMap<String, usize>> {
        Ok(self.read(table)?.map(|(_, entries)| counts(self.family, &entries)).unwrap_or_default())
    }

    fn read(&self, table: Table) -> io::Result<Option<(GetInfo, Vec<u8>)>> {
        for _ in 0..TRIES {
            let info = match self.info(table) {
                Ok(info) => info,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
                Err(error) => return Err(error),
            };
            let size = info.size;
            let length = usize::try_from(size).unwrap_or(usize::MAX);
            let mut buffer = vec![0; ENTRIES_HEADER + length];
            buffer[..32].copy_from_slice(&name_of(table));
            buffer[32..36].copy_from_slice(&size.to_ne_bytes());
            // SAFETY: the kernel writes `size` bytes of entries after the header, or nothing.
            match unsafe { self.option(SO_GET_ENTRIES, buffer.as_mut_ptr().cast(), buffer.len()) } {
                Ok(()) => return Ok(Some((info, buffer.split_off(ENTRIES_HEADER)))),
                // Another program replaced the table after `info`.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("it changed while it was read, {TRIES} times in a row")))
    }

    /// # Safety
    /// `at` must point to `length` bytes that the kernel may overwrite with anything.
    unsafe fn option(&self, option: i32, at: *mut c_void, length: usize) -> io::Result<()> {
        let level = match self.family {
            Family::V4 => libc::SOL_IP,
            Family::V6 => libc::SOL_IPV6,
        };
        let mut length = libc::socklen_t::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        // SAFETY: as the caller promises.
        match unsafe { libc::getsockopt(self.socket.as_raw_fd(), level, option, at, &raw mut length) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn name_of(table: Table) -> [u8; 32] {
    let mut name = [0; 32];
    name.iter_mut().zip(table.as_str().bytes()).for_each(|(place, byte)| *place = byte);
    name
}

struct LegacyEntry<'a> {
    offset: usize,
    length: usize,
    target: &'a str,
    data: &'a [u8],
}

impl LegacyEntry<'_> {
    fn verdict(&self) -> Option<i32> {
        let bytes = self.data.get(..4).filter(|_| self.target == STANDARD)?;
        bytes.try_into().ok().map(i32::from_ne_bytes)
    }
}

/// Returns the table's entries up to an invalid one.
fn entries(family: Family, table: &[u8]) -> impl Iterator<Item = LegacyEntry<'_>> {
    // `target_offset` and `next_offset`.
    let at = match family {
        Family::V4 => 88,
        Family::V6 => 140,
    };
    let mut offset = 0;
    std::iter::from_fn(move || {
        let rest = table.get(offset..)?;
        let half = |at: usize| Some(usize::from(u16::from_ne_bytes(rest.get(at..at + 2)?.try_into().ok()?)));
        let (target, length) = (half(at)?, half(at + 2).filter(|length| *length > 0)?);
        let target = rest.get(target..length)?;
        // `struct xt_entry_target`: size, then 29 bytes of name.
        let entry = LegacyEntry { offset, length, target: text(target.get(2..31)?), data: target.get(TARGET_DATA..)? };
        offset += length;
        Some(entry)
    })
}

fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).unwrap_or_default()
}

fn drops(family: Family, table: &[u8], policy: u32) -> bool {
    let policy = usize::try_from(policy).unwrap_or(usize::MAX);
    entries(family, table).any(|entry| entry.offset == policy && entry.verdict() == Some(DROP))
}

fn counts(family: Family, table: &[u8]) -> HashMap<String, usize> {
    let mut chains: HashMap<String, usize> = HashMap::new();
    let mut starts: HashMap<usize, String> = HashMap::new();
    let mut jumps = Vec::new();
    let mut open: Option<String> = None;
    for entry in entries(family, table) {
        if entry.target == ERROR {
            let name = text(entry.data.get(..30).unwrap_or_default()).to_owned();
            open = (name != ERROR).then_some(name);
            if let Some(name) = &open {
                starts.insert(entry.offset + entry.length, name.clone());
                chains.insert(name.clone(), 0);
            }
            continue;
        }
        if let Some(count) = open.as_ref().and_then(|name| chains.get_mut(name)) {
            *count += 1;
        }
        // Without a target, a rule's verdict is `next`.
        let next = entry.offset + entry.length;
        jumps.extend(entry.verdict().and_then(|to| usize::try_from(to).ok()).filter(|to| *to != next));
    }
    // The last entry of each chain is its implicit return, not a rule.
    chains.values_mut().for_each(|count| *count = count.saturating_sub(1));
    for name in jumps.iter().filter_map(|to| starts.get(to)) {
        chains.entry(name.clone()).and_modify(|count| *count += 1);
    }
    chains
}

pub(crate) fn fuzz(table: &[u8]) {
    for family in Family::ALL {
        for entry in entries(family, table) {
            let _ = entry.verdict();
        }
        let _ = counts(family, table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(target: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 112 + TARGET_DATA + data.len().next_multiple_of(8)];
        let length = u16::try_from(bytes.len()).unwrap();
        bytes[88..90].copy_from_slice(&112u16.to_ne_bytes());
        bytes[90..92].copy_from_slice(&length.to_ne_bytes());
        bytes[114..114 + target.len()].copy_from_slice(target.as_bytes());
        bytes[112 + TARGET_DATA..112 + TARGET_DATA + data.len()].copy_from_slice(data);
        bytes
    }

    #[test]
    fn rules_and_jumps_are_counted_and_garbage_ends_the_reading() {
        let head = |name: &str| entry(ERROR, format!("{name:\0<30}").as_bytes());
        let verdict = |verdict: i32| entry(STANDARD, &verdict.to_ne_bytes());
        let start = i32::try_from(verdict(0).len() * 2 + head("A").len()).unwrap();
        let table = [verdict(start), verdict(-2), head("A"), entry("MASQUERADE", &[0; 24]), verdict(-5), head(ERROR)];
        let table = table.concat();
        assert_eq!(counts(Family::V4, &table), HashMap::from([("A".to_owned(), 2)]));
        let policy = u32::try_from(verdict(0).len()).unwrap();
        assert!(!drops(Family::V4, &table, policy) && !drops(Family::V4, &table, 0));
        assert!(drops(Family::V4, &[verdict(0), verdict(-1)].concat(), policy));
        for end in 0..table.len() {
            counts(Family::V4, &table[..end]);
            counts(Family::V6, &table[..end]);
        }
        assert!(counts(Family::V4, &[0xff; 4096]).is_empty());
    }
}
