//! Links and routes.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use svclab_oracle::ClusterModel;
use svclab_snapshot::Snapshot;
use svclab_snapshot::network::{Address, Hop, Link, Neighbour, Network, Route, Rule};

use super::cni::add;

pub(super) const MAIN: u32 = 254;
const LOCAL: u32 = 255;

pub(super) fn address(text: &str) -> IpNet {
    text.parse().unwrap_or_else(|_| Ipv4Net::default().into())
}

pub(super) fn link(network: &mut Network, name: &str, kind: Option<&str>) {
    network.links.push(Link {
        index: u32::try_from(network.links.len() + 1).unwrap_or(0),
        name: name.to_owned(),
        kind: kind.map(str::to_owned),
        up: true,
        ..Link::default()
    });
}

/// Gives the node an address; one that it has moves.
pub(super) fn own(network: &mut Network, interface: &str, text: &str) {
    network.addresses.retain(|known| known.address.addr() != address(text).addr());
    network.addresses.push(Address {
        interface: interface.to_owned(),
        address: address(text),
        scope: "global".to_owned(),
        ..Address::default()
    });
}

fn route(network: &mut Network, table: u32, to: &str, interface: &str, via: Option<&str>) {
    let via = via.and_then(|text| text.parse::<IpAddr>().ok());
    let hop = Hop { via, interface: Some(interface.to_owned()), weight: 1, ..Hop::default() };
    let to = if to.contains('/') { address(to) } else { address(&format!("{to}/32")) };
    let kind = "unicast".to_owned();
    network.routes.push(Route { table, to, kind, hops: vec![hop], ..Route::default() });
}

pub(super) fn host_route(network: &mut Network, to: &str, interface: &str, via: Option<&str>) {
    route(network, MAIN, to, interface, via);
}

/// Renames interfaces that start with `from`.
pub(super) fn rename(snapshot: &mut Snapshot, from: &str, to: &str) {
    let Some(network) = &mut snapshot.network else { return };
    let named = |name: &mut String| {
        if let Some(rest) = name.strip_prefix(from) {
            *name = format!("{to}{rest}");
        }
    };
    network.links.iter_mut().for_each(|link| named(&mut link.name));
    network.links.iter_mut().filter_map(|link| link.controller.as_mut()).for_each(named);
    network.addresses.iter_mut().for_each(|own| named(&mut own.interface));
    network.neighbours.iter_mut().for_each(|one| named(&mut one.interface));
    network.forwarding.iter_mut().for_each(|one| named(&mut one.port));
    network
        .routes
        .iter_mut()
        .flat_map(|route| &mut route.hops)
        .filter_map(|hop| hop.interface.as_mut())
        .for_each(named);
}

/// A node in a container (kind, minikube): its uplink is one end of a veth, on a bridge of the host.
pub(super) fn veth_uplink(snapshot: &mut Snapshot) {
    let Some(network) = &mut snapshot.network else { return };
    for own in network.links.iter_mut().filter(|own| own.name == "eth0") {
        own.kind = Some("veth".to_owned());
    }
    for (number, text) in ["172.18.0.3", "172.18.0.4", "172.18.0.254"].into_iter().enumerate() {
        network.neighbours.extend(text.parse().ok().map(|address| Neighbour {
            interface: "eth0".to_owned(),
            address,
            mac: format!("02:42:ac:12:00:{number:02x}"),
            permanent: false,
        }));
    }
}

fn forget_other_nodes_pods(network: &mut Network) {
    network.routes.retain(|route| !(route.to.to_string().starts_with("10.244.") && route.to.prefix_len() == 24));
}

/// Neither Node objects nor routes show pods' ranges: the nodes' network routes them.
pub(super) fn cluster_pool(snapshot: &mut Snapshot) {
    super::archive::no_pod_range(snapshot);
    rename(snapshot, "veth", "lxc");
    snapshot.network.iter_mut().for_each(forget_other_nodes_pods);
}

pub(super) fn second_interface(cluster: &mut ClusterModel) {
    super::host::more(cluster, "172.18.0.77");
}

/// The VPC CNI: pods have addresses of the VPC, some of a second interface, whose packets leave by a table of its own.
pub(super) fn eks(snapshot: &mut Snapshot) {
    super::archive::no_pod_range(snapshot);
    rename(snapshot, "veth", "eni");
    let Some(network) = &mut snapshot.network else { return };
    link(network, "eth1", None);
    own(network, "eth1", "172.18.0.77/24");
    route(network, 2, "0.0.0.0/0", "eth1", Some("172.18.0.254"));
    route(network, 2, "172.18.0.254", "eth1", None);
    // The VPC's router forwards between pods of nodes.
    forget_other_nodes_pods(network);
    let rule = |priority, from: Option<&str>, to: Option<&str>, mark, table| Rule {
        family: "ipv4".to_owned(),
        priority,
        from: from.map(address),
        to: to.map(address),
        input: None,
        output: None,
        mark,
        invert: false,
        action: "lookup".to_owned(),
        table,
        suppress_prefix: None,
        unknown: Vec::new(),
    };
    let local: Vec<String> = (network.routes.iter())
        .filter(|route| route.to.to_string().starts_with("10.244.1."))
        .map(|route| route.to.to_string())
        .collect();
    network.rules.push(rule(0, None, None, None, LOCAL));
    network.rules.extend(local.iter().map(|to| rule(512, None, Some(to), None, MAIN)));
    network.rules.push(rule(1024, None, None, Some((0x80, 0x80)), MAIN));
    network.rules.extend(local.iter().skip(1).map(|from| rule(1536, Some(from), None, None, 2)));
    network.rules.push(rule(32766, None, None, None, MAIN));
    network.rules.push(rule(32767, None, None, None, 253));
    add(
        snapshot,
        r#"
        *mangle
        -A PREROUTING -i eth0 -m comment --comment "AWS, primary ENI" -m addrtype --dst-type LOCAL --limit-iface-in -j CONNMARK --set-xmark 0x80/0x80
        -A PREROUTING -i eni+ -m comment --comment "AWS, primary ENI" -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80
        COMMIT
        *nat
        :AWS-CONNMARK-CHAIN-0 - [0:0]
        :AWS-SNAT-CHAIN-0 - [0:0]
        -A PREROUTING -i eni+ -m comment --comment "AWS, outbound connections" -j AWS-CONNMARK-CHAIN-0
        -A PREROUTING -m comment --comment "AWS, CONNMARK" -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80
        -A POSTROUTING -m comment --comment "AWS SNAT CHAIN" -j AWS-SNAT-CHAIN-0
        -A AWS-CONNMARK-CHAIN-0 -d 10.244.0.0/16 -m comment --comment "AWS CONNMARK CHAIN, VPC CIDR" -j RETURN
        -A AWS-CONNMARK-CHAIN-0 -m comment --comment "AWS, CONNMARK" -j CONNMARK --set-xmark 0x80/0x80
        -A AWS-SNAT-CHAIN-0 -d 10.244.0.0/16 -m comment --comment "AWS SNAT CHAIN" -j RETURN
        -A AWS-SNAT-CHAIN-0 ! -o vlan+ -m comment --comment "AWS, SNAT" -m addrtype ! --dst-type LOCAL -j SNAT --to-source 172.18.0.2 --random-fully
        COMMIT
        "#,
    );
}
