use std::fmt::Display;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use svclab_properties::proxies;
use svclab_sim::relays::Relays;
use svcproxy::config::{Config, Mode, NodeAddresses};
use svcproxy::kernel;
use svcproxy::kernel::addresses;
use svcproxy::kernel::descriptors::{self, DescriptorShares};
use svcproxy::kernel::sysctl::{self, SettingChange};
use svcproxy::kernel::writer::IptablesWriter;
use svcproxy::mode;
use svcproxy::mode::assemble;
use svcproxy::mode::family::FamilyProxy;
use svcproxy::mode::iptables_family::ipvs::kernel::LinuxIpvs;
use svcproxy::mode::iptables_family::{ipvs, userspace};
use svcproxy::mode::localhost::relayed;
use svcproxy::mode::nftables::layout;
use svcproxy::model::{Change, Family};
use svcproxy::plan::node::{node_port_relay, routes_loopback};
use svcproxy::relay::engine::RelayShared;
use svcproxy::relay::limits::RelayLimits;
use svcproxy::relay::{RelayBackends, RelayEngine, tcp, udp};
use tokio::sync::oneshot;

/// The idle timeout of relays: longer than any test.
const SILENT: Duration = Duration::from_secs(3600);

/// The time after which nftables mode has done every delayed deletion.
const LATER: Duration = Duration::from_secs(60);

/// Proxies and relays; relays run until the proxies are dropped.
type StartedProxies = (Box<dyn std::any::Any>, Relays);

type UserspaceProxy = FamilyProxy<userspace::syncer::UserspaceSyncer<IptablesWriter, RelayEngine>>;

#[derive(Debug, Clone)]
pub(super) struct SyncJob {
    pub(super) config: Config,
    pub(super) families: Vec<Family>,
    pub(super) changes: Arc<[Change]>,
    pub(super) first: usize,
}

impl SyncJob {
    /// Relays continue to run after the syncs.
    pub(super) fn carry_out(self) -> Result<Option<RelayThread>, String> {
        // Resets route_localnet, which proxies never clear.
        sysctl::ensure(sysctl::ROUTE_LOCALNET, "0", SettingChange::Write).map_err(text)?;
        match self.config.mode {
            Mode::Userspace => RelayThread::start(move || self.sync_userspace()).map(Some),
            Mode::Ipvs => {
                ipvs::prepare::apply(false, SettingChange::Write).map_err(text)?;
                let assemble = |family, writer| {
                    let kernel = LinuxIpvs::open(writer).map_err(text)?;
                    Ok(assemble::ipvs(&self.config, family, kernel))
                };
                self.sync_families(assemble).map(|_| None)
            }
            Mode::Nftables if self.families.iter().any(|family| node_port_relay(&self.config, *family).is_some()) => {
                RelayThread::start(move || self.sync_nftables()).map(Some)
            }
            Mode::Nftables => self.sync_nftables().map(|_| None),
            Mode::Iptables => {
                if routes_loopback(&self.config) {
                    sysctl::ensure(sysctl::ROUTE_LOCALNET, "1", SettingChange::Write).map_err(text)?;
                }
                self.sync_families(|family, writer| Ok(assemble::iptables(&self.config, family, writer))).map(|_| None)
            }
        }
    }

    fn sync_nftables(&self) -> Result<StartedProxies, String> {
        let own = addresses::read().map_err(text)?;
        let (mut proxies, mut relays) = (Vec::new(), Relays::new());
        for family in &self.families {
            let table = kernel::nftables::NetlinkTable::open(*family, layout::TABLE, layout::COMMENT).map_err(text)?;
            let address = node_port_relay(&self.config, *family);
            let proxy = assemble::nftables(&self.config, *family, table, |address| RelayEngine::on(address, shared()));
            let mut proxy = self.sync_in_two_steps(proxy, &own)?;
            proxy.follow_up(Instant::now() + LATER).map_err(text)?;
            let plans = proxy.plans();
            let found = plans.iter().filter_map(|plan| Some((relayed(plan)?, address?)));
            relays.extend(found.map(|((port, to), address)| proxies::localhost_relay(*family, address, port, to)));
            proxies.push(proxy);
        }
        Ok((Box::new(proxies), relays))
    }

    fn sync_userspace(&self) -> Result<StartedProxies, String> {
        let shared = shared();
        let mut proxies = self.sync_families(|family, writer| {
            let relays = RelayEngine::new(family, Arc::clone(&shared));
            Ok(assemble::userspace(&self.config, family, writer, relays))
        })?;
        let relays = proxies.iter_mut().flat_map(relays).collect();
        Ok((Box::new(proxies), relays))
    }

    fn sync_families<M: mode::Mode>(
        &self,
        assemble: impl Fn(Family, IptablesWriter) -> Result<FamilyProxy<M>, String>,
    ) -> Result<Vec<FamilyProxy<M>>, String> {
        let own = addresses::read().map_err(text)?;
        let proxies = self.families.iter().map(|family| {
            let opened = IptablesWriter::open(*family, self.config.variant, self.config.writer).map_err(text)?;
            self.sync_in_two_steps(assemble(*family, opened.writer)?, &own)
        });
        proxies.collect()
    }

    fn sync_in_two_steps<M: mode::Mode>(
        &self,
        mut proxy: FamilyProxy<M>,
        own: &NodeAddresses,
    ) -> Result<FamilyProxy<M>, String> {
        proxy.set_addresses(own);
        for part in [&self.changes[..self.first], &self.changes[self.first..]] {
            proxy.apply(part);
            proxy.sync().map_err(text)?;
        }
        Ok(proxy)
    }
}

/// Relays end when this is dropped.
pub(super) struct RelayThread {
    pub(super) relays: Relays,
    thread: Option<JoinHandle<()>>,
    end: Option<oneshot::Sender<()>>,
}

impl RelayThread {
    /// Starts a thread, which inherits the caller's namespaces.
    fn start(sync: impl FnOnce() -> Result<StartedProxies, String> + Send + 'static) -> Result<RelayThread, String> {
        let (ready, is_ready) = mpsc::channel();
        let (end, ended) = oneshot::channel::<()>();
        let live = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let begin = |runtime: &tokio::runtime::Runtime| {
                let _context = runtime.enter();
                sync()
            };
            let started_proxies = runtime.map_err(text).and_then(|runtime| Ok((begin(&runtime)?, runtime)));
            match started_proxies {
                Err(why) => drop(ready.send(Err(why))),
                Ok(((_proxies, relays), runtime)) => {
                    if ready.send(Ok(relays)).is_ok() {
                        let _ = runtime.block_on(ended);
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("relays".to_owned()).spawn(live).map_err(text)?;
        let relays = is_ready.recv().map_err(text)??;
        Ok(RelayThread { relays, thread: Some(thread), end: Some(end) })
    }
}

impl Drop for RelayThread {
    fn drop(&mut self) {
        drop(self.end.take());
        // Waits, because the next proxies need the same ports.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn relays(proxy: &mut UserspaceProxy) -> Relays {
    let (family, plans) = (proxy.family(), proxy.plans());
    let led = |name: &_| plans.iter().find(|plan| plan.name == *name).map(RelayBackends::of);
    proxies::relays(family, proxy.mode().renderer().listening(), led)
}

fn shared() -> Arc<RelayShared> {
    let tcp = tcp::TcpTimeouts { idle: SILENT, half_closed: SILENT };
    let udp = udp::UdpTimeouts { single: SILENT, conversation: SILENT };
    RelayShared::new(RelayLimits::of(DescriptorShares::of(descriptors::raise()).relays), tcp, udp)
}

fn text(error: impl Display) -> String {
    error.to_string()
}
