//! Kernel settings and modules, which come before the tables.

use anyhow::Context;
use tracing::warn;

use crate::config::{Config, Mode};
use crate::kernel::ipvs::Genetlink;
use crate::kernel::limits;
use crate::kernel::sysctl::{self, SettingChange};
use crate::mode::iptables_family::ipvs::prepare;
use crate::model::FlowFate;
use crate::plan::flow_fate::deletes_entries;
use crate::plan::node::routes_loopback;

/// Settings that are refused and not needed are warnings. With [`SettingChange::Try`] nothing is written, except a virtual server of a
/// trial, which is removed at once.
pub(super) fn prepare(config: &mut Config, change: SettingChange) -> anyhow::Result<()> {
    for refused in limits::set_conntrack(&config.conntrack, change) {
        warn!("{refused}");
    }
    if config.tcp_be_liberal {
        sysctl::ensure(sysctl::TCP_BE_LIBERAL, "1", change)
            .context("conntrack.tcpBeLiberal (--conntrack-tcp-be-liberal)")?;
    } else if sysctl::read(sysctl::TCP_BE_LIBERAL).is_ok_and(|value| value != "0") {
        // The node has set the sysctl: dropping INVALID packets would undo its effect.
        config.tcp_be_liberal = true;
    }
    let is_strict = || sysctl::read(sysctl::TCP_LOOSE).is_ok_and(|value| value == "0");
    if deletes_entries(config.mode) && config.flow_fate != FlowFate::Keep && is_strict() {
        warn!(
            "flowFate (--flow-fate) has no effect: with net.netfilter.nf_conntrack_tcp_loose=0 iptables mode cannot reset connections"
        );
    }
    if config.mode == Mode::Ipvs {
        // Loads the kernel module, which provides the sysctls below.
        let mut servers = Genetlink::open().context("IPVS mode")?;
        prepare::apply(config.ipvs.strict_arp, change).context("IPVS mode")?;
        if change == SettingChange::Write {
            servers.set_timeouts(&config.ipvs.timeouts)?;
        }
        servers.try_scheduler(&config.ipvs.scheduler).context("ipvs.scheduler (--ipvs-scheduler)")?;
    }
    if routes_loopback(config)
        && let Err(error) = sysctl::ensure(sysctl::ROUTE_LOCALNET, "1", change)
    {
        warn!(%error, "node ports on 127.0.0.1 will not work; --iptables-localhost-nodeports=false does without");
        config.localhost_node_ports = false;
    }
    Ok(())
}
