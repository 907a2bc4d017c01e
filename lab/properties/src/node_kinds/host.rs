//! Other programs on the node.

use std::net::IpAddr;

use svclab_oracle::ClusterModel;
use svclab_snapshot::{ListeningSocket, Snapshot};

use super::cni::add;
use super::network::{host_route, link, own};

pub(super) fn more(cluster: &mut ClusterModel, text: &str) {
    let node = cluster.world.nodes.iter_mut().find(|node| node.name == super::NODE);
    node.into_iter().for_each(|node| node.addresses.extend(text.parse::<IpAddr>()));
}

pub(super) fn docker_address(cluster: &mut ClusterModel) {
    more(cluster, "172.17.0.1");
}

pub(super) fn tailscale_address(cluster: &mut ClusterModel) {
    more(cluster, "100.101.102.103");
}

/// Docker with a published port, and its policy for forwarded packets, which a CNI's rules answer.
pub(super) fn docker(snapshot: &mut Snapshot) {
    if let Some(network) = &mut snapshot.network {
        link(network, "docker0", Some("bridge"));
        own(network, "docker0", "172.17.0.1/16");
        host_route(network, "172.17.0.0/16", "docker0", None);
    }
    add(
        snapshot,
        r#"
        *nat
        :DOCKER - [0:0]
        -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
        -A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
        -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
        -A POSTROUTING -s 172.17.0.2/32 -d 172.17.0.2/32 -p tcp -m tcp --dport 80 -j MASQUERADE
        -A DOCKER -i docker0 -j RETURN
        -A DOCKER ! -i docker0 -p tcp -m tcp --dport 8888 -j DNAT --to-destination 172.17.0.2:80
        COMMIT
        *filter
        :FORWARD DROP [0:0]
        :DOCKER - [0:0]
        :DOCKER-ISOLATION-STAGE-1 - [0:0]
        :DOCKER-ISOLATION-STAGE-2 - [0:0]
        :DOCKER-USER - [0:0]
        -I FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        -I FORWARD -j DOCKER-ISOLATION-STAGE-1
        -I FORWARD -j DOCKER-USER
        -A FORWARD -o docker0 -j DOCKER
        -A FORWARD -i docker0 ! -o docker0 -j ACCEPT
        -A FORWARD -i docker0 -o docker0 -j ACCEPT
        -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        -A FORWARD -s 10.244.0.0/16 -m comment --comment "cni: pods" -j ACCEPT
        -A FORWARD -d 10.244.0.0/16 -m comment --comment "cni: pods" -j ACCEPT
        -A FORWARD -d 172.18.0.0/24 -m mark --mark 0x4000/0x4000 -j ACCEPT
        -A DOCKER -d 172.17.0.2/32 ! -i docker0 -o docker0 -p tcp -m tcp --dport 80 -j ACCEPT
        -A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
        -A DOCKER-ISOLATION-STAGE-1 -j RETURN
        -A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
        -A DOCKER-ISOLATION-STAGE-2 -j RETURN
        -A DOCKER-USER -j RETURN
        COMMIT
        "#,
    );
}

/// firewalld with the cluster's interfaces and ranges trusted, and node ports open.
pub(super) fn firewalld(snapshot: &mut Snapshot) {
    snapshot.nft.get_or_insert_default().push_str(
        r#"
table inet firewalld {
	chain mangle_PREROUTING {
		type filter hook prerouting priority mangle + 10; policy accept;
	}

	chain nat_PREROUTING {
		type nat hook prerouting priority dstnat + 10; policy accept;
		jump nat_PREROUTING_ZONES
	}

	chain nat_PREROUTING_ZONES {
		iifname "cni0" goto nat_PRE_trusted
		goto nat_PRE_public
	}

	chain nat_POSTROUTING {
		type nat hook postrouting priority srcnat + 10; policy accept;
		jump nat_POSTROUTING_ZONES
	}

	chain nat_POSTROUTING_ZONES {
		oifname "cni0" goto nat_POST_trusted
		goto nat_POST_public
	}

	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept;
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		jump filter_INPUT_ZONES
		reject with icmpx admin-prohibited
	}

	chain filter_FORWARD {
		type filter hook forward priority filter + 10; policy accept;
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		jump filter_FORWARD_ZONES
		reject with icmpx admin-prohibited
	}

	chain filter_INPUT_ZONES {
		iifname "cni0" goto filter_IN_trusted
		iifname "eth0" goto filter_IN_public
		goto filter_IN_public
	}

	chain filter_FORWARD_ZONES {
		iifname "cni0" goto filter_FWD_trusted
		iifname "eth0" goto filter_FWD_public
		goto filter_FWD_public
	}

	chain filter_IN_trusted {
		accept
	}

	chain filter_FWD_trusted {
		accept
	}

	chain filter_IN_public {
		tcp dport 22 accept
		tcp dport 10250 accept
		tcp dport 8080 accept
		ip daddr { 10.96.0.0/16, 198.51.100.0/24, 203.0.113.0/24 } accept
		tcp dport 30000-32767 accept
		udp dport 30000-32767 accept
		meta l4proto { icmp, ipv6-icmp } accept
	}

	chain filter_FWD_public {
		oifname "cni0" accept
		meta l4proto { icmp, ipv6-icmp } accept
	}

	chain nat_PRE_public {
	}

	chain nat_PRE_trusted {
	}

	chain nat_POST_public {
	}

	chain nat_POST_trusted {
	}
}
"#,
    );
}

/// ufw that lets in what Kubernetes needs.
pub(super) fn ufw(snapshot: &mut Snapshot) {
    add(
        snapshot,
        r#"
        *filter
        :INPUT DROP [0:0]
        :FORWARD DROP [0:0]
        :ufw-before-input - [0:0]
        :ufw-before-forward - [0:0]
        :ufw-user-input - [0:0]
        :ufw-user-forward - [0:0]
        -A INPUT -j ufw-before-input
        -A FORWARD -j ufw-before-forward
        -A ufw-before-input -i lo -j ACCEPT
        -A ufw-before-input -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        -A ufw-before-input -m conntrack --ctstate INVALID -j DROP
        -A ufw-before-input -j ufw-user-input
        -A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        -A ufw-before-forward -j ufw-user-forward
        -A ufw-user-input -p tcp -m tcp --dport 22 -j ACCEPT
        -A ufw-user-input -p tcp -m tcp --dport 8080 -j ACCEPT
        -A ufw-user-input -p tcp -m multiport --dports 30000:60000 -j ACCEPT
        -A ufw-user-input -p udp -m multiport --dports 30000:60000 -j ACCEPT
        -A ufw-user-input -s 10.244.0.0/16 -j ACCEPT
        -A ufw-user-input -d 10.96.0.0/16 -j ACCEPT
        -A ufw-user-input -d 203.0.113.0/24 -j ACCEPT
        -A ufw-user-input -d 198.51.100.0/24 -j ACCEPT
        -A ufw-user-forward -s 10.244.0.0/16 -j ACCEPT
        -A ufw-user-forward -d 10.244.0.0/16 -j ACCEPT
        -A ufw-user-forward -d 172.18.0.0/24 -j ACCEPT
        COMMIT
        "#,
    );
}

/// Tailscale as a subnet router.
pub(super) fn tailscale(snapshot: &mut Snapshot) {
    if let Some(network) = &mut snapshot.network {
        link(network, "tailscale0", Some("tun"));
        own(network, "tailscale0", "100.101.102.103/32");
    }
    add(
        snapshot,
        r#"
        *nat
        :ts-postrouting - [0:0]
        -A POSTROUTING -j ts-postrouting
        -A ts-postrouting -m mark --mark 0x40000/0xff0000 -j MASQUERADE
        COMMIT
        *filter
        :ts-forward - [0:0]
        :ts-input - [0:0]
        -I INPUT -j ts-input
        -I FORWARD -j ts-forward
        -A ts-forward -i tailscale0 -j MARK --set-xmark 0x40000/0xff0000
        -A ts-forward -m mark --mark 0x40000/0xff0000 -j ACCEPT
        -A ts-forward -s 100.64.0.0/10 -o tailscale0 -j DROP
        -A ts-forward -o tailscale0 -j ACCEPT
        -A ts-input -s 100.101.102.103/32 -i lo -j ACCEPT
        -A ts-input -s 100.115.92.0/23 ! -i tailscale0 -j RETURN
        -A ts-input -s 100.64.0.0/10 ! -i tailscale0 -j DROP
        -A ts-input -i tailscale0 -j ACCEPT
        -A ts-input -p udp -m udp --dport 41641 -j ACCEPT
        COMMIT
        "#,
    );
}

/// Istio's ambient mode: rules of the host's namespace for the kubelet's probes of pods in the mesh.
pub(super) fn istio_ambient(snapshot: &mut Snapshot) {
    super::cni::add_sets(
        snapshot,
        "create istio-inpod-probes-v4 hash:ip family inet hashsize 1024 maxelem 65536 comment\nadd istio-inpod-probes-v4 10.244.1.10\n",
    );
    add(
        snapshot,
        r#"
        *nat
        :ISTIO_POSTRT - [0:0]
        -A POSTROUTING -j ISTIO_POSTRT
        -A ISTIO_POSTRT -p tcp -m owner --socket-exists -m set --match-set istio-inpod-probes-v4 dst -j SNAT --to-source 169.254.7.127
        COMMIT
        "#,
    );
}

/// NodeLocal DNSCache for the first Service, as for kube-dns: it has that Service's cluster IP on a dummy, and takes
/// its packets out of connection tracking (`cmd/node-cache/app/cache_app.go`). With IPVS it has only its own address.
pub(super) fn node_local_dns(snapshot: &mut Snapshot) {
    let addresses = ["169.254.20.10", "10.96.1.1"];
    let with_ipvs = snapshot.servers.is_some();
    let addresses = if with_ipvs { &addresses[..1] } else { &addresses[..] };
    if let Some(network) = &mut snapshot.network {
        link(network, "nodelocaldns", Some("dummy"));
        addresses.iter().for_each(|text| own(network, "nodelocaldns", &format!("{text}/32")));
    }
    let sockets = snapshot.sockets.get_or_insert_default();
    let (mut raw, mut filter) = (String::new(), String::new());
    for (text, (protocol, port)) in addresses.iter().flat_map(|text| [(text, ("udp", 80)), (text, ("tcp", 81))]) {
        let address = text.parse().ok();
        sockets.extend(address.map(|address| ListeningSocket { protocol: protocol.to_owned(), address, port }));
        let to = format!("-d {text}/32 -p {protocol} -m {protocol} --dport {port}");
        let from = format!("-s {text}/32 -p {protocol} -m {protocol} --sport {port}");
        raw += &format!("-A PREROUTING {to} -j NOTRACK\n-A OUTPUT {from} -j NOTRACK\n-A OUTPUT {to} -j NOTRACK\n");
        filter += &format!("-A INPUT {to} -j ACCEPT\n-A OUTPUT {from} -j ACCEPT\n");
    }
    add(snapshot, &format!("*raw\n{raw}COMMIT\n*filter\n{filter}COMMIT\n"));
}
