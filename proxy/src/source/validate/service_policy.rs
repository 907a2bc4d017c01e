//! How a Service wants its traffic treated: affinity, traffic policies, the health-check port, distribution.

use k8s_openapi::api::core::v1::{ClientIPConfig, ServiceSpec, SessionAffinityConfig};

use super::super::syntax::{one_of, port, qualified_name};
use super::Findings;
use super::service::is;

/// Seconds that session affinity lasts unless the Service says otherwise (API reference, `ClientIPConfig`).
const DEFAULT_AFFINITY: i32 = 10_800;
/// Most seconds that session affinity may last: one day (API reference, `ClientIPConfig`).
const LONGEST_AFFINITY: i32 = 86_400;

/// Checks the policies and fills in their defaults.
pub(super) fn check(spec: &mut ServiceSpec, findings: &mut Findings) {
    affinity(spec, findings);
    traffic_policies(spec, findings);
    health_check_port(spec, findings);
    // What it means is decided by who makes the slices' hints.
    let ways = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    let field = || "spec.trafficDistribution".to_owned();
    findings.needless(field, &mut spec.traffic_distribution, |way| one_of(way, &ways));
    let field = || "spec.loadBalancerClass".to_owned();
    findings.needless(field, &mut spec.load_balancer_class, |class| qualified_name(class));
}

fn affinity(spec: &mut ServiceSpec, findings: &mut Findings) {
    let affinity = spec.session_affinity.take().filter(|a| !a.is_empty());
    let affinity = affinity.unwrap_or_else(|| "None".to_owned());
    findings.check(|| "spec.sessionAffinity".to_owned(), one_of(&affinity, &["None", "ClientIP"]));
    if affinity == "ClientIP" {
        let seconds = spec
            .session_affinity_config
            .get_or_insert_with(SessionAffinityConfig::default)
            .client_ip
            .get_or_insert_with(ClientIPConfig::default)
            .timeout_seconds
            .get_or_insert(DEFAULT_AFFINITY);
        if !(1..=LONGEST_AFFINITY).contains(seconds) {
            findings.add(
                "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
                format!("{seconds} is not within 1-{LONGEST_AFFINITY} seconds"),
            );
        }
    } else if spec.session_affinity_config.is_some() {
        let message = "is only for the session affinity ClientIP";
        findings.add("spec.sessionAffinityConfig", message);
    }
    spec.session_affinity = Some(affinity);
}

fn traffic_policies(spec: &mut ServiceSpec, findings: &mut Findings) {
    let policies = ["Cluster", "Local"];
    let published = is(spec, "NodePort") || is(spec, "LoadBalancer");
    let reachable = published || spec.external_ips.as_ref().is_some_and(|ips| !ips.is_empty());
    let external = spec.external_traffic_policy.take().filter(|p| !p.is_empty());
    if let Some(policy) = external.as_deref() {
        let field = || "spec.externalTrafficPolicy".to_owned();
        findings.check(field, one_of(policy, &policies));
        if !reachable {
            findings.add(field(), "is only for the types NodePort and LoadBalancer and for external IPs");
        }
    }
    spec.external_traffic_policy = external.or_else(|| published.then(|| "Cluster".to_owned()));
    let internal = spec.internal_traffic_policy.take().filter(|p| !p.is_empty());
    if let Some(policy) = internal.as_deref() {
        let field = || "spec.internalTrafficPolicy".to_owned();
        findings.check(field, one_of(policy, &policies));
    }
    let named_only = is(spec, "ExternalName");
    spec.internal_traffic_policy = internal.or_else(|| (!named_only).then(|| "Cluster".to_owned()));
}

fn health_check_port(spec: &ServiceSpec, findings: &mut Findings) {
    let Some(number) = spec.health_check_node_port.filter(|p| *p != 0) else {
        return;
    };
    let field = || "spec.healthCheckNodePort".to_owned();
    findings.check(field, port(number));
    let local = spec.external_traffic_policy.as_deref() == Some("Local");
    if !(local && is(spec, "LoadBalancer")) {
        let message = "is only for the type LoadBalancer with externalTrafficPolicy Local";
        findings.add(field(), message);
    }
    let tcp = |p: &&_| {
        let port: &&k8s_openapi::api::core::v1::ServicePort = p;
        port.protocol.as_deref() == Some("TCP") && port.node_port == Some(number)
    };
    if let Some(taken) = spec.ports.iter().flatten().find(tcp) {
        let message = format!("{number} is the node port of port {}", taken.port);
        findings.add(field(), message);
    }
}
