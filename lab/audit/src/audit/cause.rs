use std::net::SocketAddr;

use svclab_oracle::{FrontendKind, Mode};
use svclab_sim::network::{Outcomes, PacketVerdict};
use svclab_sim::trace::DropReason;

use super::{AuditCall, FindingKind, SourceKind};
use crate::decider::{Decider, RuleOwner};
use crate::judge::{Fault, FaultKind};
use crate::settings::AuditedProxy;

pub(super) struct ServiceEndpoints<'a> {
    pub(super) own: &'a [(SocketAddr, Option<String>)],
    pub(super) is_any: bool,
}

pub(super) fn cause(
    fault: &Fault,
    decider: Option<&Decider>,
    proxy: &AuditedProxy,
    endpoints: &ServiceEndpoints<'_>,
) -> String {
    let other = decider.and_then(|decider| shadow(decider, proxy));
    if let Some(other) = other.filter(|_| fault.kind != FaultKind::MissingEndpoint) {
        return other;
    }
    match fault.kind {
        FaultKind::NotTranslated => {
            format!("nothing of the proxy's (mode {}) stands for this address and port", proxy.settings.mode.name())
        }
        FaultKind::Dropped | FaultKind::Rejected => match decider {
            Some(decider) => format!("decided by {}", decider.text),
            None => "no rule decided it: the way there does not exist, or kernel settings forbid it".to_owned(),
        },
        FaultKind::WrongEndpoint => wrong_endpoint(fault, endpoints),
        FaultKind::MissingEndpoint => "no rule leads to it: the endpoint is new, or the proxy has missed it".to_owned(),
        FaultKind::Share => "the probabilities of the rules do not belong to the number of endpoints".to_owned(),
        FaultKind::Source => {
            "the rules that mark packets for masquerade, or the masquerade rule, are missing or too many".to_owned()
        }
        FaultKind::Answer => "the way back is another, or a rule meets the answer".to_owned(),
        FaultKind::Delivered => match decider {
            Some(decider) => format!("led there by {}", decider.text),
            None => "nothing on the way refuses it".to_owned(),
        },
        FaultKind::Refusal => "another kind of refusal stands there".to_owned(),
        FaultKind::Affinity => "the rules that remember clients are missing, or have another time-out".to_owned(),
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
        PacketVerdict::Dropped {
            why: DropReason::Rule(_) | DropReason::Policy(..) | DropReason::NftRule(_) | DropReason::NftPolicy(_),
            ..
        } => {
            return None;
        }
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
        RuleOwner::Proxy(mode) if belongs(mode, proxy.settings.mode) => None,
        RuleOwner::Proxy(mode) => Some(format!("left over from {} mode: {}", mode.name(), decider.text)),
        RuleOwner::Other(name) => Some(format!("a rule of {name} catches it: {}", decider.text)),
        RuleOwner::Unknown => Some(format!("what is not the proxy's catches it: {}", decider.text)),
    }
}

/// Whether `mode` writes rules of mode `written`: IPVS and userspace mode also write iptables rules.
fn belongs(written: Mode, mode: Mode) -> bool {
    written == mode || (written == Mode::Iptables && matches!(mode, Mode::Ipvs | Mode::Userspace))
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
        let asked = AuditCall { frontend: &frontend, source: &source, to: SocketAddr::from(([192, 0, 2, 1], 30_080)) };
        let settings = ProxySettings { mode: Mode::Nftables, ..ProxySettings::default() };
        let proxy = AuditedProxy { settings, configured: true };
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
            let proxy = AuditedProxy { settings: ProxySettings { mode, ..ProxySettings::default() }, configured: true };
            let decided = Decider {
                program: RuleOwner::Proxy(Mode::Iptables),
                chain: Some(chain.to_owned()),
                text: format!("1 in filter: -A {chain} -p tcp -m addrtype --dst-type LOCAL --dport 30080 -j REJECT"),
            };
            let outcomes = vec![PacketOutcome { verdict, probability: Fraction::one() }];
            let found = Outcomes { outcomes, ways: Vec::new(), undecided: Vec::new() };
            known_refusal(&AuditCall { frontend, source: &source, to }, &proxy, &found, Some(&decided)).is_some()
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
