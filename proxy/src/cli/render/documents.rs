use std::net::{IpAddr, SocketAddr};

use crate::config::{Config, Mode, NodeAddresses};
use crate::kernel::iptables;
use crate::mode::assemble;
use crate::mode::iptables_family::engine::render::{Renderer, tables};
use crate::mode::iptables_family::iptables::{jumps, syncer};
use crate::mode::iptables_family::ipvs;
use crate::mode::iptables_family::ipvs::desired::{DesiredState, DirtyKeys};
use crate::mode::iptables_family::ipvs::objects::IpvsContext;
use crate::mode::iptables_family::rules::jumps::Jump;
use crate::mode::iptables_family::userspace;
use crate::mode::localhost::relayed;
use crate::mode::nftables;
use crate::model::{Batch, Family, FlowFate, Frontend, ObjectKey, Protocol};
use crate::mutants;
use crate::plan::flow_fate::memory;
use crate::plan::health::{HealthCheckTracker, ServiceCheck};
use crate::plan::node::node_port_addresses;
use crate::plan::source_ranges::limits_node_ports;
use crate::plan::{NodePlan, ServicePortPlan, plan_node, service_ranges};
use crate::relay::Listener;
use crate::ruleset::{Table, Transaction};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DocumentKind {
    Addresses,
    Sets,
    Servers,
    Rules,
    Tables,
}

#[derive(Debug)]
pub(super) struct Documents {
    comments: String,
    parts: Vec<(DocumentKind, String)>,
}

impl DocumentKind {
    fn heading(self) -> &'static str {
        match self {
            DocumentKind::Addresses => "# addresses",
            DocumentKind::Sets => "# ipset save",
            DocumentKind::Servers => "# ipvsadm -Sn",
            DocumentKind::Rules => "# iptables-restore",
            DocumentKind::Tables => "# nft -f",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            DocumentKind::Addresses => "addresses",
            DocumentKind::Sets => "ipset",
            DocumentKind::Servers => "ipvsadm",
            DocumentKind::Rules => "rules",
            DocumentKind::Tables => "nft",
        }
    }
}

impl Documents {
    /// Adds the table of a wrong proxy ([`mutants::tables_beside`]).
    pub(super) fn with_tables_beside(mut self, family: Family) -> Documents {
        // The table has both families.
        let tables = mutants::tables_beside();
        if family == Family::V4 && !tables.is_empty() {
            self.parts.push((DocumentKind::Tables, format!("{tables}\n")));
        }
        self
    }

    pub(super) fn text(&self) -> String {
        let mut text = self.comments.clone();
        for (part, body) in &self.parts {
            if self.parts.len() > 1 || *part != DocumentKind::Rules {
                text.push_str(part.heading());
                text.push('\n');
            }
            text.push_str(body);
        }
        text
    }

    pub(super) fn with_comment(mut self, comment: &str) -> Documents {
        self.comments.push_str(comment);
        self
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.parts.iter().map(|(part, body)| match part {
            DocumentKind::Rules | DocumentKind::Tables => (part.extension(), self.comments.clone() + body),
            _ => (part.extension(), body.clone()),
        })
    }
}

/// Addresses of `kube-ipvs0`, sets as `ipset save`, virtual servers as `ipvsadm -Sn`, rules as one `iptables-restore`
/// input. Node ports are on the Node object's addresses and on `local`.
pub(super) fn ipvs(config: &Config, family: Family, batch: &Batch, local: &[IpAddr]) -> Documents {
    let (node, addresses, plans) = planned(config, family, batch, local);
    let around = IpvsContext::new(node, &addresses, &config.ipvs.scheduler);
    let (mut desired, mut dirty) = (DesiredState::default(), DirtyKeys::default());
    for plan in &plans {
        desired.replace(&plan.name, Some(ipvs::objects::render(plan, &around)), &mut dirty);
    }
    let mut transaction = Transaction::default();
    for chain in ipvs::rules::fixed(&around.node, true) {
        transaction.table(chain.id.0).write.insert(chain.id.1.to_owned(), chain.head);
    }
    let rules = with_jumps(&transaction.text(), &ipvs::jumps::ALL.iter().collect::<Vec<_>>());
    Documents {
        comments: health_lines(&plans),
        parts: vec![
            (DocumentKind::Addresses, ipvs::text::addresses(&desired)),
            (DocumentKind::Sets, ipvs::text::ipset(&desired, family)),
            (DocumentKind::Servers, ipvs::text::ipvsadm(&desired)),
            (DocumentKind::Rules, rules),
        ],
    }
}

/// One `iptables-restore` input. Assumes that all listening ports are free; comments list the backends of each port.
/// `bare`: some interfaces have no address.
pub(super) fn userspace(config: &Config, family: Family, batch: &Batch, local: &[IpAddr], bare: bool) -> Documents {
    // The mode also decides whether the loopback range is guarded.
    let config = Config { mode: Mode::Userspace, ..config.clone() };
    let (node, mut addresses, plans) = planned(&config, family, batch, local);
    addresses.bare.extend(bare.then_some(family));
    let mut proxy =
        assemble::userspace(&config, family, iptables::FakeIptables::default(), crate::relay::FakeRelays::default());
    let mode = proxy.mode().renderer();
    let tables = mode.wanted::<iptables::FakeIptables>(node, &addresses, &plans);
    let relays = relay_lines(mode.listening(), &plans);
    let mut transaction = Transaction::default();
    for (table, chains) in tables {
        transaction.table(table).write = chains;
    }
    let rules = with_jumps(&transaction.text(), &userspace::jumps::wanted().collect::<Vec<_>>());
    Documents { comments: health_lines(&plans) + &relays, parts: vec![(DocumentKind::Rules, rules)] }
}

/// `nft -f` input. `nodePortAddresses` select among the addresses of the Node object and `local`.
pub(super) fn nftables(config: &Config, family: Family, batch: &Batch, local: &[IpAddr]) -> Documents {
    let config = Config { mode: Mode::Nftables, ..config.clone() };
    let (node, addresses, plans) = planned(&config, family, batch, local);
    let flowtable = if config.flowtable { nftables::flowtable::table(family, &[]) } else { String::new() };
    Documents {
        comments: health_lines(&plans) + &localhost_lines(&node, &plans) + &flow_lines(&node, &addresses, &plans),
        parts: vec![(
            DocumentKind::Tables,
            nftables::text::table(&node, &plans, config.service_counters.as_ref()) + &flowtable,
        )],
    }
}

/// Returns a comment per destination of TCP: the fate of its connections, and the endpoints that may keep them. The table
/// lacks what a running proxy remembers of earlier endpoints.
fn flow_lines(node: &NodePlan, addresses: &NodeAddresses, plans: &[ServicePortPlan]) -> String {
    if node.lost_flows.is_none() {
        return String::new();
    }
    let node_addresses = node_port_addresses(node, addresses);
    let destinations = |frontend: Frontend| match frontend {
        Frontend::Address(address) => vec![address],
        Frontend::NodePort(port) => node_addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect(),
    };
    let line = |plan: &ServicePortPlan, to: SocketAddr| {
        let serving: String = plan.serving.iter().map(|endpoint| format!(" {endpoint}")).collect();
        format!("# flows {} {to}{serving}\n", plan.flow_fate)
    };
    let tcp = plans.iter().filter(|plan| plan.protocol() == Protocol::Tcp);
    tcp.flat_map(|plan| plan.frontends().flat_map(destinations).map(|to| line(plan, to)).collect::<Vec<_>>()).collect()
}

/// Returns a comment per node port on a loopback address.
fn localhost_lines(node: &NodePlan, plans: &[ServicePortPlan]) -> String {
    let line = |plan: &ServicePortPlan| {
        let (port, backends) = relayed(plan)?;
        let listening = SocketAddr::new(node.node_port_relay?, port);
        Some(relay_line(plan, &listening, backends))
    };
    plans.iter().filter_map(line).collect()
}

/// Returns comments with backends, endpoints that may keep UDP associations, the affinity timeout in seconds, and the
/// Service whose ports share their clients.
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
    let may_end = protocol == Protocol::Tcp && plan.flow_fate != FlowFate::Keep;
    let serving = if protocol == Protocol::Udp || may_end { list("serving", &plan.serving) } else { String::new() };
    let fate = if may_end { format!(" fate {}", plan.flow_fate) } else { String::new() };
    let affinity = plan.affinity.map_or(String::new(), |time| format!(" affinity {}", time.as_secs()));
    let clients = if plan.affinity_across_ports { format!(" clients {}", plan.name.service) } else { String::new() };
    format!("# relay {protocol} {listening} {}{to}{serving}{affinity}{clients}{fate}\n", plan.name)
}

/// Plans for a node with the addresses of its Node object and `local`, independent of this host.
fn planned(
    config: &Config,
    family: Family,
    batch: &Batch,
    local: &[IpAddr],
) -> (NodePlan, NodeAddresses, Vec<ServicePortPlan>) {
    let mut state = crate::state::State::new(family, config.node_name.clone());
    batch.changes.iter().for_each(|change| state.apply(mutants::change(change).as_ref().unwrap_or(change)));
    let internal = state.node().internal_ips.iter().copied();
    let mut own: Vec<IpAddr> = internal.collect();
    own.extend(local.iter().filter(|address| !state.node().internal_ips.contains(address)));
    let addresses = NodeAddresses { local: own, ..NodeAddresses::default() };
    let service_ranges = service_ranges(config, state.node(), state.service_cidrs()).dropped;
    let lost_flows = memory(config, &state);
    let limits_node_ports = limits_node_ports(config, &state);
    let plan = plan_node(config, family, state.node(), &addresses);
    let mut node = NodePlan { service_ranges, lost_flows, limits_node_ports, ..plan };
    mutants::node_plan(&mut node);
    let mut proxy = assemble::iptables(config, family, iptables::FakeIptables::default());
    proxy.apply(&batch.changes);
    proxy.set_addresses(&addresses);
    (node, addresses, proxy.plans())
}

/// One `iptables-restore` input. `nodePortAddresses` select as in `nftables`.
pub(super) fn iptables(config: &Config, family: Family, batch: &Batch, local: &[IpAddr]) -> Documents {
    let (node, addresses, plans) = planned(config, family, batch, local);
    let comments = health_lines(&plans) + &flow_lines(&node, &addresses, &plans);
    let mut mode = syncer::IptablesRenderer::default();
    let context = Renderer::<iptables::FakeIptables>::node(&mut mode, node.clone(), &addresses, &&plans[..]);
    let mut transaction = Transaction::default();
    for (table, chains) in tables::<_, iptables::FakeIptables>(&mut mode, &context, plans, true) {
        transaction.table(table).write = chains;
    }
    let rules = with_jumps(&transaction.text(), &jumps::wanted(&node).collect::<Vec<_>>());
    Documents { comments, parts: vec![(DocumentKind::Rules, rules)] }
}

fn health_lines(plans: &[ServicePortPlan]) -> String {
    let mut checks = HealthCheckTracker::default();
    plans.iter().for_each(|plan| checks.record(&plan.name, Some(plan)));
    let line = |(service, check): (ObjectKey, Option<ServiceCheck>)| {
        check.map(|check| format!("# health check {} {service} {}\n", check.port, check.local_endpoints))
    };
    checks.take_changed().into_iter().filter_map(line).collect()
}

/// Adds the jumps from the built-in chains at the end of each table.
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
