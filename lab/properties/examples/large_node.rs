//! Writes the archive of a large cluster's node: `cargo run --release -p svclab-properties --example large_node -- 5000
//! 10 5000 nftables node.tar` (services, endpoints of each, nodes), then `svclab audit node.tar`.

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::net::IpAddr;

use serde_json::{Value, json};
use svclab_oracle::{ClusterModel, Cni, DetectLocalMode, Mode, NodeMachine, Objects, PodMachine, PodName, World};
use svclab_properties::proxies::Proxies;
use svclab_properties::snapshots::snapshot;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [services, endpoints, nodes, mode, file] = arguments.as_slice() else {
        return Err("expected: SERVICES ENDPOINTS NODES MODE FILE".into());
    };
    let mode = Mode::ALL.into_iter().find(|known| known.name() == mode).ok_or("no such mode")?;
    let cluster = cluster(services.parse()?, endpoints.parse()?, nodes.parse()?, mode)?;
    let snapshot = snapshot(&cluster, "node-1", &Proxies::synced(&cluster, "node-1")?.dump());
    snapshot.write(BufWriter::new(File::create(file)?))?;
    Ok(())
}

fn cluster(services: usize, endpoints: usize, nodes: usize, mode: Mode) -> Result<ClusterModel, Box<dyn Error>> {
    let mut objects = Objects::default();
    let mut world = World { cni: Cni::Bridge, ..World::default() };
    world.proxy.mode = mode;
    world.proxy.detect_local = DetectLocalMode::ClusterCidr(vec!["100.64.0.0/10".parse()?]);
    for node in 1..=nodes {
        let (name, address) = (format!("node-{node}"), format!("172.18.{}.{}", node / 250, node % 250 + 1));
        objects.nodes.push(serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"podCIDRs": [range(node)]},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]},
        }))?);
        world.nodes.push(NodeMachine {
            name,
            addresses: vec![address.parse()?],
            gateways: vec![pod_address(node, 1).parse()?],
            ..NodeMachine::default()
        });
    }
    let mut next = vec![1usize; nodes + 1];
    for service in 0..services {
        let name = format!("svc-{service}");
        let mut all: Vec<Value> = Vec::new();
        for number in 0..endpoints {
            let node = (service + number) % nodes + 1;
            next[node] += 1;
            let (address, pod) = (pod_address(node, next[node]), format!("pod-{service}-{number}"));
            all.push(json!({"addresses": [address], "nodeName": format!("node-{node}"), "conditions": {"ready": true},
                "targetRef": {"kind": "Pod", "namespace": "default", "name": pod}}));
            if node == 1
                && !world
                    .pods
                    .iter()
                    .any(|known| known.addresses == [address.parse::<IpAddr>().unwrap_or(IpAddr::from([0; 4]))])
            {
                world.pods.push(PodMachine {
                    name: PodName { namespace: "default".to_owned(), name: pod },
                    node: "node-1".to_owned(),
                    addresses: vec![address.parse()?],
                    host_network: false,
                });
            }
        }
        objects.services.push(serde_json::from_value(spec(service, &name))?);
        objects.slices.push(serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "endpoints": all, "ports": [{"name": "p", "port": 8080, "protocol": "TCP"}],
        }))?);
    }
    Ok(ClusterModel { objects, world })
}

fn spec(service: usize, name: &str) -> Value {
    let kind = match service % 20 {
        0 => "LoadBalancer",
        1..=3 => "NodePort",
        _ => "ClusterIP",
    };
    let mut port = json!({"name": "p", "port": 80, "protocol": "TCP"});
    if kind != "ClusterIP" {
        port["nodePort"] = json!(20_000 + service);
    }
    let ingress = if kind == "LoadBalancer" {
        json!([{"ip": format!("203.0.{}.{}", service / 250, service % 250 + 1)}])
    } else {
        json!([])
    };
    json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {"type": kind, "clusterIP": format!("10.{}.{}.{}", 96 + service / 60_000, service / 250 % 250, service % 250 + 1), "ports": [port]},
        "status": {"loadBalancer": {"ingress": ingress}},
    })
}

fn range(node: usize) -> String {
    format!("100.{}.{}.0/24", 64 + node / 256, node % 256)
}

/// Gives each node 100 pod addresses, which further endpoints share.
fn pod_address(node: usize, number: usize) -> String {
    format!("100.{}.{}.{}", 64 + node / 256, node % 256, number % 100 + 1)
}
