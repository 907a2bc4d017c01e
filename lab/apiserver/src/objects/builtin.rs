//! Objects that the lab only keeps: namespaces, events, service ranges.

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Namespace, NamespaceSpec};
use k8s_openapi::api::networking::v1::{ServiceCIDR, ServiceCIDRSpec, ServiceCIDRStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};

/// The namespaces of a fresh cluster.
pub(super) const FIRST_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Events beyond this number push the oldest out (a real cluster drops them after an hour).
pub(super) const MAX_EVENTS: usize = 1_000;

/// What an API server calls the ServiceCIDR of its own `--service-cluster-ip-range`.
pub(super) const SERVICE_RANGES: &str = "kubernetes";

/// The ServiceCIDR of these ranges, ready as of `now`; none without ranges.
pub(super) fn service_ranges(ranges: &[IpNet], now: Time) -> Option<ServiceCIDR> {
    let ready = Condition {
        type_: "Ready".to_owned(),
        status: "True".to_owned(),
        last_transition_time: now,
        message: "Kubernetes Service CIDR is ready".to_owned(),
        reason: String::new(),
        observed_generation: None,
    };
    let cidrs: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    (!cidrs.is_empty()).then(|| ServiceCIDR {
        metadata: ObjectMeta { name: Some(SERVICE_RANGES.to_owned()), ..ObjectMeta::default() },
        spec: Some(ServiceCIDRSpec { cidrs: Some(cidrs) }),
        status: Some(ServiceCIDRStatus { conditions: Some(vec![ready]) }),
    })
}

/// The namespace `name`.
pub(super) fn namespace(name: &str) -> Namespace {
    let mut namespace = Namespace {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    complete(&mut namespace, name);
    namespace
}

/// Adds what the API server adds.
pub(super) fn complete(namespace: &mut Namespace, name: &str) {
    let labels = namespace.metadata.labels.get_or_insert_default();
    labels.insert("kubernetes.io/metadata.name".to_owned(), name.to_owned());
    namespace.spec = Some(NamespaceSpec { finalizers: Some(vec!["kubernetes".to_owned()]) });
    namespace.status.get_or_insert_default().phase = Some("Active".to_owned());
}
