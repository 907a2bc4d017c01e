//! The rule, virtual server or policy that decided an outcome, and its owner.

use svclab_oracle::Mode;
use svclab_sim::network::{Journey, Outcomes, PacketVerdict};
use svclab_sim::rules::ChainPolicy;
use svclab_sim::trace::{DropReason, Event};

/// What decided an outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decider {
    /// The rule's or virtual server's owner.
    pub program: RuleOwner,
    /// The rule's chain; `None` for a virtual server and for a policy of iptables.
    pub chain: Option<String>,
    /// The position and text of the rule or virtual server.
    pub text: String,
}

/// The owner of a rule, by the names of chains and tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleOwner {
    /// A service proxy in this mode: chains named `KUBE-…`, tables named kube-proxy, virtual servers.
    Proxy(Mode),
    /// Another program.
    Other(&'static str),
    /// No known program.
    Unknown,
}

const PREFIXES: [(&str, &str); 22] = [
    ("cali-", "Calico"),
    ("DOCKER", "docker"),
    ("CNI-", "a CNI plugin (portmap)"),
    ("FLANNEL", "flannel"),
    ("FLANNEL-", "flannel"),
    ("CILIUM_", "Cilium"),
    ("OLD_CILIUM_", "Cilium"),
    ("KUBE-ROUTER", "kube-router"),
    ("KUBE-POD-FW-", "kube-router"),
    ("KUBE-NWPLCY-", "kube-router"),
    ("KUBE-MARK-DROP", "kubelet"),
    ("KUBE-KUBELET-CANARY", "kubelet"),
    ("WEAVE", "Weave"),
    ("ISTIO_", "Istio"),
    ("LINKERD_", "Linkerd"),
    ("PROXY_INIT_", "Linkerd"),
    ("ufw", "ufw"),
    ("f2b-", "fail2ban"),
    ("LIBVIRT_", "libvirt"),
    ("NETAVARK", "podman"),
    ("ts-", "Tailscale"),
    ("nixos-", "NixOS' firewall"),
];

fn of_chain(chain: &str) -> RuleOwner {
    if let Some((_, name)) = PREFIXES.iter().find(|(prefix, _)| chain.starts_with(prefix)) {
        return RuleOwner::Other(name);
    }
    if chain.starts_with("KUBE-PORTALS") {
        RuleOwner::Proxy(Mode::Userspace)
    } else if chain.starts_with("KUBE-") {
        RuleOwner::Proxy(Mode::Iptables)
    } else {
        RuleOwner::Unknown
    }
}

fn of_table(table: &str, chain: &str) -> RuleOwner {
    match table {
        "kube-proxy" => RuleOwner::Proxy(Mode::Nftables),
        "firewalld" => RuleOwner::Other("firewalld"),
        // Tables of iptables-nft in an nft listing.
        _ => of_chain(chain),
    }
}

/// Returns the last rule that translated, rejected or dropped the request.
#[must_use]
pub fn decider(journey: &Journey) -> Option<Decider> {
    let (mut last, mut decided) = (None, None);
    for event in &journey.request.trace {
        match event {
            Event::Matched(rule) => {
                last = Some(Decider {
                    program: of_chain(rule.chain()),
                    chain: Some(rule.chain().to_owned()),
                    text: format!("{} in {}: {rule}", rule.number(), rule.table()),
                });
            }
            Event::NftMatched(rule) => {
                let program = of_table(rule.table(), rule.chain());
                let chain = Some(rule.chain().to_owned());
                last = Some(Decider { program, chain, text: format!("{}: {rule}", rule.place()) });
            }
            Event::Scheduled { service, server, .. } => {
                let text = format!("the virtual server {service} leads to {server}");
                decided = Some(Decider { program: RuleOwner::Proxy(Mode::Ipvs), chain: None, text });
            }
            Event::Translated { by: "DNAT", .. } | Event::Rejected(_) => decided.clone_from(&last),
            Event::Lost(DropReason::Rule(_) | DropReason::NftRule(_)) => decided.clone_from(&last),
            Event::Policy(table, hook, ChainPolicy::Drop) => {
                let text = format!("the policy of {} in {table}", hook.chain());
                decided = Some(Decider { program: RuleOwner::Unknown, chain: None, text });
            }
            Event::Lost(DropReason::NftPolicy(chain)) => {
                decided = Some(Decider {
                    program: of_table(chain.table(), chain.chain()),
                    chain: Some(chain.chain().to_owned()),
                    text: format!("the policy of {}", chain.place()),
                });
            }
            _ => {}
        }
    }
    decided
}

/// Returns the first journey with this verdict.
#[must_use]
pub fn journey_of<'a>(found: &'a Outcomes, verdict: Option<&PacketVerdict>) -> Option<&'a Journey> {
    let ways = found.ways.iter().map(|(_, journey)| journey);
    match verdict {
        Some(verdict) => ways.clone().find(|journey| journey.verdict == *verdict).or_else(|| ways.clone().next()),
        None => ways.clone().next(),
    }
}
