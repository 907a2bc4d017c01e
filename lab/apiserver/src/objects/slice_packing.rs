//! The second half of the EndpointSlice controller: distributes endpoints over as few changed slices as possible.
//!
//! As in Kubernetes, endpoints stay in their slices, new ones fill free room, and empty slices are reused. A Service
//! without endpoints keeps one empty slice per family.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use super::object::ObjectKey;
use super::slices::{EndpointGroups, PortKey, slice_metadata, slice_ports};

struct SliceDraft {
    /// `None` for a new slice.
    name: Option<String>,
    family: String,
    ports: Vec<PortKey>,
    endpoints: Vec<Endpoint>,
}

/// `taken` tells whether another owner has a name.
pub(super) fn pack(
    key: &ObjectKey,
    service: &Service,
    current: &[EndpointSlice],
    mut groups: EndpointGroups,
    limit: usize,
    taken: impl Fn(&str) -> bool,
) -> Vec<EndpointSlice> {
    let limit = limit.max(1);
    let families = service.spec.as_ref().and_then(|spec| spec.ip_families.clone()).unwrap_or_default();
    let (mut drafts, mut spare) = keep_endpoints(current, &mut groups);
    for ((family, ports), endpoints) in groups {
        let mut waiting = endpoints.into_values();
        for draft in drafts.iter_mut().filter(|draft| draft.family == family && draft.ports == ports) {
            let room = limit.saturating_sub(draft.endpoints.len());
            draft.endpoints.extend(waiting.by_ref().take(room));
        }
        loop {
            let endpoints: Vec<Endpoint> = waiting.by_ref().take(limit).collect();
            if endpoints.is_empty() {
                break;
            }
            drafts.push(SliceDraft {
                name: reuse_slice(&mut spare, &family),
                family: family.clone(),
                ports: ports.clone(),
                endpoints,
            });
        }
    }
    for family in families {
        if !drafts.iter().any(|draft| draft.family == family) {
            let name = reuse_slice(&mut spare, &family);
            drafts.push(SliceDraft { name, family, ports: Vec::new(), endpoints: Vec::new() });
        }
    }
    build_slices(key, service, drafts, taken)
}

/// Removes kept endpoints from `groups`; also returns slices that became empty.
fn keep_endpoints(current: &[EndpointSlice], groups: &mut EndpointGroups) -> (Vec<SliceDraft>, Vec<(String, String)>) {
    let (mut drafts, mut spare) = (Vec::new(), Vec::new());
    for slice in current {
        let (name, family) = (slice.metadata.name.clone().unwrap_or_default(), slice.address_type.clone());
        let group = groups
            .iter_mut()
            .find(|((group, keys), _)| *group == family && Some(&slice_ports(keys)) == slice.ports.as_ref());
        let kept = group.map(|((_, keys), endpoints)| {
            let present = slice.endpoints.iter().flatten().filter_map(|endpoint| endpoints.remove(&pod_of(endpoint)?));
            (keys.clone(), present.collect::<Vec<_>>())
        });
        match kept {
            Some((ports, endpoints)) if !endpoints.is_empty() => {
                drafts.push(SliceDraft { name: Some(name), family, ports, endpoints });
            }
            _ => spare.push((family, name)),
        }
    }
    (drafts, spare)
}

fn pod_of(endpoint: &Endpoint) -> Option<ObjectKey> {
    let target = endpoint.target_ref.as_ref()?;
    Some(ObjectKey::new(target.namespace.as_deref(), target.name.as_deref()?))
}

/// Selects a spare slice of `family`, which is immutable.
fn reuse_slice(spare: &mut Vec<(String, String)>, family: &str) -> Option<String> {
    let index = spare.iter().position(|(of, _)| of == family)?;
    Some(spare.remove(index).1)
}

fn build_slices(
    key: &ObjectKey,
    service: &Service,
    drafts: Vec<SliceDraft>,
    taken: impl Fn(&str) -> bool,
) -> Vec<EndpointSlice> {
    let mut names: BTreeSet<String> = drafts.iter().filter_map(|draft| draft.name.clone()).collect();
    let mut slices = Vec::new();
    for draft in drafts {
        let name = draft.name.unwrap_or_else(|| {
            let candidates = (0_usize..).map(|number| format!("{}-{}-{number}", key.name, draft.family.to_lowercase()));
            candidates.filter(|name| !taken(name)).find(|name| !names.contains(name)).unwrap_or_default()
        });
        names.insert(name.clone());
        let mut metadata = slice_metadata(key, service);
        metadata.name = Some(name);
        slices.push(EndpointSlice {
            address_type: draft.family,
            metadata,
            endpoints: Some(draft.endpoints),
            ports: Some(slice_ports(&draft.ports)),
        });
    }
    slices
}
