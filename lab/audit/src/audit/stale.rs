use std::collections::BTreeSet;
use std::net::IpAddr;

use svclab_oracle::{ClusterModel, Family, FrontendKind, Protocol, ServiceFrontend, ServicePortName, address};
use svclab_sim::cluster::NodeState;
use svclab_sim::network::{Flow, Outcomes, PacketVerdict};
use svclab_sim::nft::{ElementKey, Expr, TableFamily};
use svclab_sim::protocol::Protocol as Number;
use svclab_sim::rules::matches::Match;
use svclab_sim::rules::{Rule, RuleTarget, Rules};

use crate::decider::decider;
use crate::owner::{ProxyTables, RuleOwner};

/// An address, or every address of the node, and a port that rules match.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lead {
    pub(super) address: Option<IpAddr>,
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    /// The address family, even if `address` is `None`.
    pub(super) family: Family,
}

impl Lead {
    pub(super) fn frontend(&self, family: Family) -> ServiceFrontend {
        let kind = if self.address.is_some() { FrontendKind::ClusterIp } else { FrontendKind::NodePort };
        let name = match self.address {
            Some(address) => format!("{address}:{}", self.port),
            None => format!("node port {}", self.port),
        };
        ServiceFrontend {
            service: ServicePortName {
                namespace: "(no service)".to_owned(),
                service: name,
                port: String::new(),
                protocol: self.protocol,
            },
            kind,
            address: self.address,
            port: self.port,
            protocol: self.protocol,
            family,
            source_ranges: Vec::new(),
            endpoints: Vec::new(),
        }
    }
}

/// Returns leads from chains named `KUBE-…`, elements of the proxy's tables, and virtual servers.
pub(super) fn leads(state: &NodeState, tables: &ProxyTables) -> BTreeSet<Lead> {
    let mut leads = BTreeSet::new();
    for rules in [&state.v4, &state.v6] {
        leads.extend(of_rules(rules));
    }
    for table in state.nft.tables.iter().filter(|table| tables.has(table)) {
        let family = if table.family == TableFamily::Ip6 { Family::V6 } else { Family::V4 };
        let elements = table.sets.iter().flat_map(|set| &set.elements);
        leads.extend(elements.filter_map(|element| of_element(&element.key, family)));
    }
    leads.extend(state.servers.services.iter().filter_map(|service| {
        let address = service.address.ip();
        let protocol = protocol(service.protocol)?;
        Some(Lead { address: Some(address), port: service.address.port(), protocol, family: Family::of(address) })
    }));
    leads
}

fn of_rules(rules: &Rules) -> impl Iterator<Item = Lead> + '_ {
    let family = match rules.family {
        svclab_sim::protocol::Family::V4 => Family::V4,
        svclab_sim::protocol::Family::V6 => Family::V6,
    };
    let chains = rules.tables.iter().flat_map(|table| &table.chains);
    let own = chains.filter(|chain| chain.name.starts_with("KUBE-"));
    own.flat_map(|chain| &chain.rules).filter_map(move |rule| of_rule(rule, family))
}

fn of_rule(rule: &Rule, family: Family) -> Option<Lead> {
    if !matches!(
        rule.target,
        RuleTarget::Jump(_)
            | RuleTarget::Goto(_)
            | RuleTarget::Dnat(_)
            | RuleTarget::Redirect(_)
            | RuleTarget::Reject(_)
            | RuleTarget::Drop
    ) {
        return None;
    }
    let protocol = protocol(rule.header.protocol.filter(|test| !test.not)?.is)?;
    let ports = rule.matches.iter().find_map(|one| match one {
        Match::Ports(ports) => ports.destination.filter(|test| !test.not).map(|test| test.is),
        _ => None,
    })?;
    let port = (ports.first == ports.last).then_some(ports.first)?;
    let address = match rule.header.destination {
        None => None,
        Some(test) if !test.not && test.is.prefix() == Some(if family == Family::V4 { 32 } else { 128 }) => {
            Some(test.is.address())
        }
        Some(_) => return None,
    };
    // A reject by port alone is not a frontend: userspace mode protects its listening ports that way.
    if address.is_none() && matches!(rule.target, RuleTarget::Reject(_) | RuleTarget::Drop) {
        return None;
    }
    Some(Lead { address, port, protocol, family })
}

/// Reads `address . protocol . port`, or `protocol . port` of a node port of the table's family.
fn of_element(key: &ElementKey, family: Family) -> Option<Lead> {
    let ElementKey::Parts(parts) = key else { return None };
    let words: Vec<&str> =
        parts.iter().map(|part| if let Expr::Word(word) = part { word.as_str() } else { "" }).collect();
    let named = |name: &str| Protocol::ALL.into_iter().find(|protocol| protocol.name().eq_ignore_ascii_case(name));
    match words.as_slice() {
        [address, protocol, port] => {
            let address: IpAddr = address.parse().ok()?;
            Some(Lead {
                address: Some(address),
                port: port.parse().ok()?,
                protocol: named(protocol)?,
                family: Family::of(address),
            })
        }
        [protocol, port] => Some(Lead { address: None, port: port.parse().ok()?, protocol: named(protocol)?, family }),
        _ => None,
    }
}

fn protocol(number: Number) -> Option<Protocol> {
    match number {
        Number::TCP => Some(Protocol::Tcp),
        Number::UDP => Some(Protocol::Udp),
        Number::SCTP => Some(Protocol::Sctp),
        _ => None,
    }
}

pub(super) fn taken(flow: &Flow, found: &Outcomes, tables: &ProxyTables) -> bool {
    let moved = |verdict: &PacketVerdict| match verdict {
        PacketVerdict::Answered { at, .. }
        | PacketVerdict::Unanswered { at, .. }
        | PacketVerdict::Refused { at, .. } => *at != flow.to,
        PacketVerdict::Rejected { .. } | PacketVerdict::Dropped { .. } => true,
    };
    let by_proxy = found.ways.iter().any(|(_, journey)| {
        decider(journey, tables).is_some_and(|decider| matches!(decider.program, RuleOwner::Proxy(_)))
    });
    by_proxy && found.outcomes.iter().any(|one| moved(&one.verdict))
}

/// Returns addresses of services with `service-proxy-name`: another proxy may have rules for them.
pub(super) fn left_alone(cluster: &ClusterModel) -> BTreeSet<IpAddr> {
    let another = |service: &&k8s_openapi::api::core::v1::Service| {
        let labels = service.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key("service.kubernetes.io/service-proxy-name"))
    };
    let specs = cluster.objects.services.iter().filter(another).filter_map(|service| service.spec.as_ref());
    let texts = specs.flat_map(|spec| spec.cluster_ips.iter().flatten().chain(spec.external_ips.iter().flatten()));
    texts.filter_map(|text| address::parse(text)).collect()
}
