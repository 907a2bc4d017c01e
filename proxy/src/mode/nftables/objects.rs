//! What one service port contributes to the table. Its frontends and its endpoints are kept, and the elements follow from them when they are
//! asked for: as elements they would take ten times the memory.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::affinity::Affinity;
use super::layout;
use super::shared::{At, Does, Shared, cluster_ip_rules};
use super::slots::{Slots, assign};
use crate::model::Protocol;
use crate::nftables::{Chain, Element, Key, Name, Set, Value, Verdict};
use crate::plan::{BackendSet, ExternalFrontends, FrontendAction, Masquerade, NodePlan, ServicePortPlan};

/// What a service port contributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceObjects {
    protocol: Protocol,
    port: u16,
    frontends: Box<[Frontend]>,
    /// Addresses of endpoints that may be their own clients. Other service ports may have the same.
    hairpins: Box<[IpAddr]>,
    /// What is rare, in any order.
    elements: Vec<Element>,
    /// With session affinity: chains and sets of its own.
    own: Option<Box<Own>>,
    /// The numbers that its endpoints have.
    pub slots: Slots,
}

/// Chains and sets of one service port alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Own {
    /// Chains.
    pub chains: BTreeMap<Name, Chain>,
    /// Sets.
    pub sets: BTreeMap<Name, Set>,
}

/// Where packets are led from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Frontend {
    at: Place,
    /// It is the cluster IP. Other ports of the Service have the same.
    is_cluster_ip: bool,
    /// What happens where nobody answers.
    nobody: Option<Nobody>,
    /// Where packets go on, if anywhere.
    to: Option<To>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Address(IpAddr),
    NodePort(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nobody {
    Refused,
    Dropped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct To {
    chain: Name,
    /// What that chain does, where others have it as well. Then endpoints are elements, else rules.
    shared: Option<Does>,
    picked: Option<BackendSet>,
    /// What pods and the node itself get.
    short_circuit: Option<BackendSet>,
}

/// Sets and maps of a place.
struct Maps {
    services: &'static str,
    no_endpoints: &'static str,
    endpoints: &'static str,
    short_circuits: &'static str,
}

const OF_ADDRESSES: Maps = Maps {
    services: layout::SERVICE_IPS,
    no_endpoints: layout::NO_ENDPOINT_SERVICES,
    endpoints: layout::SERVICE_ENDPOINTS,
    short_circuits: layout::SHORT_CIRCUIT_ENDPOINTS,
};
const OF_NODE_PORTS: Maps = Maps {
    services: layout::SERVICE_NODEPORTS,
    no_endpoints: layout::NO_ENDPOINT_NODEPORTS,
    endpoints: layout::NODEPORT_ENDPOINTS,
    short_circuits: layout::NODEPORT_SHORT_CIRCUIT_ENDPOINTS,
};

impl Place {
    fn at(self) -> At {
        match self {
            Place::Address(_) => At::Address,
            Place::NodePort(_) => At::NodePort,
        }
    }

    fn maps(self) -> &'static Maps {
        match self {
            Place::Address(_) => &OF_ADDRESSES,
            Place::NodePort(_) => &OF_NODE_PORTS,
        }
    }
}

/// Writes down one service port; `before`: the numbers that its endpoints had.
pub fn render(plan: &ServicePortPlan, node: &NodePlan, before: &Slots) -> ServiceObjects {
    let slots = Slots {
        cluster: assign(&before.cluster, &plan.cluster_backends),
        local: assign(&before.local, &plan.local_backends),
    };
    let affinity = plan.affinity.map(|timeout| Affinity::new(plan, node, timeout));
    let marks_cluster_ips = !cluster_ip_rules(node).is_empty();
    let relays_localhost = node.node_port_relay.is_some();
    let (frontends, elements) = (Vec::new(), Vec::new());
    let mut writer = Writer { plan, slots, affinity, marks_cluster_ips, relays_localhost, frontends, elements };
    if let Some(internal) = &plan.internal {
        writer.lead(Place::Address(internal.address), internal.action, None);
    }
    if let Some(external) = &plan.external {
        writer.external(external);
    }
    let Writer { slots, affinity, frontends, mut elements, .. } = writer;
    elements.sort_unstable();
    elements.dedup();
    ServiceObjects {
        protocol: plan.protocol(),
        port: plan.port,
        frontends: frontends.into(),
        hairpins: plan.hairpins.clone().into(),
        elements,
        own: affinity.map(|affinity| Box::new(affinity.objects(&slots))),
        slots,
    }
}

impl ServiceObjects {
    fn key(&self, place: Place) -> Key {
        key(place, self.protocol, self.port)
    }

    /// Its elements, each once. Other service ports may have the same in `cluster-ips` and `hairpins`.
    pub fn elements(&self) -> impl Iterator<Item = Element> {
        self.in_common().chain(self.alone())
    }

    /// Those that other service ports may have as well.
    pub fn in_common(&self) -> impl Iterator<Item = Element> {
        let cluster_ips = self.frontends.iter().filter(|frontend| frontend.is_cluster_ip);
        let cluster_ips = cluster_ips.filter_map(|frontend| match frontend.at {
            Place::Address(address) => Some(Element::of(layout::CLUSTER_IPS, Key::default().address(address))),
            Place::NodePort(_) => None,
        });
        let pair = |address: &IpAddr| Key::default().address(*address).address(*address);
        cluster_ips.chain(self.hairpins.iter().map(move |address| Element::of(layout::HAIRPINS, pair(address))))
    }

    /// All others.
    pub fn alone(&self) -> impl Iterator<Item = Element> {
        self.frontends.iter().flat_map(|frontend| self.of_frontend(frontend)).chain(self.elements.iter().cloned())
    }

    fn of_frontend<'a>(&'a self, frontend: &'a Frontend) -> impl Iterator<Item = Element> + 'a {
        let (maps, key) = (frontend.at.maps(), self.key(frontend.at));
        let nobody = frontend.nobody.map(|nobody| Element {
            set: maps.no_endpoints,
            key,
            value: Value::Verdict(match nobody {
                Nobody::Refused => Verdict::Goto(layout::REJECT_CHAIN.into()),
                Nobody::Dropped => Verdict::Drop,
            }),
        });
        let numbered = move |map, set: Option<BackendSet>| {
            let endpoints = set.into_iter().flat_map(|set| self.slots.of(set).numbered());
            endpoints.map(move |(number, endpoint)| Element {
                set: map,
                key: key.number(number),
                value: Value::endpoint(endpoint),
            })
        };
        let shared = frontend.to.as_ref().filter(|to| to.shared.is_some());
        let picked = numbered(maps.endpoints, shared.and_then(|to| to.picked));
        let short_circuits = numbered(maps.short_circuits, shared.and_then(|to| to.short_circuit));
        let to =
            frontend.to.iter().map(move |to| Element { set: maps.services, key, value: Value::goto(to.chain.clone()) });
        nobody.into_iter().chain(picked).chain(short_circuits).chain(to)
    }

    /// Chains that others have as well, some perhaps several times.
    pub fn shared(&self) -> impl Iterator<Item = Shared> {
        let chains = self.frontends.iter().filter_map(|frontend| {
            let does = frontend.to.as_ref()?.shared?;
            Some(Shared { at: frontend.at.at(), protocol: self.protocol, does })
        });
        chains.flat_map(Shared::with_targets)
    }

    /// Chains and sets of its own.
    pub fn own(&self) -> Option<&Own> {
        self.own.as_deref()
    }

    /// The map and the key, but for a number, under which the endpoints of a set are elements, if they are.
    pub fn numbered(&self, set: BackendSet) -> Option<(&'static str, Key)> {
        self.frontends.iter().find_map(|frontend| {
            let to = frontend.to.as_ref().filter(|to| to.shared.is_some())?;
            let maps = frontend.at.maps();
            let of = [(to.picked, maps.endpoints), (to.short_circuit, maps.short_circuits)];
            let (_, map) = of.into_iter().find(|(of, _)| *of == Some(set))?;
            Some((map, self.key(frontend.at)))
        })
    }
}

fn key(place: Place, protocol: Protocol, port: u16) -> Key {
    match place {
        Place::Address(address) => Key::default().address(address).protocol(protocol).port(port),
        Place::NodePort(port) => Key::default().protocol(protocol).port(port),
    }
}

struct Writer<'a> {
    plan: &'a ServicePortPlan,
    slots: Slots,
    affinity: Option<Affinity<'a>>,
    /// Something is masqueraded on its way to cluster IPs.
    marks_cluster_ips: bool,
    /// Node ports on loopback addresses are relayed, or refuse.
    relays_localhost: bool,
    frontends: Vec<Frontend>,
    elements: Vec<Element>,
}

impl Writer<'_> {
    fn external(&mut self, external: &ExternalFrontends) {
        for address in external.external_ips.iter().chain(&external.load_balancer_ips) {
            self.lead(Place::Address(*address), external.action, Some(external));
        }
        if let Some(port) = external.node_port {
            self.lead(Place::NodePort(port), external.action, Some(external));
            let refused = layout::localhost_refused(self.plan.protocol()).filter(|_| self.relays_localhost);
            self.elements.extend(refused.map(|chain| Element {
                set: layout::LOCALHOST_NODEPORTS,
                key: key(Place::NodePort(port), self.plan.protocol(), self.plan.port),
                value: Value::goto(chain.into()),
            }));
        }
        let Some(allowed) = &external.allowed_sources else { return };
        let own = external.load_balancer_ips.iter().filter(|_| allowed.load_balancer_ips);
        let sources: Vec<IpNet> = allowed.ranges.iter().copied().chain(own.map(|own| IpNet::from(*own))).collect();
        for address in &external.load_balancer_ips {
            let key = key(Place::Address(*address), self.plan.protocol(), self.plan.port);
            self.elements.push(Element::of(layout::RESTRICTED, key));
            // The kernel takes no ranges that overlap.
            for range in IpNet::aggregate(&sources) {
                self.elements.push(Element::range(layout::ALLOWED, key, range));
            }
        }
    }

    /// What happens to packets to one frontend; `external`: it is one for outside. One address may be cluster IP, external IP and load-balancer
    /// IP of a Service, and is then the first of these.
    fn lead(&mut self, at: Place, action: FrontendAction, external: Option<&ExternalFrontends>) {
        if self.frontends.iter().any(|frontend| frontend.at == at) {
            return;
        }
        let (picked, nobody) = match action.verdict {
            crate::plan::Verdict::Deliver(set) => (Some(set), None),
            crate::plan::Verdict::Reject => (None, Some(Nobody::Refused)),
            crate::plan::Verdict::Drop => (None, Some(Nobody::Dropped)),
        };
        // What pods and the node get is the same but for masquerade, which the chain sees to.
        let short = external.and_then(|external| external.short_circuit);
        let short_circuit = match short.map(|short| short.node.verdict) {
            Some(crate::plan::Verdict::Deliver(set)) => Some(set),
            _ => None,
        };
        let to = self.to(at, picked, short_circuit, action.masquerade, external.is_some());
        self.frontends.push(Frontend { at, is_cluster_ip: external.is_none(), nobody, to });
    }

    fn to(
        &mut self,
        at: Place,
        picked: Option<BackendSet>,
        short_circuit: Option<BackendSet>,
        masquerade: Masquerade,
        is_external: bool,
    ) -> Option<To> {
        let count = |set: Option<BackendSet>| set.map_or(0, |set| self.slots.of(set).count());
        let does = match (count(picked), count(short_circuit), masquerade) {
            (0, 0, _) => return None,
            (local, all, _) if all > 0 => Does::Local { local, all },
            (count, _, Masquerade::Always) if is_external => Does::External(count),
            (count, ..) if !is_external && self.marks_cluster_ips => Does::ClusterIp(count),
            (count, ..) => Does::Pick(count),
        };
        let (chain, shared) = match &mut self.affinity {
            Some(affinity) => (affinity.entry(does, picked), None),
            None => (Shared { at: at.at(), protocol: self.plan.protocol(), does }.name(), Some(does)),
        };
        Some(To { chain, shared, picked, short_circuit })
    }
}
