//! `svcproxy render`: what would be sent to the kernel, on standard output.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use clap::{Args, ValueEnum};
use tracing::warn;

use super::settings::Settings;
use crate::config::{Config, Mode, NodeAddresses};
use crate::kernel::iptables;
use crate::mode::engine::render::{Renderer, tables};
use crate::mode::iptables::family::FamilyProxy;
use crate::mode::iptables::{jumps, syncer};
use crate::mode::ipvs::desired::{DesiredState, DirtyKeys};
use crate::mode::ipvs::objects::NodeContext;
use crate::mode::localhost::relayed;
use crate::mode::rules::jumps::Jump;
use crate::mode::userspace;
use crate::mode::{ipvs, nftables};
use crate::model::{Family, Protocol};
use crate::plan::health::{Checks, ServiceCheck};
use crate::plan::{NodePlan, ServicePortPlan, plan_node, service_ranges};
use crate::relay::Listener;
use crate::ruleset::{Table, Transaction};
use crate::source::{Batch, ObjectKey, read_directory};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FamilyFlag {
    Ipv4,
    Ipv6,
}

/// Flags of `render`.
#[derive(Debug, Args)]
pub struct Render {
    /// Mode to render; default: the configuration's, or iptables
    #[arg(long, value_parser = mode)]
    mode: Option<Mode>,
    /// Only this address family
    #[arg(long, value_enum)]
    ip_family: Option<FamilyFlag>,
    /// Userspace mode: some interfaces have no address, as those of pods on links of their own; nothing is redirected there
    #[arg(long)]
    interfaces_without_address: bool,
    /// IPVS and nftables mode: an address that this node has besides those of its Node object; node ports are there too. May be repeated
    #[arg(long, value_name = "IP")]
    local_address: Vec<IpAddr>,
    #[command(flatten)]
    settings: Settings,
}

fn mode(text: &str) -> Result<Mode, String> {
    text.parse()
}

impl Render {
    /// Prints; faults in manifests go to standard error, a line each, and make the exit status 1.
    pub fn run(&self) -> anyhow::Result<()> {
        let (text, problems) = self.text()?;
        std::io::stdout().lock().write_all(text.as_bytes())?;
        match problems {
            0 => Ok(()),
            n => anyhow::bail!("{n} fault(s) in the manifests, named above; the rest is rendered"),
        }
    }

    /// The text, and the number of faults that were logged.
    fn text(&self) -> anyhow::Result<(String, usize)> {
        let resolved = self.settings.resolve_in(self.mode)?;
        super::logging::start(&resolved.configuration.logging);
        let config = resolved.config;
        let mode = config.mode;
        if self.interfaces_without_address && mode != Mode::Userspace {
            anyhow::bail!("--interfaces-without-address says something about userspace mode, and the mode is {mode}");
        }
        if !self.local_address.is_empty() && !matches!(mode, Mode::Ipvs | Mode::Nftables) {
            anyhow::bail!("--local-address says something about IPVS and nftables mode, and the mode is {mode}");
        }
        let reading = read_directory(self.settings.manifests()?)?;
        for line in &reading.skipped {
            tracing::info!("{line}");
        }
        for problem in reading.remarks.iter().chain(&reading.problems) {
            warn!("{problem}");
        }
        let families = match self.ip_family {
            None => Family::ALL.to_vec(),
            Some(FamilyFlag::Ipv4) => vec![Family::V4],
            Some(FamilyFlag::Ipv6) => vec![Family::V6],
        };
        let each = families
            .into_iter()
            .map(|family| format!("# {family}\n{}", self.text_of(mode, &config, family, &reading.batch)));
        Ok((each.collect(), reading.problems.len()))
    }

    fn text_of(&self, mode: Mode, config: &Config, family: Family, batch: &Batch) -> String {
        match mode {
            Mode::Ipvs => ipvs_text(config, family, batch, &self.local_address),
            Mode::Userspace => userspace_text(config, family, batch, self.interfaces_without_address),
            Mode::Nftables => nftables_text(config, family, batch, &self.local_address),
            Mode::Iptables => iptables_text(config, family, batch),
        }
    }
}

/// What `svcproxy render` with these flags prints, for programs that do not want to run one.
///
/// # Errors
/// As the command: flags that make no sense, a directory that cannot be read, faults in manifests.
pub fn render_to_string(flags: impl IntoIterator<Item = String>) -> anyhow::Result<String> {
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        render: Render,
    }
    let flags = <Flags as clap::Parser>::try_parse_from(std::iter::once("render".to_owned()).chain(flags))?;
    match flags.render.text()? {
        (text, 0) => Ok(text),
        (_, n) => anyhow::bail!("{n} fault(s) in the manifests"),
    }
}

/// The whole of a family in IPVS mode: addresses of the device, sets as `ipset save` prints them, virtual servers as
/// `ipvsadm -Sn` does, and the rules as one `iptables-restore` input. Node ports are on the Node object's addresses and on `local`.
pub fn ipvs_text(config: &Config, family: Family, batch: &Batch, local: &[IpAddr]) -> String {
    let (node, addresses, plans) = planned(config, family, batch, local);
    let around = NodeContext::new(node, &addresses, &config.ipvs.scheduler);
    let (mut desired, mut dirty) = (DesiredState::default(), DirtyKeys::default());
    for plan in &plans {
        desired.replace(&plan.name, Some(ipvs::objects::render(plan, &around)), &mut dirty);
    }
    let mut transaction = Transaction::default();
    for chain in ipvs::rules::fixed(&around.node, true) {
        transaction.table(chain.place.0).write.insert(chain.place.1.to_owned(), chain.head);
    }
    health_lines(&plans)
        + &format!(
            "# addresses\n{}# ipset save\n{}# ipvsadm -Sn\n{}# iptables-restore\n{}",
            ipvs::text::addresses(&desired),
            ipvs::text::ipset(&desired, family),
            ipvs::text::ipvsadm(&desired),
            with_jumps(&transaction.text(), &ipvs::jumps::ALL.iter().collect::<Vec<_>>())
        )
}

/// The whole of a family in userspace mode as one `iptables-restore` input, with the listening ports that a proxy would take on
/// a node where all are free; comments say where these lead. `bare`: some interfaces have no address.
pub fn userspace_text(config: &Config, family: Family, batch: &Batch, bare: bool) -> String {
    // The mode decides about the guard of the loopback range, too.
    let config = Config { mode: Mode::Userspace, ..config.clone() };
    let (node, mut addresses, plans) = planned(&config, family, batch, &[]);
    addresses.bare.extend(bare.then_some(family));
    let mut syncer =
        userspace::syncer::Syncer::new(iptables::Fake::default(), crate::relay::Fake::default(), config.port_range);
    let mode = syncer.renderer();
    let tables = mode.wanted::<iptables::Fake>(node, &addresses, &plans);
    let relays = relay_lines(mode.listening(), &plans);
    let mut transaction = Transaction::default();
    for (table, chains) in tables {
        transaction.table(table).write = chains;
    }
    health_lines(&plans) + &relays + &with_jumps(&transaction.text(), &userspace::jumps::wanted().collect::<Vec<_>>())
}

/// The whole of a family in nftables mode, as `nft -f` takes it. Node ports are on the Node object's addresses and on `local`, as far as
/// `nodePortAddresses` names them.
pub fn nftables_text(config: &Config, family: Family, batch: &Batch, local: &[IpAddr]) -> String {
    let config = Config { mode: Mode::Nftables, ..config.clone() };
    let (node, _, plans) = planned(&config, family, batch, local);
    // Which links there are is known to the running proxy alone.
    let flowtable = if config.flowtable { nftables::flowtable::table(family, &[]) } else { String::new() };
    let lines = health_lines(&plans) + &localhost_lines(&node, &plans);
    lines + "# nft -f\n" + &nftables::text::table(&node, &plans) + &flowtable
}

/// A comment for each node port that is relayed on a loopback address, as [`relay_lines`] has them, with that address.
fn localhost_lines(node: &NodePlan, plans: &[ServicePortPlan]) -> String {
    let line = |plan: &ServicePortPlan| {
        let (port, backends) = relayed(plan)?;
        let listening = SocketAddr::new(node.node_port_relay?, port);
        Some(relay_line(plan, &listening, backends))
    };
    plans.iter().filter_map(line).collect()
}

/// A comment for each listening port, which says what no rule does: where it leads, where associations of UDP may stay, and for
/// how many seconds a client comes back to the same backend.
fn relay_lines<'a>(listening: impl Iterator<Item = (&'a Listener, u16)>, plans: &[ServicePortPlan]) -> String {
    let line = |(listener, port): (&Listener, u16)| {
        let plan = plans.iter().find(|plan| plan.name == listener.name)?;
        Some(relay_line(plan, &port, plan.backends(listener.set)))
    };
    listening.filter_map(line).collect()
}

fn relay_line(plan: &ServicePortPlan, listening: &dyn std::fmt::Display, backends: &[SocketAddr]) -> String {
    let list = |title: &str, backends: &[SocketAddr]| {
        let backends: Vec<String> = backends.iter().map(ToString::to_string).collect();
        if backends.is_empty() { String::new() } else { format!(" {title} {}", backends.join(" ")) }
    };
    let (protocol, to) = (plan.protocol(), list("to", backends));
    let serving = if protocol == Protocol::Udp { list("serving", &plan.serving) } else { String::new() };
    let affinity = plan.affinity.map_or(String::new(), |time| format!(" affinity {}", time.as_secs()));
    format!("# relay {protocol} {listening} {}{to}{serving}{affinity}\n", plan.name)
}

/// The plans of a family, on a node with the addresses of its Node object and `local`. Addresses of this host play no part, so that
/// they are the same on every machine.
fn planned(
    config: &Config,
    family: Family,
    batch: &Batch,
    local: &[IpAddr],
) -> (NodePlan, NodeAddresses, Vec<ServicePortPlan>) {
    let mut state = crate::state::State::new(family, config.node_name.clone());
    batch.changes.iter().for_each(|change| state.apply(change));
    let internal = state.node().internal_ips.iter().copied();
    let mut own: Vec<IpAddr> = internal.collect();
    own.extend(local.iter().filter(|address| !state.node().internal_ips.contains(address)));
    let addresses = NodeAddresses { local: own, ..NodeAddresses::default() };
    let service_ranges = service_ranges(config, state.service_cidrs());
    let node = NodePlan { service_ranges, ..plan_node(config, family, state.node(), &addresses) };
    let mut proxy = FamilyProxy::new(config.clone(), family, iptables::Fake::default());
    proxy.apply(&batch.changes);
    proxy.set_addresses(&addresses);
    (node, addresses, proxy.plans())
}

/// The whole of a family as one `iptables-restore` input. Addresses of this host play no part, so that the text is
/// the same on every machine: `nodePortAddresses` go by the Node object.
pub fn iptables_text(config: &Config, family: Family, batch: &Batch) -> String {
    let (node, addresses, plans) = planned(config, family, batch, &[]);
    let health = health_lines(&plans);
    let mut mode = syncer::Iptables::default();
    let context = Renderer::<iptables::Fake>::node(&mut mode, node.clone(), &addresses, &&plans[..]);
    let mut transaction = Transaction::default();
    for (table, chains) in tables::<_, iptables::Fake>(&mut mode, &context, plans, true) {
        transaction.table(table).write = chains;
    }
    health + &with_jumps(&transaction.text(), &jumps::wanted(&node).collect::<Vec<_>>())
}

/// A comment for each `healthCheckNodePort`: the service, and how many endpoints on this node the proxy would answer with.
fn health_lines(plans: &[ServicePortPlan]) -> String {
    let mut checks = Checks::default();
    plans.iter().for_each(|plan| checks.note(&plan.name, Some(plan)));
    let line = |(service, check): (ObjectKey, Option<ServiceCheck>)| {
        check.map(|check| format!("# health check {} {service} {}\n", check.port, check.local_endpoints))
    };
    checks.take_changed().into_iter().filter_map(line).collect()
}

/// Adds the jumps, which the running proxy puts in one by one, before the end of each table.
fn with_jumps(text: &str, jumps: &[&Jump]) -> String {
    let mut out = String::with_capacity(text.len() + 2048);
    let mut table: Option<Table> = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = Table::ALL.into_iter().find(|t| t.as_str() == name);
        }
        if line == "COMMIT" {
            for jump in jumps.iter().filter(|jump| Some(jump.table) == table) {
                out.push_str(&format!("-I {} {}\n", jump.from, jump.rule()));
            }
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}
