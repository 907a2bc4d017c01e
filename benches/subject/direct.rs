//! The proxy of one family with a fake kernel: counts are the same every time.

use anyhow::{Result, bail};
use svcproxy::config::{Config, Mode};
use svcproxy::kernel;
use svcproxy::kernel::iptables::FakeIptables;
use svcproxy::kernel::iptables_nft::NfTables;
use svcproxy::kernel::nftables::NftTable as _;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::{Mode as AtWork, assemble};
use svcproxy::model::Family;
use svcproxy::relay;

use super::kernel::{CallLog, CountedIptables, KernelRequests, SentTransaction};
use super::{NodeOption, config, node_addresses, port_range, table};
use crate::allocations::Allocated;
use crate::events::EventInput;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventCost {
    pub asked: KernelRequests,
    /// Allocations, without those of the fake kernel.
    pub allocated: Allocated,
}

pub struct DirectProxy {
    family: Box<dyn Follow>,
    log: CallLog,
}

trait Follow {
    fn follow(&mut self, input: &EventInput) -> Result<()>;
}

impl<M: AtWork> Follow for FamilyProxy<M> {
    fn follow(&mut self, input: &EventInput) -> Result<()> {
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

pub struct FakeKernel {
    rules: FakeIptables,
    table: kernel::nftables::FakeNftTable,
}

impl Default for FakeKernel {
    fn default() -> FakeKernel {
        FakeKernel { rules: FakeIptables::default(), table: kernel::nftables::FakeNftTable::new(Family::V4) }
    }
}

impl DirectProxy {
    pub fn new(mode: Mode, option: NodeOption, kernel: FakeKernel) -> Result<DirectProxy> {
        let log = CallLog::default();
        let (table, kernel) = (kernel.table, CountedIptables::new(Box::new(kernel.rules), log.clone()));
        let config = config(mode, option);
        let family: Box<dyn Follow> = match mode {
            Mode::Iptables => following(assemble::iptables(&config, Family::V4, kernel)),
            Mode::Userspace => {
                let config = Config { port_range: port_range()?, ..config };
                following(assemble::userspace(&config, Family::V4, kernel, relay::FakeRelays::default()))
            }
            Mode::Nftables => {
                let table = table::CountedTable::new(table, log.clone());
                following(assemble::nftables(&config, Family::V4, table, |_| relay::FakeRelays::default()))
            }
            mode => bail!("no counts are taken in {mode} mode"),
        };
        Ok(DirectProxy { family, log })
    }

    /// Returns a proxy without objects that writes to this thread's network namespace by netlink.
    pub fn by_netlink(mode: Mode) -> Result<DirectProxy> {
        let log = CallLog::default();
        match mode {
            Mode::Iptables => {
                let proxy =
                    assemble::iptables(&config(mode, NodeOption::Nothing), Family::V4, NfTables::open(Family::V4)?);
                Ok(DirectProxy { family: following(proxy), log })
            }
            Mode::Nftables => {
                let (table, relays) = (table::open(Family::V4)?, |_| relay::FakeRelays::default());
                let proxy = assemble::nftables(&config(mode, NodeOption::Nothing), Family::V4, table, relays);
                Ok(DirectProxy { family: following(proxy), log })
            }
            mode => bail!("no system calls are counted in {mode} mode"),
        }
    }

    pub fn follow(&mut self, input: &EventInput) -> Result<EventCost> {
        let before = {
            let seen = self.log.lock();
            (seen.asked, seen.allocated)
        };
        let allocated = Allocated::by_this_thread();
        self.family.follow(input)?;
        let allocated = Allocated::by_this_thread() - allocated;
        let seen = self.log.lock();
        Ok(EventCost { asked: seen.asked - before.0, allocated: allocated - (seen.allocated - before.1) })
    }

    pub fn left(sent: &[SentTransaction]) -> Result<FakeKernel> {
        let mut left = FakeKernel::default();
        for sent in sent {
            match sent {
                SentTransaction::Text(text) => left.rules.take(text)?,
                SentTransaction::Change(change) => left.table.commit(change)?,
                SentTransaction::Batch(_) | SentTransaction::Call(_) => {
                    bail!("no kernel in memory takes netlink messages")
                }
            }
        }
        left.rules.restored.clear();
        left.table.changes.clear();
        Ok(left)
    }

    pub fn keep_sent(&self) -> Vec<SentTransaction> {
        self.log.lock().sent.replace(Vec::new()).unwrap_or_default()
    }
}
