use std::net::SocketAddr;

use svclab_oracle::{FrontendKind, Mode};
use svclab_sim::network::{HostId, Journey, LegEnd, Outcomes, PacketVerdict, ReplyFailure};
use svclab_sim::trace::DropReason;

use super::{AuditCall, FindingKind, SourceKind};
use crate::decider::{Decider, answer_refuser, decider, foreign_accepter, masquerader};
use crate::judge::{Fault, FaultKind};
use crate::owner::RuleOwner;
use crate::settings::AuditedProxy;

pub(super) struct ServiceEndpoints<'a> {
    pub(super) own: &'a [(SocketAddr, Option<String>)],
    pub(super) is_any: bool,
}

/// The likely cause of a fault.
pub(super) struct Cause {
    pub(super) text: String,
    /// Whether it is a setting, a route, a policy or another program's rule, which may break any service.
    pub(super) node_wide: bool,
}

impl Cause {
    pub(super) fn node_wide(text: String) -> Cause {
        Cause { text, node_wide: true }
    }

    fn of_service(text: impl Into<String>) -> Cause {
        Cause { text: text.into(), node_wide: false }
    }
}

/// `node` is the audited node: routes and settings of other machines are not the node's.
pub(super) fn cause(
    fault: &Fault,
    journey: Option<&Journey>,
    proxy: &AuditedProxy,
    endpoints: &ServiceEndpoints<'_>,
    node: HostId,
) -> Cause {
    let is_lost_answer = matches!(
        fault.found,
        Some(PacketVerdict::Rejected { delivered: false, .. } | PacketVerdict::Refused { delivered: false, .. })
    );
    let decided = journey.and_then(|journey| match fault.kind {
        FaultKind::MissingEndpoint | FaultKind::Share | FaultKind::Affinity | FaultKind::AffinityAcrossPorts => None,
        FaultKind::Source => masquerader(journey, &proxy.tables),
        FaultKind::Answer => answer_refuser(journey, &proxy.tables),
        FaultKind::Refusal if is_lost_answer => answer_refuser(journey, &proxy.tables),
        FaultKind::Refusal | FaultKind::Delivered => {
            decider(journey, &proxy.tables).or_else(|| foreign_accepter(journey, &proxy.tables))
        }
        _ => decider(journey, &proxy.tables),
    });
    if let Some(other) = decided.as_ref().and_then(|decider| shadow(decider, proxy)) {
        return Cause::node_wide(other);
    }
    // The rule that translated the packet did not lose it.
    let decided =
        decided.filter(|_| !matches!(&fault.found, Some(PacketVerdict::Dropped { why, .. }) if !is_by_rule(why)));
    match fault.kind {
        FaultKind::NotTranslated if fault.found.is_none() => Cause::node_wide(
            "the caller has no route to the address, so the call fails before any rule: a default route is enough"
                .to_owned(),
        ),
        FaultKind::NotTranslated => Cause::of_service(format!(
            "no rule of the proxy (mode {}) serves this address and port",
            proxy.settings.mode.name()
        )),
        FaultKind::WrongEndpoint => Cause::of_service(wrong_endpoint(fault, endpoints)),
        FaultKind::MissingEndpoint => {
            Cause::of_service("no rule leads to it: the endpoint is new, or the proxy has missed it")
        }
        FaultKind::Share => Cause::of_service("the rules' probabilities do not fit the number of endpoints"),
        FaultKind::Affinity => {
            Cause::of_service("the rules that remember clients are missing, or have another time-out")
        }
        FaultKind::AffinityAcrossPorts => {
            Cause::of_service("the ports of the Service do not remember clients together, as its annotation asks")
        }
        FaultKind::Source => match decided {
            Some(decider) => Cause::of_service(format!("masqueraded by {}", decider.text)),
            None => Cause::of_service("no rule masquerades it"),
        },
        FaultKind::Dropped | FaultKind::Rejected | FaultKind::Answer | FaultKind::Delivered | FaultKind::Refusal => {
            match decided {
                Some(decider) => Cause::of_service(format!("decided by {}", decider.text)),
                None => without_rule(fault, journey, node),
            }
        }
    }
}

fn is_by_rule(why: &DropReason) -> bool {
    matches!(why, DropReason::Rule(_) | DropReason::Policy(..) | DropReason::NftRule(_) | DropReason::NftPolicy(_))
}

/// Returns the cause if no rule decided.
fn without_rule(fault: &Fault, journey: Option<&Journey>, node: HostId) -> Cause {
    let lost = |by: HostId, why: &DropReason| Cause { text: why.to_string(), node_wide: by == node };
    let end = journey.and_then(|journey| journey.reply.as_ref()).map(|reply| &reply.end);
    match (&fault.found, end) {
        (Some(PacketVerdict::Dropped { by, why: DropReason::MartianSource }), _) if *by != node => {
            Cause::of_service("no rule masquerades what goes back to its sender")
        }
        (Some(PacketVerdict::Dropped { by, why }), _) => lost(*by, why),
        (Some(PacketVerdict::Unanswered { why: ReplyFailure::Lost { host, why }, .. }), _) => lost(*host, why),
        (Some(PacketVerdict::Unanswered { why: ReplyFailure::WrongSource { .. }, .. }), _) => {
            Cause::of_service("the answer is not translated back")
        }
        (Some(PacketVerdict::Unanswered { why: ReplyFailure::Strayed { .. }, .. }), _) => {
            Cause::of_service("the answer's route leads to another machine")
        }
        (Some(PacketVerdict::Refused { delivered: true, at, .. }), _) => {
            Cause::of_service(format!("nothing listens at {at}"))
        }
        (Some(PacketVerdict::Rejected { .. } | PacketVerdict::Refused { .. }), Some(LegEnd::Lost { host, why })) => {
            lost(*host, why)
        }
        _ => Cause::of_service("no rule decides it"),
    }
}

fn wrong_endpoint(fault: &Fault, endpoints: &ServiceEndpoints<'_>) -> String {
    let at = fault.found.as_ref().and_then(|found| match found {
        PacketVerdict::Answered { at, .. } | PacketVerdict::Unanswered { at, .. } => Some(*at),
        _ => None,
    });
    match at {
        Some(at) if endpoints.own.iter().any(|(address, _)| *address == at) => {
            "it is an endpoint of this service that must not be used now: not ready, terminating, or ruled out by policy or hints".to_owned()
        }
        Some(at) if endpoints.own.iter().any(|(address, _)| address.ip() == at.ip()) => {
            "the port is another than the endpoint's".to_owned()
        }
        Some(_) if endpoints.is_any => "it is an endpoint of another service".to_owned(),
        _ => "no service has such an endpoint: the rule is left from an earlier one, or another program has written it".to_owned(),
    }
}

/// Returns a difference of kube-proxy 1.36.2 from the documentation that every node has. Excludes drops by a rule or a
/// policy.
pub(super) fn known_difference(
    kind: FindingKind,
    asked: &AuditCall<'_>,
    proxy: &AuditedProxy,
    found: Option<&PacketVerdict>,
) -> Option<&'static str> {
    let lost = match found? {
        PacketVerdict::Dropped { why, .. } if is_by_rule(why) => return None,
        PacketVerdict::Dropped { why, .. } => Some(why),
        _ => None,
    };
    let external = matches!(asked.frontend.kind, FrontendKind::ExternalIp | FrontendKind::LoadBalancerIp);
    let source = asked.source.kind;
    match (kind, proxy.settings.mode) {
        (FindingKind::Broken(FaultKind::Refusal), Mode::Iptables | Mode::Ipvs)
            if external && source == SourceKind::Node =>
        {
            Some(
                "kube-proxy refuses an external address without endpoints to what comes in, not to what the node itself sends",
            )
        }
        // IPv4 drops ingress packets whose source is an own address. IPv6 accepts them, and the answer never leaves.
        (FindingKind::Broken(FaultKind::Dropped | FaultKind::Source | FaultKind::Answer), Mode::Nftables)
            if asked.frontend.kind == FrontendKind::NodePort
                && source == SourceKind::RemotePod
                && (lost == Some(&DropReason::MartianSource) || found.is_some_and(meets_itself)) =>
        {
            Some("kube-proxy does not masquerade for an endpoint that meets itself by way of another node's node port")
        }
        _ => None,
    }
}

/// On every node, kube-proxy 1.36.2's reject rule for a node port without endpoints matches every local address
/// (`--dst-type LOCAL`).
pub(super) fn known_refusal(
    asked: &AuditCall<'_>,
    proxy: &AuditedProxy,
    found: &Outcomes,
    decided: Option<&Decider>,
) -> Option<&'static str> {
    let is_refused = |verdict: &PacketVerdict| {
        matches!(verdict, PacketVerdict::Rejected { .. } | PacketVerdict::Dropped { why: DropReason::Rule(_), .. })
    };
    let is_known = proxy.settings.mode == Mode::Iptables
        && asked.frontend.kind == FrontendKind::NodePort
        && decided.and_then(|decided| decided.chain.as_deref()) == Some("KUBE-EXTERNAL-SERVICES")
        && found.outcomes.iter().all(|one| is_refused(&one.verdict));
    is_known
        .then_some("kube-proxy refuses a node port without endpoints on every address of the node (kubernetes#97360)")
}

fn meets_itself(found: &PacketVerdict) -> bool {
    matches!(found, PacketVerdict::Answered { at, saw, .. } | PacketVerdict::Unanswered { at, saw, .. } if at.ip() == saw.ip())
}

/// Returns the cause if another program, or another mode of the proxy, decided.
fn shadow(decider: &Decider, proxy: &AuditedProxy) -> Option<String> {
    match decider.program {
        RuleOwner::Proxy(mode) if belongs(mode, proxy) => None,
        RuleOwner::Proxy(mode) => Some(format!("left over from {} mode: {}", mode.name(), decider.text)),
        RuleOwner::Other(name) => Some(format!("a rule of {name} catches it: {}", decider.text)),
        RuleOwner::Unknown => Some(format!("what is not the proxy's catches it: {}", decider.text)),
    }
}

/// Whether the proxy writes rules of mode `written`: IPVS and userspace mode also write iptables rules. What another
/// project's proxy writes is not known, unless its description names its tables.
fn belongs(written: Mode, proxy: &AuditedProxy) -> bool {
    match proxy.settings.mode {
        Mode::Other => written == Mode::Nftables || !proxy.tables.are_described(),
        Mode::Ipvs | Mode::Userspace if written == Mode::Iptables => true,
        mode => written == mode,
    }
}

#[cfg(test)]
mod tests {
    use svclab_oracle::{PacketSource, Protocol, ProxySettings};
    use svclab_sim::fraction::Fraction;
    use svclab_sim::hook::Hook;
    use svclab_sim::host::Host;
    use svclab_sim::network::{Network, PacketOutcome};
    use svclab_sim::rules::TableName;
    use svclab_sim::rules::target::RejectWith;

    use super::super::AuditCaller;
    use super::super::stale::Lead;
    use super::*;
    use crate::owner::ProxyTables;
    use crate::settings::RespectedAnnotations;

    #[test]
    fn only_the_difference_itself_is_excused() {
        let lead = Lead { address: None, port: 30_080, protocol: Protocol::Tcp, family: svclab_oracle::Family::V4 };
        let frontend = lead.frontend(lead.family);
        let source = AuditCaller {
            kind: SourceKind::RemotePod,
            place: PacketSource::Node("b".to_owned()),
            address: None,
            label: String::new(),
        };
        let asked = AuditCall {
            frontend: &frontend,
            source: &source,
            source_port: 40_000,
            to: SocketAddr::from(([192, 0, 2, 1], 30_080)),
        };
        let settings = ProxySettings { mode: Mode::Nftables, ..ProxySettings::default() };
        let proxy = AuditedProxy {
            settings,
            configured: true,
            annotations: RespectedAnnotations::All,
            tables: ProxyTables::default(),
        };
        let mut network = Network::new();
        let by = Host::builder("pod").build().map(|host| network.add(host)).ok();
        let excused = |why: DropReason| {
            let found = by.map(|by| PacketVerdict::Dropped { by, why });
            known_difference(FindingKind::Broken(FaultKind::Dropped), &asked, &proxy, found.as_ref()).is_some()
        };
        assert!(excused(DropReason::MartianSource));
        assert!(!excused(DropReason::Policy(TableName::Filter, Hook::Forward)));
        assert!(!excused(DropReason::NoRoute));

        // Over IPv6 the known difference is an endpoint that answers itself.
        let endpoint: SocketAddr = "[fd00::1]:80".parse().unwrap_or(asked.to);
        let sees = |kind, saw: &str| {
            let saw = saw.parse().ok();
            let found = by.zip(saw).map(|(by, saw)| PacketVerdict::Answered { by, at: endpoint, saw });
            found.is_some() && known_difference(FindingKind::Broken(kind), &asked, &proxy, found.as_ref()).is_some()
        };
        assert!(sees(FaultKind::Source, "[fd00::1]:40000") && sees(FaultKind::Answer, "[fd00::1]:40000"));
        assert!(!sees(FaultKind::Source, "[fd00::2]:40000"), "another pod that is not masqueraded is seen as it is");
        assert!(!sees(FaultKind::Share, "[fd00::1]:40000"));
    }

    #[test]
    fn a_node_ports_refusal_on_another_address_is_known() {
        let source = AuditCaller {
            kind: SourceKind::Node,
            place: PacketSource::Node("b".to_owned()),
            address: None,
            label: String::new(),
        };
        let lead = |address| Lead { address, port: 30_080, protocol: Protocol::Tcp, family: svclab_oracle::Family::V6 };
        let [port, other] =
            [None, "fd00::1".parse().ok()].map(|address| lead(address).frontend(svclab_oracle::Family::V6));
        let to = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 30_080));
        let mut network = Network::new();
        let by = Host::builder("node").build().map(|host| network.add(host)).ok();
        let known = |frontend, mode, chain: &str, verdict: PacketVerdict| {
            let proxy = AuditedProxy {
                settings: ProxySettings { mode, ..ProxySettings::default() },
                configured: true,
                annotations: RespectedAnnotations::All,
                tables: ProxyTables::default(),
            };
            let decided = Decider {
                program: RuleOwner::Proxy(Mode::Iptables),
                chain: Some(chain.to_owned()),
                text: format!(
                    "rule 1 of chain {chain} in table filter: -p tcp -m addrtype --dst-type LOCAL --dport 30080 -j REJECT"
                ),
            };
            let outcomes = vec![PacketOutcome { verdict, probability: Fraction::one() }];
            let found = Outcomes { outcomes, ways: Vec::new(), undecided: Vec::new() };
            known_refusal(
                &AuditCall { frontend, source: &source, source_port: 40_000, to },
                &proxy,
                &found,
                Some(&decided),
            )
            .is_some()
        };
        let Some(by) = by else { panic!("a host") };
        let rejected = || PacketVerdict::Rejected { by, with: RejectWith::TcpReset, delivered: true };
        let external = "KUBE-EXTERNAL-SERVICES";
        assert!(known(&port, Mode::Iptables, external, rejected()));
        assert!(!known(&port, Mode::Nftables, external, rejected()));
        assert!(!known(&port, Mode::Iptables, "KUBE-SERVICES", rejected()));
        assert!(!known(&other, Mode::Iptables, external, rejected()));
        assert!(!known(&port, Mode::Iptables, external, PacketVerdict::Answered { by, at: to, saw: to }));
    }
}
