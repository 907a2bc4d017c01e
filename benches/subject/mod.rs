//! All that the benchmarks know of the proxy's library. Nothing else in this crate names `svcproxy`.

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
use svcproxy::model::Family;
use svcproxy::port_range::PortRange;

pub use svcproxy::config::Mode;

use crate::cluster::Size;
use kernel::Silent;

/// One way in which a proxy may write: a row of the tables.
#[derive(Debug, Clone, Copy)]
pub struct Writer {
    /// Its name: criterion's function.
    pub name: &'static str,
    /// The proxy's mode.
    pub mode: Mode,
    /// What it writes to.
    pub kernel: KernelKind,
    /// It is not measured with more endpoints than this in all, and why not.
    pub up_to: (u32, &'static str),
}

/// What a proxy writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelKind {
    /// Nothing: what is measured then is the proxy's own work.
    Silent,
    /// The commands of this variant of iptables.
    Commands(Variant),
    /// nf_tables, by netlink.
    Netlink,
    /// The table of nftables mode, by netlink.
    Table,
    /// nf_tables, IPVS, IP sets and addresses, by netlink: in a microVM.
    Ipvs,
}

const ANY: (u32, &str) = (u32::MAX, "");
const SLOW_NFT: (u32, &str) = (10_000, "iptables-nft-restore 1.8.9 takes over five minutes for it");

/// All writers. Another one is one line here, if it is a [`KernelKind`].
pub const WRITERS: [Writer; 6] = [
    Writer { name: "own-work", mode: Mode::Iptables, kernel: KernelKind::Silent, up_to: ANY },
    Writer { name: "iptables-legacy", mode: Mode::Iptables, kernel: KernelKind::Commands(Variant::Legacy), up_to: ANY },
    Writer { name: "iptables-nft", mode: Mode::Iptables, kernel: KernelKind::Commands(Variant::Nft), up_to: SLOW_NFT },
    NETLINK,
    NFTABLES,
    Writer { name: "userspace", mode: Mode::Userspace, kernel: KernelKind::Netlink, up_to: ANY },
];

/// iptables mode by netlink; also what leads to HAProxy where that is behind a service.
pub const NETLINK: Writer =
    Writer { name: "iptables-netlink", mode: Mode::Iptables, kernel: KernelKind::Netlink, up_to: ANY };

/// nftables mode.
pub const NFTABLES: Writer = Writer { name: "nftables", mode: Mode::Nftables, kernel: KernelKind::Table, up_to: ANY };

/// The writer that is measured in a microVM.
pub const IPVS: Writer = Writer { name: "ipvs-in-microvm", mode: Mode::Ipvs, kernel: KernelKind::Ipvs, up_to: ANY };

impl Writer {
    /// Why a cluster of this size is left out, if it is.
    pub fn too_large(&self, size: Size) -> Option<&'static str> {
        let (most, why) = self.up_to;
        (size.services * size.endpoints > most).then_some(why)
    }

    /// The program that takes the text, where text is sent.
    pub fn restore_command(&self) -> Option<&'static str> {
        match self.kernel {
            KernelKind::Silent | KernelKind::Netlink | KernelKind::Table | KernelKind::Ipvs => None,
            KernelKind::Commands(Variant::Auto) => Some("iptables-restore"),
            KernelKind::Commands(Variant::Nft) => Some("iptables-nft-restore"),
            KernelKind::Commands(Variant::Legacy) => Some("iptables-legacy-restore"),
        }
    }

    /// Whether there is a floor: there is none for what sends nothing.
    pub fn has_floor(&self) -> bool {
        self.kernel != KernelKind::Silent
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

/// Set in a process that is to be the proxy itself.
pub const AS_PROXY: &str = "SVCBENCH_AS_PROXY";

/// The proxy's own program, if this process is to be it: it has the same code within as everything that is measured.
pub fn as_proxy() -> Option<ExitCode> {
    std::env::var_os(AS_PROXY).map(|_| svcproxy::cli::main())
}

/// The settings of every proxy here: kube-proxy's own, but that syncs need not wait for one another and that node ports are
/// on listed addresses, so that an address that comes makes a difference.
fn config(mode: Mode) -> Config {
    let range = ipnet::Ipv4Net::new_assert(Ipv4Addr::new(198, 51, 100, 0), 24);
    Config {
        mode,
        min_sync_period: Duration::ZERO,
        node_port_addresses: NodePortAddresses::Ranges(vec![range.into()]),
        ..Config::for_node("node-1")
    }
}

/// The node's addresses, with or without the one that comes.
fn node_addresses(with_further: bool) -> NodeAddresses {
    let mut local = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([198, 51, 100, 1])];
    local.extend(with_further.then_some(IpAddr::from([198, 51, 100, 2])));
    NodeAddresses { local, primary: vec![IpAddr::from([198, 51, 100, 1])], ..NodeAddresses::default() }
}

/// Listening ports of userspace mode: one for each service must be had.
fn port_range() -> Result<PortRange> {
    "10000-60000".parse().map_err(anyhow::Error::msg)
}
