//! Session affinity: chains and sets of one service port alone. A client that an endpoint has had within the time goes there again; others
//! draw. One chain for each endpoint remembers.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use nf_tables::field::Field;

use super::objects::Own;
use super::shared::{Does, cluster_ip_rules, local_rules};
use super::slots::{Endpoints, Slots};
use crate::mode::rules::names::hash;
use crate::model::ServicePortName;
use crate::nftables::{Chain, Name, Rule, Set, Statement, Verdict};
use crate::plan::{BackendSet, NodePlan, ServicePortPlan};

/// Letters of the hash that begins the names of what is one service port's alone.
const HASH: usize = 8;

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
