//! Notices that another program wrote to the packet filter, without running a command.
//!
//! The nft variant's tables announce every change on a netlink multicast group. Legacy tables announce nothing, but
//! asking for their size costs one syscall; a flush changes it. So does each write of ours, which is known by its number of
//! rules: a look then would read the whole table once more.
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

use super::iptables::{Legacy, Size, Table};
use super::multicast::MulticastListener;
use crate::model::Family;
use crate::ruleset::RuleCounts;

/// Multicast group of nf_tables changes (`NFNLGRP_NFTABLES` in `include/uapi/linux/netfilter/nfnetlink.h`).
const NFNLGRP_NFTABLES: u32 = 7;
/// How often the size of the legacy tables is looked at.
const LEGACY_PERIOD: Duration = Duration::from_millis(250);

/// Waits for signs of change in one family's tables.
pub struct Watch {
    family: Family,
    signs: Signs,
}

enum Signs {
    /// Messages about the nft variant's tables.
    Nft { changes: AsyncFd<MulticastListener>, listens: bool },
    /// Sizes of the legacy tables.
    Legacy {
        /// `None` where the kernel has no such tables.
        tables: Option<Legacy>,
        /// What was there at the last look.
        seen: Sizes,
        /// Goes on over calls that were dropped: events that come faster than the period must not put off the look.
        looks: Interval,
    },
    /// Notifications of a test.
    Notified(Arc<Notify>),
}

type Sizes = [Option<Size>; Table::ALL.len()];

impl Watch {
    /// Watches the nft variant's tables of this network namespace, once it is told to [listen](Watch::listen).
    ///
    /// # Errors
    /// When the kernel refuses the socket.
    pub fn nft(family: Family) -> io::Result<Watch> {
        let changes = MulticastListener::of(SockProtocol::NetlinkNetFilter, 0)?;
        // SAFETY: they yield the same open descriptor for as long as they live, which is as long as the AsyncFd.
        let changes = unsafe { AsyncFd::register(changes) }?;
        Ok(Watch { family, signs: Signs::Nft { changes, listens: false } })
    }

    /// Whether changes are noticed.
    pub fn listens(&self) -> bool {
        !matches!(self.signs, Signs::Nft { listens: false, .. })
    }

    /// Notices changes from now on. As long as anybody listens in a network namespace, the kernel writes a message for each rule and element
    /// of every transaction there: a first sync takes nearly twice as long.
    ///
    /// # Errors
    /// When the kernel refuses; changes are not noticed then.
    pub fn listen(&mut self) -> io::Result<()> {
        if let Signs::Nft { changes, listens } = &mut self.signs {
            // Not again and again, where it is refused.
            *listens = true;
            changes.get_ref().listen(1 << (NFNLGRP_NFTABLES - 1))?;
        }
        Ok(())
    }

    /// Watches legacy tables. Needs a tokio runtime around it.
    pub fn legacy(family: Family) -> Watch {
        let mut looks = interval(LEGACY_PERIOD);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let tables = Legacy::open(family).ok();
        Watch { family, signs: Signs::Legacy { seen: sizes(tables.as_ref()), tables, looks } }
    }

    /// Watches nothing in the kernel: a test notifies of changes.
    pub fn notified(family: Family, changes: Arc<Notify>) -> Watch {
        Watch { family, signs: Signs::Notified(changes) }
    }

    /// Takes what there is now for seen. To be called before a look at the tables.
    pub fn forget(&mut self) {
        match &mut self.signs {
            Signs::Nft { changes, .. } => {
                changes.get_ref().take();
            }
            Signs::Legacy { seen, tables, .. } => *seen = sizes(tables.as_ref()),
            Signs::Notified(_) => {}
        }
    }

    /// A sync of ours, perhaps a full one, has written to the tables, which hold so many rules of ours now. Legacy tables that hold at least our rules are taken for seen: another
    /// program's flush in the same moment leaves fewer.
    pub fn wrote(&mut self, total: &RuleCounts, full: bool) {
        let Signs::Legacy { seen, tables, .. } = &mut self.signs else { return };
        let now = sizes(tables.as_ref());
        for ((table, seen), now) in Table::ALL.into_iter().zip(seen).zip(now) {
            let least = match table {
                Table::Filter => total.filter,
                Table::Nat => total.nat,
                // Partial syncs write nothing there.
                Table::Mangle if full => 0,
                Table::Mangle => continue,
            };
            if now.is_some_and(|(entries, _)| usize::try_from(entries).is_ok_and(|entries| entries >= least)) {
                *seen = now;
            }
        }
    }

    /// Waits until something changed. With the nft variant our own writes count too; one look follows each.
    pub async fn changed(&mut self) {
        let family = self.family;
        match &mut self.signs {
            Signs::Nft { changes, .. } => loop {
                let Ok(mut ready) = changes.readable().await else { return std::future::pending().await };
                let changed = changes.get_ref().take_if(|message| nft_family(message) == Some(family));
                ready.clear_ready();
                if changed {
                    return;
                }
            },
            Signs::Legacy { seen, tables, looks } => loop {
                looks.tick().await;
                let now = sizes(tables.as_ref());
                if now != *seen {
                    *seen = now;
                    return;
                }
            },
            Signs::Notified(changes) => changes.notified().await,
        }
    }
}

/// The family of an nf_tables message: the first byte of `struct nfgenmsg` (`include/uapi/linux/netfilter/nfnetlink.h`).
/// The message that ends a transaction has none.
fn nft_family(message: &Message<'_>) -> Option<Family> {
    match i32::from(*message.payload.first()?) {
        libc::AF_INET => Some(Family::V4),
        libc::AF_INET6 => Some(Family::V6),
        _ => None,
    }
}

fn sizes(tables: Option<&Legacy>) -> Sizes {
    Table::ALL.map(|table| tables?.size(table))
}
