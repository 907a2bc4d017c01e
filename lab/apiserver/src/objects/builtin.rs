use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Namespace, NamespaceSpec};
use k8s_openapi::api::networking::v1::{ServiceCIDR, ServiceCIDRSpec, ServiceCIDRStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};

pub(super) const INITIAL_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The limit of Events; a real cluster removes them after an hour.
pub(super) const MAX_EVENTS: usize = 1_000;

/// The name that kube-apiserver gives its own ServiceCIDR.
pub(super) const DEFAULT_SERVICE_CIDR: &str = "kubernetes";

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
        metadata: ObjectMeta { name: Some(DEFAULT_SERVICE_CIDR.to_owned()), ..ObjectMeta::default() },
        spec: Some(ServiceCIDRSpec { cidrs: Some(cidrs) }),
        status: Some(ServiceCIDRStatus { conditions: Some(vec![ready]) }),
    })
}

pub(super) fn namespace(name: &str) -> Namespace {
    let mut namespace = Namespace {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    set_namespace_defaults(&mut namespace, name);
    namespace
}

pub(super) fn set_namespace_defaults(namespace: &mut Namespace, name: &str) {
    let labels = namespace.metadata.labels.get_or_insert_default();
    labels.insert("kubernetes.io/metadata.name".to_owned(), name.to_owned());
    namespace.spec = Some(NamespaceSpec { finalizers: Some(vec!["kubernetes".to_owned()]) });
    namespace.status.get_or_insert_default().phase = Some("Active".to_owned());
}
