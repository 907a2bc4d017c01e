//! CNIs that masquerade what pods send to addresses outside the pods' ranges.

use svclab_snapshot::Snapshot;
use svclab_snapshot::network::Route;

use super::network::{MAIN, rename};
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

/// kindnet (`pkg/masq`): its table translates before those of iptables.
pub(super) fn kindnet(snapshot: &mut Snapshot) {
    snapshot.nft.get_or_insert_default().push_str(
        r#"
table inet kindnet-ipmasq {
	set noMasqV4 {
		type ipv4_addr
		flags interval
		auto-merge
		elements = { 10.244.0.0/16 }
	}

	set noMasqV6 {
		type ipv6_addr
		flags interval
		auto-merge
	}

	chain postrouting {
		type nat hook postrouting priority srcnat - 10; policy accept;
		ct state established,related accept
		fib daddr type local accept
		ip daddr @noMasqV4 accept
		ip6 daddr @noMasqV6 accept
		masquerade counter packets 0 bytes 0
	}
}
"#,
    );
}

/// k3s: flannel, and network policies of kube-router with one pod that a policy selects.
pub(super) fn k3s(snapshot: &mut Snapshot) {
    flannel(snapshot);
    add_sets(
        snapshot,
        "create KUBE-SRC-2XJ7T4RJ3K5WPBQZ hash:net family inet hashsize 1024 maxelem 65536 timeout 0\nadd KUBE-SRC-2XJ7T4RJ3K5WPBQZ 0.0.0.0/1 timeout 0\nadd KUBE-SRC-2XJ7T4RJ3K5WPBQZ 128.0.0.0/1 timeout 0\n",
    );
    add(
        snapshot,
        r#"
        *filter
        :KUBE-NWPLCY-DEFAULT - [0:0]
        :KUBE-NWPLCY-7XQ2M3ZV5KJ6TRWD - [0:0]
        :KUBE-POD-FW-5JQ3XK7L2M4N6P8R - [0:0]
        :KUBE-ROUTER-FORWARD - [0:0]
        :KUBE-ROUTER-INPUT - [0:0]
        :KUBE-ROUTER-OUTPUT - [0:0]
        -I INPUT -m comment --comment "kube-router netpol - 4IA2OSFRMVNDXBVV" -j KUBE-ROUTER-INPUT
        -I FORWARD -m comment --comment "kube-router netpol - TEMCG2JMHZYE7H7T" -j KUBE-ROUTER-FORWARD
        -I OUTPUT -m comment --comment "kube-router netpol - VEAAIY32XVBHCSCY" -j KUBE-ROUTER-OUTPUT
        -A INPUT -m comment --comment "KUBE-ROUTER rule to explicitly ACCEPT traffic that comply to network policies" -m mark --mark 0x20000/0x20000 -j ACCEPT
        -A FORWARD -m comment --comment "KUBE-ROUTER rule to explicitly ACCEPT traffic that comply to network policies" -m mark --mark 0x20000/0x20000 -j ACCEPT
        -A OUTPUT -m comment --comment "KUBE-ROUTER rule to explicitly ACCEPT traffic that comply to network policies" -m mark --mark 0x20000/0x20000 -j ACCEPT
        -A KUBE-ROUTER-INPUT -d 10.96.0.0/16 -m comment --comment "allow traffic to primary/secondary cluster IP range - RSMRK7B4WHFFBEQD" -j RETURN
        -A KUBE-ROUTER-INPUT -p tcp -m comment --comment "allow LOCAL TCP traffic to node ports - LR7XO7NXDBGQJD2M" -m addrtype --dst-type LOCAL -m multiport --dports 30000:32767 -j RETURN
        -A KUBE-ROUTER-INPUT -p udp -m comment --comment "allow LOCAL UDP traffic to node ports - 76UCBPIZNGJNWNUZ" -m addrtype --dst-type LOCAL -m multiport --dports 30000:32767 -j RETURN
        -A KUBE-ROUTER-INPUT -s 10.244.1.10/32 -m comment --comment "rule to jump traffic from POD name:web-1 namespace: default to chain KUBE-POD-FW-5JQ3XK7L2M4N6P8R" -j KUBE-POD-FW-5JQ3XK7L2M4N6P8R
        -A KUBE-ROUTER-FORWARD -d 10.244.1.10/32 -m comment --comment "rule to jump traffic destined to POD name:web-1 namespace: default to chain KUBE-POD-FW-5JQ3XK7L2M4N6P8R" -j KUBE-POD-FW-5JQ3XK7L2M4N6P8R
        -A KUBE-ROUTER-FORWARD -d 10.244.1.10/32 -m comment --comment "rule to jump traffic destined to POD name:web-1 namespace: default to chain KUBE-POD-FW-5JQ3XK7L2M4N6P8R" -m physdev --physdev-is-bridged -j KUBE-POD-FW-5JQ3XK7L2M4N6P8R
        -A KUBE-ROUTER-FORWARD -s 10.244.1.10/32 -m comment --comment "rule to jump traffic from POD name:web-1 namespace: default to chain KUBE-POD-FW-5JQ3XK7L2M4N6P8R" -j KUBE-POD-FW-5JQ3XK7L2M4N6P8R
        -A KUBE-ROUTER-OUTPUT -d 10.244.1.10/32 -m comment --comment "rule to jump traffic destined to POD name:web-1 namespace: default to chain KUBE-POD-FW-5JQ3XK7L2M4N6P8R" -j KUBE-POD-FW-5JQ3XK7L2M4N6P8R
        -A KUBE-NWPLCY-DEFAULT -m comment --comment "rule to mark traffic matching a network policy" -j MARK --set-xmark 0x10000/0x10000
        -A KUBE-NWPLCY-7XQ2M3ZV5KJ6TRWD -m comment --comment "rule to ACCEPT traffic from all sources to dest pods selected by policy name web namespace default" -m set --match-set KUBE-SRC-2XJ7T4RJ3K5WPBQZ src -j MARK --set-xmark 0x10000/0x10000
        -A KUBE-NWPLCY-7XQ2M3ZV5KJ6TRWD -m mark --mark 0x10000/0x10000 -j RETURN
        -A KUBE-POD-FW-5JQ3XK7L2M4N6P8R -m comment --comment "rule for stateful firewall for pod" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        -A KUBE-POD-FW-5JQ3XK7L2M4N6P8R -d 10.244.1.10/32 -m comment --comment "rule to permit the traffic traffic to pods when source is the pod's local node" -m addrtype --src-type LOCAL -j ACCEPT
        -A KUBE-POD-FW-5JQ3XK7L2M4N6P8R -s 10.244.1.10/32 -m comment --comment "run through default egress network policy chain" -j KUBE-NWPLCY-DEFAULT
        -A KUBE-POD-FW-5JQ3XK7L2M4N6P8R -m comment --comment "run through nw policy web" -j KUBE-NWPLCY-7XQ2M3ZV5KJ6TRWD
        -A KUBE-POD-FW-5JQ3XK7L2M4N6P8R -m comment --comment "rule to log dropped traffic POD name:web-1 namespace: default" -m mark ! --mark 0x10000/0x10000 -m limit --limit 10/min --limit-burst 10 -j NFLOG --nflog-group 100
        -A KUBE-POD-FW-5JQ3XK7L2M4N6P8R -m comment --comment "rule to REJECT traffic destined for POD name:web-1 namespace: default" -m mark ! --mark 0x10000/0x10000 -j REJECT --reject-with icmp-port-unreachable
        -A KUBE-POD-FW-5JQ3XK7L2M4N6P8R -j MARK --set-xmark 0x0/0x10000
        -A KUBE-POD-FW-5JQ3XK7L2M4N6P8R -m comment --comment "set mark to ACCEPT traffic that comply to network policies" -j MARK --set-xmark 0x20000/0x20000
        COMMIT
        "#,
    );
}

/// Rules of the other variant of iptables.
pub(super) fn flannel_by_legacy(snapshot: &mut Snapshot) {
    let proxy = snapshot.nft_v4.take();
    flannel(snapshot);
    snapshot.legacy_v4 = std::mem::replace(&mut snapshot.nft_v4, proxy);
}
