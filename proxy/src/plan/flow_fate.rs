//! Which fate established TCP connections have when their endpoint stops serving. UDP flows are forgotten in any case
//! ([`super::stale_flows`]).

use std::fmt;
use std::time::Duration;

use crate::config::{Config, Mode};
use crate::model::{FlowFate, Protocol, ServiceAnnotation};
use crate::state::State;
use crate::state::service::ServicePort;

/// The kernel's time-out of idle established TCP connections (`nf_ct_tcp_timeouts` in
/// net/netfilter/nf_conntrack_proto_tcp.c).
const KERNEL_ESTABLISHED: Duration = Duration::from_secs(5 * 24 * 3600);

pub(super) const NOT_ALLOWED: &str = "serviceAnnotations (--service-annotations) does not allow it";

/// Why a Service's annotation has no effect on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FateIgnored {
    NotAllowed,
    Ipvs,
    Flowtable,
}

impl FateIgnored {
    /// Returns why this mode cannot end connections.
    pub fn by_mode(mode: Mode, flowtable: bool) -> Option<FateIgnored> {
        match mode {
            Mode::Ipvs => Some(FateIgnored::Ipvs),
            Mode::Nftables if flowtable => Some(FateIgnored::Flowtable),
            Mode::Iptables | Mode::Nftables | Mode::Userspace => None,
        }
    }
}

impl fmt::Display for FateIgnored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FateIgnored::NotAllowed => NOT_ALLOWED,
            FateIgnored::Ipvs => "IPVS mode ends connections by --ipvs-drain-limit, the same for all Services",
            FateIgnored::Flowtable => {
                "nftables.flowtable (--nftables-flowtable) leads connections past the rules that would reset them"
            }
        })
    }
}

/// A node's choice, and whether Services may choose otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FatePolicy {
    node: FlowFate,
    ignored: Option<FateIgnored>,
}

impl FatePolicy {
    pub fn of(config: &Config) -> FatePolicy {
        let is_allowed = config.annotations.contains(&ServiceAnnotation::FlowFate);
        let not_allowed = (!is_allowed).then_some(FateIgnored::NotAllowed);
        let ignored = FateIgnored::by_mode(config.mode, config.flowtable).or(not_allowed);
        FatePolicy { node: config.flow_fate, ignored }
    }

    /// Returns the fate of a service port's connections, and why the Service's annotation is ignored.
    pub fn decide(&self, port: &ServicePort) -> (FlowFate, Option<FateIgnored>) {
        match (port.name.protocol, port.flow_fate) {
            (Protocol::Udp | Protocol::Sctp, _) => (FlowFate::Keep, None),
            (Protocol::Tcp, Some(fate)) if self.ignored.is_none() || fate == self.node => (fate, None),
            (Protocol::Tcp, Some(_)) => (self.node, self.ignored),
            (Protocol::Tcp, None) => (self.node, None),
        }
    }
}

/// Whether connections end by the deletion of their conntrack entry ([`super::ended_flows`]), because the mode's rules
/// see only the endpoint of a translated packet.
pub fn deletes_entries(mode: Mode) -> bool {
    mode == Mode::Iptables
}

/// Returns how long lost flows are remembered: as long as the kernel remembers an idle connection. `None` while no
/// service port has had another fate than [`FlowFate::Keep`].
pub fn memory(config: &Config, state: &State) -> Option<Duration> {
    let policy = FatePolicy::of(config);
    let may_end = policy.node != FlowFate::Keep || policy.ignored.is_none() && state.flow_fate_asked();
    let established = config.conntrack.tcp_established;
    may_end.then_some(if established.is_zero() { KERNEL_ESTABLISHED } else { established })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::testing::{port_name, service_port};

    #[test]
    fn an_annotation_decides_where_it_is_allowed_and_possible() {
        use FlowFate::{Drain, Keep, Reset};
        let (all, none) = (Config::for_node("n").annotations, BTreeSet::new());
        for (mode, flowtable, allowed, node, asked, decided) in [
            (Mode::Nftables, false, &all, Keep, None, (Keep, None)),
            (Mode::Nftables, false, &all, Keep, Some(Reset), (Reset, None)),
            (Mode::Nftables, false, &all, Reset, Some(Drain(5)), (Drain(5), None)),
            (Mode::Nftables, false, &all, Reset, Some(Keep), (Keep, None)),
            (Mode::Nftables, false, &none, Reset, None, (Reset, None)),
            (Mode::Nftables, false, &none, Reset, Some(Keep), (Reset, Some(FateIgnored::NotAllowed))),
            (Mode::Nftables, true, &all, Keep, Some(Reset), (Keep, Some(FateIgnored::Flowtable))),
            (Mode::Userspace, false, &all, Keep, Some(Drain(5)), (Drain(5), None)),
            (Mode::Iptables, false, &all, Keep, Some(Reset), (Reset, None)),
            (Mode::Ipvs, false, &all, Keep, Some(Reset), (Keep, Some(FateIgnored::Ipvs))),
            (Mode::Ipvs, false, &none, Keep, Some(Reset), (Keep, Some(FateIgnored::Ipvs))),
        ] {
            let annotations = allowed.clone();
            let config = Config { mode, flowtable, annotations, flow_fate: node, ..Config::for_node("n") };
            let port = ServicePort { flow_fate: asked, ..service_port(port_name("web", Protocol::Tcp), "10.96.0.1") };
            assert_eq!(FatePolicy::of(&config).decide(&port), decided, "{mode} {node} {asked:?}");
            let dns = ServicePort { flow_fate: asked, ..service_port(port_name("dns", Protocol::Udp), "10.96.0.2") };
            assert_eq!(FatePolicy::of(&config).decide(&dns), (Keep, None));
        }
    }
}
