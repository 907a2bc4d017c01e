//! Serves a manifest's objects and begins the faults that standard input names: `cargo run -p svclab-apiserver
//! --example bad_day -- MANIFEST.yaml /tmp/kubeconfig`, then `kubectl --kubeconfig /tmp/kubeconfig get endpointslices
//! --watch` in another terminal.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::net::TcpListener;
use std::path::Path;

use svclab_apiserver::objects::{Store, StoreOptions, parse_manifests};
use svclab_apiserver::{ApiServer, Kubeconfig, ServeOptions, ServerFault, ServerRefusal, SharedStore};
use svclab_spec::{ClusterSpec, NodeSpec};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [manifest, kubeconfig] = &arguments[..] else { return Err("expected MANIFEST and KUBECONFIG".into()) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _inside = runtime.enter();

    let store = SharedStore::new(store(&std::fs::read_to_string(manifest)?)?);
    let server = ApiServer::start(store, [TcpListener::bind("127.0.0.1:0")?], ServeOptions::default())?;
    let url = server.url(server.addresses()[0]);
    let client = Kubeconfig { server: url.clone(), client: "me".to_owned(), token: None, ca_pem: None };
    client.write(Path::new(kubeconfig))?;
    println!("{url}, for clients with {kubeconfig}; a line here is one of");
    println!("close, compact, expire, stall, resume, unavailable, reset, accept");
    for line in std::io::stdin().lines() {
        let fault = match line?.trim() {
            "close" => ServerFault::CloseWatches { abrupt: true },
            "compact" => ServerFault::Compact,
            "expire" => ServerFault::Expire { requests: 3 },
            "stall" => ServerFault::Stall,
            "resume" => ServerFault::Resume,
            "unavailable" => ServerFault::Refuse(ServerRefusal::Unavailable),
            "reset" => ServerFault::Refuse(ServerRefusal::Reset),
            "accept" => ServerFault::Accept,
            other => {
                println!("there is no {other:?}");
                continue;
            }
        };
        server.misbehave(fault);
    }
    Ok(())
}

fn store(manifest: &str) -> Result<Store, Box<dyn Error>> {
    let node = NodeSpec {
        name: "node-1".to_owned(),
        zone: None,
        addresses: vec!["172.18.0.1".parse()?],
        extra_addresses: vec![],
        pod_cidrs: vec!["10.244.1.0/24".parse()?],
    };
    let spec = ClusterSpec {
        node_network: vec!["172.18.0.0/24".parse()?],
        cluster_cidrs: vec!["10.244.0.0/16".parse()?],
        service_cidrs: vec!["10.96.0.0/16".parse()?],
        nodes: vec![node],
        ..ClusterSpec::default()
    };
    let mut store = Store::new(spec, StoreOptions { seed: 0, max_endpoints_per_slice: 100, vip_ranges: vec![] });
    let documents = parse_manifests(manifest).map_err(|errors| {
        errors.iter().map(|error| format!("line {}: {}", error.line, error.message)).collect::<Vec<_>>().join("\n")
    })?;
    for document in documents {
        store.apply(document.object)?;
    }
    Ok(store)
}
