use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;

use super::endpoint_index::{EndpointIndex, IndexedEndpoints, assign};
use super::layout;
use super::objects::NftServiceObjects;
use crate::model::Protocol;
use crate::nftables::{Element, ElementKey, ElementValue};
use crate::plan::lost_flows::LostFlow;
use crate::plan::stale_flows::{Frontend, needs_conntrack_cleanup};
use crate::plan::{BackendSet, ServicePortPlan, maglev};

/// Elements by set.
#[derive(Debug, Default)]
pub(super) struct FoundElements(Vec<(&'static str, HashMap<ElementKey, ElementValue>)>);

impl FromIterator<Element> for FoundElements {
    fn from_iter<I: IntoIterator<Item = Element>>(elements: I) -> FoundElements {
        let mut found = FoundElements::default();
        for Element { set, key, value } in elements {
            match found.0.iter_mut().find(|(name, _)| *name == set) {
                Some((_, elements)) => drop(elements.insert(key, value)),
                None => found.0.push((set, HashMap::from([(key, value)]))),
            }
        }
        found
    }
}

impl FoundElements {
    fn of(&self, set: &str) -> Option<&HashMap<ElementKey, ElementValue>> {
        self.0.iter().find(|(name, _)| *name == set).map(|(_, elements)| elements)
    }

    pub(super) fn count(&self, set: &str) -> usize {
        self.of(set).map_or(0, HashMap::len)
    }

    /// Gives endpoints the indexes of the existing table.
    pub(super) fn number(&self, objects: &mut NftServiceObjects, plan: &ServicePortPlan) {
        if self.0.is_empty() || objects.is_hashed() {
            return;
        }
        let found = |set| objects.numbered(set).map(|(map, key)| self.endpoints(map, key)).unwrap_or_default();
        let (cluster, local) = (found(BackendSet::Cluster), found(BackendSet::Local));
        objects.slots = EndpointIndex {
            cluster: assign(&cluster, &plan.cluster_backends),
            local: assign(&local, &plan.local_backends),
        };
    }

    fn endpoints(&self, map: &str, frontend: ElementKey) -> IndexedEndpoints {
        let Some(elements) = self.of(map) else { return IndexedEndpoints::default() };
        let at = |number| match elements.get(&frontend.number(number))? {
            ElementValue::Endpoint(endpoint) => endpoint.as_endpoint(),
            ElementValue::None | ElementValue::To(_) | ElementValue::Verdict(_) | ElementValue::Counter(_) => None,
        };
        let endpoints: IndexedEndpoints = (0..).map_while(at).collect();
        // An endpoint with several numbers is in a table of consistent hashing, whose numbers are slots.
        let mut seen = BTreeSet::new();
        let is_table =
            endpoints.count() >= maglev::slots(0).into() && !endpoints.iter().all(|endpoint| seen.insert(endpoint));
        if is_table { IndexedEndpoints::default() } else { endpoints }
    }

    /// Returns the elements to remove and to add. `wanted` has no duplicates.
    pub(super) fn differing(mut self, wanted: impl Iterator<Item = Element>) -> (Vec<Element>, Vec<Element>) {
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        for element in wanted {
            let elements = self.0.iter_mut().find(|(name, _)| *name == element.set);
            match elements.and_then(|(_, elements)| elements.remove(&element.key)) {
                Some(value) if value == element.value => {}
                Some(value) => {
                    removed.push(Element { value, ..element.clone() });
                    added.push(element);
                }
                None => added.push(element),
            }
        }
        for (set, elements) in self.0 {
            removed.extend(elements.into_iter().map(|(key, value)| Element { set, key, value }));
        }
        (removed, added)
    }

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

    /// Returns destinations and endpoints of lost flows.
    pub(super) fn lost_flows(&self) -> impl Iterator<Item = (SocketAddr, SocketAddr)> {
        self.of(layout::LOST_FLOWS).into_iter().flat_map(HashMap::keys).filter_map(ElementKey::as_flow)
    }

    /// Returns TCP frontends with the endpoints to which the existing table leads.
    pub(super) fn served(&self) -> impl Iterator<Item = LostFlow> {
        let of = |set| self.of(set).into_iter().flatten();
        let endpoint = |value: &ElementValue| match value {
            ElementValue::Endpoint(endpoint) => endpoint.as_endpoint(),
            ElementValue::None | ElementValue::To(_) | ElementValue::Verdict(_) | ElementValue::Counter(_) => None,
        };
        let addresses = of(layout::SERVICE_ENDPOINTS).filter_map(move |(key, value)| {
            let (address, protocol, port) = key.split_number()?.0.as_frontend()?;
            Some((protocol, Frontend::Address(SocketAddr::new(address, port)), endpoint(value)?))
        });
        let node_ports = of(layout::NODEPORT_ENDPOINTS).filter_map(move |(key, value)| {
            let (protocol, port) = key.split_number()?.0.as_node_port()?;
            Some((protocol, Frontend::NodePort(port), endpoint(value)?))
        });
        let tcp = addresses.chain(node_ports).filter(|(protocol, ..)| *protocol == Protocol::Tcp);
        tcp.map(|(_, frontend, endpoint)| (frontend, endpoint))
    }
}
