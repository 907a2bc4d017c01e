//! Probes a pod in a cluster of two nodes, without root: `cargo run -p svclab-cluster --example two_nodes`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use svclab_cluster::Cluster;
use svclab_cluster::traffic::probe::{ClusterHost, Probe};
use svclab_netns::sandbox;
use svclab_spec::{ClusterSpec, NodeSpec, PodSpec, Protocol, ServerPort};

fn main() -> Result<(), Box<dyn Error>> {
    // Must run before any other thread exists; the cluster's namespaces disappear with this program.
    sandbox::enter()?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(probe())
}

fn node(number: u8) -> Result<NodeSpec, Box<dyn Error>> {
    Ok(NodeSpec {
        name: format!("node-{number}"),
        zone: None,
        addresses: vec![format!("172.18.0.{number}").parse()?],
        extra_addresses: vec![],
        pod_cidrs: vec![format!("10.244.{number}.0/24").parse()?],
    })
}

async fn probe() -> Result<(), Box<dyn Error>> {
    let pod = PodSpec {
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        node: "node-2".to_owned(),
        addresses: vec!["10.244.2.5".parse()?],
        host_network: false,
        ports: vec![ServerPort { protocol: Protocol::Tcp, port: 8080 }],
    };
    let spec = ClusterSpec {
        node_network: vec!["172.18.0.0/24".parse()?],
        cluster_cidrs: vec!["10.244.0.0/16".parse()?],
        service_cidrs: vec!["10.96.0.0/16".parse()?],
        nodes: vec![node(1)?, node(2)?],
        pods: vec![pod],
        ..ClusterSpec::default()
    };
    let cluster = Cluster::build(&spec).await?;
    for port in [8080, 8081] {
        let probe = Probe {
            from: ClusterHost::Node("node-1".to_owned()),
            to: SocketAddr::new("10.244.2.5".parse()?, port),
            protocol: Protocol::Tcp,
            source_address: None,
            source_port: None,
            bytes: 0,
            dscp: 0,
            timeout: Duration::from_secs(5),
        };
        println!("{} to {}: {:?}", probe.from, probe.to, cluster.probe(&probe).await?.answer);
    }
    Ok(())
}
