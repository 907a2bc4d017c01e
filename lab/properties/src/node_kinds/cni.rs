//! CNIs that masquerade what pods send to addresses outside the pods' ranges.

use svclab_snapshot::Snapshot;
use svclab_snapshot::network::{Network, Route};

use super::network::{MAIN, address, host_route, link, rename};
use super::rules::with_rules;

pub(super) fn add(snapshot: &mut Snapshot, rules: &str) {
    snapshot.nft_v4 = Some(with_rules(snapshot.nft_v4.as_deref(), rules));
}

pub(super) fn add_sets(snapshot: &mut Snapshot, sets: &str) {
    snapshot.sets.get_or_insert_default().push_str(sets);
}

/// flannel from 0.20 (`pkg/trafficmngr/iptables`).
pub(super) fn flannel(snapshot: &mut Snapshot) {
    add(
        snapshot,
        r#"
        *nat
        :FLANNEL-POSTRTG - [0:0]
        -A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
        -A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment "flanneld masq" -j RETURN
        -A FLANNEL-POSTRTG -s 10.244.1.0/24 -d 10.244.0.0/16 -m comment --comment "flanneld masq" -j RETURN
        -A FLANNEL-POSTRTG -s 10.244.0.0/16 -d 10.244.1.0/24 -m comment --comment "flanneld masq" -j RETURN
        -A FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.1.0/24 -m comment --comment "flanneld masq" -j RETURN
        -A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
        -A FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.0.0/16 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
        COMMIT
        *filter
        :FLANNEL-FWD - [0:0]
        -A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
        -A FLANNEL-FWD -s 10.244.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT
        -A FLANNEL-FWD -d 10.244.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT
        COMMIT
        "#,
    );
}

/// flannel before 0.20: rules of the built-in chain.
pub(super) fn old_flannel(snapshot: &mut Snapshot) {
    add(
        snapshot,
        r#"
        *nat
        -A POSTROUTING -s 10.244.0.0/16 -d 10.244.0.0/16 -m comment --comment "flanneld masq" -j RETURN
        -A POSTROUTING -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
        -A POSTROUTING ! -s 10.244.0.0/16 -d 10.244.1.0/24 -m comment --comment "flanneld masq" -j RETURN
        -A POSTROUTING ! -s 10.244.0.0/16 -d 10.244.0.0/16 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
        COMMIT
        "#,
    );
}

/// Calico with natOutgoing, BGP between nodes, and a policy for one pod.
pub(super) fn calico(snapshot: &mut Snapshot) {
    rename(snapshot, "veth", "cali");
    if let Some(network) = &mut snapshot.network {
        let block = "10.244.1.0/24".parse().ok();
        network.routes.extend(block.map(|to| Route {
            table: MAIN,
            to,
            kind: "blackhole".to_owned(),
            metric: 1024,
            ..Route::default()
        }));
    }
    add_sets(
        snapshot,
        "create cali40masq-ipam-pools hash:net family inet hashsize 1024 maxelem 1048576\n\
         add cali40masq-ipam-pools 10.244.0.0/16\n\
         create cali40all-ipam-pools hash:net family inet hashsize 1024 maxelem 1048576\n\
         add cali40all-ipam-pools 10.244.0.0/16\n",
    );
    add(
        snapshot,
        r#"
        *raw
        :cali-PREROUTING - [0:0]
        :cali-OUTPUT - [0:0]
        -I PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
        -I OUTPUT -m comment --comment "cali:tVnHkvAo15HuiPy0" -j cali-OUTPUT
        -A cali-OUTPUT -m comment --comment "cali:njdnLwYeGqBJyMxW" -j MARK --set-xmark 0x0/0xf0000
        -A cali-PREROUTING -m comment --comment "cali:XFX5xbM8B9qR10JG" -j MARK --set-xmark 0x0/0xf0000
        -A cali-PREROUTING -i cali+ -m comment --comment "cali:EWMPb0zVROM-woQp" -j MARK --set-xmark 0x40000/0x40000
        -A cali-PREROUTING -m comment --comment "cali:fSSbGND7dgyemWU7" -m mark --mark 0x40000/0x40000 -m rpfilter --validmark --invert -j DROP
        COMMIT
        *mangle
        :cali-PREROUTING - [0:0]
        -I PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
        -A cali-PREROUTING -m comment --comment "cali:6BJqBjBC7crtA-7-" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        -A cali-PREROUTING -m comment --comment "cali:KX7AGNd6rMcDUai6" -m mark --mark 0x10000/0x10000 -j ACCEPT
        COMMIT
        *nat
        :cali-OUTPUT - [0:0]
        :cali-POSTROUTING - [0:0]
        :cali-PREROUTING - [0:0]
        :cali-fip-dnat - [0:0]
        :cali-fip-snat - [0:0]
        :cali-nat-outgoing - [0:0]
        -I PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
        -I OUTPUT -m comment --comment "cali:tVnHkvAo15HuiPy0" -j cali-OUTPUT
        -I POSTROUTING -m comment --comment "cali:O3lYWMrLQYEMJtB5" -j cali-POSTROUTING
        -A cali-OUTPUT -m comment --comment "cali:GBTAv2p5CwevEyJm" -j cali-fip-dnat
        -A cali-POSTROUTING -m comment --comment "cali:Z-c7XtVd2Bq7s_hA" -j cali-fip-snat
        -A cali-POSTROUTING -m comment --comment "cali:nYKhEzDlr11Jccal" -j cali-nat-outgoing
        -A cali-PREROUTING -m comment --comment "cali:r6XmIziWUJsdOK6Z" -j cali-fip-dnat
        -A cali-nat-outgoing -m comment --comment "cali:flqWnvo8yq4ULQLa" -m set --match-set cali40masq-ipam-pools src -m set ! --match-set cali40all-ipam-pools dst -j MASQUERADE --random-fully
        COMMIT
        *filter
        :cali-FORWARD - [0:0]
        :cali-INPUT - [0:0]
        :cali-from-wl-dispatch - [0:0]
        :cali-fw-veth0 - [0:0]
        :cali-to-wl-dispatch - [0:0]
        :cali-tw-veth0 - [0:0]
        -I INPUT -m comment --comment "cali:Cz_u1IQiXIMmKD4c" -j cali-INPUT
        -I FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD
        -A FORWARD -m comment --comment "cali:S93hcgKJrXEqnTfs" -m mark --mark 0x10000/0x10000 -j ACCEPT
        -A cali-FORWARD -m comment --comment "cali:vjrMJCRpqwy5oRoX" -j MARK --set-xmark 0x0/0xe0000
        -A cali-FORWARD -i cali+ -m comment --comment "cali:8ZoYfO5HKXWbB3pk" -j cali-from-wl-dispatch
        -A cali-FORWARD -o cali+ -m comment --comment "cali:jdEuaPBe14V2hutn" -j cali-to-wl-dispatch
        -A cali-INPUT -i cali+ -m comment --comment "cali:FewJpBykm9iJ-YNH" -j RETURN
        -A cali-from-wl-dispatch -i cali0 -m comment --comment "cali:zTj6P0TIgYvgz-md" -g cali-fw-veth0
        -A cali-from-wl-dispatch -m comment --comment "cali:others" -j MARK --set-xmark 0x10000/0x10000
        -A cali-fw-veth0 -m comment --comment "cali:w1wKVkZ1VWdKbDzw" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        -A cali-fw-veth0 -m comment --comment "cali:WTUnyRRtmAEYo0yu" -m conntrack --ctstate INVALID -j DROP
        -A cali-fw-veth0 -m comment --comment "cali:RRWdPSgNOd0a-yrT" -j MARK --set-xmark 0x10000/0x10000
        -A cali-to-wl-dispatch -o cali0 -m comment --comment "cali:7KNphB1nNHw80nIO" -g cali-tw-veth0
        -A cali-to-wl-dispatch -m comment --comment "cali:others" -j MARK --set-xmark 0x10000/0x10000
        -A cali-tw-veth0 -m comment --comment "cali:w1wKVkZ1VWdKbDzw" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        -A cali-tw-veth0 -m comment --comment "cali:RRWdPSgNOd0a-yrT" -j MARK --set-xmark 0x10000/0x10000
        COMMIT
        "#,
    );
}

/// ip-masq-agent with the cluster's ranges, on kubenet's bridge.
pub(super) fn aks(snapshot: &mut Snapshot) {
    add(
        snapshot,
        r#"
        *nat
        :IP-MASQ-AGENT - [0:0]
        -A POSTROUTING -m comment --comment "ip-masq-agent: ensure nat POSTROUTING directs all non-LOCAL destination traffic to our custom IP-MASQ-AGENT chain" -m addrtype ! --dst-type LOCAL -j IP-MASQ-AGENT
        -A IP-MASQ-AGENT -d 10.244.0.0/16 -m comment --comment "ip-masq-agent: local traffic is not subject to MASQUERADE" -j RETURN
        -A IP-MASQ-AGENT -d 10.96.0.0/16 -m comment --comment "ip-masq-agent: local traffic is not subject to MASQUERADE" -j RETURN
        -A IP-MASQ-AGENT -m comment --comment "ip-masq-agent: outbound traffic is subject to MASQUERADE (must be last in chain)" -j MASQUERADE
        COMMIT
        "#,
    );
}

/// Pods on an Open vSwitch bridge, behind the internal port `gateway`.
fn behind_ovs(snapshot: &mut Snapshot, gateway: &str) {
    let Some(network) = &mut snapshot.network else { return };
    for own in &mut network.links {
        match own.name.as_str() {
            "cni0" => {
                gateway.clone_into(&mut own.name);
                own.kind = Some("openvswitch".to_owned());
            }
            _ if own.controller.as_deref() == Some("cni0") => own.controller = Some("ovs-system".to_owned()),
            _ => {}
        }
    }
    link(network, "ovs-system", Some("openvswitch"));
    network.forwarding.clear();
    let named = |interface: &mut String| {
        if interface == "cni0" {
            gateway.clone_into(interface);
        }
    };
    network.addresses.iter_mut().for_each(|own| named(&mut own.interface));
    network.neighbours.iter_mut().for_each(|one| named(&mut one.interface));
    network
        .routes
        .iter_mut()
        .flat_map(|route| &mut route.hops)
        .filter_map(|hop| hop.interface.as_mut())
        .for_each(named);
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
