//! What a list costs by its encoding.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};
use svclab_control_plane::ApiClient;
use tokio::net::TcpListener;

use super::ServerWork;
use super::figures::{ListFigures, ms};
use super::gate::Gate;
use super::server::{Server, node_name};

const ROUNDS: u32 = 10;
/// As a proxy's first lists: whole, from the server's cache.
const PATHS: [&str; 2] =
    ["/api/v1/services?resourceVersion=0", "/apis/discovery.k8s.io/v1/endpointslices?resourceVersion=0"];
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const ENCODINGS: [(&str, &str, &str); 4] = [
    ("JSON", JSON, "identity"),
    ("JSON, gzip", JSON, "gzip"),
    ("protobuf", PROTOBUF, "identity"),
    ("protobuf, gzip", PROTOBUF, "gzip"),
];

pub(super) async fn run(server: &Server) -> Result<BTreeMap<String, ListFigures>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listen for lists")?;
    let address = listener.local_addr().context("look at a socket")?;
    let gate = Gate::behind(listener, server.address());
    let client = ApiClient::new(&server.kubeconfig(&node_name(0), address).text()).await?;
    let mut figures = BTreeMap::new();
    for (name, accept, encoding) in ENCODINGS {
        let (before, work) = (gate.received(), ServerWork::measure(server).await?);
        for _ in 0..ROUNDS {
            for path in PATHS {
                let list = client.packed_bytes(path, accept, encoding).await?;
                ensure!(!list.is_empty(), "{path} has no answer");
            }
        }
        let server_ms = work.since(server)?.map(|time| ms(time / ROUNDS));
        let bytes = (gate.received() - before) / u64::from(ROUNDS);
        figures.insert(name.to_owned(), ListFigures { bytes, server_ms });
    }
    Ok(figures)
}
