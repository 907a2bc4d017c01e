//! Stale conntrack entries of UDP and SCTP. Only a flow's first packet meets the rules. So a UDP client that keeps its
//! port would send to a removed endpoint forever, or to none if its flow is older than the service. TCP connections end
//! by themselves, unless their Service asks for another fate ([`super::ended_flows`]).
//!
//! As upstream since Kubernetes 1.32, a UDP flow must go to a *serving* endpoint, whatever policy, topology or
//! readiness, so that UDP flows last as long as TCP connections would. An SCTP association lasts until its endpoint is
//! in no slice (kubernetes#70020); upstream keeps it even then.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::NodePortScope;
use super::conntrack_index::DueFlows;
use crate::habits::{self, Habit};
use crate::model::Protocol;
pub use crate::model::{Flow, Frontend};
use crate::state::endpoints::Endpoint;
use crate::state::service::ServicePort;

type Frontends = BTreeMap<(Protocol, Frontend), BTreeSet<SocketAddr>>;

pub fn keeps_flows(protocol: Protocol, endpoint: &Endpoint) -> bool {
    if habits::has(Habit::FlowsNeedPresence) || habits::has(Habit::FlowsNeedReadiness) && !endpoint.ready {
        return habits::has(Habit::FlowsNeedPresence);
    }
    protocol == Protocol::Sctp || endpoint.serving
}

/// Returns the servers to which a service port's flows may go: its endpoints, and this process's ports, `relays`.
/// `local` are the node's addresses.
pub fn servers(protocol: Protocol, endpoints: &[Endpoint], relays: &[u16], local: &[IpAddr]) -> BTreeSet<SocketAddr> {
    let serving = endpoints.iter().filter(|endpoint| keeps_flows(protocol, endpoint)).map(|endpoint| endpoint.address);
    let relayed = relays.iter().flat_map(|relay| local.iter().map(|ip| SocketAddr::new(*ip, *relay)));
    serving.chain(relayed).collect()
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaleFlowFilter {
    serving: Frontends,
    /// Frontends that were removed or have no servers.
    gone: BTreeSet<(Protocol, Frontend)>,
    node_addresses: BTreeSet<IpAddr>,
    /// Frontends where only flows to the listed servers can be stale.
    lost: Frontends,
}

pub fn needs_conntrack_cleanup(protocol: Protocol) -> bool {
    protocol != Protocol::Tcp
}

impl StaleFlowFilter {
    /// `ports` are service ports with their [`servers`], without common frontends ([`crate::state::claims`]); TCP is
    /// ignored. `local` are the node's addresses.
    pub fn new<'a>(
        ports: impl Iterator<Item = (Cow<'a, ServicePort>, BTreeSet<SocketAddr>)>,
        scope: &NodePortScope,
        local: &[IpAddr],
    ) -> StaleFlowFilter {
        let mut flows = StaleFlowFilter {
            node_addresses: match scope {
                NodePortScope::EveryLocalAddress { .. } => local.iter().copied().collect(),
                NodePortScope::Addresses(addresses) => addresses.iter().copied().collect(),
            },
            ..StaleFlowFilter::default()
        };
        for (port, servers) in ports.filter(|(port, ..)| needs_conntrack_cleanup(port.name.protocol)) {
            for frontend in port.frontends() {
                flows.serving.insert((port.name.protocol, frontend), servers.clone());
            }
        }
        flows
    }

    pub fn only(mut self, due: &BTreeMap<(Protocol, Frontend), DueFlows>) -> StaleFlowFilter {
        self.serving.retain(|frontend, _| due.contains_key(frontend));
        self.gone = due.keys().filter(|frontend| !self.serving.contains_key(frontend)).copied().collect();
        let lost = due.iter().filter_map(|(frontend, due)| match due {
            DueFlows::ToServers(servers) => Some((*frontend, servers.clone())),
            DueFlows::All => None,
        });
        self.lost = lost.collect();
        self
    }

    /// Adds TCP connections that ended, with the endpoints whose connections stay.
    pub fn and_ended(
        mut self,
        ended: impl Iterator<Item = (Frontend, DueFlows, BTreeSet<SocketAddr>)>,
    ) -> StaleFlowFilter {
        for (frontend, due, kept) in ended {
            let key = (Protocol::Tcp, frontend);
            self.serving.insert(key, kept);
            if let DueFlows::ToServers(servers) = due {
                self.lost.insert(key, servers);
            }
        }
        self
    }

    pub fn frontends(&self) -> impl Iterator<Item = (Protocol, Frontend)> {
        self.serving.keys().chain(&self.gone).copied()
    }

    pub fn lost(&self) -> &BTreeMap<(Protocol, Frontend), BTreeSet<SocketAddr>> {
        &self.lost
    }

    pub fn is_empty(&self) -> bool {
        self.serving.is_empty() && self.gone.is_empty()
    }

    /// Whether the flow is stale. False for flows to unknown destinations.
    pub fn is_stale(&self, flow: &Flow) -> bool {
        let address = (flow.protocol, Frontend::Address(flow.destination));
        let node_port = (flow.protocol, Frontend::NodePort(flow.destination.port()));
        let on_node = self.is_of_node(flow.destination.ip());
        match self.frontend_of(flow) {
            Some((key, servers)) if flow.protocol == Protocol::Tcp => self.has_ended(flow, key, servers),
            Some((_, servers)) => !servers.contains(&flow.server),
            // An untranslated flow reached another program.
            None => flow.translated && (self.gone.contains(&address) || (on_node && self.gone.contains(&node_port))),
        }
    }

    /// Endpoints that were lost before their Service asked for a fate keep their connections, and so do other programs'.
    fn has_ended(&self, flow: &Flow, key: &(Protocol, Frontend), kept: &BTreeSet<SocketAddr>) -> bool {
        let is_lost = self.lost.get(key).is_none_or(|lost| lost.contains(&flow.server));
        flow.translated && !flow.by_ipvs && is_lost && !kept.contains(&flow.server)
    }

    /// Returns the servers of a flow's frontend; `None` if the frontend was removed, or is not judged.
    pub fn servers_of(&self, flow: &Flow) -> Option<&BTreeSet<SocketAddr>> {
        self.frontend_of(flow).map(|(_, servers)| servers)
    }

    fn frontend_of(&self, flow: &Flow) -> Option<(&(Protocol, Frontend), &BTreeSet<SocketAddr>)> {
        let node_port = (flow.protocol, Frontend::NodePort(flow.destination.port()));
        let on_node = self.is_of_node(flow.destination.ip());
        let serving = self.serving.get_key_value(&(flow.protocol, Frontend::Address(flow.destination)));
        serving.or_else(|| self.serving.get_key_value(&node_port).filter(|_| on_node))
    }

    /// Whether this is an address of the node that accepts node ports.
    pub fn is_of_node(&self, address: IpAddr) -> bool {
        self.node_addresses.contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER_IP: &str = "10.96.0.10:53";
    const NODE_PORT: &str = "172.18.0.2:30053";

    fn socket(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn flows(servers: &[&str]) -> StaleFlowFilter {
        let serving: BTreeSet<SocketAddr> = servers.iter().map(|text| socket(text)).collect();
        let frontends = [Frontend::Address(socket(CLUSTER_IP)), Frontend::NodePort(30053)];
        StaleFlowFilter {
            serving: frontends.map(|frontend| ((Protocol::Udp, frontend), serving.clone())).into_iter().collect(),
            gone: BTreeSet::new(),
            node_addresses: ["172.18.0.2".parse().unwrap()].into(),
            lost: Frontends::new(),
        }
    }

    fn flow(destination: &str, server: &str) -> Flow {
        let (destination, server) = (socket(destination), socket(server));
        let client = "10.244.1.9".parse().unwrap();
        Flow { protocol: Protocol::Udp, client, destination, server, translated: destination != server, by_ipvs: false }
    }

    #[test]
    fn a_flow_to_no_serving_endpoint_is_stale() {
        let one = ["10.244.1.5:53"];
        for (servers, destination, server, stale, why) in [
            (&one[..], CLUSTER_IP, "10.244.1.5:53", false, "it does"),
            (&one, CLUSTER_IP, "10.244.1.6:53", true, "the endpoint is gone"),
            (&one, CLUSTER_IP, "10.244.1.5:54", true, "the endpoint has another port now"),
            (&one, CLUSTER_IP, CLUSTER_IP, true, "it began before the service was there"),
            (&[], CLUSTER_IP, "10.244.1.5:53", true, "scaled to zero"),
            (&one, NODE_PORT, "10.244.1.5:53", false, "by the node port"),
            (&one, NODE_PORT, "10.244.1.6:53", true, "by the node port, to one that is gone"),
            (&one, "8.8.8.8:30053", "8.8.8.8:30053", false, "the node port's number on another host"),
            (&one, "10.96.0.10:54", "10.96.0.10:54", false, "another port of the cluster IP"),
            (&one, "10.244.1.6:53", "10.244.1.6:53", false, "straight to a pod"),
        ] {
            assert_eq!(flows(servers).is_stale(&flow(destination, server)), stale, "{why}");
        }
        let tcp = Flow { protocol: Protocol::Tcp, ..flow(CLUSTER_IP, "10.244.1.6:53") };
        assert!(!flows(&one).is_stale(&tcp), "another protocol");
    }

    #[test]
    fn only_translated_flows_of_a_removed_frontend_are_stale() {
        let before: BTreeMap<_, _> =
            flows(&["10.244.1.5:53"]).frontends().map(|frontend| (frontend, DueFlows::All)).collect();
        let now = StaleFlowFilter { serving: Frontends::new(), ..flows(&[]) }.only(&before);
        assert!(now.is_stale(&flow(CLUSTER_IP, "10.244.1.5:53")));
        assert!(now.is_stale(&flow(NODE_PORT, "10.244.1.5:53")));
        assert!(!now.is_stale(&flow(CLUSTER_IP, CLUSTER_IP)), "no endpoint of ours answered it");
        assert!(!now.is_stale(&flow("172.18.0.9:30053", "10.244.1.5:53")), "another node's");
        assert!(flows(&[]).only(&before).gone.is_empty(), "a frontend that is still there is not gone");
        let is_node_port = |key: &(Protocol, Frontend)| matches!(key.1, Frontend::NodePort(_));
        let node_port = before.into_iter().filter(|(key, _)| is_node_port(key)).collect();
        let part = flows(&["10.244.1.5:53"]).only(&node_port);
        assert!(part.is_stale(&flow(NODE_PORT, "10.244.1.6:53")));
        assert!(!part.is_stale(&flow(CLUSTER_IP, "10.244.1.6:53")), "nothing changed there");
    }
    #[test]
    fn only_connections_that_rules_translated_to_a_lost_endpoint_end() {
        let (lost, kept) = ("10.244.1.6:53", "10.244.1.5:53");
        let judged = |due: DueFlows, to: &str| {
            let ended = (Frontend::Address(socket(CLUSTER_IP)), due, BTreeSet::from([socket(kept)]));
            let filter = flows(&[]).and_ended([ended].into_iter());
            let tcp = Flow { protocol: Protocol::Tcp, ..flow(CLUSTER_IP, to) };
            (filter.is_stale(&tcp), filter.is_stale(&Flow { by_ipvs: true, ..tcp }))
        };
        let only = || DueFlows::ToServers(BTreeSet::from([socket(lost), socket(kept)]));
        assert_eq!(judged(only(), lost), (true, false));
        assert_eq!(judged(only(), kept), (false, false), "it serves again");
        assert_eq!(judged(only(), "10.244.1.7:53"), (false, false), "lost before the Service asked");
        assert_eq!(judged(DueFlows::All, "10.244.1.7:53"), (true, false), "a proxy starts");
        assert_eq!(judged(DueFlows::All, CLUSTER_IP), (false, false), "another program's");
    }
}
