//! Another machine's address has a virtual server for the node's own packets, and is not bound.

use super::*;
use svcproxy::config::Mode;

fn service(addresses: &[&str]) -> Change {
    let spec =
        json!({ "type": "LoadBalancer", "clusterIP": "10.96.0.1", "ports": [{ "port": 80, "nodePort": 30080 }] });
    testing::load_balancer("web", spec, addresses)
}

fn node(name: &str, address: Option<&str>) -> Change {
    let status = |ip: &str| json!({ "status": { "addresses": [{ "type": "ExternalIP", "address": ip }] } });
    address.map_or(Change::Node(name.to_owned(), None), |ip| testing::node(name, status(ip)))
}

fn api_server(address: &str) -> Change {
    testing::slice("kubernetes", json!([{ "addresses": [address] }]), json!([{ "port": 6443 }]))
}

fn addresses(next_hops: &[&str]) -> NodeAddresses {
    let parsed = |texts: &[&str]| texts.iter().map(|ip| ip.parse().unwrap()).collect();
    let local = parsed(&["127.0.0.1", "172.18.0.2"]);
    NodeAddresses { local, next_hops: parsed(next_hops), ..NodeAddresses::default() }
}

/// Returns the addresses on the device, which must equal the members that record them.
fn bound(proxy: &mut IpvsProxy) -> Vec<String> {
    assert!(!proxy.sync().unwrap().full);
    let kernel = proxy.mode().kernel();
    let bound: Vec<String> =
        kernel.device.addresses.iter().flatten().map(|(ip, _)| ip).map(IpAddr::to_string).collect();
    let members = kernel.sets.set("KUBE-IPVS-IPS").unwrap().unwrap().members;
    assert_eq!(members.iter().map(ToString::to_string).collect::<Vec<_>>(), bound);
    bound
}

#[test]
fn an_address_of_another_machine_is_not_bound() {
    let config = Config { mode: Mode::Ipvs, ..config() };
    let mut proxy = assemble::ipvs(&config, Family::V4, Fake::default());
    proxy.set_addresses(&addresses(&["172.18.0.1"]));
    proxy.apply(&[node("node-a", Some("172.18.0.9")), node("node-b", Some("172.18.0.3")), api_server("172.18.0.5")]);
    proxy.sync().unwrap();
    let published = ["172.18.0.1", "172.18.0.2", "172.18.0.3", "172.18.0.4", "172.18.0.5", "172.18.0.9"];
    proxy.apply(&[service(&published)]);
    let only = |addresses: &[&'static str]| [&["10.96.0.1"][..], addresses].concat();
    assert_eq!(bound(&mut proxy), only(&["172.18.0.4", "172.18.0.9"]), "a free one, and this node's own");
    for address in published {
        let server = tcp(&format!("{address}:80"));
        assert!(proxy.mode().kernel().servers.servers.contains_key(&server), "{address} serves what the node sends");
    }
    proxy.apply(&[node("node-c", Some("172.18.0.4"))]);
    assert_eq!(bound(&mut proxy), only(&["172.18.0.9"]), "a Node that comes has its address");
    proxy.apply(&[node("node-b", None), api_server("172.18.0.6")]);
    assert_eq!(bound(&mut proxy), only(&["172.18.0.3", "172.18.0.5", "172.18.0.9"]), "nobody has these any more");
    proxy.set_addresses(&addresses(&["172.18.0.3"]));
    assert_eq!(bound(&mut proxy), only(&["172.18.0.1", "172.18.0.5", "172.18.0.9"]), "a route leads there now");
    proxy.require_full_sync();
    assert!(proxy.sync().unwrap().is_empty(), "a full sync comes to the same");
    // The node's own address stays bound, whatever a route says.
    proxy.set_addresses(&addresses(&["172.18.0.3", "172.18.0.9"]));
    assert_eq!(bound(&mut proxy), only(&["172.18.0.1", "172.18.0.5", "172.18.0.9"]));
}
