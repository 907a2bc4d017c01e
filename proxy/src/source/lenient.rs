//! Deserializes JSON despite values of wrong types: removes the endpoint or field concerned. Fails if the field
//! identifies the object or restricts its callers.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::problem::one_line;
use super::validate::Finding;

/// The most values removed from one object; each requires another deserialization.
const AT_MOST: usize = 32;

/// Lists of independent items: a faulty item is removed, not the list.
const LISTS: [&[&str]; 5] =
    [&["endpoints"], &["ports"], &["spec", "ports"], &["status", "loadBalancer", "ingress"], &["status", "addresses"]];

const ESSENTIAL: [&[&str]; 13] = [
    &["apiVersion"],
    &["kind"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "labels", "kubernetes.io/service-name"],
    &["addressType"],
    &["spec", "type"],
    &["spec", "clusterIP"],
    &["spec", "clusterIPs"],
    &["spec", "loadBalancerSourceRanges"],
    &["spec", "podCIDR"],
    &["spec", "podCIDRs"],
];

/// Path and error of an essential field.
pub(super) type Refused = (String, String);

pub(super) fn typed<T: DeserializeOwned>(mut value: Value) -> Result<(T, Vec<Finding>), Refused> {
    let mut taken = Vec::new();
    loop {
        let error = match serde_path_to_error::deserialize::<_, T>(&value) {
            Ok(object) => return Ok((object, taken)),
            Err(error) => error,
        };
        let (field, cause) = (error.path().to_string(), one_line(&error.inner().to_string()));
        let field = if field == "." { String::new() } else { field };
        if taken.len() == AT_MOST || !take_out(&mut value, error.path()) {
            return Err((field, cause));
        }
        taken.push(Finding { field, message: cause });
    }
}

/// Removes the value at the path: a list item, or the innermost field.
fn take_out(object: &mut Value, path: &Path) -> bool {
    let segments: Vec<&Segment> = path.iter().collect();
    let names: Vec<&str> = segments
        .iter()
        .map_while(|segment| match segment {
            Segment::Map { key } => Some(key.as_str()),
            _ => None,
        })
        .collect();
    if ESSENTIAL.iter().any(|essential| names.starts_with(essential)) {
        return false;
    }
    if let Some(Segment::Seq { index }) = segments.get(names.len()).copied()
        && LISTS.contains(&&names[..])
    {
        let list = names.iter().try_fold(object, |value, name| value.get_mut(*name));
        return match list.and_then(Value::as_array_mut) {
            Some(list) if *index < list.len() => {
                list.remove(*index);
                true
            }
            _ => false,
        };
    }
    let Some((last, parents)) = names.split_last() else { return false };
    if parents.is_empty() && *last != "status"
        || LISTS.contains(&&names[..]) && *last != "ingress" && *last != "addresses"
    {
        return false;
    }
    let parent = parents.iter().try_fold(object, |value, name| value.get_mut(*name));
    parent.and_then(Value::as_object_mut).is_some_and(|fields| fields.remove(*last).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Service;
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::json;

    #[test]
    fn a_wrong_type_removes_only_its_field_or_item() {
        let slice = json!({"metadata": {"name": "a", "annotations": {"x": 5}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": "10.0.0.2"}, {"addresses": ["10.0.0.3"], "conditions": {"ready": "yes"}},
                          {"addresses": ["10.0.0.4"]}]});
        let (read, taken) = typed::<EndpointSlice>(slice).expect("a slice");
        let addresses: Vec<_> = read.endpoints.into_iter().flatten().flat_map(|endpoint| endpoint.addresses).collect();
        assert_eq!(addresses, ["10.0.0.1", "10.0.0.4"]);
        assert_eq!(taken.len(), 3, "{taken:?}");
        let service = json!({"metadata": {"name": "a", "managedFields": 5}, "spec": {"clusterIP": "10.96.0.1",
            "ports": [{"port": 80}, {"port": "x"}], "trafficDistribution": [], "selector": {"a": {}}}, "status": 5});
        let (read, taken) = typed::<Service>(service).expect("a Service");
        assert_eq!(read.spec.and_then(|spec| spec.ports).map(|ports| ports.len()), Some(1));
        assert_eq!(taken.len(), 5, "{taken:?}");
    }

    #[test]
    fn a_wrong_type_in_an_essential_field_rejects_the_object() {
        for (object, field) in [
            (json!({"metadata": {"name": 5}}), "metadata.name"),
            (json!({"metadata": {"name": "a"}, "spec": 5}), "spec"),
            (json!({"metadata": {"name": "a"}, "spec": {"ports": "x"}}), "spec.ports"),
            (
                json!({"metadata": {"name": "a"}, "spec": {"loadBalancerSourceRanges": [5]}}),
                "spec.loadBalancerSourceRanges[0]",
            ),
            (json!([]), ""),
        ] {
            let refused = typed::<Service>(object).expect_err(field);
            assert_eq!(refused.0, field);
        }
        let many: Vec<Value> = (0..100).map(|_| json!({"addresses": 5})).collect();
        assert!(typed::<EndpointSlice>(json!({"addressType": "IPv4", "endpoints": many})).is_err());
    }
}
