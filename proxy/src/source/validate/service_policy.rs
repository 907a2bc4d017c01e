use k8s_openapi::api::core::v1::{ClientIPConfig, ServiceSpec, SessionAffinityConfig};

use super::super::syntax::{one_of, port, qualified_name};
use super::Findings;
use super::service::is;

/// In seconds (API reference, `ClientIPConfig`).
const DEFAULT_AFFINITY: i32 = 10_800;
/// In seconds (API reference, `ClientIPConfig`).
const LONGEST_AFFINITY: i32 = 86_400;

pub(super) fn check(spec: &mut ServiceSpec, findings: &mut Findings) {
    affinity(spec, findings);
    traffic_policies(spec, findings);
    health_check_port(spec, findings);
    // The proxy does not use this field, but the hints in EndpointSlices that it influences.
    let ways = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    let field = || "spec.trafficDistribution".to_owned();
    findings.drop_if_invalid(field, &mut spec.traffic_distribution, |way| one_of(way, &ways));
    let field = || "spec.loadBalancerClass".to_owned();
    findings.drop_if_invalid(field, &mut spec.load_balancer_class, |class| qualified_name(class));
}

fn affinity(spec: &mut ServiceSpec, findings: &mut Findings) {
    spec.session_affinity = spec.session_affinity.take().filter(|affinity| !affinity.is_empty());
    let field = || "spec.sessionAffinity".to_owned();
    findings.drop_if_invalid(field, &mut spec.session_affinity, |affinity| one_of(affinity, &["None", "ClientIP"]));
    if spec.session_affinity.get_or_insert_with(|| "None".to_owned()) != "ClientIP" {
        if spec.session_affinity_config.take().is_some() {
            findings.remark("spec.sessionAffinityConfig", "is only for the session affinity ClientIP");
        }
        return;
    }
    let config = spec.session_affinity_config.get_or_insert_with(SessionAffinityConfig::default);
    let seconds = &mut config.client_ip.get_or_insert_with(ClientIPConfig::default).timeout_seconds;
    let field = || "spec.sessionAffinityConfig.clientIP.timeoutSeconds".to_owned();
    findings.drop_if_invalid(field, seconds, |seconds| match (1..=LONGEST_AFFINITY).contains(seconds) {
        true => Ok(()),
        false => Err(format!("{seconds} is not within 1-{LONGEST_AFFINITY} seconds")),
    });
    seconds.get_or_insert(DEFAULT_AFFINITY);
}

/// Checks traffic policies; as in kube-proxy, an unknown one means `Cluster`.
fn traffic_policies(spec: &mut ServiceSpec, findings: &mut Findings) {
    let known = |policy: &String| one_of(policy, &["Cluster", "Local"]);
    let published = is(spec, "NodePort") || is(spec, "LoadBalancer");
    let reachable = published || spec.external_ips.as_ref().is_some_and(|ips| !ips.is_empty());
    let said = |policy: &mut Option<String>| policy.take().filter(|policy| !policy.is_empty());
    spec.external_traffic_policy = said(&mut spec.external_traffic_policy);
    let field = || "spec.externalTrafficPolicy".to_owned();
    findings.drop_if_invalid(field, &mut spec.external_traffic_policy, |policy| match reachable {
        true => known(policy),
        false => Err("is only for the types NodePort and LoadBalancer and for external IPs".to_owned()),
    });
    if published {
        spec.external_traffic_policy.get_or_insert_with(|| "Cluster".to_owned());
    }
    spec.internal_traffic_policy = said(&mut spec.internal_traffic_policy);
    findings.drop_if_invalid(|| "spec.internalTrafficPolicy".to_owned(), &mut spec.internal_traffic_policy, known);
    if !is(spec, "ExternalName") {
        spec.internal_traffic_policy.get_or_insert_with(|| "Cluster".to_owned());
    }
}

fn health_check_port(spec: &mut ServiceSpec, findings: &mut Findings) {
    spec.health_check_node_port = spec.health_check_node_port.take().filter(|number| *number != 0);
    let local = spec.external_traffic_policy.as_deref() == Some("Local");
    let balanced_locally = local && is(spec, "LoadBalancer");
    let ports = spec.ports.as_deref().unwrap_or_default();
    let tcp_node_port = |number: i32| {
        ports.iter().find(|port| port.protocol.as_deref() == Some("TCP") && port.node_port == Some(number))
    };
    findings.drop_if_invalid(
        || "spec.healthCheckNodePort".to_owned(),
        &mut spec.health_check_node_port,
        |number| match tcp_node_port(*number) {
            _ if !balanced_locally => {
                Err("is only for the type LoadBalancer with externalTrafficPolicy Local".to_owned())
            }
            Some(taken) => Err(format!("{number} is the node port of port {}", taken.port)),
            None => port(*number),
        },
    );
}
