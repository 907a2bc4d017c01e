//! Session affinity: chains and sets of one service port. Each endpoint's chain records its clients in a set, which the
//! Service's other ports share if the plan says so.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nf_tables::field::KeyField;

use super::endpoint_index::{EndpointIndex, IndexedEndpoints};
use super::objects::AffinityObjects;
use super::shared_chains::{ChainRole, cluster_ip_rules, local_rules};
use super::slots::SlotChoice;
use crate::mode::iptables_family::rules::names::hash;
use crate::model::{ObjectKey, ServicePortName};
use crate::mutants;
use crate::nftables::{Chain, Name, NftVerdict, Rule, Set, Statement};
use crate::plan::{BackendSet, NodePlan, ServicePortPlan};

const HASH: usize = 8;

/// `NFT_NAME_MAXLEN` (`include/uapi/linux/netfilter/nf_tables.h`) less the final zero.
const LONGEST: usize = 255;

pub(super) struct AffinityRenderer<'a> {
    plan: &'a ServicePortPlan,
    node: &'a NodePlan,
    timeout: Duration,
    used: BTreeSet<BackendSet>,
    own: AffinityObjects,
}

impl<'a> AffinityRenderer<'a> {
    pub(super) fn new(plan: &'a ServicePortPlan, node: &'a NodePlan, timeout: Duration) -> AffinityRenderer<'a> {
        AffinityRenderer { plan, node, timeout, used: BTreeSet::new(), own: AffinityObjects::default() }
    }

    /// Adds a frontend's chain, and returns its name. `picked`: the backend set without short circuits.
    pub(super) fn entry(&mut self, role: ChainRole, picked: Option<BackendSet>) -> Name {
        let picked = picked.unwrap_or(BackendSet::Cluster);
        let (prefix, mut rules, last) = match role {
            ChainRole::Pick(_) | ChainRole::PickShortCircuit(_) => return self.drawn(picked),
            ChainRole::ClusterIp(_) => ("cluster-ip", cluster_ip_rules(self.node), Some(picked)),
            ChainRole::External(_) => {
                ("external", vec![Rule::new([Statement::Mark(self.node.masquerade_mark)])], Some(picked))
            }
            ChainRole::Local { local, .. } => {
                let to_all = self.drawn(BackendSet::Cluster);
                (
                    "external",
                    local_rules(self.node, to_all),
                    (local != SlotChoice::Random(0)).then_some(BackendSet::Local),
                )
            }
        };
        let last = last.map(|set| self.drawn(set));
        rules.extend(last.map(|chain| Rule::new([Statement::Verdict(NftVerdict::Goto(chain))])));
        let entry = own_name(prefix, &self.plan.name, None);
        self.own.chains.insert(entry.clone(), Chain::new("", rules));
        entry
    }

    fn drawn(&mut self, set: BackendSet) -> Name {
        self.used.insert(set);
        own_name(prefix(set), &self.plan.name, None)
    }

    pub(super) fn objects(mut self, slots: &EndpointIndex) -> AffinityObjects {
        for set in std::mem::take(&mut self.used) {
            self.draw(own_name(prefix(set), &self.plan.name, None), slots.of(set));
        }
        self.own.chains.iter_mut().for_each(|(name, chain)| mutants::nft_rules(name, &mut chain.rules));
        self.own
    }

    fn draw(&mut self, chain: Name, endpoints: &IndexedEndpoints) {
        let name = &self.plan.name;
        let count = endpoints.count();
        let mut known: Vec<SocketAddr> = endpoints.iter().collect();
        if self.plan.affinity_across_ports {
            // A client that two endpoints know reaches the same one by every port.
            known.sort_unstable();
        }
        let again = known.iter().map(|endpoint| {
            Rule::new([
                Statement::InSet { key: &[KeyField::Source], set: self.clients(endpoint), negated: false },
                Statement::Verdict(NftVerdict::Goto(own_name("endpoint", name, Some(endpoint)))),
            ])
        });
        let drawn = endpoints.numbered().map(|(number, endpoint)| {
            let left = count - number;
            let draw = (left > 1).then_some(Statement::OneIn(left));
            let goto = Statement::Verdict(NftVerdict::Goto(own_name("endpoint", name, Some(&endpoint))));
            Rule::new(draw.into_iter().chain([goto]))
        });
        let rules = again.chain(drawn).collect();
        self.own.chains.insert(chain, Chain::new("", rules));
        for endpoint in endpoints.iter() {
            self.endpoint(&endpoint);
        }
    }

    fn endpoint(&mut self, endpoint: &SocketAddr) {
        let name = &self.plan.name;
        let set = self.clients(endpoint);
        let rules = vec![
            Rule::new([Statement::Remember { set: set.clone(), timeout: self.timeout }]),
            Rule::new([Statement::Protocol(self.plan.protocol()), Statement::Translate(*endpoint)]),
        ];
        self.own.chains.insert(own_name("endpoint", name, Some(endpoint)), Chain::new("", rules));
        let sets = if self.plan.affinity_across_ports { &mut self.own.shared_sets } else { &mut self.own.sets };
        sets.insert(set, Set::remembering("", &[KeyField::Source]));
    }

    /// Returns the set of an endpoint's clients.
    fn clients(&self, endpoint: &SocketAddr) -> Name {
        if self.plan.affinity_across_ports {
            shared_name(&self.plan.name.service, endpoint.ip())
        } else {
            own_name("affinity", &self.plan.name, Some(endpoint))
        }
    }
}

fn prefix(set: BackendSet) -> &'static str {
    match set {
        BackendSet::Cluster => "service",
        BackendSet::Local => "local",
    }
}

/// Returns `affinity-HASH-namespace/name__address`: the set of the clients that reach an address by any port.
fn shared_name(service: &ObjectKey, address: IpAddr) -> Name {
    let key = format!("{}/{}__{}", service.namespace, service.name, address.to_string().replace(':', "."));
    let digest = hash(&key);
    format!("affinity-{}-{key}", digest.get(..HASH).unwrap_or(&digest)).into()
}

/// Returns `prefix-HASH-namespace/name/protocol/port`, and `__address/port` for an endpoint, as in kube-proxy. nftables
/// names have no colons. A hash replaces the endpoint in too long a name.
fn own_name(prefix: &str, name: &ServicePortName, endpoint: Option<&SocketAddr>) -> Name {
    let ServicePortName { service, port, protocol } = name;
    let of_endpoint = endpoint.map_or_else(String::new, |endpoint| {
        format!("__{}/{}", endpoint.ip().to_string().replace(':', "."), endpoint.port())
    });
    let of_service = format!("{}/{}/{protocol}/{port}", service.namespace, service.name);
    let digest = hash(&format!("{of_service}{of_endpoint}"));
    let digest = digest.get(..HASH).unwrap_or(&digest);
    let whole = format!("{prefix}-{digest}-{of_service}{of_endpoint}");
    if whole.len() <= LONGEST {
        return whole.into();
    }
    format!("{prefix}-{digest}-{of_service}__{}", hash(&of_endpoint)).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::Protocol;
    use crate::testing::port_name;

    /// Generates labels that often have 63 characters, the API's limit.
    fn label() -> impl Strategy<Value = String> {
        prop_oneof!["[a-z]{63}", "[a-z]{55,63}", "[a-z]{1,8}"]
    }

    fn service_port() -> impl Strategy<Value = ServicePortName> {
        let protocol = prop::sample::select(Protocol::ALL.to_vec());
        (label(), label(), prop_oneof![label(), Just(String::new())], protocol).prop_map(
            |(namespace, name, port, protocol)| {
                let service = ObjectKey::new(&namespace, &name);
                ServicePortName { service, port: port.into(), protocol }
            },
        )
    }

    fn endpoint() -> impl Strategy<Value = SocketAddr> {
        let long = (0xfff0_u16.., 10_000_u16..).prop_map(|(last, port)| {
            SocketAddr::new(IpAddr::from([0xfd00, 0x1111, 0x2222, 0x3333, 0x4444, 0x5555, 0x6666, last]), port)
        });
        prop_oneof![3 => long, 1 => any::<(IpAddr, u16)>().prop_map(SocketAddr::from)]
    }

    proptest! {
        #[test]
        fn names_fit_the_kernel_and_are_unique(name in service_port(), endpoints in prop::collection::btree_set(endpoint(), 1..8)) {
            let own = ["cluster-ip", "external", "service", "local"].map(|prefix| own_name(prefix, &name, None));
            let of_endpoints = endpoints.iter().flat_map(|at| ["endpoint", "affinity"].map(|prefix| own_name(prefix, &name, Some(at))));
            let addresses: BTreeSet<IpAddr> = endpoints.iter().map(SocketAddr::ip).collect();
            let shared = addresses.into_iter().map(|address| shared_name(&name.service, address));
            let names: Vec<Name> = own.into_iter().chain(of_endpoints).chain(shared).collect();
            for one in &names {
                prop_assert!(one.len() <= LONGEST, "{}: {one}", one.len());
                let rest = one.split_once(&format!("-{}/{}", name.service.namespace, name.service.name)).map(|(_, rest)| rest);
                prop_assert!(rest.is_some_and(|rest| rest.starts_with(['/', '_'])), "{one}");
            }
            prop_assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        }
    }

    #[test]
    fn names_that_fit_equal_kube_proxys() {
        let name = ServicePortName { port: "http".into(), ..port_name("web", Protocol::Tcp) };
        let endpoint = own_name("endpoint", &name, Some(&"[fd00::7]:80".parse().unwrap()));
        assert!(endpoint.ends_with("-default/web/tcp/http__fd00..7/80"), "{endpoint}");
    }
}
