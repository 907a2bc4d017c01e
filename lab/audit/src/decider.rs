//! Who decided on a packet's way: the rule, the virtual server or the policy, and the program that it belongs to.

use svclab_oracle::Mode;
use svclab_sim::network::{Journey, Outcomes, PacketVerdict};
use svclab_sim::rules::ChainPolicy;
use svclab_sim::trace::{DropReason, Event};

/// What decided on a packet's way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decider {
    /// Whose it is.
    pub program: Program,
    /// The chain that the rule is in, or whose policy it is; `None` for a virtual server, and a policy of iptables.
    pub chain: Option<String>,
    /// Its place and text.
    pub text: String,
}

/// Who writes rules, as far as names tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// A service proxy in this mode: chains of Kubernetes' names, the tables called kube-proxy, virtual servers.
    Proxy(Mode),
    /// Another program.
    Other(&'static str),
    /// Nobody whose names are known.
    Unknown,
}

/// The beginnings of chains' names, and whose they are.
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

/// Whose a chain of iptables is.
fn of_chain(chain: &str) -> Program {
    if let Some((_, name)) = PREFIXES.iter().find(|(prefix, _)| chain.starts_with(prefix)) {
        return Program::Other(name);
    }
    if chain.starts_with("KUBE-PORTALS") {
        Program::Proxy(Mode::Userspace)
    } else if chain.starts_with("KUBE-") {
        Program::Proxy(Mode::Iptables)
    } else {
        Program::Unknown
    }
}

fn of_table(table: &str, chain: &str) -> Program {
    match table {
        "kube-proxy" => Program::Proxy(Mode::Nftables),
        "firewalld" => Program::Other("firewalld"),
        // Tables of iptables-nft, where there was no `iptables-save`.
        _ => of_chain(chain),
    }
}

/// The rule that translated, rejected or dropped the packet of a journey: the last of them on its way there.
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
                decided = Some(Decider { program: Program::Proxy(Mode::Ipvs), chain: None, text });
            }
            Event::Translated { by: "DNAT", .. } | Event::Rejected(_) => decided.clone_from(&last),
            Event::Lost(DropReason::Rule(_) | DropReason::NftRule(_)) => decided.clone_from(&last),
            Event::Policy(table, hook, ChainPolicy::Drop) => {
                let text = format!("the policy of {} in {table}", hook.chain());
                decided = Some(Decider { program: Program::Unknown, chain: None, text });
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

/// The first journey that ended so.
#[must_use]
pub fn journey_of<'a>(found: &'a Outcomes, verdict: Option<&PacketVerdict>) -> Option<&'a Journey> {
    let ways = found.ways.iter().map(|(_, journey)| journey);
    match verdict {
        // Through a relay an outcome has no way of its own.
        Some(verdict) => ways.clone().find(|journey| journey.verdict == *verdict).or_else(|| ways.clone().next()),
        None => ways.clone().next(),
    }
}
