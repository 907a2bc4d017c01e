//! The only use of the proxy's library besides its `model` types.

pub mod daemon;
pub mod direct;
pub mod ipvs;
pub mod kernel;
pub mod table;
mod timed;

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use svcproxy::config::{Config, NodeAddresses, NodePortAddresses, Variant};
use svcproxy::kernel::iptables::{Commands, Iptables};
use svcproxy::model::{Family, FlowFate, LoadBalancing};
use svcproxy::port_range::PortRange;

pub use svcproxy::config::Mode;

use crate::cluster::ClusterSize;
use kernel::Silent;

/// A measured writer, one per row of the tables.
#[derive(Debug, Clone, Copy)]
pub struct BenchWriter {
    pub name: &'static str,
    pub mode: Mode,
    pub kernel: KernelKind,
    pub option: NodeOption,
    /// The most endpoints in the cluster, and the reason.
    pub up_to: (u32, &'static str),
}

/// What the node's configuration asks for beyond the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeOption {
    #[default]
    Nothing,
    /// `flowFate: reset`.
    FlowFate,
    /// `--service-counters`.
    ServiceCounters,
    /// `loadBalancing: maglev`.
    Maglev,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelKind {
    /// No kernel, to measure the proxy's own work.
    Silent,
    Commands(Variant),
    /// iptables' tables in nf_tables, by netlink.
    Netlink,
    Table,
    /// nf_tables, IPVS, IP sets and addresses, by netlink: in a microVM.
    Ipvs,
}

const ANY: (u32, &str) = (u32::MAX, "");
const MANY_SLOTS: (u32, &str) = (1_000, "each list of ten endpoints has 4,093 elements");
const OPTION: (u32, &str) = (10_000, "what an option costs is measured in clusters up to 1,000 services");
const SLOW_NFT: (u32, &str) = (10_000, "iptables-nft-restore 1.8.9 takes over five minutes for it");

/// All writers. A new writer is one line here, if [`KernelKind`] has its kernel.
pub const WRITERS: [BenchWriter; 6] = [
    BenchWriter {
        name: "own-work",
        mode: Mode::Iptables,
        kernel: KernelKind::Silent,
        option: NodeOption::Nothing,
        up_to: ANY,
    },
    BenchWriter {
        name: "iptables-legacy",
        mode: Mode::Iptables,
        kernel: KernelKind::Commands(Variant::Legacy),
        option: NodeOption::Nothing,
        up_to: ANY,
    },
    BenchWriter {
        name: "iptables-nft",
        mode: Mode::Iptables,
        kernel: KernelKind::Commands(Variant::Nft),
        option: NodeOption::Nothing,
        up_to: SLOW_NFT,
    },
    NETLINK,
    NFTABLES,
    BenchWriter {
        name: "userspace",
        mode: Mode::Userspace,
        kernel: KernelKind::Netlink,
        option: NodeOption::Nothing,
        up_to: ANY,
    },
];

/// iptables mode by netlink; also forwards to HAProxy behind a Service.
pub const NETLINK: BenchWriter = BenchWriter {
    name: "iptables-netlink",
    mode: Mode::Iptables,
    kernel: KernelKind::Netlink,
    option: NodeOption::Nothing,
    up_to: ANY,
};

pub const NFTABLES: BenchWriter = BenchWriter {
    name: "nftables",
    mode: Mode::Nftables,
    kernel: KernelKind::Table,
    option: NodeOption::Nothing,
    up_to: ANY,
};

/// Modes with an option: their rows beside [`NETLINK`] and [`NFTABLES`] are what the option costs.
pub const WITH_OPTIONS: [BenchWriter; 4] = [
    BenchWriter { name: "iptables-flow-fate", option: NodeOption::FlowFate, up_to: OPTION, ..NETLINK },
    BenchWriter { name: "nftables-flow-fate", option: NodeOption::FlowFate, up_to: OPTION, ..NFTABLES },
    BenchWriter { name: "nftables-service-counters", option: NodeOption::ServiceCounters, up_to: OPTION, ..NFTABLES },
    BenchWriter { name: "nftables-maglev", option: NodeOption::Maglev, up_to: MANY_SLOTS, ..NFTABLES },
];

pub const IPVS: BenchWriter = BenchWriter {
    name: "ipvs-in-microvm",
    mode: Mode::Ipvs,
    kernel: KernelKind::Ipvs,
    option: NodeOption::Nothing,
    up_to: ANY,
};

impl BenchWriter {
    pub fn too_large(&self, size: ClusterSize) -> Option<&'static str> {
        let (most, why) = self.up_to;
        (size.services * size.endpoints > most).then_some(why)
    }

    /// Returns the command that takes the text, for writers of text.
    pub fn restore_command(&self) -> Option<&'static str> {
        match self.kernel {
            KernelKind::Silent | KernelKind::Netlink | KernelKind::Table | KernelKind::Ipvs => None,
            KernelKind::Commands(Variant::Auto) => Some("iptables-restore"),
            KernelKind::Commands(Variant::Nft) => Some("iptables-nft-restore"),
            KernelKind::Commands(Variant::Legacy) => Some("iptables-legacy-restore"),
        }
    }

    pub fn has_floor(&self) -> bool {
        self.kernel != KernelKind::Silent && self.option == NodeOption::Nothing
    }

    fn is_nft(&self) -> bool {
        let commands = matches!(self.kernel, KernelKind::Commands(Variant::Nft));
        commands || matches!(self.kernel, KernelKind::Netlink | KernelKind::Table | KernelKind::Ipvs)
    }

    fn open(&self) -> Result<Box<dyn Iptables + Send>> {
        Ok(match self.kernel {
            KernelKind::Silent => Box::new(Silent),
            KernelKind::Netlink | KernelKind::Table | KernelKind::Ipvs => {
                bail!("the netlink writer is no iptables command")
            }
            KernelKind::Commands(variant) => Box::new(Commands::find(Family::V4, variant)?),
        })
    }
}

pub const AS_PROXY: &str = "SVCBENCH_AS_PROXY";

pub fn as_proxy() -> Option<ExitCode> {
    std::env::var_os(AS_PROXY).map(|_| svcproxy::cli::main())
}

/// Returns kube-proxy's defaults without a pause between syncs; node port addresses include a new address.
fn config(mode: Mode, option: NodeOption) -> Config {
    let range = ipnet::Ipv4Net::new_assert(Ipv4Addr::new(198, 51, 100, 0), 24);
    let config = Config {
        mode,
        min_sync_period: Duration::ZERO,
        node_port_addresses: NodePortAddresses::Ranges(vec![range.into()]),
        ..Config::for_node("node-1")
    };
    match option {
        NodeOption::Nothing => config,
        NodeOption::FlowFate => Config { flow_fate: FlowFate::Reset, ..config },
        NodeOption::ServiceCounters => Config { service_counters: "*/*".parse().ok(), ..config },
        NodeOption::Maglev => Config { load_balancing: LoadBalancing::Maglev, ..config },
    }
}

fn node_addresses(with_further: bool) -> NodeAddresses {
    let mut local = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([198, 51, 100, 1])];
    local.extend(with_further.then_some(IpAddr::from([198, 51, 100, 2])));
    NodeAddresses { local, primary: vec![IpAddr::from([198, 51, 100, 1])], ..NodeAddresses::default() }
}

/// Returns at least one port per Service.
fn port_range() -> Result<PortRange> {
    "10000-60000".parse().map_err(anyhow::Error::msg)
}
