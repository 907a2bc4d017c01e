use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::ObjectName;
use super::build::{address, families, on_segment, pod_range, segment};
use super::recipe::{
    AnnotationRecipe, IngressMode, Recipe, ServiceFamilies, ServiceKind, ServiceRecipe, SourceRangeRecipe,
};
use crate::address::Family;
use crate::question::Protocol;
use crate::service::PROXY_NAME_LABEL;

pub(super) fn build(recipe: &Recipe, index: usize) -> Option<Service> {
    let service = recipe.services.get(index)?;
    let families = stack(recipe, service);
    let name = name(index);
    if service.kind == ServiceKind::ExternalName {
        let spec = json!({"type": "ExternalName", "externalName": "example.org"});
        let metadata = json!({"namespace": name.namespace, "name": name.name});
        return serde_json::from_value(json!({"metadata": metadata, "spec": spec})).ok();
    }
    let labels =
        if service.kind == ServiceKind::OtherProxy { json!({ PROXY_NAME_LABEL: "somebody-else" }) } else { json!({}) };
    let pool = |numbers: &[u8], v4: &str, v6: &str| -> Vec<IpAddr> {
        let mut all: Vec<IpAddr> = Vec::new();
        for number in numbers {
            let texts = |number: &u8| [format!("{v4}{}", number + 1), format!("{v6}{}", number + 1)];
            all.extend(families.iter().filter_map(|family| address(texts(number), *family)));
        }
        all.sort_unstable();
        all.dedup();
        all
    };
    let balanced = service.kind == ServiceKind::LoadBalancer;
    let mut spec = json!({
        "type": match service.kind {
            ServiceKind::NodePort => "NodePort",
            ServiceKind::LoadBalancer => "LoadBalancer",
            _ => "ClusterIP",
        },
        "ipFamilies": families.iter().map(|family| family.name()).collect::<Vec<_>>(),
        "ipFamilyPolicy": if families.len() == 2 { "RequireDualStack" } else { "SingleStack" },
        "ports": ports(service, index),
        "internalTrafficPolicy": if service.internal_local { "Local" } else { "Cluster" },
        "sessionAffinity": if service.affinity.is_some() { "ClientIP" } else { "None" },
    });
    let cluster_ips = cluster_ips(service, &families, index);
    spec["clusterIP"] = json!(cluster_ips.first());
    spec["clusterIPs"] = json!(cluster_ips);
    let mut external_ips = pool(&service.external_ips, "198.51.100.", "2001:db8:51::");
    let claimed = service.number_for("clusterIP", index);
    if claimed != index {
        external_ips.extend(families.iter().filter_map(|family| cluster_ip(claimed, *family)));
    }
    if service.kind != ServiceKind::Headless && !external_ips.is_empty() {
        spec["externalIPs"] = json!(external_ips);
    }
    if let Some(seconds) = service.affinity {
        spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
    }
    let faces_out = !matches!(service.kind, ServiceKind::Headless)
        && (balanced || service.kind == ServiceKind::NodePort || !external_ips.is_empty());
    if faces_out {
        spec["externalTrafficPolicy"] = json!(if service.external_local { "Local" } else { "Cluster" });
    }
    let mut ingress: Vec<Value> = Vec::new();
    if balanced {
        spec["allocateLoadBalancerNodePorts"] = json!(service.ports.iter().all(|port| port.node_port));
        if service.external_local {
            spec["healthCheckNodePort"] = json!(31_000 + service.number_for("healthCheckNodePort", index));
        }
        let ranges: Vec<String> = service.source_ranges.iter().flat_map(|one| sources(*one, &families)).collect();
        spec["loadBalancerSourceRanges"] = json!(ranges);
        for (number, mode) in &service.ingress {
            let mode = match mode {
                IngressMode::Unset => json!(null),
                IngressMode::Vip => json!("VIP"),
                IngressMode::Proxy => json!("Proxy"),
                IngressMode::Newer => json!("Anycast"),
            };
            let addresses = pool(&[*number], "203.0.113.", "2001:db8:113::");
            // All entries of an address must have the same ipMode, so only the first entry remains.
            let fresh = addresses.iter().filter(|address| !ingress.iter().any(|entry| entry["ip"] == json!(address)));
            let entries: Vec<Value> = fresh.map(|address| json!({"ip": address, "ipMode": mode})).collect();
            ingress.extend(entries);
        }
        if service.newer & 8 != 0 {
            ingress.push(json!({"hostname": "lb.example.org"}));
        }
    }
    if service.newer & 1 != 0 {
        spec["trafficDistribution"] = json!("PreferSamePlanet");
    }
    if !balanced && service.newer & 2 != 0 {
        ingress.extend(pool(&[0], "203.0.113.", "2001:db8:113::").iter().map(|address| json!({"ip": address})));
    }
    leave_out(&mut spec, service);
    let mut object = json!({
        "metadata": {"namespace": name.namespace, "name": name.name, "labels": labels}, "spec": spec,
    });
    let annotations = annotations(&service.annotations, &families);
    if !annotations.is_empty() {
        object["metadata"]["annotations"] = json!(annotations);
    }
    if let Some(created) = service.created {
        object["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:00:{:02}Z", created % 60));
    }
    // API servers omit an empty status, or an empty part of it.
    if !ingress.is_empty() {
        object["status"] = json!({"loadBalancer": {"ingress": ingress}});
    } else if service.created.is_some() {
        object["status"] = json!({"loadBalancer": {}});
    }
    serde_json::from_value(object).ok()
}

fn annotations(recipe: &AnnotationRecipe, families: &[Family]) -> BTreeMap<&'static str, String> {
    let mut annotations = BTreeMap::new();
    let ranges: Vec<String> = recipe.source_ranges.iter().flat_map(|one| sources(*one, families)).collect();
    if !ranges.is_empty() {
        annotations.insert("svcproxy/source-ranges", ranges.join(","));
    }
    if recipe.local_fallback {
        annotations.insert("svcproxy/local-fallback", "cluster".to_owned());
    }
    if recipe.affinity_across_ports {
        annotations.insert("svcproxy/affinity-across-ports", "all".to_owned());
    }
    annotations
}

/// Omits the recipe's fields that have their default.
fn leave_out(spec: &mut Value, service: &ServiceRecipe) {
    let single = spec["clusterIPs"].as_array().is_none_or(|all| all.len() < 2);
    let defaults = [
        ("type", spec["type"] == "ClusterIP"),
        ("ipFamilies", true),
        ("ipFamilyPolicy", true),
        ("clusterIPs", single),
        ("clusterIP", !(single && service.leaves_out("clusterIPs"))),
        ("internalTrafficPolicy", spec["internalTrafficPolicy"] == "Cluster"),
        ("sessionAffinity", spec["sessionAffinity"] == "None"),
        ("externalTrafficPolicy", spec["externalTrafficPolicy"] == "Cluster"),
        ("loadBalancerSourceRanges", spec["loadBalancerSourceRanges"] == json!([])),
        ("sessionAffinityConfig", true),
    ];
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|field, _| !(service.leaves_out(field) && defaults.contains(&(field.as_str(), true))));
    }
    for port in spec["ports"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        let tcp = port.get("protocol") == Some(&json!("TCP"));
        port.retain(|field, _| match field.as_str() {
            "protocol" => !(tcp && service.leaves_out("ports.protocol")),
            "targetPort" => !service.leaves_out("ports.targetPort"),
            _ => true,
        });
    }
}

/// Services `2n` and `2n + 1` share a name in different namespaces.
pub(super) fn name(index: usize) -> ObjectName {
    let namespace = if index.is_multiple_of(2) { "default" } else { "other" };
    ObjectName { namespace: namespace.to_owned(), name: format!("svc-{}", index / 2) }
}

pub(super) fn stack(recipe: &Recipe, service: &ServiceRecipe) -> Vec<Family> {
    match (families(recipe), service.stack) {
        ([first, _], ServiceFamilies::First) => vec![*first],
        ([_, second], ServiceFamilies::Second) => vec![*second],
        (all, _) => all.to_vec(),
    }
}

fn cluster_ips(service: &ServiceRecipe, families: &[Family], index: usize) -> Vec<String> {
    if service.kind == ServiceKind::Headless {
        return vec!["None".to_owned()];
    }
    families.iter().filter_map(|family| cluster_ip(index, *family)).map(|address| address.to_string()).collect()
}

fn cluster_ip(index: usize, family: Family) -> Option<IpAddr> {
    address([format!("10.96.1.{}", index + 1), format!("fd00:10:96::{:x}", 0x101 + index)], family)
}

/// Numbers are unique among services, so services can share addresses; a claim of `ports.port` breaks this.
pub(super) fn numbered(service: &ServiceRecipe, index: usize) -> Vec<(String, Protocol, u16)> {
    let mut ports: Vec<(String, Protocol, u16)> = Vec::new();
    let index = service.number_for("ports.port", index);
    for (position, port) in service.ports.iter().enumerate() {
        let protocol = Protocol::ALL[usize::from(port.protocol) % Protocol::ALL.len()];
        let fresh = u16::try_from(80 + 10 * index + position).unwrap_or(u16::MAX);
        let last = ports.last().map(|(_, _, number)| *number).filter(|_| port.same_number);
        let free = |number: &u16| !ports.iter().any(|(_, taken, other)| *taken == protocol && other == number);
        let number = last.filter(free).unwrap_or(fresh);
        // Only a single port may lack a name.
        let name = if service.ports.len() == 1 { String::new() } else { format!("p{position}") };
        ports.push((name, protocol, number));
    }
    ports
}

fn ports(service: &ServiceRecipe, index: usize) -> Vec<Value> {
    let exposes = |node_port: bool| match service.kind {
        ServiceKind::NodePort => true,
        ServiceKind::LoadBalancer => node_port,
        _ => false,
    };
    let all = numbered(service, index).into_iter().zip(&service.ports).enumerate();
    all.map(|(position, ((name, protocol, number), recipe))| {
        let mut port = json!({"port": number, "protocol": protocol.name(), "targetPort": 8080 + position});
        if !name.is_empty() {
            port["name"] = json!(name);
        }
        if exposes(recipe.node_port) {
            port["nodePort"] = json!(30_000 + 20 * service.number_for("ports.nodePort", index) + position);
        } else if service.leaves_out("ports.targetPort") {
            // Some clients write 0 for no node port.
            port["nodePort"] = json!(0);
        }
        port
    })
    .collect()
}

fn sources(sources: SourceRangeRecipe, families: &[Family]) -> Vec<String> {
    let host = |address: IpAddr| ipnet::IpNet::from(address);
    let range = |family: &Family| match sources {
        SourceRangeRecipe::Everybody => {
            if *family == Family::V4 {
                "0.0.0.0/0".parse().ok()
            } else {
                "::/0".parse().ok()
            }
        }
        SourceRangeRecipe::NodeNetwork => segment(*family),
        SourceRangeRecipe::FirstNode => on_segment(2, *family).map(host),
        SourceRangeRecipe::FirstClient => on_segment(100, *family).map(host),
        SourceRangeRecipe::Pods => pod_range(*family),
        SourceRangeRecipe::Nobody => address(["192.0.2.1".to_owned(), "2001:db8:2::1".to_owned()], *family).map(host),
    };
    families.iter().filter_map(range).map(|range| range.to_string()).collect()
}
