//! Warnings about the node at the start.

use svcproxy::kernel::input_policy::dropping;
use svcproxy::model::Family;

use crate::start::{LoggedProxy, node, ready};
use crate::support::{inside, shell};

fn said(flags: &[&str]) -> String {
    let manifests = tempfile::tempdir().unwrap();
    std::fs::write(manifests.path().join("node.json"), node("node-a")).unwrap();
    let proxy = LoggedProxy::start(manifests.path(), flags);
    ready();
    proxy.ended().join("\n")
}

#[test]
fn an_uplink_that_borrows_the_address_of_another_link_is_named() {
    if !inside!() {
        return;
    }
    let warning = "the uplink eth0 has no IPv4 address";
    shell("ip link add cam0 type bridge && ip addr add 192.168.211.1/24 dev cam0 && ip link set cam0 up");
    shell("ip link add eth0 type bridge && ip addr add 172.18.0.2/24 dev eth0 && ip link set eth0 up");
    assert!(!said(&["--proxy-mode=nftables"]).contains(warning), "there is no default route");
    shell("ip route add default dev eth0 src 172.18.0.2");
    assert!(!said(&["--proxy-mode=nftables"]).contains(warning), "it has an address of its own");
    shell("ip link add prim0 type bridge && ip addr add 172.18.0.2/32 dev prim0 && ip link set prim0 up");
    shell("ip addr del 172.18.0.2/24 dev eth0 && ip route replace default dev eth0 src 172.18.0.2");
    let said_now = said(&["--proxy-mode=nftables"]);
    assert!(said_now.contains(warning) && said_now.contains("192.168.211.1"), "{said_now}");
    shell("ip addr del 192.168.211.1/24 dev cam0");
    assert!(!said(&["--proxy-mode=nftables"]).contains(warning), "the one that is borrowed is the node's");
}

#[test]
fn tables_that_kubelet_does_not_use_are_named() {
    if !inside!() {
        return;
    }
    let warning = "kubelet uses the legacy tables of iptables";
    let flags = ["--proxy-mode=iptables", "--iptables-writer=netlink"];
    assert!(!said(&flags).contains("kubelet uses"));
    shell("iptables-legacy -t mangle -N KUBE-IPTABLES-HINT");
    let said_now = said(&flags);
    assert_eq!(said_now.matches(warning).count(), 1, "of IPv4 alone: {said_now}");
    // Both warnings about the same tables give the same advice.
    shell("iptables-legacy -t nat -N KUBE-SERVICES");
    let said_now = said(&flags);
    assert!(said_now.contains("set --iptables-variant=legacy"), "{said_now}");
    assert!(said_now.contains("with --iptables-variant=legacy this proxy takes them over"), "{said_now}");
    shell("iptables-nft -t mangle -N KUBE-IPTABLES-HINT");
    let said_now = said(&flags);
    assert!(!said_now.contains("kubelet uses"), "it has used both");
    assert!(said_now.contains("; to remove them, stop this proxy"), "{said_now}");
}

#[test]
fn input_chains_that_drop_are_found() {
    if !inside!() {
        return;
    }
    shell("iptables-nft -P INPUT ACCEPT && iptables-legacy -P INPUT ACCEPT && iptables-legacy -P FORWARD DROP");
    assert_eq!(dropping(Family::V4), [""; 0]);
    shell("iptables-nft -P INPUT DROP && ip6tables-legacy -P INPUT DROP");
    shell("nft 'add table inet wall; add chain inet wall in { type filter hook input priority 0; policy drop; }'");
    let (nft, wall) = ("chain INPUT of table filter", "chain in of table wall");
    assert_eq!(dropping(Family::V4), [nft, wall]);
    assert_eq!(dropping(Family::V6), [wall, "chain INPUT of iptables-legacy"]);
}

#[test]
fn a_flow_fate_that_conntrack_prevents_is_named() {
    if !inside!() {
        return;
    }
    let warning = "flowFate (--flow-fate) has no effect";
    assert!(!said(&["--proxy-mode=iptables", "--flow-fate=reset"]).contains(warning));
    shell("echo 0 > /proc/sys/net/netfilter/nf_conntrack_tcp_loose");
    assert!(said(&["--proxy-mode=iptables", "--flow-fate=reset"]).contains(warning));
    assert!(!said(&["--proxy-mode=iptables"]).contains(warning));
    assert!(!said(&["--proxy-mode=nftables", "--flow-fate=reset"]).contains(warning));
}
