//! The endpoints of a service port from all its slices, each address once.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use k8s_openapi::api::discovery::v1::{Endpoint as SliceEndpoint, EndpointPort, EndpointSlice};

use crate::address::{self, Family};
use crate::endpoint::Endpoint;
use crate::question::Protocol;
use crate::rules::{Reasons, Rule};
use crate::service::{HEADLESS_LABEL, PROXY_NAME_LABEL, ServicePort, labelled};
use crate::world::PodName;

pub(crate) const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Slices by namespace and name of their service.
pub(crate) struct SlicesByService<'a>(HashMap<&'a str, HashMap<&'a str, Vec<&'a EndpointSlice>>>);

impl<'a> SlicesByService<'a> {
    pub(crate) fn new(slices: &'a [EndpointSlice]) -> SlicesByService<'a> {
        let mut of: HashMap<&str, HashMap<&str, Vec<&EndpointSlice>>> = HashMap::new();
        for slice in slices {
            let service = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_LABEL));
            let Some(service) = service else { continue };
            let namespace = slice.metadata.namespace.as_deref().unwrap_or_default();
            of.entry(namespace).or_default().entry(service).or_default().push(slice);
        }
        SlicesByService(of)
    }

    fn get(&self, port: &ServicePort) -> &[&'a EndpointSlice] {
        let of_service = self.0.get(port.name.namespace.as_str()).and_then(|all| all.get(port.name.service.as_str()));
        of_service.map_or(&[], Vec::as_slice)
    }
}

/// Returns the endpoints of every slice in order; an address may occur several times.
pub(crate) fn copies(slices: &SlicesByService<'_>, port: &ServicePort) -> Vec<Endpoint> {
    let of_service = slices.get(port).iter().filter(|slice| belongs(slice, port));
    of_service
        .flat_map(|slice| {
            let numbers: Vec<u16> = slice.ports.iter().flatten().filter_map(|entry| number(entry, port)).collect();
            let endpoints = slice.endpoints.iter().flatten().flat_map(move |endpoint| {
                numbers.clone().into_iter().filter_map(move |number| read(endpoint, number, port.family))
            });
            endpoints.collect::<Vec<_>>()
        })
        .collect()
}

fn belongs(slice: &EndpointSlice, port: &ServicePort) -> bool {
    let labels = slice.metadata.labels.as_ref();
    slice.address_type == port.family.name() && !labelled(labels, PROXY_NAME_LABEL) && !labelled(labels, HEADLESS_LABEL)
}

/// Returns the port number if the names match (API ServicePort.name).
fn number(entry: &EndpointPort, port: &ServicePort) -> Option<u16> {
    let named = entry.name.as_deref().unwrap_or_default() == port.name.port;
    let spoken = Protocol::parse(entry.protocol.as_deref()) == Some(port.name.protocol);
    let number = u16::try_from(entry.port?).ok().filter(|number| *number != 0)?;
    (named && spoken).then_some(number)
}

/// Reads only the endpoint's first address (API Endpoint.addresses).
fn read(endpoint: &SliceEndpoint, port: u16, family: Family) -> Option<Endpoint> {
    let address = address::parse(endpoint.addresses.first()?).filter(|address| Family::of(*address) == family)?;
    let conditions = endpoint.conditions.as_ref();
    // API EndpointConditions: the defaults are ready, serving and not terminating.
    let ready = conditions.and_then(|conditions| conditions.ready).unwrap_or(true);
    let serving = conditions.and_then(|conditions| conditions.serving).unwrap_or(true);
    let terminating = conditions.and_then(|conditions| conditions.terminating).unwrap_or(false);
    let hints = endpoint.hints.as_ref();
    let target = endpoint.target_ref.as_ref().filter(|target| target.kind.as_deref() == Some("Pod"));
    Some(Endpoint {
        address: SocketAddr::new(address, port),
        node: endpoint.node_name.clone(),
        ready,
        terminating,
        fallback: serving && terminating,
        for_zones: hints
            .iter()
            .flat_map(|hints| hints.for_zones.iter().flatten())
            .map(|zone| zone.name.clone())
            .collect(),
        for_nodes: hints
            .iter()
            .flat_map(|hints| hints.for_nodes.iter().flatten())
            .map(|node| node.name.clone())
            .collect(),
        pod: target
            .and_then(|target| Some(PodName { namespace: target.namespace.clone()?, name: target.name.clone()? })),
    })
}

/// Returns each address once, sorted. Prefers a copy that is not terminating, because it is the new pod with the
/// address. The error is an address with contradicting copies.
pub(crate) fn merged(copies: &[Endpoint], node: &str, reasons: &mut Reasons) -> Result<Vec<Endpoint>, SocketAddr> {
    let mut by_address: BTreeMap<SocketAddr, Vec<&Endpoint>> = BTreeMap::new();
    for copy in copies {
        by_address.entry(copy.address).or_default().push(copy);
    }
    let mut merged = Vec::with_capacity(by_address.len());
    for (address, mut copies) in by_address {
        if copies.len() > 1 {
            reasons.add(Rule::Merged, address.to_string());
        }
        let staying: Vec<&Endpoint> = copies.iter().copied().filter(|copy| !copy.terminating).collect();
        if !staying.is_empty() && staying.len() < copies.len() {
            reasons.add(Rule::Reused, address.to_string());
            copies = staying;
        }
        let Some(first) = copies.first() else { continue };
        if copies.iter().any(|copy| copy.decisive_fields(node) != first.decisive_fields(node)) {
            return Err(address);
        }
        merged.push((*first).clone());
    }
    Ok(merged)
}
