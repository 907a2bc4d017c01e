//! Measures connection set-up against the number of Services, and established flows.

pub mod haproxy;
pub mod traffic;
pub mod wires;

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use criterion::Throughput;
use tokio::runtime::Runtime;

use crate::cluster::{ClusterSize, SliceEndpoints, cluster_ip};
use crate::events::EventInput;
use crate::measure::Bench;
use crate::results::PointId;
use crate::subject::daemon::{DaemonHost, RunningDaemon};
use crate::subject::{BenchWriter, KernelKind, NETLINK, NFTABLES, WITH_OPTIONS, WRITERS};
use haproxy::HaProxy;
use traffic::{CHUNK, CONNECTIONS, WINDOW};
use wires::{BACKEND, FAR_PORT, NODE_ADDRESS, Wires};

const SIZES: [ClusterSize; 3] = [
    ClusterSize { services: 10, endpoints: 10 },
    ClusterSize { services: 1000, endpoints: 10 },
    ClusterSize { services: 5000, endpoints: 10 },
];
const LARGE: ClusterSize = ClusterSize { services: 20_000, endpoints: 10 };
/// Enough for established flows, whose packets after the first match no rule.
const SMALL: ClusterSize = ClusterSize { services: 10, endpoints: 10 };

pub const MANY: u64 = 128;

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

enum PacketPath {
    Nothing,
    BenchWriter(&'static BenchWriter),
    HaProxy(HaProxy),
}

pub fn run(bench: &mut Bench, runtime: &Runtime, large: bool) -> Result<Vec<String>> {
    let mut left_out = Vec::new();
    let writers = || WRITERS.iter().chain(&WITH_OPTIONS).filter(|writer| writer.kernel != KernelKind::Silent);
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
    let mut paths = vec![PacketPath::Nothing];
    paths.extend(writers().map(PacketPath::BenchWriter));
    match HaProxy::find() {
        Ok(found) => paths.extend(found.into_iter().map(PacketPath::HaProxy)),
        Err(why) => left_out.push(format!("haproxy: {why}")),
    }
    for path in &paths {
        flows(bench, runtime, path)?;
    }
    Ok(left_out)
}

/// The wires, and on the node a proxy with one endpoint for a few Services.
struct Scene {
    wires: Wires,
    _proxy: Option<RunningDaemon>,
}

fn reached(size: ClusterSize) -> [(&'static str, u32); 3] {
    [("first", 0), ("middle", size.typical()), ("last", size.services - 2)]
}

impl Scene {
    fn build(
        runtime: &Runtime,
        writer: Option<&'static BenchWriter>,
        endpoint: Ipv4Addr,
        size: ClusterSize,
    ) -> Result<Scene> {
        let wires = runtime.block_on(Wires::build())?;
        let Some(writer) = writer else { return Ok(Scene { wires, _proxy: None }) };
        let mut changes = size.changes();
        let to_endpoint = reached(size).map(|(_, index)| index).into_iter().chain([size.udp()]);
        changes.extend(to_endpoint.map(|index| size.slice(index, SliceEndpoints::At(endpoint))));
        let start = move || {
            let mut running = RunningDaemon::start(writer, DaemonHost::Node)?;
            running.follow(EventInput { changes, has_address: None })?;
            anyhow::Ok(running)
        };
        let running = runtime.block_on(wires.on_node(start))?;
        Ok(Scene { wires, _proxy: Some(running.with_context(|| format!("{} with {size}", writer.name))?) })
    }
}

fn set_up(bench: &mut Bench, runtime: &Runtime, writer: Option<&'static BenchWriter>, size: ClusterSize) -> Result<()> {
    let mut scene = None;
    let mut point = |name: String, to: std::net::SocketAddr| {
        let id = PointId::new("connection-set-up", name, size.to_string());
        bench.time_of_one(&id, |times| {
            let scene = match &scene {
                Some(scene) => scene,
                None => scene.insert(Scene::build(runtime, writer, BACKEND, size)?),
            };
            // Criterion counts the scene's set-up as warm-up, and estimates repetitions by it.
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

fn flows(bench: &mut Bench, runtime: &Runtime, path: &PacketPath) -> Result<()> {
    let mut scene = None;
    let (name, writer, endpoint) = match path {
        PacketPath::Nothing => ("without-proxy", None, BACKEND),
        PacketPath::BenchWriter(writer) => (writer.name, Some(*writer), BACKEND),
        PacketPath::HaProxy(haproxy) => (haproxy.name, haproxy.behind_a_service.then_some(&NETLINK), NODE_ADDRESS),
    };
    let (tcp, udp) = match path {
        PacketPath::Nothing => ((BACKEND, FAR_PORT).into(), Some((BACKEND, FAR_PORT).into())),
        PacketPath::BenchWriter(_) => {
            let port = crate::cluster::PORT;
            ((cluster_ip(0), port).into(), Some((cluster_ip(SMALL.udp()), port).into()))
        }
        // HAProxy in TCP mode has no UDP.
        PacketPath::HaProxy(haproxy) if haproxy.behind_a_service => {
            ((cluster_ip(0), crate::cluster::PORT).into(), None)
        }
        PacketPath::HaProxy(_) => (haproxy::ADDRESS, None),
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
        bench.rate(&PointId::new(group, name, SMALL.to_string()), throughput, |times| {
            if scene.is_none() {
                let new = Scene::build(runtime, writer, endpoint, SMALL)?;
                let haproxy = match path {
                    PacketPath::HaProxy(haproxy) => Some(runtime.block_on(haproxy.start(&new.wires))?),
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
