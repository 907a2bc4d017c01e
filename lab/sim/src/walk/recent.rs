//! Lists of `-m recent` (net/netfilter/xt_recent.c).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::masked::bits;
use crate::packet::Packet;
use crate::program::iptables::RecentCheck;
use crate::protocol::Family;
use crate::rules::matches::RecentAction;

/// `ip_list_tot`: addresses per list.
const ADDRESSES: usize = 100;
const TIMES: usize = 20;

#[derive(Debug, Clone, Default)]
struct RecentEntry {
    /// Times in milliseconds, newest last.
    times: Vec<u64>,
    /// The last use's number; the oldest entry has the smallest.
    used: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct RecentLists {
    lists: BTreeMap<Arc<str>, BTreeMap<(Family, u128), RecentEntry>>,
    uses: u64,
}

impl RecentLists {
    /// Follows `recent_mt`.
    pub(crate) fn check(&mut self, check: &RecentCheck, packet: &Packet, now: u64) -> bool {
        let address = if check.destination { packet.destination } else { packet.source };
        let key = (packet.family(), bits(address) & check.mask);
        let list = self.lists.entry(check.list.clone()).or_default();
        self.uses += 1;
        let since = u64::from(check.seconds.unwrap_or(0)) * 1000;
        let mut found = check.not;
        let Some(entry) = list.get_mut(&key) else {
            if check.action == RecentAction::Set {
                if list.len() >= ADDRESSES {
                    remove_oldest(list);
                }
                list.insert(key, RecentEntry { times: vec![now], used: self.uses });
                found = !found;
            }
            return found;
        };
        match check.action {
            RecentAction::Set => found = !found,
            RecentAction::Remove => {
                list.remove(&key);
                return !found;
            }
            RecentAction::Check | RecentAction::Update => {
                let in_time = |time: &&u64| check.seconds.is_none() || **time + since >= now;
                let hits = entry.times.iter().filter(in_time).count() as u32;
                // Without --hitcount one hit suffices.
                if hits >= check.hitcount.max(1) {
                    found = !found;
                }
            }
        }
        let renews = check.action == RecentAction::Set || (check.action == RecentAction::Update && found);
        if renews {
            entry.times.push(now);
            if entry.times.len() > TIMES.max(check.hitcount as usize) {
                entry.times.remove(0);
            }
            entry.used = self.uses;
        }
        if check.reap {
            // The kernel only checks the list's head, the oldest.
            let oldest = list.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
            let stale = |entry: &RecentEntry| entry.times.last().is_some_and(|time| time + since < now);
            if let Some(key) = oldest.filter(|key| list.get(key).is_some_and(stale)) {
                list.remove(&key);
            }
        }
        found
    }
}

fn remove_oldest(list: &mut BTreeMap<(Family, u128), RecentEntry>) {
    if let Some(key) = list.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key) {
        list.remove(&key);
    }
}
