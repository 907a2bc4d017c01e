//! What the rules cost packets: connection set-up against the number of services, and established flows.
//!
//! A client's pod, a node and a backend's pod, each a network namespace; the proxy's daemon runs on the node.

pub mod haproxy;
pub mod traffic;
pub mod wires;

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use criterion::Throughput;
use tokio::runtime::Runtime;

use crate::cluster::{Endpoints, Size, cluster_ip};
use crate::events::Input;
use crate::measure::Bench;
use crate::results::Id;
use crate::subject::daemon::{Host, Running};
use crate::subject::{KernelKind, NETLINK, NFTABLES, WRITERS, Writer};
use haproxy::HaProxy;
use traffic::{CHUNK, CONNECTIONS, WINDOW};
use wires::{BACKEND, FAR_PORT, NODE_ADDRESS, Wires};

/// Clusters for connection set-up.
const SIZES: [Size; 3] = [
    Size { services: 10, endpoints: 10 },
    Size { services: 1000, endpoints: 10 },
    Size { services: 5000, endpoints: 10 },
];
/// With `--large`, in nftables mode.
const LARGE: Size = Size { services: 20_000, endpoints: 10 };
/// The cluster for flows: once a connection is established, no rule is looked at any more.
const SMALL: Size = Size { services: 10, endpoints: 10 };

/// Connections that are made in one go.
pub const MANY: u64 = 128;

/// Groups of this part, and what they are.
pub const GROUPS: [(&str, &str); 5] = [
    (
        "connection-set-up",
        "a TCP connect() from a pod to the first, a middle and the last service; without-proxy: to the pod itself",
    ),
    ("tcp-throughput", "one established TCP connection from pod to pod"),
    ("new-connections", "a connection, a request, an answer, by sixteen clients at once"),
    ("requests-on-50-connections", "a request and its answer on each of 50 established connections"),
    ("udp-packets", "datagrams there and back over an established flow, 32 at a time"),
];

/// What carries packets.
enum Path {
    /// A row without any proxy: the client calls the pod.
    Nothing,
    Writer(&'static Writer),
    HaProxy(HaProxy),
}

/// Measures all of it, and returns what had to be left out.
///
/// # Errors
/// When anything that is measured fails.
pub fn run(bench: &mut Bench, runtime: &Runtime, large: bool) -> Result<Vec<String>> {
    let mut left_out = Vec::new();
    let writers = || WRITERS.iter().filter(|writer| writer.kernel != KernelKind::Silent);
    for size in SIZES {
        set_up(bench, runtime, None, size)?;
        for writer in writers() {
            match writer.too_large(size) {
                Some(why) => left_out.push(format!("connection-set-up of {} with {size}: {why}", writer.name)),
                None => set_up(bench, runtime, Some(writer), size)?,
            }
        }
    }
    if large {
        set_up(bench, runtime, Some(&NFTABLES), LARGE)?;
    }
    let mut paths = vec![Path::Nothing];
    paths.extend(writers().map(Path::Writer));
    match HaProxy::find() {
        Ok(found) => paths.extend(found.into_iter().map(Path::HaProxy)),
        Err(why) => left_out.push(format!("haproxy: {why}")),
    }
    for path in &paths {
        flows(bench, runtime, path)?;
    }
    Ok(left_out)
}

/// The wires, and on the node a proxy that leads a few services of the cluster to one endpoint.
struct Scene {
    wires: Wires,
    _proxy: Option<Running>,
}

/// The services that lead to the endpoint: the first, one in the middle, the last; and the first of UDP.
fn reached(size: Size) -> [(&'static str, u32); 3] {
    [("first", 0), ("middle", size.typical()), ("last", size.services - 2)]
}

impl Scene {
    fn build(runtime: &Runtime, writer: Option<&'static Writer>, endpoint: Ipv4Addr, size: Size) -> Result<Scene> {
        let wires = runtime.block_on(Wires::build())?;
        let Some(writer) = writer else { return Ok(Scene { wires, _proxy: None }) };
        let mut changes = size.changes();
        let to_endpoint = reached(size).map(|(_, index)| index).into_iter().chain([size.udp()]);
        changes.extend(to_endpoint.map(|index| size.slice(index, Endpoints::At(endpoint))));
        let start = move || {
            let mut running = Running::start(writer, Host::Node)?;
            running.follow(Input { changes, has_address: None })?;
            anyhow::Ok(running)
        };
        let running = runtime.block_on(wires.on_node(start))?;
        Ok(Scene { wires, _proxy: Some(running.with_context(|| format!("{} with {size}", writer.name))?) })
    }
}

fn set_up(bench: &mut Bench, runtime: &Runtime, writer: Option<&'static Writer>, size: Size) -> Result<()> {
    let mut scene = None;
    let mut point = |name: String, to: std::net::SocketAddr| {
        let id = Id::new("connection-set-up", name, size.to_string());
        bench.time_of_one(&id, |times| {
            let scene = match &scene {
                Some(scene) => scene,
                None => scene.insert(Scene::build(runtime, writer, BACKEND, size)?),
            };
            // Many for one: making the scene counts as warming up, by which criterion reckons how often it can.
            let work = move || traffic::connects(to, times * MANY);
            anyhow::Ok(runtime.block_on(scene.wires.on_client(work))?? / MANY as u32)
        })
    };
    let Some(writer) = writer else {
        return point("without-proxy".to_owned(), (BACKEND, FAR_PORT).into()).map(drop);
    };
    for (place, index) in reached(size) {
        point(format!("{}-{place}", writer.name), (cluster_ip(index), crate::cluster::PORT).into())?;
    }
    Ok(())
}

fn flows(bench: &mut Bench, runtime: &Runtime, path: &Path) -> Result<()> {
    let mut scene = None;
    let (name, writer, endpoint) = match path {
        Path::Nothing => ("without-proxy", None, BACKEND),
        Path::Writer(writer) => (writer.name, Some(*writer), BACKEND),
        Path::HaProxy(haproxy) => (haproxy.name, haproxy.behind_a_service.then_some(&NETLINK), NODE_ADDRESS),
    };
    let (tcp, udp) = match path {
        Path::Nothing => ((BACKEND, FAR_PORT).into(), Some((BACKEND, FAR_PORT).into())),
        Path::Writer(_) => {
            let port = crate::cluster::PORT;
            ((cluster_ip(0), port).into(), Some((cluster_ip(SMALL.udp()), port).into()))
        }
        // In TCP mode it has no UDP.
        Path::HaProxy(haproxy) if haproxy.behind_a_service => ((cluster_ip(0), crate::cluster::PORT).into(), None),
        Path::HaProxy(_) => (haproxy::ADDRESS, None),
    };
    type Work = fn(std::net::SocketAddr, u64) -> Result<Duration>;
    let kinds: [(&str, Option<std::net::SocketAddr>, Throughput, Work); 4] = [
        ("tcp-throughput", Some(tcp), Throughput::Bytes(CHUNK as u64), traffic::stream),
        ("new-connections", Some(tcp), Throughput::Elements(MANY), traffic::new_connections),
        ("requests-on-50-connections", Some(tcp), Throughput::Elements(CONNECTIONS as u64), traffic::requests),
        ("udp-packets", udp, Throughput::Elements(2 * WINDOW as u64), traffic::datagrams),
    ];
    for (group, to, throughput, work) in kinds {
        let Some(to) = to else { continue };
        bench.rate(&Id::new(group, name, SMALL.to_string()), throughput, |times| {
            if scene.is_none() {
                let new = Scene::build(runtime, writer, endpoint, SMALL)?;
                let haproxy = match path {
                    Path::HaProxy(haproxy) => Some(runtime.block_on(haproxy.start(&new.wires))?),
                    _ => None,
                };
                scene = Some((new, haproxy));
            }
            let (scene, _) = scene.as_ref().context("the scene of a flow")?;
            runtime.block_on(scene.wires.on_client(move || work(to, times)))?
        })?;
    }
    Ok(())
}
