use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use svcproxy::config::NodeAddresses;
use svcproxy::kernel::conntrack::{Conntrack, FlowFilter, ScanStep};
use svcproxy::kernel::dummy::{self, AddressChange, AddressState, ServiceDevice};
use svcproxy::kernel::ipset::{self, IpSets, Set, SetChange, SetHeader};
use svcproxy::kernel::iptables::{FakeIptables, Iptables, IptablesError, Table};
use svcproxy::kernel::iptables_nft::NfTables;
use svcproxy::kernel::ipvs::{self, Destinations, ServerChange, ServerKey, ServerSpec, VirtualServers};
use svcproxy::kernel::netlink::NetlinkError;
use svcproxy::kernel::packet_filter::PacketFilter;
use svcproxy::model::{Family, ServicePortName};
use svcproxy::plan::stale_flows::Flow;
use svcproxy::relay::{self, ListenError, Listener, RelayBackends, Relays};
use svcproxy::ruleset::{SavedTables, Transaction};
use tokio::sync::Notify;

/// Requests to one family's kernel and to the relays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestCounts {
    pub dumps: usize,
    pub restores: usize,
    pub looks: usize,
    pub conntrack_dumps: usize,
    /// Lists of virtual servers with destinations, sets, or addresses.
    pub lists: usize,
    /// Messages that change nf_tables, virtual servers, members of sets, addresses.
    pub messages: usize,
    /// Listening ports opened or closed, and changes of their backends.
    pub relayed: usize,
}

/// Omits counts of zero.
impl fmt::Display for RequestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            ("dumps", self.dumps),
            ("restores", self.restores),
            ("looks", self.looks),
            ("conntrack dumps", self.conntrack_dumps),
            ("lists", self.lists),
            ("messages", self.messages),
            ("relayed", self.relayed),
        ];
        let said = all.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} {name}"));
        let said: Vec<String> = said.collect();
        f.write_str(if said.is_empty() { "nothing" } else { "" })?;
        f.write_str(&said.join(", "))
    }
}

/// One family's kernel, shared by proxy and test.
#[derive(Clone, Default)]
pub struct Kernel {
    pub tables: Arc<Mutex<FakeIptables>>,
    pub asked: Arc<Mutex<RequestCounts>>,
    pub addresses: Arc<Mutex<NodeAddresses>>,
    pub announced: Arc<Notify>,
    /// Announces changed addresses.
    pub moved: Arc<Notify>,
    /// Restores wait while this is set.
    pub hangs: Arc<AtomicBool>,
    pub fails: Arc<AtomicBool>,
    /// Conntrack dumps do not end while this is set; their pieces are counted.
    pub goes_on: Arc<AtomicBool>,
    pub pieces: Arc<AtomicUsize>,
    pub flows: Arc<Mutex<Vec<Flow>>>,
}

impl Kernel {
    fn count(&self, count: impl FnOnce(&mut RequestCounts)) {
        count(&mut self.asked.lock().unwrap());
    }
}

impl Iptables for Kernel {
    fn save(&mut self, tables: &[Table]) -> Result<String, IptablesError> {
        self.count(|asked| asked.dumps += 1);
        self.tables.lock().unwrap().save(tables)
    }

    fn restore(&mut self, change: &Transaction) -> Result<(), IptablesError> {
        self.count(|asked| asked.restores += 1);
        wait_while(&self.hangs);
        if self.fails.load(Ordering::SeqCst) {
            let message = "no".to_owned();
            return Err(IptablesError::Failed { command: "ip6tables-restore".into(), status: 1, message });
        }
        self.tables.lock().unwrap().restore(change)
    }

    fn reference_counts(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        self.count(|asked| asked.looks += 1);
        Iptables::reference_counts(&mut *self.tables.lock().unwrap(), table, chains)
    }

    fn random_fully(&self) -> bool {
        true
    }
}

impl Conntrack for Kernel {
    fn delete_some(
        &mut self,
        _: Family,
        filters: &[FlowFilter],
        anew: bool,
        stale: &dyn Fn(&Flow) -> bool,
    ) -> std::io::Result<ScanStep> {
        assert!(!filters.contains(&FlowFilter::None), "the whole table is never dumped");
        if anew {
            self.count(|asked| asked.conntrack_dumps += filters.len());
        }
        self.flows.lock().unwrap().retain(|flow| !stale(flow));
        let is_last = !self.goes_on.load(Ordering::SeqCst);
        if !is_last {
            self.pieces.fetch_add(1, Ordering::SeqCst);
        }
        Ok(ScanStep { deleted: 1, is_last, ..ScanStep::default() })
    }

    fn clients(&mut self, _: Family) -> std::io::Result<BTreeSet<IpAddr>> {
        Ok(BTreeSet::new())
    }
}

pub fn wait_while(flag: &AtomicBool) {
    while flag.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub struct CountedKernel<T> {
    pub inner: T,
    pub asked: Arc<Mutex<RequestCounts>>,
}

impl<T> CountedKernel<T> {
    pub fn beside(kernel: &Kernel, inner: T) -> CountedKernel<T> {
        CountedKernel { inner, asked: Arc::clone(&kernel.asked) }
    }

    fn asked(&self, count: impl FnOnce(&mut RequestCounts)) {
        count(&mut self.asked.lock().unwrap());
    }
}

impl VirtualServers for CountedKernel<ipvs::FakeIpvs> {
    fn servers(&mut self, family: Family) -> Result<BTreeMap<ServerKey, ServerSpec>, NetlinkError> {
        self.asked(|asked| asked.lists += 1);
        self.inner.servers(family)
    }

    fn destinations(&mut self, keys: &[ServerKey]) -> Result<Vec<Destinations>, NetlinkError> {
        self.asked(|asked| asked.lists += keys.len());
        self.inner.destinations(keys)
    }

    fn change_servers(&mut self, changes: &[ServerChange]) -> Result<(), NetlinkError> {
        self.asked(|asked| asked.messages += changes.len());
        self.inner.change_servers(changes)
    }
}

impl IpSets for CountedKernel<ipset::FakeIpSets> {
    fn set(&mut self, name: &str) -> Result<Option<Set>, NetlinkError> {
        self.asked(|asked| asked.lists += 1);
        self.inner.set(name)
    }

    fn create_set(&mut self, header: &SetHeader) -> Result<(), NetlinkError> {
        self.asked(|asked| asked.messages += 1);
        self.inner.create_set(header)
    }

    fn change_sets(&mut self, changes: &[SetChange]) -> Result<(), NetlinkError> {
        self.asked(|asked| asked.messages += changes.iter().map(|change| change.members.len()).sum::<usize>());
        self.inner.change_sets(changes)
    }

    fn swap_sets(&mut self, one: &str, other: &str) -> Result<(), NetlinkError> {
        self.asked(|asked| asked.messages += 1);
        self.inner.swap_sets(one, other)
    }

    fn destroy_set(&mut self, name: &str) -> Result<(), NetlinkError> {
        self.asked(|asked| asked.messages += 1);
        self.inner.destroy_set(name)
    }
}

impl ServiceDevice for CountedKernel<dummy::FakeDevice> {
    fn ensure_device(&mut self) -> Result<(), NetlinkError> {
        self.asked(|asked| asked.messages += 1);
        self.inner.ensure_device()
    }

    fn addresses(&mut self, family: Family) -> Result<BTreeMap<IpAddr, AddressState>, NetlinkError> {
        self.asked(|asked| asked.lists += 1);
        self.inner.addresses(family)
    }

    fn change_addresses(&mut self, changes: &[AddressChange]) -> Result<(), NetlinkError> {
        self.asked(|asked| asked.messages += changes.len());
        self.inner.change_addresses(changes)
    }

    fn remove_device(&mut self) -> Result<(), NetlinkError> {
        self.asked(|asked| asked.messages += 1);
        self.inner.remove_device()
    }
}

impl Relays for CountedKernel<relay::FakeRelays> {
    fn set_backends(&mut self, name: &ServicePortName, backends: Option<RelayBackends>) {
        self.asked(|asked| asked.relayed += 1);
        self.inner.set_backends(name, backends);
    }

    fn listen(&mut self, listener: &Listener, port: u16) -> Result<(), ListenError> {
        self.asked(|asked| asked.relayed += 1);
        self.inner.listen(listener, port)
    }

    fn close(&mut self, listener: &Listener) {
        self.asked(|asked| asked.relayed += 1);
        self.inner.close(listener);
    }
}

impl CountedKernel<NfTables> {
    /// Uses the real tables of iptables-nft, by netlink.
    pub fn netlink(kernel: &Kernel, mut tables: NfTables) -> CountedKernel<NfTables> {
        let asked = Arc::clone(&kernel.asked);
        tables.observe(Box::new(move |batch| asked.lock().unwrap().messages += batch.messages()));
        CountedKernel::beside(kernel, tables)
    }
}

impl PacketFilter for CountedKernel<NfTables> {
    fn inner(&mut self) -> Option<&mut dyn PacketFilter> {
        Some(&mut self.inner)
    }

    fn list(&mut self, tables: &[Table], unread: &dyn Fn(Table, &str) -> bool) -> Result<SavedTables, IptablesError> {
        self.asked(|asked| asked.dumps += 1);
        self.inner.list(tables, unread)
    }

    fn commit(&mut self, change: &Transaction) -> Result<(), IptablesError> {
        self.asked(|asked| asked.restores += usize::from(!change.is_empty()));
        self.inner.commit(change)
    }

    fn reference_counts(&mut self, table: Table, chains: &[&str]) -> Result<Vec<Option<usize>>, IptablesError> {
        self.asked(|asked| asked.looks += 1);
        self.inner.reference_counts(table, chains)
    }

    fn random_fully(&mut self) -> bool {
        self.inner.random_fully()
    }
}
