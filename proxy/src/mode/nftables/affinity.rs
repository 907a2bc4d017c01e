//! Session affinity: chains and sets of one service port alone. A client that an endpoint has had within the time goes there again; others
//! draw. One chain for each endpoint remembers.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use nf_tables::field::Field;

use super::objects::Own;
use super::shared::{Does, cluster_ip_rules, local_rules};
use super::slots::{Endpoints, Slots};
use crate::mode::iptables_family::rules::names::hash;
use crate::model::ServicePortName;
use crate::nftables::{Chain, Name, Rule, Set, Statement, Verdict};
use crate::plan::{BackendSet, NodePlan, ServicePortPlan};

/// Letters of the hash that begins the names of what is one service port's alone.
const HASH: usize = 8;

/// Longest name of a chain, set or map, less the final zero (`NFT_NAME_MAXLEN` in `include/uapi/linux/netfilter/nf_tables.h`).
const LONGEST: usize = 255;

/// What one service port needs for it, in the making.
pub(super) struct Affinity<'a> {
    plan: &'a ServicePortPlan,
    node: &'a NodePlan,
    timeout: Duration,
    /// Of whose endpoints the chains that draw are used.
    used: BTreeSet<BackendSet>,
    own: Own,
}

impl<'a> Affinity<'a> {
    pub(super) fn new(plan: &'a ServicePortPlan, node: &'a NodePlan, timeout: Duration) -> Affinity<'a> {
        Affinity { plan, node, timeout, used: BTreeSet::new(), own: Own::default() }
    }

    /// The chain that a frontend leads to; `picked`: whose endpoints it draws from, but for short circuits.
    pub(super) fn entry(&mut self, does: Does, picked: Option<BackendSet>) -> Name {
        let picked = picked.unwrap_or(BackendSet::Cluster);
        let (prefix, mut rules, last) = match does {
            Does::Pick(_) | Does::PickShortCircuit(_) => return self.drawn(picked),
            Does::ClusterIp(_) => ("cluster-ip", cluster_ip_rules(self.node), Some(picked)),
            Does::External(_) => {
                ("external", vec![Rule::new([Statement::Mark(self.node.masquerade_mark)])], Some(picked))
            }
            Does::Local { local, .. } => {
                let to_all = self.drawn(BackendSet::Cluster);
                ("external", local_rules(self.node, to_all), (local > 0).then_some(BackendSet::Local))
            }
        };
        let last = last.map(|set| self.drawn(set));
        rules.extend(last.map(|chain| Rule::new([Statement::Verdict(Verdict::Goto(chain))])));
        let entry = own_name(prefix, &self.plan.name, None);
        self.own.chains.insert(entry.clone(), Chain::new("", rules));
        entry
    }

    /// The chain that draws one of these endpoints, which is needed from now on.
    fn drawn(&mut self, set: BackendSet) -> Name {
        self.used.insert(set);
        own_name(prefix(set), &self.plan.name, None)
    }

    /// The chains and sets, when all frontends are known.
    pub(super) fn objects(mut self, slots: &Slots) -> Own {
        for set in std::mem::take(&mut self.used) {
            self.draw(own_name(prefix(set), &self.plan.name, None), slots.of(set));
        }
        self.own
    }

    fn draw(&mut self, chain: Name, endpoints: &Endpoints) {
        let name = &self.plan.name;
        let count = endpoints.count();
        let again = endpoints.iter().map(|endpoint| {
            let set = own_name("affinity", name, Some(&endpoint));
            Rule::new([
                Statement::InSet { key: &[Field::Source], set, negated: false },
                Statement::Verdict(Verdict::Goto(own_name("endpoint", name, Some(&endpoint)))),
            ])
        });
        let drawn = endpoints.numbered().map(|(number, endpoint)| {
            let left = count - number;
            let draw = (left > 1).then_some(Statement::OneIn(left));
            let goto = Statement::Verdict(Verdict::Goto(own_name("endpoint", name, Some(&endpoint))));
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
        let set = own_name("affinity", name, Some(endpoint));
        let rules = vec![
            Rule::new([Statement::Remember { set: set.clone(), timeout: self.timeout }]),
            Rule::new([Statement::Protocol(self.plan.protocol()), Statement::Translate(*endpoint)]),
        ];
        self.own.chains.insert(own_name("endpoint", name, Some(endpoint)), Chain::new("", rules));
        self.own.sets.insert(set, Set::remembering("", &[Field::Source]));
    }
}

fn prefix(set: BackendSet) -> &'static str {
    match set {
        BackendSet::Cluster => "service",
        BackendSet::Local => "local",
    }
}

/// `prefix-HASH-namespace/name/protocol/port`, and `__address/port` of an endpoint: as kube-proxy's own nftables mode names what is one service
/// port's. Colons are none in names of nftables. Where that is too long, the endpoint is a hash: what the API allows in the rest fits.
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
    use std::collections::BTreeSet;
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::model::{ObjectKey, Protocol};
    use crate::testing::port_name;

    /// Of a length that is often the longest that the API allows, 63.
    fn label() -> impl Strategy<Value = String> {
        prop_oneof!["[a-z]{63}", "[a-z]{55,63}", "[a-z]{1,8}"]
    }

    fn service_port() -> impl Strategy<Value = ServicePortName> {
        let protocol = prop::sample::select(Protocol::ALL.to_vec());
        (label(), label(), prop_oneof![label(), Just(String::new())], protocol).prop_map(
            |(namespace, name, port, protocol)| {
                let service = ObjectKey { namespace, name };
                ServicePortName { service, port, protocol }
            },
        )
    }

    fn endpoint() -> impl Strategy<Value = SocketAddr> {
        // Addresses without zeros are the longest; two often differ by little.
        let long = (0xfff0_u16.., 10_000_u16..).prop_map(|(last, port)| {
            SocketAddr::new(IpAddr::from([0xfd00, 0x1111, 0x2222, 0x3333, 0x4444, 0x5555, 0x6666, last]), port)
        });
        prop_oneof![3 => long, 1 => any::<(IpAddr, u16)>().prop_map(SocketAddr::from)]
    }

    proptest! {
        #[test]
        fn names_fit_the_kernel_and_are_each_ones_own(name in service_port(), endpoints in prop::collection::btree_set(endpoint(), 1..8)) {
            let own = ["cluster-ip", "external", "service", "local"].map(|prefix| own_name(prefix, &name, None));
            let of_endpoints = endpoints.iter().flat_map(|at| ["endpoint", "affinity"].map(|prefix| own_name(prefix, &name, Some(at))));
            let names: Vec<Name> = own.into_iter().chain(of_endpoints).collect();
            for one in &names {
                prop_assert!(one.len() <= LONGEST, "{}: {one}", one.len());
                prop_assert!(one.contains(&format!("-{}/{}/", name.service.namespace, name.service.name)), "{one}");
            }
            prop_assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        }
    }

    #[test]
    fn names_that_fit_are_as_kube_proxy_has_them() {
        let name = ServicePortName { port: "http".to_owned(), ..port_name("web", Protocol::Tcp) };
        let endpoint = own_name("endpoint", &name, Some(&"[fd00::7]:80".parse().unwrap()));
        assert!(endpoint.ends_with("-default/web/tcp/http__fd00..7/80"), "{endpoint}");
    }
}
