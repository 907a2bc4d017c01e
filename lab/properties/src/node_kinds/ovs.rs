//! CNIs whose pods are on an Open vSwitch bridge.

use svclab_snapshot::Snapshot;
use svclab_snapshot::network::Network;

use super::cni::{add, add_sets};
use super::network::{address, host_route, link, rename};

/// Pods on an Open vSwitch bridge, behind the internal port `gateway`.
fn behind_ovs(snapshot: &mut Snapshot, gateway: &str) {
    let Some(network) = &mut snapshot.network else { return };
    for own in &mut network.links {
        if own.name == "cni0" {
            own.kind = Some("openvswitch".to_owned());
        } else if own.controller.as_deref() == Some("cni0") {
            own.controller = Some("ovs-system".to_owned());
        }
    }
    link(network, "ovs-system", Some("openvswitch"));
    network.forwarding.clear();
    rename(snapshot, "cni0", gateway);
}

/// Antrea in encap mode with kube-proxy.
pub(super) fn antrea(snapshot: &mut Snapshot) {
    behind_ovs(snapshot, "antrea-gw0");
    add_sets(
        snapshot,
        "create ANTREA-POD-IP hash:net family inet hashsize 1024 maxelem 65536\nadd ANTREA-POD-IP 10.244.1.0/24\n\
         add ANTREA-POD-IP 10.244.2.0/24\nadd ANTREA-POD-IP 10.244.3.0/24\n",
    );
    add(
        snapshot,
        r#"
        *mangle
        :ANTREA-MANGLE - [0:0]
        :ANTREA-OUTPUT - [0:0]
        -A PREROUTING -m comment --comment "Antrea: jump to Antrea mangle rules" -j ANTREA-MANGLE
        -A OUTPUT -m comment --comment "Antrea: jump to Antrea output rules" -j ANTREA-OUTPUT
        -A ANTREA-OUTPUT -o antrea-gw0 -m comment --comment "Antrea: mark LOCAL output packets" -m addrtype --src-type LOCAL -j MARK --set-xmark 0x80000000/0x80000000
        COMMIT
        *nat
        :ANTREA-POSTROUTING - [0:0]
        -A POSTROUTING -m comment --comment "Antrea: jump to Antrea postrouting rules" -j ANTREA-POSTROUTING
        -A ANTREA-POSTROUTING -s 10.244.1.0/24 ! -o antrea-gw0 -m comment --comment "Antrea: masquerade Pod to external packets" -m set ! --match-set ANTREA-POD-IP dst -j MASQUERADE
        -A ANTREA-POSTROUTING -o antrea-gw0 -m comment --comment "Antrea: masquerade LOCAL traffic" -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE --random-fully
        COMMIT
        *filter
        :ANTREA-FORWARD - [0:0]
        -A FORWARD -m comment --comment "Antrea: jump to Antrea forwarding rules" -j ANTREA-FORWARD
        -A ANTREA-FORWARD -i antrea-gw0 -m comment --comment "Antrea: accept packets from local Pods" -j ACCEPT
        -A ANTREA-FORWARD -o antrea-gw0 -m comment --comment "Antrea: accept packets to local Pods" -j ACCEPT
        COMMIT
        "#,
    );
}

/// OpenShift SDN (`pkg/network/node/iptables.go`): one route to all pods, by tun0.
pub(super) fn openshift(snapshot: &mut Snapshot) {
    behind_ovs(snapshot, "tun0");
    if let Some(network) = &mut snapshot.network {
        let pods = |to: &ipnet::IpNet| to.to_string().starts_with("10.244.");
        network.routes.retain(|route| !pods(&route.to) || route.source.is_some());
        all_pods(network);
    }
    add(
        snapshot,
        r#"
        *nat
        :OPENSHIFT-MASQUERADE - [0:0]
        :OPENSHIFT-MASQUERADE-2 - [0:0]
        -A POSTROUTING -m comment --comment "rules for masquerading OpenShift traffic" -j OPENSHIFT-MASQUERADE
        -A OPENSHIFT-MASQUERADE -s 10.244.0.0/16 -m comment --comment "masquerade pod-to-external traffic" -j OPENSHIFT-MASQUERADE-2
        -A OPENSHIFT-MASQUERADE-2 -d 10.244.0.0/16 -m comment --comment "masquerade pod-to-external traffic" -j RETURN
        -A OPENSHIFT-MASQUERADE-2 -j MASQUERADE
        COMMIT
        *filter
        :OPENSHIFT-FIREWALL-ALLOW - [0:0]
        :OPENSHIFT-FIREWALL-FORWARD - [0:0]
        -A INPUT -m comment --comment "firewall overrides" -j OPENSHIFT-FIREWALL-ALLOW
        -A FORWARD -m comment --comment "firewall overrides" -j OPENSHIFT-FIREWALL-FORWARD
        -A OPENSHIFT-FIREWALL-ALLOW -i tun0 -m comment --comment "from SDN to localhost" -j ACCEPT
        -A OPENSHIFT-FIREWALL-FORWARD -s 10.244.0.0/16 -m comment --comment "attempted resend after connection close" -m conntrack --ctstate INVALID -j DROP
        -A OPENSHIFT-FIREWALL-FORWARD -d 10.244.0.0/16 -m comment --comment "forward traffic from SDN" -j ACCEPT
        -A OPENSHIFT-FIREWALL-FORWARD -s 10.244.0.0/16 -m comment --comment "forward traffic to SDN" -j ACCEPT
        COMMIT
        "#,
    );
}

fn all_pods(network: &mut Network) {
    for own in network.addresses.iter_mut().filter(|own| own.interface == "tun0") {
        own.address = address("10.244.1.1/24");
    }
    host_route(network, "10.244.0.0/16", "tun0", None);
}

/// kube-ovn (`pkg/daemon/gateway_linux.go`): it masquerades what the proxy has marked itself, and what pods send to pods
/// by way of a Service.
pub(super) fn kube_ovn(snapshot: &mut Snapshot) {
    behind_ovs(snapshot, "ovn0");
    super::archive::no_pod_range(snapshot);
    let sets = [
        "subnets 10.244.0.0/16",
        "subnets-nat 10.244.0.0/16",
        "other-node 172.18.0.3",
        "other-node 172.18.0.4",
        "services 10.96.0.0/16",
    ];
    let mut declared = String::new();
    for (name, element) in sets.iter().filter_map(|text| text.split_once(' ')) {
        let create = format!("create ovn40{name} hash:net family inet hashsize 1024 maxelem 1048576\n");
        if !declared.contains(&create) {
            declared += &create;
        }
        declared += &format!("add ovn40{name} {element}\n");
    }
    add_sets(snapshot, &declared);
    add(
        snapshot,
        r#"
        *nat
        :OVN-MASQUERADE - [0:0]
        :OVN-POSTROUTING - [0:0]
        -I POSTROUTING -m comment --comment "kube-ovn postrouting rules" -j OVN-POSTROUTING
        -A OVN-MASQUERADE -j MARK --set-xmark 0x0/0xffffffff
        -A OVN-MASQUERADE -j MASQUERADE
        -A OVN-POSTROUTING -m mark --mark 0x4000/0x4000 -j OVN-MASQUERADE
        -A OVN-POSTROUTING -m set --match-set ovn40subnets src -m set --match-set ovn40subnets dst -j OVN-MASQUERADE
        -A OVN-POSTROUTING -p tcp -m tcp --tcp-flags SYN NONE -m conntrack --ctstate NEW -j RETURN
        -A OVN-POSTROUTING -m set ! --match-set ovn40subnets src -m set ! --match-set ovn40other-node src -m set --match-set ovn40subnets-nat dst -j RETURN
        -A OVN-POSTROUTING -m set --match-set ovn40subnets-nat src -m set ! --match-set ovn40subnets dst -j OVN-MASQUERADE
        COMMIT
        *filter
        -A INPUT -m set --match-set ovn40subnets src -j ACCEPT
        -A INPUT -m set --match-set ovn40subnets dst -j ACCEPT
        -A FORWARD -m set --match-set ovn40subnets src -j ACCEPT
        -A FORWARD -m set --match-set ovn40subnets dst -j ACCEPT
        COMMIT
        "#,
    );
}
