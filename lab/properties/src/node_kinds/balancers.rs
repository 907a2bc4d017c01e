//! Services whose addresses are nodes' own.

use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, NodeAddress, Service, ServiceStatus};
use svclab_oracle::ClusterModel;
use svclab_snapshot::Snapshot;

use super::cni::add;
use super::network::own;

/// An address of the nodes' network that no node has at first.
const VIP: &str = "172.18.0.60";

fn balanced(cluster: &mut ClusterModel) -> impl Iterator<Item = &mut Service> {
    let services = cluster.objects.services.iter_mut();
    services.filter(|service| {
        service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
            && service
                .spec
                .as_ref()
                .is_some_and(|spec| spec.load_balancer_source_ranges.as_ref().is_none_or(Vec::is_empty))
    })
}

fn ingress(service: &mut Service, addresses: &[String]) {
    let entry = |ip: &String| LoadBalancerIngress {
        ip: Some(ip.clone()),
        ip_mode: Some("VIP".to_owned()),
        ..LoadBalancerIngress::default()
    };
    let ingress = Some(addresses.iter().map(entry).collect());
    service.status =
        Some(ServiceStatus { load_balancer: Some(LoadBalancerStatus { ingress }), ..ServiceStatus::default() });
}

/// All nodes' addresses, as klipper-lb's DaemonSet publishes them.
pub(super) fn service_lb(cluster: &mut ClusterModel) {
    let nodes: Vec<String> =
        cluster.world.nodes.iter().filter_map(|node| Some(node.addresses.first()?.to_string())).collect();
    balanced(cluster).for_each(|service| ingress(service, &nodes));
}

/// klipper-lb's host port, by the portmap plugin.
pub(super) fn portmap(snapshot: &mut Snapshot) {
    add(
        snapshot,
        r#"
        *nat
        :CNI-DN-0a1b2c3d4e5f60718293a - [0:0]
        :CNI-HOSTPORT-DNAT - [0:0]
        :CNI-HOSTPORT-MASQ - [0:0]
        :CNI-HOSTPORT-SETMARK - [0:0]
        -A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
        -A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
        -A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ
        -A CNI-DN-0a1b2c3d4e5f60718293a -s 10.244.1.0/24 -p tcp -m tcp --dport 100 -j CNI-HOSTPORT-SETMARK
        -A CNI-DN-0a1b2c3d4e5f60718293a -s 127.0.0.1/32 -p tcp -m tcp --dport 100 -j CNI-HOSTPORT-SETMARK
        -A CNI-DN-0a1b2c3d4e5f60718293a -p tcp -m tcp --dport 100 -j DNAT --to-destination 10.244.1.200:100
        -A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"cbr0\" id: \"svclb\"" -m multiport --dports 100 -j CNI-DN-0a1b2c3d4e5f60718293a
        -A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE
        -A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000
        COMMIT
        "#,
    );
}

pub(super) fn vip(cluster: &mut ClusterModel) {
    balanced(cluster).for_each(|service| ingress(service, &[VIP.to_owned()]));
}

pub(super) fn vip_of_node(cluster: &mut ClusterModel) {
    vip(cluster);
    super::host::more(cluster, VIP);
}

/// kube-vip's leader has the address.
pub(super) fn vip_here(snapshot: &mut Snapshot) {
    if let Some(network) = &mut snapshot.network {
        own(network, "eth0", &format!("{VIP}/32"));
    }
}

pub(super) fn external_ips(cluster: &mut ClusterModel) {
    let nodes: Vec<String> =
        cluster.world.nodes.iter().filter_map(|node| Some(node.addresses.first()?.to_string())).collect();
    for spec in cluster.objects.services.iter_mut().filter_map(|service| service.spec.as_mut()) {
        if let Some(external) = spec.external_ips.as_mut().filter(|external| !external.is_empty()) {
            external.clone_from(&nodes);
        }
    }
}

/// A provider's addresses of the nodes, which it translates to theirs: no interface has them.
pub(super) fn translated_addresses(cluster: &mut ClusterModel) {
    let public = |index: usize| format!("203.0.113.{}", 200 + index);
    for (index, node) in cluster.objects.nodes.iter_mut().enumerate() {
        let address = NodeAddress { type_: "ExternalIP".to_owned(), address: public(index) };
        let status = node.status.get_or_insert_default();
        status.addresses.get_or_insert_default().push(address);
    }
    let all: Vec<String> = (0..cluster.objects.nodes.len()).map(public).collect();
    balanced(cluster).for_each(|service| ingress(service, &all));
}
