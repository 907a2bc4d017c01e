//! The configuration and this machine.

use tokio::runtime::Runtime;
use tracing::warn;

use super::super::open_mode::{self, OpenedMode};
use super::super::settings::{ObjectOrigin, ResolvedSettings, Settings};
use super::super::{kernel_settings, run};
use super::kube_proxy;
use super::report::{CheckReport, Severity};
use crate::config::{Config, Mode, Variant};
use crate::http;
use crate::kernel::capabilities;
use crate::kernel::descriptors::DescriptorShares;
use crate::kernel::instance::InstanceLock;
use crate::kernel::sysctl::SettingChange;
use crate::mode::Mode as ModeAtWork;
use crate::mode::family::FamilyProxy;

pub(super) fn configuration(report: &mut CheckReport, settings: &Settings) -> Option<(ResolvedSettings, ObjectOrigin)> {
    let resolve = || {
        let resolved = settings.resolve()?;
        resolved.warnings.iter().for_each(|warning| warn!("{warning}"));
        run::warn_about_node_ports(&resolved.configuration, resolved.config.mode);
        let origin = settings.origin(&resolved)?;
        Ok((resolved, origin))
    };
    let described = |(resolved, origin): &(ResolvedSettings, ObjectOrigin)| {
        format!("{} mode, node {}, {origin}", resolved.config.mode, resolved.config.node_name)
    };
    report.step("configuration", resolve, described)
}

pub(super) fn other_proxies(report: &mut CheckReport) {
    let none = |_: &InstanceLock| "none in this network namespace".to_owned();
    if report.step("other svcproxy", || Ok(InstanceLock::claim()?), none).is_none() {
        // Its ports answer as kube-proxy's.
        return;
    }
    match kube_proxy::running() {
        None => report.add(Severity::Ok, "kube-proxy", "not found here"),
        Some(found) => {
            let what_to_do = "both would write the same rules: take kube-proxy off this node first (docs/migration.md)";
            report.add(Severity::Problem, "kube-proxy", format!("{found}; {what_to_do}"));
        }
    }
}

pub(super) fn kernel(report: &mut CheckReport, config: &mut Config) {
    let enough = |_: &run::ProcessLimits| "enough descriptors and threads".to_owned();
    let Some(limits) = report.step("limits", || run::process_limits(config), enough) else { return };
    let settings = || kernel_settings::prepare(config, SettingChange::Try);
    report.step("kernel settings", settings, |()| "set, or can be set".to_owned());
    let described = |tables: &OpenTables| format!("{} of {}", tables.kind(config.mode), tables.families.join(" and "));
    let opened = report.step("tables", || open(config, limits.shares), described);
    let is_nft =
        opened.map_or(config.mode == Mode::Nftables || config.variant != Variant::Legacy, |tables| tables.is_nft);
    match capabilities::lacking(!is_nft) {
        None => report.add(Severity::Ok, "capabilities", "those that the tables need"),
        Some(lacking) => report.add(Severity::Problem, "capabilities", format!("{lacking}: run as root, or add them")),
    }
}

struct OpenTables {
    families: Vec<String>,
    is_nft: bool,
}

impl OpenTables {
    fn of<M: ModeAtWork>(opened: &OpenedMode<M>) -> OpenTables {
        let families = opened.proxies.iter().map(FamilyProxy::family);
        OpenTables { families: families.map(|family| family.to_string()).collect(), is_nft: opened.nft }
    }

    fn kind(&self, mode: Mode) -> &'static str {
        match (mode, self.is_nft) {
            (Mode::Nftables, _) => "nftables",
            (_, true) => "iptables' nf_tables",
            (_, false) => "iptables' legacy tables",
        }
    }
}

/// Opens and probes the tables as a start does.
fn open(config: &Config, shares: DescriptorShares) -> anyhow::Result<OpenTables> {
    Ok(match config.mode {
        Mode::Ipvs => OpenTables::of(&open_mode::ipvs(config)?),
        Mode::Nftables => OpenTables::of(&open_mode::nftables(config, shares)?),
        Mode::Userspace => OpenTables::of(&open_mode::userspace(config, shares)?),
        Mode::Iptables => OpenTables::of(&open_mode::iptables(config)?),
    })
}

pub(super) fn ports(report: &mut CheckReport, runtime: &Runtime, config: &Config) {
    let _entered = runtime.enter();
    let ports = [(config.healthz_bind_address, "/healthz"), (config.metrics_bind_address, "/metrics")];
    for (address, purpose) in ports {
        let Some(address) = address else { continue };
        match http::try_listen(address, purpose) {
            Ok(()) => report.add(Severity::Ok, "ports", format!("{address} is free for {purpose}")),
            Err(error) => {
                let severity = if config.bind_address_hard_fail { Severity::Problem } else { Severity::Warning };
                let port = address.port();
                report.add(severity, "ports", format!("{error}; `ss -ltnp 'sport = :{port}'` names the process"));
            }
        }
    }
}
