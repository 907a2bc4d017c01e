//! Whose endpoints a service port gets, by the names of Services, slices and ports, and by port numbers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::model::{Batch, Change, LABEL_SERVICE_NAME, ObjectKey, Protocol, ServicePortName, ShortString};
use crate::mutants::{Hook, Mutant};
use crate::state::State;
use crate::state::endpoints::Endpoint;
use crate::state::service::ServicePort;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "names-without-namespace",
        "gives a Service the endpoints of Services of its name in other namespaces, too",
        "alike-names",
        Hook::Endpoints(|state, port, endpoints| {
            add_endpoints_of(state, port, endpoints, |name| (name.service.name.clone(), name.port.clone()));
        }),
    ),
    Mutant::new(
        "names-joined-by-a-dash",
        "joins namespace and name by a dash, and finds endpoints by the result",
        "alike-names",
        Hook::Endpoints(|state, port, endpoints| {
            add_endpoints_of(state, port, endpoints, |name| {
                (format!("{}-{}", name.service.namespace, name.service.name), name.port.clone())
            });
        }),
    ),
    Mutant::new(
        "names-joined-with-the-port-name-by-a-dash",
        "joins name and port name by a dash, and finds endpoints by the result",
        "alike-names",
        Hook::Endpoints(|state, port, endpoints| {
            add_endpoints_of(state, port, endpoints, |name| {
                (name.service.namespace.clone(), format!("{}-{}", name.service.name, name.port))
            });
        }),
    ),
    Mutant::new(
        "names-cut-to-20-letters",
        "takes Services for the same one if the first 20 letters of their names agree",
        "alike-names",
        Hook::Endpoints(|state, port, endpoints| {
            add_endpoints_of(state, port, endpoints, |name| {
                (name.service.namespace.clone(), first_letters(&name.service.name, 20) + &name.port)
            });
        }),
    ),
    Mutant::new(
        "names-cut-by-one-letter",
        "takes Services for the same one if the first 62 letters of their names agree",
        "alike-names",
        Hook::Endpoints(|state, port, endpoints| {
            add_endpoints_of(state, port, endpoints, |name| {
                (name.service.namespace.clone(), first_letters(&name.service.name, 62) + &name.port)
            });
        }),
    ),
    Mutant::new(
        "names-as-prefixes",
        "gives a Service the endpoints of Services whose names begin with its name",
        "alike-names",
        Hook::Endpoints(|state, port, endpoints| {
            let of = &port.name.service;
            add(state, endpoints, |other| {
                other.name.service.namespace == of.namespace && other.name.service.name.starts_with(&*of.name)
            });
        }),
    ),
    Mutant::new(
        "port-names-cut-to-15-letters",
        "takes ports of a Service for the same one if the first 15 letters of their names agree",
        "alike-names",
        Hook::Endpoints(|state, port, endpoints| {
            add_endpoints_of(state, port, endpoints, |name| (name.service.clone(), first_letters(&name.port, 15)));
        }),
    ),
    Mutant::new(
        "slices-by-name-alone",
        "forgets a slice when another namespace gets a slice of the same name",
        "alike-names",
        Hook::Batch(forget_slices_of_the_same_name),
    ),
    Mutant::new(
        "deletes-namesakes",
        "deletes the Services of the same name in all namespaces when one of them is deleted",
        "alike-names",
        Hook::Batch(delete_namesakes),
    ),
    Mutant::new(
        "slice-owner-by-the-slices-name",
        "takes a slice's name up to the last dash for its Service's name",
        "alike-names",
        Hook::Change(name_owner_by_slice),
    ),
    Mutant::new(
        "first-port-for-all",
        "gives every port of a Service the endpoints of the first one",
        "named-ports",
        Hook::Endpoints(|state, port, endpoints| {
            let siblings = state.service_ports().filter(|other| other.name.service == port.name.service);
            if let Some(first) = siblings.map(|other| other.name.clone()).min() {
                *endpoints = state.endpoints(&first);
            }
        }),
    ),
    Mutant::new(
        "one-number-for-a-named-target-port",
        "takes the number that a named target port has on one pod for its number on all pods",
        "named-ports",
        Hook::Endpoints(|_, _, endpoints| {
            let number = endpoints.first().map(|first| first.address.port());
            endpoints.iter_mut().for_each(|one| one.address.set_port(number.unwrap_or_default()));
        }),
    ),
    Mutant::new(
        "target-port-ignored",
        "sends to the Service's port in place of the target port",
        "changed-ports",
        Hook::Endpoints(|_, port, endpoints| endpoints.iter_mut().for_each(|one| one.address.set_port(port.port))),
    ),
    Mutant::new(
        "endpoints-of-the-other-protocol",
        "gives a UDP port the endpoints of the TCP port of the same number",
        "changed-ports",
        Hook::Endpoints(|state, port, endpoints| {
            if let Some(other) = same_number(state, port) {
                *endpoints = state.endpoints(&other.name);
            }
        }),
    ),
    Mutant::new(
        "one-protocol-per-number",
        "does not serve the UDP port of a number that has a TCP port",
        "changed-ports",
        Hook::ServicePort(|state, port| {
            if same_number(state, port).is_some() {
                (port.cluster_ip, port.node_port) = (None, None);
            }
        }),
    ),
    Mutant::new(
        "one-node-port-per-number",
        "opens a node port for one protocol only, though another one has the same number",
        "changed-ports",
        Hook::ServicePort(|state, port| {
            if same_number(state, port).is_some() {
                port.node_port = None;
            }
        }),
    ),
    Mutant::new(
        "no-udp-node-ports",
        "opens node ports for TCP only",
        "dual-stack",
        Hook::ServicePort(|_, port| port.node_port = port.node_port.filter(|_| port.name.protocol == Protocol::Tcp)),
    ),
    Mutant::new(
        "no-udp-over-ipv6",
        "serves UDP ports over IPv4 only",
        "dual-stack",
        Hook::ServicePort(|_, port| {
            if port.name.protocol == Protocol::Udp && port.cluster_ip.is_some_and(|ip| ip.is_ipv6()) {
                (port.cluster_ip, port.node_port) = (None, None);
            }
        }),
    ),
    Mutant::new(
        "at-most-10-ports",
        "serves no more than ten ports of a Service",
        "changed-ports",
        Hook::Change(|change| {
            if let Change::Service(_, Some(service)) = change
                && let Some(ports) = Arc::make_mut(service).spec.as_mut().and_then(|spec| spec.ports.as_mut())
            {
                ports.truncate(10);
            }
        }),
    ),
    Mutant::new(
        "udp-flows-by-address",
        "leaves UDP flows to an endpoint whose port has changed, as its address has not",
        "udp-stale",
        Hook::Stale(|filter, flow| {
            let serves = |port| {
                let mut to = *flow;
                to.server.set_port(port);
                !filter.is_stale(&to)
            };
            filter.is_stale(flow) && !(1..=u16::MAX).any(serves)
        }),
    ),
];

fn first_letters(text: &str, count: usize) -> String {
    text.chars().take(count).collect()
}

/// Adds the endpoints of the service ports for which `key` returns the same as for `port`.
fn add_endpoints_of<K: PartialEq>(
    state: &State,
    port: &ServicePort,
    endpoints: &mut Vec<Endpoint>,
    key: impl Fn(&ServicePortName) -> K,
) {
    let wanted = key(&port.name);
    add(state, endpoints, |other| other.name.protocol == port.name.protocol && key(&other.name) == wanted);
}

/// Adds the endpoints of some service ports. The result is sorted, and has an address once.
fn add(state: &State, endpoints: &mut Vec<Endpoint>, of: impl Fn(&ServicePort) -> bool) {
    let others = state.service_ports().filter(|other| of(other));
    let added = others.flat_map(|other| state.endpoints(&other.name));
    let mut all: BTreeMap<_, Endpoint> = added.map(|endpoint| (endpoint.address, endpoint)).collect();
    all.extend(endpoints.drain(..).map(|endpoint| (endpoint.address, endpoint)));
    endpoints.extend(all.into_values());
}

/// Returns the TCP port that has the number of a UDP port, as target of cluster IP or node port.
fn same_number(state: &State, port: &ServicePort) -> Option<ServicePort> {
    let is_it = |other: &ServicePort| {
        port.name.protocol == Protocol::Udp
            && other.name.protocol == Protocol::Tcp
            && other.name.service == port.name.service
            && other.port == port.port
    };
    state.service_ports().find(|other| is_it(other)).map(std::borrow::Cow::into_owned)
}

fn forget_slices_of_the_same_name(batch: &mut Batch) {
    static OWNER: Mutex<BTreeMap<ShortString, ObjectKey>> = Mutex::new(BTreeMap::new());
    let mut owner = OWNER.lock().unwrap_or_else(PoisonError::into_inner);
    let mut forgotten = Vec::new();
    for change in &batch.changes {
        if let Change::EndpointSlice(key, Some(_)) = change {
            let before = owner.insert(key.name.clone(), key.clone());
            forgotten.extend(before.filter(|before| before != key).map(|before| Change::EndpointSlice(before, None)));
        }
    }
    batch.changes.extend(forgotten);
}

fn delete_namesakes(batch: &mut Batch) {
    static KNOWN: Mutex<Vec<ObjectKey>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut deleted = Vec::new();
    for change in &batch.changes {
        match change {
            Change::Service(key, Some(_)) => known.push(key.clone()),
            Change::Service(key, None) => {
                let namesakes = known.iter().filter(|other| other.name == key.name);
                deleted.extend(namesakes.map(|other| Change::Service(other.clone(), None)));
            }
            _ => {}
        }
    }
    batch.changes.extend(deleted);
}

fn name_owner_by_slice(change: &mut Change) {
    let Change::EndpointSlice(key, Some(slice)) = change else { return };
    let owner = key.name.rsplit_once('-').map(|(owner, _)| owner.to_owned()).unwrap_or_default();
    let labels = Arc::make_mut(slice).metadata.labels.get_or_insert_default();
    labels.insert(LABEL_SERVICE_NAME.to_owned(), owner);
}
