//! What was found in the table: elements by their keys, and what follows from them.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::layout;
use super::objects::ServiceObjects;
use super::slots::{Endpoints, Slots, assign};
use crate::model::Protocol;
use crate::nftables::{Element, Key, Value};
use crate::plan::flows::{Frontend, needs_conntrack_cleanup};
use crate::plan::{BackendSet, ServicePortPlan};

/// Elements that stand, by set; there is a handful of sets.
#[derive(Debug, Default)]
pub(super) struct Found(Vec<(&'static str, HashMap<Key, Value>)>);

impl FromIterator<Element> for Found {
    fn from_iter<I: IntoIterator<Item = Element>>(elements: I) -> Found {
        let mut found = Found::default();
        for Element { set, key, value } in elements {
            match found.0.iter_mut().find(|(name, _)| *name == set) {
                Some((_, elements)) => drop(elements.insert(key, value)),
                None => found.0.push((set, HashMap::from([(key, value)]))),
            }
        }
        found
    }
}

impl Found {
    fn of(&self, set: &str) -> Option<&HashMap<Key, Value>> {
        self.0.iter().find(|(name, _)| *name == set).map(|(_, elements)| elements)
    }

    /// How many there are in a set.
    pub(super) fn count(&self, set: &str) -> usize {
        self.of(set).map_or(0, HashMap::len)
    }

    /// Gives a service port's endpoints the numbers that they have here, as far as a frontend tells.
    pub(super) fn number(&self, objects: &mut ServiceObjects, plan: &ServicePortPlan) {
        if self.0.is_empty() {
            return;
        }
        let found = |set| objects.numbered(set).map(|(map, key)| self.endpoints(map, key)).unwrap_or_default();
        let (cluster, local) = (found(BackendSet::Cluster), found(BackendSet::Local));
        // Without numbers of their own, endpoints have those of their order.
        objects.slots =
            Slots { cluster: assign(&cluster, &plan.cluster_backends), local: assign(&local, &plan.local_backends) };
    }

    fn endpoints(&self, map: &str, frontend: Key) -> Endpoints {
        let Some(elements) = self.of(map) else { return Endpoints::default() };
        let at = |number| match elements.get(&frontend.number(number))? {
            Value::Endpoint(endpoint) => endpoint.as_endpoint(),
            Value::None | Value::To(_) | Value::Verdict(_) => None,
        };
        (0..).map_while(at).collect()
    }

    /// What has to go and what has to come, so that there are these elements, each of which is named once.
    pub(super) fn differing(mut self, wanted: impl Iterator<Item = Element>) -> (Vec<Element>, Vec<Element>) {
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        for element in wanted {
            let elements = self.0.iter_mut().find(|(name, _)| *name == element.set);
            match elements.and_then(|(_, elements)| elements.remove(&element.key)) {
                Some(value) if value == element.value => {}
                Some(value) => {
                    gone.push(Element { value, ..element.clone() });
                    come.push(element);
                }
                None => come.push(element),
            }
        }
        for (set, elements) in self.0 {
            gone.extend(elements.into_iter().map(|(key, value)| Element { set, key, value }));
        }
        (gone, come)
    }

    /// The frontends of datagram protocols that packets are led from.
    pub(super) fn frontends(&self) -> impl Iterator<Item = (Protocol, Frontend)> {
        let of = |sets: [&'static str; 2]| sets.into_iter().filter_map(|set| self.of(set)).flat_map(HashMap::keys);
        let addresses = of([layout::SERVICE_IPS, layout::NO_ENDPOINT_SERVICES]).filter_map(|key| {
            let (address, protocol, port) = key.as_frontend()?;
            Some((protocol, Frontend::Address(SocketAddr::new(address, port))))
        });
        let node_ports = of([layout::SERVICE_NODEPORTS, layout::NO_ENDPOINT_NODEPORTS]).filter_map(|key| {
            let (protocol, port) = key.as_node_port()?;
            Some((protocol, Frontend::NodePort(port)))
        });
        addresses.chain(node_ports).filter(|(protocol, _)| needs_conntrack_cleanup(*protocol))
    }
}
