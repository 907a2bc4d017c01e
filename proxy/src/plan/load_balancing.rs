//! How the endpoint of a new connection is chosen.

use std::fmt;

use super::flow_fate::NOT_ALLOWED;
use crate::config::{Config, Mode};
use crate::model::{LoadBalancing, ServiceAnnotation};
use crate::state::service::ServicePort;

/// Why a choice has no effect on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BalancingIgnored {
    NotAllowed,
    Iptables,
    Ipvs,
    Userspace,
    /// The kernel lacks the expression `hash`.
    Kernel,
    Affinity,
}

impl BalancingIgnored {
    /// Returns why this mode cannot choose by a hash.
    pub fn by_mode(mode: Mode) -> Option<BalancingIgnored> {
        match mode {
            Mode::Iptables => Some(BalancingIgnored::Iptables),
            Mode::Ipvs => Some(BalancingIgnored::Ipvs),
            Mode::Userspace => Some(BalancingIgnored::Userspace),
            Mode::Nftables => None,
        }
    }
}

impl fmt::Display for BalancingIgnored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BalancingIgnored::NotAllowed => NOT_ALLOWED,
            BalancingIgnored::Iptables => "iptables mode chooses endpoints at random: iptables has no match for a hash of the client",
            BalancingIgnored::Ipvs => {
                "IPVS mode chooses by ipvs.scheduler (--ipvs-scheduler), the same for all Services; mh and sh hash the client"
            }
            BalancingIgnored::Userspace => "userspace mode chooses endpoints in turn",
            BalancingIgnored::Kernel => "this kernel has no nftables expression hash (CONFIG_NFT_HASH)",
            BalancingIgnored::Affinity => {
                "with sessionAffinity: ClientIP the first endpoint of a client is drawn, and then remembered"
            }
        })
    }
}

/// A node's choice, and whether Services may choose otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BalancingPolicy {
    node: LoadBalancing,
    /// Applies to the node's choice and to annotations.
    impossible: Option<BalancingIgnored>,
    not_allowed: bool,
}

impl BalancingPolicy {
    pub fn of(config: &Config) -> BalancingPolicy {
        let by_kernel = (!config.kernel_hashes).then_some(BalancingIgnored::Kernel);
        BalancingPolicy {
            node: config.load_balancing,
            impossible: BalancingIgnored::by_mode(config.mode).or(by_kernel),
            not_allowed: !config.annotations.contains(&ServiceAnnotation::LoadBalancing),
        }
    }

    /// Returns the choice for a service port, and why the Service's annotation is ignored.
    pub fn decide(&self, port: &ServicePort) -> (LoadBalancing, Option<BalancingIgnored>) {
        let by_affinity = port.affinity.map(|_| BalancingIgnored::Affinity);
        let impossible = self.impossible.or(by_affinity);
        let default = if impossible.is_none() { self.node } else { LoadBalancing::Random };
        let Some(asked) = port.load_balancing else { return (default, None) };
        let ignored = impossible.or(self.not_allowed.then_some(BalancingIgnored::NotAllowed));
        if ignored.is_none() || asked == default { (asked, None) } else { (default, ignored) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::model::Protocol;
    use crate::testing::{port_name, service_port};

    #[test]
    fn an_annotation_decides_where_it_is_allowed_and_possible() {
        use LoadBalancing::{Maglev, MaglevPort, Random};
        let (all, none) = (Config::for_node("n").annotations, BTreeSet::new());
        for (mode, hashes, allowed, node, asked, decided) in [
            (Mode::Nftables, true, &all, Random, None, (Random, None)),
            (Mode::Nftables, true, &all, Random, Some(Maglev), (Maglev, None)),
            (Mode::Nftables, true, &all, Maglev, Some(MaglevPort), (MaglevPort, None)),
            (Mode::Nftables, true, &all, Maglev, Some(Random), (Random, None)),
            (Mode::Nftables, true, &none, Maglev, None, (Maglev, None)),
            (Mode::Nftables, true, &none, Maglev, Some(Random), (Maglev, Some(BalancingIgnored::NotAllowed))),
            (Mode::Nftables, false, &all, Maglev, None, (Random, None)),
            (Mode::Nftables, false, &all, Random, Some(Maglev), (Random, Some(BalancingIgnored::Kernel))),
            (Mode::Iptables, true, &all, Random, Some(Maglev), (Random, Some(BalancingIgnored::Iptables))),
            (Mode::Iptables, true, &none, Random, Some(Random), (Random, None)),
            (Mode::Ipvs, true, &none, Random, Some(Maglev), (Random, Some(BalancingIgnored::Ipvs))),
            (Mode::Userspace, true, &all, Random, Some(MaglevPort), (Random, Some(BalancingIgnored::Userspace))),
        ] {
            let annotations = allowed.clone();
            let config =
                Config { mode, kernel_hashes: hashes, annotations, load_balancing: node, ..Config::for_node("n") };
            for protocol in Protocol::ALL {
                let port = service_port(port_name("web", protocol), "10.96.0.1");
                let port = ServicePort { load_balancing: asked, ..port };
                assert_eq!(BalancingPolicy::of(&config).decide(&port), decided, "{mode} {node} {asked:?}");
            }
        }
    }

    #[test]
    fn affinity_goes_before() {
        let config = Config { mode: Mode::Nftables, load_balancing: LoadBalancing::Maglev, ..Config::for_node("n") };
        let port = ServicePort {
            affinity: Some(Duration::from_secs(5)),
            ..service_port(port_name("web", Protocol::Tcp), "10.96.0.1")
        };
        let policy = BalancingPolicy::of(&config);
        assert_eq!(policy.decide(&port), (LoadBalancing::Random, None));
        let port = ServicePort { load_balancing: Some(LoadBalancing::Maglev), ..port };
        assert_eq!(policy.decide(&port), (LoadBalancing::Random, Some(BalancingIgnored::Affinity)));
    }
}
