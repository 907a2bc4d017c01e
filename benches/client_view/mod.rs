//! Measures the time from a change in the API to the first connection that follows it.

mod api;
mod attempt;
mod memory;
mod programs;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use svclab_cluster::process::ProcessHandle;
use tokio::runtime::Runtime;

use crate::cluster::{ClusterSize, PORT, SliceEndpoints, cluster_ip};
use crate::measure::{Bench, Points};
use crate::packets::wires::{BACKEND, NODE, Wires};
use crate::results::{Detail, PointId};
use api::BenchApi;
pub use api::apply;
use attempt::{ConnectAnswer, until};
pub use programs::{MeasuredProxy, NFTABLES, ProxyPlace, VARIANTS};

pub const GROUPS: [(&str, &str); 4] = [
    (
        START,
        "from the start of the process to a connection to the first, a middle and the last service; with its peak memory, what it has resident then, \
         and by how much the kernel's memory has grown",
    ),
    ("seen-service-added", "from a new service in the API to a connection to it"),
    ("seen-first-endpoint-comes", "from a service's first endpoint in the API to a connection"),
    (
        "seen-last-endpoint-goes",
        "from the loss of a service's last endpoint in the API to a connection that is refused",
    ),
];
const START: &str = "seen-first-sync";

const PATIENCE: Duration = Duration::from_secs(300);

const SIZES: [ClusterSize; 2] =
    [ClusterSize { services: 1000, endpoints: 10 }, ClusterSize { services: 5000, endpoints: 10 }];
/// Clusters for svcproxy's nftables mode, with `--large`.
const LARGE: [ClusterSize; 3] = [
    ClusterSize { services: 20_000, endpoints: 10 },
    ClusterSize { services: 44_000, endpoints: 2 },
    ClusterSize { services: 5000, endpoints: 50 },
];

/// Returns the parts that were left out, with reasons.
pub fn run(bench: &mut Bench, runtime: &Runtime, files: &[PathBuf], large: bool) -> Result<Vec<String>> {
    let mut left_out = Vec::new();
    let programs = MeasuredProxy::all(files)?;
    for size in SIZES {
        for variant in &VARIANTS {
            for program in &programs {
                let series = format!("{}-{}", program.name(), variant.name);
                match variant.too_large(program, size) {
                    Some(why) => left_out.push(format!("what a client sees of {series} with {size}: {why}")),
                    None => of(bench, runtime, &series, size, || Scene::build(runtime, program, variant, size))?,
                }
            }
        }
    }
    let own = MeasuredProxy::Own;
    for size in LARGE.into_iter().filter(|_| large) {
        let series = format!("{}-{}", own.name(), NFTABLES.name);
        of(bench, runtime, &series, size, || Scene::build(runtime, &own, &NFTABLES, size))?;
    }
    Ok(left_out)
}

fn of(
    bench: &mut Bench,
    runtime: &Runtime,
    series: &str,
    size: ClusterSize,
    build: impl Fn() -> Result<Scene>,
) -> Result<()> {
    let id = |group: &str| PointId::new(group, series, size.to_string());
    bench.point(&id(START), &mut || {
        let mut scene = build()?;
        let before = memory::of_kernel()?;
        let took = runtime.block_on(scene.start())?;
        let resident = runtime.block_on(scene.settled())?;
        let kernel_memory = Some(memory::of_kernel()?.saturating_sub(before));
        Ok((took, Detail { resident: Some(resident), kernel_memory, ..scene.detail() }))
    })?;
    let mut standing = None;
    for ((group, _), event) in GROUPS.iter().skip(1).zip([
        ClientEvent::ServiceAdded,
        ClientEvent::FirstEndpointAdded,
        ClientEvent::LastEndpointRemoved,
    ]) {
        bench.point(&id(group), &mut || {
            if standing.is_none() {
                let mut scene = build()?;
                runtime.block_on(scene.start())?;
                standing = Some(scene);
            }
            let scene = standing.as_mut().context("a proxy that stands")?;
            let took = runtime.block_on(scene.follow(event))?;
            Ok((took, scene.detail()))
        })?;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientEvent {
    ServiceAdded,
    FirstEndpointAdded,
    LastEndpointRemoved,
}

struct Scene {
    size: ClusterSize,
    // Dropped before the wires that the process uses.
    process: Option<ProcessHandle>,
    spec: svclab_cluster::process::ProcessSpec,
    api: BenchApi,
    wires: Wires,
}

impl Scene {
    fn build(
        runtime: &Runtime,
        program: &MeasuredProxy,
        variant: &programs::ProxyVariant,
        size: ClusterSize,
    ) -> Result<Scene> {
        let wires = runtime.block_on(Wires::build())?;
        let mut changes = size.changes();
        let to_backend = [0, size.typical(), size.services - 2];
        changes.extend(to_backend.map(|index| size.slice(index, SliceEndpoints::At(BACKEND))));
        let api = runtime.block_on(BenchApi::serve(&wires, &changes))?;
        let spec = program.process(variant, &ProxyPlace::new(NODE, &api.kubeconfig)?)?;
        Ok(Scene { size, process: None, spec, api, wires })
    }

    async fn start(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.process = Some(self.wires.spawn_on_node(self.spec.clone()).await?);
        let mut last = start;
        for index in [0, self.size.typical(), self.size.services - 2] {
            last = last.max(self.wait(address(index), ConnectAnswer::Connected).await?);
        }
        Ok(last - start)
    }

    async fn settled(&self) -> Result<u64> {
        let process = self.process.as_ref().context("a proxy that was started")?;
        memory::settled(process.pid()).await
    }

    async fn follow(&mut self, event: ClientEvent) -> Result<Duration> {
        let (size, index) = (self.size, self.size.typical());
        let (slice, new) = (|state| vec![size.slice(index, state)], self.size.services.next_multiple_of(10));
        match event {
            ClientEvent::ServiceAdded => {
                self.api.apply(&size.without_another())?;
                self.wait(address(new), ConnectAnswer::Silent).await?;
                let mut changes = size.another();
                changes.push(size.slice(new, SliceEndpoints::At(BACKEND)));
                self.time(&changes, address(new), ConnectAnswer::Connected).await
            }
            ClientEvent::FirstEndpointAdded => {
                self.api.apply(&slice(SliceEndpoints::None))?;
                self.wait(address(index), ConnectAnswer::Refused).await?;
                self.time(&slice(SliceEndpoints::At(BACKEND)), address(index), ConnectAnswer::Connected).await
            }
            ClientEvent::LastEndpointRemoved => {
                self.api.apply(&slice(SliceEndpoints::At(BACKEND)))?;
                self.wait(address(index), ConnectAnswer::Connected).await?;
                self.time(&slice(SliceEndpoints::None), address(index), ConnectAnswer::Refused).await
            }
        }
    }

    async fn time(
        &self,
        changes: &[svcproxy::model::Change],
        at: SocketAddr,
        answer: ConnectAnswer,
    ) -> Result<Duration> {
        let start = Instant::now();
        self.api.apply(changes)?;
        Ok(self.wait(at, answer).await?.saturating_duration_since(start))
    }

    async fn wait(&self, to: SocketAddr, answer: ConnectAnswer) -> Result<Instant> {
        let process = self.process.as_ref().context("a proxy that was started")?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Waits in pieces, to notice the end of the proxy.
            let piece = Duration::from_secs(1);
            if let Some(since) = self.wires.on_client(move || until(to, answer, piece)).await?? {
                return Ok(since);
            }
            if !process.is_alive() {
                bail!("the proxy has ended: {}", process.log_tail(5));
            }
            if Instant::now() > deadline {
                bail!("{to} is not {answer:?} after {PATIENCE:?}: {}", process.log_tail(5));
            }
        }
    }

    fn detail(&self) -> Detail {
        let usage = self.process.as_ref().and_then(ProcessHandle::usage);
        Detail { peak_memory: usage.map(|usage| usage.peak_memory), ..Detail::default() }
    }
}

fn address(index: u32) -> SocketAddr {
    SocketAddr::new(cluster_ip(index).into(), PORT)
}
