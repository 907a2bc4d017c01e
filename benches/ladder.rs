//! The time from an event to the kernel, for every writer and clusters of growing size.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cluster::ClusterSize;
use crate::events::Event;
use crate::floor::Floor;
use crate::measure::{Bench, Points, timed};
use crate::results::{Detail, PointId};
use crate::sections::floor_name;
use crate::subject::daemon::{DaemonHost, RunningDaemon, SyncTimes};
use crate::subject::kernel::SentTransaction;
use crate::subject::{BenchWriter, IPVS, KernelKind, Mode, NodeOption, WITH_OPTIONS, WRITERS};
use crate::{sandbox, shared_maps};

const FEW: [Event; 1] = [Event::Endpoint];
/// The events for large clusters, where each change takes the legacy variant a second.
const LARGE: [Event; 5] = [Event::First, Event::Restart, Event::Nothing, Event::Endpoint, Event::Percent];

/// The clusters of IPVS mode, whose processor may be emulated.
const IN_GUEST: [ClusterSize; 2] =
    [ClusterSize { services: 100, endpoints: 10 }, ClusterSize { services: 1000, endpoints: 10 }];

/// The events for large clusters in nftables mode.
const LARGE_TABLE: [Event; 7] =
    [Event::First, Event::Restart, Event::Nothing, Event::Endpoint, Event::More, Event::Service, Event::Percent];

/// `large` adds clusters that are known to be hard (kubernetes#139513 and #135639).
fn ladder(writer: &BenchWriter, large: bool) -> Vec<(ClusterSize, &'static [Event])> {
    let is_table = writer.kernel == KernelKind::Table;
    let at_large = if is_table { &LARGE_TABLE[..] } else { &LARGE[..] };
    let of = |services, endpoints| ClusterSize { services, endpoints };
    if writer.option != NodeOption::Nothing {
        return [100, 1000].map(|services| (of(services, 10), &Event::ALL[..])).into();
    }
    let mut ladder: Vec<(ClusterSize, &'static [Event])> =
        [10, 100, 1000].into_iter().map(|services| (of(services, 10), &Event::ALL[..])).collect();
    ladder.push((of(5000, 10), at_large));
    ladder.extend([of(100, 1), of(1000, 1), of(100, 100)].map(|size| (size, &FEW[..])));
    if large {
        ladder.push((of(20_000, 10), at_large));
    }
    if large && is_table {
        ladder.extend([of(44_000, 2), of(5000, 50)].map(|size| (size, at_large)));
    }
    ladder
}

pub fn run(bench: &mut Bench, large: bool) -> Result<Vec<String>> {
    let mut left_out = Vec::new();
    for writer in WRITERS.iter().chain(&WITH_OPTIONS) {
        for (size, events) in ladder(writer, large) {
            match writer.too_large(size) {
                Some(why) => left_out.push(format!("{} with {}: {why}", writer.name, size)),
                None => rung(bench, writer, size, events)
                    .with_context(|| format!("{} services of {} endpoints", size.services, size.endpoints))?,
            }
        }
    }
    Ok(left_out)
}

pub fn guest(points: &mut dyn Points) -> Result<()> {
    IN_GUEST.into_iter().try_for_each(|size| rung(points, &IPVS, size, &Event::ALL).with_context(|| size.to_string()))
}

pub fn guest_points() -> Vec<(PointId, ClusterSize)> {
    let mut points = Vec::new();
    for (size, event) in IN_GUEST.into_iter().flat_map(|size| Event::ALL.map(|event| (size, event))) {
        points.push((id(event, IPVS.name, size), size));
        if !matches!(event, Event::Restart | Event::Nothing) {
            points.push((id(event, &floor_name(IPVS.name), size), size));
        }
    }
    points
}

/// Whether the event applies: some read the kernel's state, which [`KernelKind::Silent`] lacks.
fn applies(writer: &BenchWriter, event: Event) -> bool {
    writer.kernel != KernelKind::Silent || !matches!(event, Event::Restart | Event::Address)
}

fn rung(bench: &mut dyn Points, writer: &BenchWriter, size: ClusterSize, events: &[Event]) -> Result<()> {
    let events = events.iter().copied().filter(|event| applies(writer, *event));
    let (starts, changes): (Vec<Event>, Vec<Event>) = events.partition(|event| event.is_start());
    if starts.contains(&Event::First) {
        first(bench, writer, size)?;
    }
    let mut synced = SyncedDaemon { writer, size, running: None, round: 0 };
    if starts.contains(&Event::Restart) {
        bench.point(&id(Event::Restart, writer.name, size), &mut || synced.restart())?;
    }
    for event in changes {
        bench.point(&id(event, writer.name, size), &mut || synced.follow(event))?;
        if writer.has_floor() && synced.sends(event) {
            let mut floor = None;
            bench.point(&id(event, &floor_name(writer.name), size), &mut || {
                let floor = match &floor {
                    Some(floor) => floor,
                    None => floor.insert(synced.floor(event)?),
                };
                Ok((floor.send()?, Detail::default()))
            })?;
        }
    }
    Ok(())
}

fn id(event: Event, series: &str, size: ClusterSize) -> PointId {
    PointId::new(event.name(), series, size.to_string())
}

fn first(bench: &mut dyn Points, writer: &BenchWriter, size: ClusterSize) -> Result<()> {
    bench.point(&id(Event::First, writer.name, size), &mut || {
        sandbox::fresh_network()?;
        let (_running, took, _, pause) = start(writer, size, false)?;
        let written = took.asked.rules.max(took.asked.messages).max(took.asked.elements);
        ensure!(written as u32 >= size.services, "a first sync must send something for each service at least");
        Ok((took.total, Detail { pause: Some(pause), ..detail(took) }))
    })?;
    if writer.has_floor() {
        let mut floor = None;
        bench.point(&id(Event::First, &floor_name(writer.name), size), &mut || {
            sandbox::fresh_network()?;
            if floor.is_none() && writer.kernel == KernelKind::Table {
                floor = Some(Floor::Netlink(Vec::new(), vec![SentTransaction::Batch(shared_maps::batch(size)?)]));
            }
            if floor.is_none() {
                let (_, _, sent, _) = start(writer, size, true)?;
                floor = Some(Floor::new(writer.restore_command(), Vec::new(), sent));
                sandbox::fresh_network()?;
            }
            let floor = floor.as_ref().context("what a first sync sends")?;
            Ok((floor.send()?, Detail::default()))
        })?;
    }
    Ok(())
}

/// Starts a daemon and waits for its first sync. Records transactions if `keep`.
fn start(
    writer: &BenchWriter,
    size: ClusterSize,
    keep: bool,
) -> Result<(RunningDaemon, SyncTimes, Vec<SentTransaction>, Duration)> {
    let input = Event::First.input(size, 0);
    let ((running, took, pause), total) = timed(|| {
        let mut running = RunningDaemon::start(writer, DaemonHost::Empty)?;
        if keep {
            running.keep_sent();
        }
        let pauses = running.pauses()?;
        let took = running.follow(input)?;
        Ok((running, took, pauses.longest()))
    })?;
    let sent = if keep { running.keep_sent() } else { Vec::new() };
    running.forget_sent();
    Ok((running, SyncTimes { total, ..took }, sent, pause))
}

fn detail(took: SyncTimes) -> Detail {
    Detail {
        apply: Some(took.apply),
        render: took.render,
        longest: took.longest,
        asked: Some(took.asked),
        ..Detail::default()
    }
}

/// A daemon, started at its first use.
struct SyncedDaemon<'w> {
    writer: &'w BenchWriter,
    size: ClusterSize,
    running: Option<RunningDaemon>,
    round: u32,
}

impl SyncedDaemon<'_> {
    fn running(&mut self) -> Result<&mut RunningDaemon> {
        if self.running.is_none() {
            sandbox::fresh_network()?;
            self.running = Some(start(self.writer, self.size, false)?.0);
        }
        self.running.as_mut().context("a synced proxy")
    }

    fn restart(&mut self) -> Result<(Duration, Detail)> {
        self.running()?;
        self.running = None;
        let (running, took, ..) = start(self.writer, self.size, false)?;
        self.running = Some(running);
        ensure!(!took.asked.is_change(), "a proxy that finds everything in place must send nothing");
        Ok((took.total, detail(took)))
    }

    fn follow(&mut self, event: Event) -> Result<(Duration, Detail)> {
        let (size, sends) = (self.size, self.sends(event));
        self.round += 1;
        let round = self.round;
        let running = self.running()?;
        if let Some(before) = event.before(size) {
            running.follow(before)?;
        }
        let took = running.follow(event.input(size, round))?;
        ensure!(took.asked.is_change() == sends, "{:?} was asked", took.asked);
        Ok((took.total, detail(took)))
    }

    /// Whether an event changes a rule. In userspace mode changes of endpoints change relays only.
    fn sends(&self, event: Event) -> bool {
        let is_userspace = self.writer.mode == Mode::Userspace;
        let endpoints_alone = matches!(event, Event::Endpoint | Event::More | Event::Percent | Event::Udp);
        event != Event::Nothing && !(is_userspace && endpoints_alone)
    }

    /// Returns the event's floor, recorded by a fresh daemon because batches name handles.
    fn floor(&mut self, event: Event) -> Result<Floor> {
        let (size, command, round) = (self.size, self.writer.restore_command(), self.round + 1);
        self.round = round;
        let mut fresh = None;
        let (running, mut before) = match command {
            Some(_) => (self.running()?, Vec::new()),
            None => {
                sandbox::fresh_network()?;
                let (running, _, sent, _) = start(self.writer, size, true)?;
                (fresh.insert(running), sent)
            }
        };
        running.keep_sent();
        if let Some(input) = event.before(size) {
            running.follow(input)?;
        }
        before.extend(running.keep_sent());
        running.follow(event.input(size, round))?;
        let sent = running.keep_sent();
        running.forget_sent();
        Ok(Floor::new(command, before, sent))
    }
}
