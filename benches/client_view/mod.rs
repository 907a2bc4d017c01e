//! What a client sees of a proxy, this one's or any other: from a change in the Kubernetes API to the first packet that
//! follows it. Each proxy is a process on a node of the lab, with the lab's API.

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

use crate::cluster::{Endpoints, PORT, Size, cluster_ip};
use crate::measure::{Bench, Points};
use crate::packets::wires::{BACKEND, Wires};
use crate::results::{Detail, Id};
use api::Api;
use attempt::{Answer, until};
pub use programs::{NFTABLES, Program, VARIANTS};

/// Groups of this part, and what they are.
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

/// A proxy may take so long to start in a large cluster; what takes longer is an error.
const PATIENCE: Duration = Duration::from_secs(300);

const SIZES: [Size; 2] = [Size { services: 1000, endpoints: 10 }, Size { services: 5000, endpoints: 10 }];
/// With `--large`, this proxy's nftables mode alone.
const LARGE: [Size; 3] = [
    Size { services: 20_000, endpoints: 10 },
    Size { services: 44_000, endpoints: 2 },
    Size { services: 5000, endpoints: 50 },
];

/// Measures this proxy and those that are described in `files`, side by side; returns what had to be left out.
///
/// # Errors
/// When a description is of no use, or anything that is measured fails.
pub fn run(bench: &mut Bench, runtime: &Runtime, files: &[PathBuf], large: bool) -> Result<Vec<String>> {
    let mut left_out = Vec::new();
    let programs = Program::all(files)?;
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
    let own = Program::Own;
    for size in LARGE.into_iter().filter(|_| large) {
        let series = format!("{}-{}", own.name(), NFTABLES.name);
        of(bench, runtime, &series, size, || Scene::build(runtime, &own, &NFTABLES, size))?;
    }
    Ok(left_out)
}

fn of(bench: &mut Bench, runtime: &Runtime, series: &str, size: Size, build: impl Fn() -> Result<Scene>) -> Result<()> {
    let id = |group: &str| Id::new(group, series, size.to_string());
    bench.point(&id(START), &mut || {
        let mut scene = build()?;
        let before = memory::of_kernel()?;
        let took = runtime.block_on(scene.start())?;
        let resident = runtime.block_on(scene.settled())?;
        let kernel_memory = Some(memory::of_kernel()?.saturating_sub(before));
        Ok((took, Detail { resident: Some(resident), kernel_memory, ..scene.detail() }))
    })?;
    let mut standing = None;
    for ((group, _), event) in GROUPS.iter().skip(1).zip([Seen::Added, Seen::Comes, Seen::Goes]) {
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
enum Seen {
    Added,
    Comes,
    Goes,
}

/// A node with a proxy, the API, and two pods.
struct Scene {
    size: Size,
    // Before the wires that it runs on.
    process: Option<ProcessHandle>,
    spec: svclab_cluster::process::ProcessSpec,
    api: Api,
    wires: Wires,
}

impl Scene {
    fn build(runtime: &Runtime, program: &Program, variant: &programs::Variant, size: Size) -> Result<Scene> {
        let wires = runtime.block_on(Wires::build())?;
        let mut changes = size.changes();
        let to_backend = [0, size.typical(), size.services - 2];
        changes.extend(to_backend.map(|index| size.slice(index, Endpoints::At(BACKEND))));
        let api = runtime.block_on(Api::serve(&wires, &changes))?;
        let spec = program.process(variant, &api)?;
        Ok(Scene { size, process: None, spec, api, wires })
    }

    /// Starts the proxy and waits until three services answer.
    async fn start(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.process = Some(self.wires.spawn_on_node(self.spec.clone()).await?);
        let mut last = start;
        for index in [0, self.size.typical(), self.size.services - 2] {
            last = last.max(self.wait(address(index), Answer::Connected).await?);
        }
        Ok(last - start)
    }

    /// What the proxy has resident when that changes no more.
    async fn settled(&self) -> Result<u64> {
        let process = self.process.as_ref().context("a proxy that was started")?;
        memory::settled(process.pid()).await
    }

    async fn follow(&mut self, event: Seen) -> Result<Duration> {
        let (size, index) = (self.size, self.size.typical());
        let (slice, new) = (|state| vec![size.slice(index, state)], self.size.services.next_multiple_of(10));
        match event {
            Seen::Added => {
                self.api.apply(&size.without_another())?;
                self.wait(address(new), Answer::Silent).await?;
                let mut changes = size.another();
                changes.push(size.slice(new, Endpoints::At(BACKEND)));
                self.time(&changes, address(new), Answer::Connected).await
            }
            Seen::Comes => {
                self.api.apply(&slice(Endpoints::None))?;
                self.wait(address(index), Answer::Refused).await?;
                self.time(&slice(Endpoints::At(BACKEND)), address(index), Answer::Connected).await
            }
            Seen::Goes => {
                self.api.apply(&slice(Endpoints::At(BACKEND)))?;
                self.wait(address(index), Answer::Connected).await?;
                self.time(&slice(Endpoints::None), address(index), Answer::Refused).await
            }
        }
    }

    async fn time(&self, changes: &[svcproxy::model::Change], at: SocketAddr, answer: Answer) -> Result<Duration> {
        let start = Instant::now();
        self.api.apply(changes)?;
        Ok(self.wait(at, answer).await?.saturating_duration_since(start))
    }

    async fn wait(&self, to: SocketAddr, answer: Answer) -> Result<Instant> {
        let process = self.process.as_ref().context("a proxy that was started")?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            // In pieces, so that the end of the proxy is noticed.
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
