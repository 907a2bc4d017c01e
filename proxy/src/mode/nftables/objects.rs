//! What one service port contributes to the table: elements, and the chains that they lead to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use nf_tables::field::Field;

use super::layout;
use super::shared::{At, Does, Shared, cluster_ip_rules, local_rules};
use super::slots::assign;
use crate::mode::rules::names::hash;
use crate::model::ServicePortName;
use crate::nftables::{Chain, Element, Key, Name, Rule, Set, Statement, Value, Verdict};
use crate::plan::{BackendSet, ExternalFrontends, FrontendAction, Masquerade, NodePlan, ServicePortPlan};

/// Clients that are remembered for each endpoint, as `nft` has it for sets that rules fill.
const CLIENTS: u32 = 65_535;
/// Letters of the hash that begins the names of what is one service port's alone.
const HASH: usize = 8;

/// The endpoints of a service port in the order of their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slots {
    /// Those of the whole cluster.
    pub cluster: Vec<SocketAddr>,
    /// Those of this node.
    pub local: Vec<SocketAddr>,
}

impl Slots {
    fn of(&self, set: BackendSet) -> &[SocketAddr] {
        match set {
            BackendSet::Cluster => &self.cluster,
            BackendSet::Local => &self.local,
        }
    }
}

/// What a service port contributes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceObjects {
    /// Elements, sorted, each once. Other service ports may have the same in `cluster-ips` and `hairpin-connections`.
    pub elements: Vec<Element>,
    /// Chains that others have as well.
    pub shared: BTreeSet<Shared>,
    /// Chains of its own.
    pub chains: BTreeMap<Name, Chain>,
    /// Sets of its own.
    pub sets: BTreeMap<Name, Set>,
    /// The numbers that its endpoints have.
    pub slots: Slots,
}

/// Writes down one service port; `before`: the numbers that its endpoints had.
pub fn render(plan: &ServicePortPlan, node: &NodePlan, before: &Slots) -> ServiceObjects {
    let slots = Slots {
        cluster: assign(&before.cluster, &plan.cluster_backends),
        local: assign(&before.local, &plan.local_backends),
    };
    let mut writer =
        Writer { plan, node, led: BTreeSet::new(), out: ServiceObjects { slots, ..ServiceObjects::default() } };
    if let Some(internal) = &plan.internal {
        let key = writer.frontend(internal.address);
        writer.element(Element::of(layout::CLUSTER_IPS, Key::default().address(internal.address)));
        writer.lead(At::Address, key, internal.action, None);
    }
    if let Some(external) = &plan.external {
        writer.external(external);
    }
    for address in &plan.hairpins {
        writer.element(Element::of(layout::HAIRPINS, Key::default().address(*address).address(*address)));
    }
    if let Some(timeout) = plan.affinity {
        writer.affinity(timeout);
    }
    let mut out = writer.out;
    out.elements.sort_unstable();
    out.elements.dedup();
    out
}

struct Writer<'a> {
    plan: &'a ServicePortPlan,
    node: &'a NodePlan,
    /// Frontends so far: one address may be cluster IP, external IP and load-balancer IP of a Service, and is then the first of these.
    led: BTreeSet<(At, Key)>,
    out: ServiceObjects,
}

impl Writer<'_> {
    fn element(&mut self, element: Element) {
        self.out.elements.push(element);
    }

    fn frontend(&self, address: IpAddr) -> Key {
        Key::default().address(address).protocol(self.plan.protocol()).port(self.plan.port)
    }

    fn external(&mut self, external: &ExternalFrontends) {
        for address in external.external_ips.iter().chain(&external.load_balancer_ips) {
            self.lead(At::Address, self.frontend(*address), external.action, Some(external));
        }
        if let Some(port) = external.node_port {
            let key = Key::default().protocol(self.plan.protocol()).port(port);
            self.lead(At::NodePort, key, external.action, Some(external));
            let refused = self.node.node_port_relay.and_then(|_| layout::localhost_refused(self.plan.protocol()));
            self.out.elements.extend(refused.map(|chain| Element {
                set: layout::LOCALHOST_NODEPORTS,
                key,
                value: Value::goto(chain.into()),
            }));
        }
        let Some(allowed) = &external.allowed_sources else { return };
        let own = external.load_balancer_ips.iter().filter(|_| allowed.load_balancer_ips);
        let sources: Vec<IpNet> = allowed.ranges.iter().copied().chain(own.map(|own| IpNet::from(*own))).collect();
        for address in &external.load_balancer_ips {
            let key = self.frontend(*address);
            self.element(Element::of(layout::RESTRICTED, key));
            // The kernel takes no ranges that overlap.
            for range in IpNet::aggregate(&sources) {
                self.element(Element::range(layout::ALLOWED, key, range));
            }
        }
    }

    /// What happens to packets to one frontend; `external`: it is one for outside.
    fn lead(&mut self, at: At, key: Key, action: FrontendAction, external: Option<&ExternalFrontends>) {
        if !self.led.insert((at, key)) {
            return;
        }
        let (services, no_endpoints, endpoints, short_circuits) = match at {
            At::Address => (
                layout::SERVICE_IPS,
                layout::NO_ENDPOINT_SERVICES,
                layout::SERVICE_ENDPOINTS,
                layout::SHORT_CIRCUIT_ENDPOINTS,
            ),
            At::NodePort => (
                layout::SERVICE_NODEPORTS,
                layout::NO_ENDPOINT_NODEPORTS,
                layout::NODEPORT_ENDPOINTS,
                layout::NODEPORT_SHORT_CIRCUIT_ENDPOINTS,
            ),
        };
        let nobody = match action.verdict {
            crate::plan::Verdict::Deliver(_) => None,
            crate::plan::Verdict::Reject => Some(Verdict::Goto(layout::REJECT_CHAIN.into())),
            crate::plan::Verdict::Drop => Some(Verdict::Drop),
        };
        self.out.elements.extend(nobody.map(|verdict| Element {
            set: no_endpoints,
            key,
            value: Value::Verdict(verdict),
        }));
        let picked = match action.verdict {
            crate::plan::Verdict::Deliver(set) => self.out.slots.of(set).to_vec(),
            crate::plan::Verdict::Reject | crate::plan::Verdict::Drop => Vec::new(),
        };
        // What pods and the node get is the same but for masquerade, which the chain sees to.
        let short = external.and_then(|external| external.short_circuit);
        let short = match short.map(|short| short.node.verdict) {
            Some(crate::plan::Verdict::Deliver(set)) => self.out.slots.of(set).to_vec(),
            _ => Vec::new(),
        };
        let count = |endpoints: &[SocketAddr]| u32::try_from(endpoints.len()).unwrap_or(u32::MAX);
        let does = match (count(&picked), count(&short), action.masquerade) {
            (0, 0, _) => return,
            (local, all, _) if all > 0 => Does::Local { local, all },
            (count, _, Masquerade::Always) if external.is_some() => Does::External(count),
            (count, ..) if external.is_none() && !cluster_ip_rules(self.node).is_empty() => Does::ClusterIp(count),
            (count, ..) => Does::Pick(count),
        };
        let target = if self.plan.affinity.is_some() {
            self.own_entry(does)
        } else {
            self.numbered(endpoints, key, &picked);
            self.numbered(short_circuits, key, &short);
            let shared = Shared { at, protocol: self.plan.protocol(), does };
            self.out.shared.extend(shared.with_targets());
            shared.name()
        };
        self.element(Element { set: services, key, value: Value::goto(target) });
    }

    fn numbered(&mut self, set: &'static str, key: Key, endpoints: &[SocketAddr]) {
        let numbered = (0u32..).zip(endpoints);
        let elements = numbered.map(|(number, endpoint)| Element {
            set,
            key: key.number(number),
            value: Value::endpoint(*endpoint),
        });
        self.out.elements.extend(elements);
    }

    /// With session affinity: the chain that a frontend leads to.
    fn own_entry(&mut self, does: Does) -> Name {
        let name = &self.plan.name;
        let (to_all, to_local) = (own_name("service", name, None), own_name("local", name, None));
        let goto = |chain: &Name| Rule::new([Statement::Verdict(Verdict::Goto(chain.clone()))]);
        // Policy Local has no other meaning for cluster IPs.
        let picked = |count: u32| {
            let is_local = usize::try_from(count) == Ok(self.out.slots.local.len()) && self.picks_local();
            if is_local { &to_local } else { &to_all }
        };
        let (prefix, rules) = match does {
            Does::Pick(count) => return picked(count).clone(),
            Does::PickShortCircuit(_) => return to_all,
            Does::ClusterIp(count) => {
                let mut rules = cluster_ip_rules(self.node);
                rules.push(goto(picked(count)));
                ("cluster-ip", rules)
            }
            Does::External(_) => {
                ("external", vec![Rule::new([Statement::Mark(self.node.masquerade_mark)]), goto(&to_all)])
            }
            Does::Local { local, .. } => {
                let mut rules = local_rules(self.node, to_all);
                rules.extend((local > 0).then(|| goto(&to_local)));
                ("external", rules)
            }
        };
        let entry = own_name(prefix, name, None);
        self.out.chains.insert(entry.clone(), Chain::new("", rules));
        entry
    }

    fn picks_local(&self) -> bool {
        let internal = self.plan.internal.map(|internal| internal.action.verdict);
        internal == Some(crate::plan::Verdict::Deliver(BackendSet::Local))
    }

    /// A client that an endpoint has had within the time goes there again; others draw. One chain for each endpoint remembers.
    fn affinity(&mut self, timeout: Duration) {
        let name = &self.plan.name;
        let used: Vec<Name> = self.targets();
        for (prefix, set) in [("service", BackendSet::Cluster), ("local", BackendSet::Local)] {
            let chain = own_name(prefix, name, None);
            let endpoints = self.out.slots.of(set).to_vec();
            if endpoints.is_empty() || !used.contains(&chain) {
                continue;
            }
            let again = endpoints.iter().map(|endpoint| {
                let set = own_name("affinity", name, Some(endpoint));
                Rule::new([
                    Statement::InSet { key: &[Field::Source], set, negated: false },
                    Statement::Verdict(Verdict::Goto(own_name("endpoint", name, Some(endpoint)))),
                ])
            });
            let last = endpoints.len() - 1;
            let drawn = endpoints.iter().enumerate().map(|(index, endpoint)| {
                let left = u32::try_from(endpoints.len() - index).unwrap_or(u32::MAX);
                let draw = (index < last).then_some(Statement::OneIn(left));
                let goto = Statement::Verdict(Verdict::Goto(own_name("endpoint", name, Some(endpoint))));
                Rule::new(draw.into_iter().chain([goto]))
            });
            let rules = again.chain(drawn).collect();
            self.out.chains.insert(chain, Chain::new("", rules));
            for endpoint in &endpoints {
                self.endpoint(endpoint, timeout);
            }
        }
    }

    fn endpoint(&mut self, endpoint: &SocketAddr, timeout: Duration) {
        let name = &self.plan.name;
        let set = own_name("affinity", name, Some(endpoint));
        let rules = vec![
            Rule::new([Statement::Remember { set: set.clone(), timeout }]),
            Rule::new([Statement::Protocol(self.plan.protocol()), Statement::Translate(*endpoint)]),
        ];
        self.out.chains.insert(own_name("endpoint", name, Some(endpoint)), Chain::new("", rules));
        self.out.sets.insert(set, Set::remembering("", &[Field::Source], CLIENTS));
    }

    /// Where elements and chains of its own lead to so far.
    fn targets(&self) -> Vec<Name> {
        let of_elements = self.out.elements.iter().filter_map(|element| match &element.value {
            Value::Verdict(Verdict::Goto(chain)) => Some(chain.clone()),
            _ => None,
        });
        let statements = self.out.chains.values().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.statements);
        let of_rules = statements.filter_map(|statement| match statement {
            Statement::Verdict(Verdict::Goto(chain)) => Some(chain.clone()),
            _ => None,
        });
        of_elements.chain(of_rules).collect()
    }
}

/// `prefix-HASH-namespace/name/protocol/port`, and `__address/port` of an endpoint: as kube-proxy's own nftables mode names what is one service
/// port's. Colons are none in names of nftables.
fn own_name(prefix: &str, name: &ServicePortName, endpoint: Option<&SocketAddr>) -> Name {
    let ServicePortName { service, port, protocol } = name;
    let of_endpoint = endpoint.map_or_else(String::new, |endpoint| {
        format!("__{}/{}", endpoint.ip().to_string().replace(':', "."), endpoint.port())
    });
    let of_service = format!("{}/{}/{protocol}/{port}", service.namespace, service.name);
    let hash = hash(&format!("{of_service}{of_endpoint}"));
    let hash = hash.get(..HASH).unwrap_or(&hash);
    format!("{prefix}-{hash}-{of_service}{of_endpoint}").into()
}
