//! One family's proxy without a daemon, on this thread and over a kernel in memory: where counts are the same each time.

use anyhow::{Result, bail};
use svcproxy::config::{Config, Mode};
use svcproxy::kernel;
use svcproxy::kernel::iptables::Fake;
use svcproxy::kernel::iptables_nft::NfTables;
use svcproxy::kernel::nftables::NftTable as _;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::{Mode as AtWork, assemble};
use svcproxy::model::Family;
use svcproxy::relay;

use super::kernel::{Asked, Log, Observed, Sent};
use super::{config, node_addresses, port_range, table};
use crate::allocations::Allocated;
use crate::events::Input;

/// What following an event costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Asked of the kernel.
    pub asked: Asked,
    /// Allocated by the proxy's own work.
    pub allocated: Allocated,
}

/// The proxy.
pub struct Direct {
    family: Box<dyn Follow>,
    log: Log,
}

trait Follow {
    fn follow(&mut self, input: &Input) -> Result<()>;
}

impl<M: AtWork> Follow for FamilyProxy<M> {
    fn follow(&mut self, input: &Input) -> Result<()> {
        if let Some(has_address) = input.has_address {
            self.set_addresses(&node_addresses(has_address));
        }
        self.apply(&input.changes);
        if self.is_due() {
            self.sync()?;
        }
        Ok(())
    }
}

fn following<M: AtWork + 'static>(mut proxy: FamilyProxy<M>) -> Box<dyn Follow> {
    proxy.set_addresses(&node_addresses(false));
    Box::new(proxy)
}

/// What a proxy leaves behind: the kernel in memory, for the next one.
pub struct Left {
    rules: Fake,
    table: kernel::nftables::Fake,
}

impl Default for Left {
    fn default() -> Left {
        Left { rules: Fake::default(), table: kernel::nftables::Fake::new(Family::V4) }
    }
}

impl Direct {
    /// A proxy that knows of no object yet, over a kernel that has everything of `kernel`.
    ///
    /// # Errors
    /// When there is no such mode here.
    pub fn new(mode: Mode, kernel: Left) -> Result<Direct> {
        let log = Log::default();
        let (table, kernel) = (kernel.table, Observed::new(Box::new(kernel.rules), log.clone()));
        let config = config(mode);
        let family: Box<dyn Follow> = match mode {
            Mode::Iptables => following(assemble::iptables(&config, Family::V4, kernel)),
            Mode::Userspace => {
                let config = Config { port_range: port_range()?, ..config };
                following(assemble::userspace(&config, Family::V4, kernel, relay::FakeRelays::default()))
            }
            Mode::Nftables => {
                let table = table::Observed::new(table, log.clone());
                following(assemble::nftables(&config, Family::V4, table, |_| relay::FakeRelays::default()))
            }
            mode => bail!("no counts are taken in {mode} mode"),
        };
        Ok(Direct { family, log })
    }

    /// The same over the tables of this thread's network namespace, by netlink.
    ///
    /// # Errors
    /// When there is no such mode here, or no nf_tables.
    pub fn by_netlink(mode: Mode) -> Result<Direct> {
        let log = Log::default();
        match mode {
            Mode::Iptables => {
                let proxy = assemble::iptables(&config(mode), Family::V4, NfTables::open(Family::V4)?);
                Ok(Direct { family: following(proxy), log })
            }
            Mode::Nftables => {
                let (table, relays) = (table::open(Family::V4)?, |_| relay::FakeRelays::default());
                let proxy = assemble::nftables(&config(mode), Family::V4, table, relays);
                Ok(Direct { family: following(proxy), log })
            }
            mode => bail!("no system calls are counted in {mode} mode"),
        }
    }

    /// Takes `input` in and syncs.
    ///
    /// # Errors
    /// When the kernel in memory refuses something.
    pub fn follow(&mut self, input: &Input) -> Result<Cost> {
        let before = {
            let seen = self.log.lock();
            (seen.asked, seen.allocated)
        };
        let allocated = Allocated::by_this_thread();
        self.family.follow(input)?;
        let allocated = Allocated::by_this_thread() - allocated;
        let seen = self.log.lock();
        Ok(Cost { asked: seen.asked - before.0, allocated: allocated - (seen.allocated - before.1) })
    }

    /// What it has sent so far, played to a kernel in memory.
    ///
    /// # Errors
    /// When that refuses something.
    pub fn left(sent: &[Sent]) -> Result<Left> {
        let mut left = Left::default();
        for sent in sent {
            match sent {
                Sent::Text(text) => left.rules.take(text)?,
                Sent::Change(change) => left.table.commit(change)?,
                Sent::Batch(_) | Sent::Call(_) => bail!("no kernel in memory takes netlink messages"),
            }
        }
        left.rules.restored.clear();
        left.table.changes.clear();
        Ok(left)
    }

    /// Keeps every transaction from now on, and returns those that were kept before.
    pub fn keep_sent(&self) -> Vec<Sent> {
        self.log.lock().sent.replace(Vec::new()).unwrap_or_default()
    }
}
