//! Detects other programs' changes of the packet filter, without a command.
//!
//! The nft variant announces changes by netlink multicast. Legacy tables announce none; one system call reads their
//! size. Flushes and this proxy's writes change the size, and the watch recognises the latter by the number of rules.
#![allow(unsafe_code, reason = "an AsyncFd asks for a promise about its descriptor")]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use nf_tables::netlink::Message;
use nix::libc;
use nix::sys::socket::SockProtocol;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::iptables::{LegacyTables, Table, TableSize};
use super::multicast::MulticastListener;
use crate::model::Family;
use crate::ruleset::RuleCounts;

/// `NFNLGRP_NFTABLES` (`include/uapi/linux/netfilter/nfnetlink.h`).
const NFNLGRP_NFTABLES: u32 = 7;
/// The time between reads of the legacy tables' size.
const LEGACY_PERIOD: Duration = Duration::from_millis(250);

pub struct TableWatch {
    family: Family,
    signs: ChangeSource,
}

enum ChangeSource {
    Nft {
        changes: AsyncFd<MulticastListener>,
        listens: bool,
    },
    Legacy {
        tables: Option<LegacyTables>,
        seen: TableSizes,
        /// Survives cancelled calls of [`TableWatch::changed`], so that frequent events delay no read.
        looks: Interval,
    },
    Notified(Arc<Notify>),
}

type TableSizes = [Option<TableSize>; Table::ALL.len()];

impl TableWatch {
    pub fn nft(family: Family) -> io::Result<TableWatch> {
        let changes = MulticastListener::of(SockProtocol::NetlinkNetFilter, 0)?;
        // SAFETY: the value yields the same open descriptor for as long as the AsyncFd lives.
        let changes = unsafe { AsyncFd::register(changes) }?;
        Ok(TableWatch { family, signs: ChangeSource::Nft { changes, listens: false } })
    }

    pub fn listens(&self) -> bool {
        !matches!(self.signs, ChangeSource::Nft { listens: false, .. })
    }

    /// Subscribes to the kernel's announcements. While it listens, the kernel writes a message per rule and element of
    /// every transaction in the namespace. That nearly doubles the time of a first sync.
    pub fn listen(&mut self) -> io::Result<()> {
        if let ChangeSource::Nft { changes, listens } = &mut self.signs {
            // Set even if refused, so that the call is not repeated.
            *listens = true;
            changes.get_ref().listen(1 << (NFNLGRP_NFTABLES - 1))?;
        }
        Ok(())
    }

    /// Needs a tokio runtime.
    pub fn legacy(family: Family) -> TableWatch {
        let mut looks = interval(LEGACY_PERIOD);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let tables = LegacyTables::open(family).ok();
        TableWatch { family, signs: ChangeSource::Legacy { seen: sizes(tables.as_ref()), tables, looks } }
    }

    pub fn notified(family: Family, changes: Arc<Notify>) -> TableWatch {
        TableWatch { family, signs: ChangeSource::Notified(changes) }
    }

    /// Ignores changes until now. Must be called before the tables are read.
    pub fn forget(&mut self) {
        match &mut self.signs {
            ChangeSource::Nft { changes, .. } => {
                changes.get_ref().take();
            }
            ChangeSource::Legacy { seen, tables, .. } => *seen = sizes(tables.as_ref()),
            ChangeSource::Notified(_) => {}
        }
    }

    /// Records that the proxy wrote `total` rules. Legacy tables may have more entries; a flush leaves fewer.
    pub fn wrote(&mut self, total: &RuleCounts, full: bool) {
        let ChangeSource::Legacy { seen, tables, .. } = &mut self.signs else { return };
        let now = sizes(tables.as_ref());
        for ((table, seen), now) in Table::ALL.into_iter().zip(seen).zip(now) {
            let least = match table {
                Table::Filter => total.filter,
                Table::Nat => total.nat,
                // Only full syncs change the table mangle.
                Table::Mangle if full => 0,
                Table::Mangle => continue,
            };
            if now.is_some_and(|(entries, _)| usize::try_from(entries).is_ok_and(|entries| entries >= least)) {
                *seen = now;
            }
        }
    }

    /// With the nft variant, the proxy's own writes count as changes.
    pub async fn changed(&mut self) {
        let family = self.family;
        match &mut self.signs {
            ChangeSource::Nft { changes, .. } => loop {
                let Ok(mut ready) = changes.readable().await else { return std::future::pending().await };
                let changed = changes.get_ref().take_if(|message| nft_family(message) == Some(family));
                ready.clear_ready();
                if changed {
                    return;
                }
            },
            ChangeSource::Legacy { seen, tables, looks } => loop {
                looks.tick().await;
                let now = sizes(tables.as_ref());
                if now != *seen {
                    *seen = now;
                    return;
                }
            },
            ChangeSource::Notified(changes) => changes.notified().await,
        }
    }
}

/// Returns the family, the first byte of `struct nfgenmsg` (`include/uapi/linux/netfilter/nfnetlink.h`); a
/// transaction's last message has none.
fn nft_family(message: &Message<'_>) -> Option<Family> {
    match i32::from(*message.payload.first()?) {
        libc::AF_INET => Some(Family::V4),
        libc::AF_INET6 => Some(Family::V6),
        _ => None,
    }
}

fn sizes(tables: Option<&LegacyTables>) -> TableSizes {
    Table::ALL.map(|table| tables?.size(table))
}
