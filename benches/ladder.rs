//! From the event to the kernel: every writer, on clusters of growing size.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cluster::Size;
use crate::events::Event;
use crate::floor::Floor;
use crate::measure::{Bench, Points, timed};
use crate::results::{Detail, Id};
use crate::sections::floor_name;
use crate::subject::daemon::{Host, Running, Took};
use crate::subject::kernel::Sent;
use crate::subject::{IPVS, KernelKind, Mode, WRITERS, Writer};
use crate::{sandbox, shared_maps};

/// What one endpoint count of a cluster is measured for.
const FEW: [Event; 1] = [Event::Endpoint];
/// What large clusters are measured for: with the legacy variant each change takes a second there.
const LARGE: [Event; 5] = [Event::First, Event::Restart, Event::Nothing, Event::Endpoint, Event::Percent];

/// The clusters of IPVS mode.
const IN_GUEST: [Size; 2] = [Size { services: 100, endpoints: 10 }, Size { services: 1000, endpoints: 10 }];

/// The same in nftables mode, where a change of elements with verdicts costs the kernel more than one of others.
const LARGE_TABLE: [Event; 7] =
    [Event::First, Event::Restart, Event::Nothing, Event::Endpoint, Event::More, Event::Service, Event::Percent];

/// The clusters, and what is measured on each; with `large` one of 20,000 services too, and in nftables mode those that are known to be
/// hard (kubernetes#139513 and #135639).
fn ladder(writer: &Writer, large: bool) -> Vec<(Size, &'static [Event])> {
    let is_table = writer.kernel == KernelKind::Table;
    let at_large = if is_table { &LARGE_TABLE[..] } else { &LARGE[..] };
    let of = |services, endpoints| Size { services, endpoints };
    let mut ladder: Vec<(Size, &'static [Event])> =
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

/// Measures all of it, and returns what had to be left out.
///
/// # Errors
/// When anything that is measured fails.
pub fn run(bench: &mut Bench, large: bool) -> Result<Vec<String>> {
    let mut left_out = Vec::new();
    for writer in &WRITERS {
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

/// Measures IPVS mode where its kernel is: on the smaller clusters, because the processor there may be an emulated one.
///
/// # Errors
/// When anything that is measured fails.
pub fn guest(points: &mut dyn Points) -> Result<()> {
    IN_GUEST.into_iter().try_for_each(|size| rung(points, &IPVS, size, &Event::ALL).with_context(|| size.to_string()))
}

/// The points that [`guest`] measures.
pub fn guest_points() -> Vec<(Id, Size)> {
    let mut points = Vec::new();
    for (size, event) in IN_GUEST.into_iter().flat_map(|size| Event::ALL.map(|event| (size, event))) {
        points.push((id(event, IPVS.name, size), size));
        if !matches!(event, Event::Restart | Event::Nothing) {
            points.push((id(event, &floor_name(IPVS.name), size), size));
        }
    }
    points
}

/// Events that say something about a writer: what reads the kernel needs one.
fn applies(writer: &Writer, event: Event) -> bool {
    writer.kernel != KernelKind::Silent || !matches!(event, Event::Restart | Event::Address)
}

fn rung(bench: &mut dyn Points, writer: &Writer, size: Size, events: &[Event]) -> Result<()> {
    let events = events.iter().copied().filter(|event| applies(writer, *event));
    let (starts, changes): (Vec<Event>, Vec<Event>) = events.partition(|event| event.is_start());
    if starts.contains(&Event::First) {
        first(bench, writer, size)?;
    }
    let mut standing = Standing { writer, size, running: None, round: 0 };
    if starts.contains(&Event::Restart) {
        bench.point(&id(Event::Restart, writer.name, size), &mut || standing.restart())?;
    }
    for event in changes {
        bench.point(&id(event, writer.name, size), &mut || standing.follow(event))?;
        if writer.has_floor() && standing.sends(event) {
            let mut floor = None;
            bench.point(&id(event, &floor_name(writer.name), size), &mut || {
                let floor = match &floor {
                    Some(floor) => floor,
                    None => floor.insert(standing.floor(event)?),
                };
                Ok((floor.send()?, Detail::default()))
            })?;
        }
    }
    Ok(())
}

fn id(event: Event, series: &str, size: Size) -> Id {
    Id::new(event.name(), series, size.to_string())
}

fn first(bench: &mut dyn Points, writer: &Writer, size: Size) -> Result<()> {
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
                floor = Some(Floor::Netlink(Vec::new(), vec![Sent::Batch(shared_maps::batch(size)?)]));
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

/// A daemon after its first sync, from its start; with all that it sent, if that is to be kept, and how long others had to wait meanwhile.
fn start(writer: &Writer, size: Size, keep: bool) -> Result<(Running, Took, Vec<Sent>, Duration)> {
    let input = Event::First.input(size, 0);
    let ((running, took, pause), total) = timed(|| {
        let mut running = Running::start(writer, Host::Empty)?;
        if keep {
            running.keep_sent();
        }
        let pauses = running.pauses()?;
        let took = running.follow(input)?;
        Ok((running, took, pauses.longest()))
    })?;
    let sent = if keep { running.keep_sent() } else { Vec::new() };
    running.forget_sent();
    Ok((running, Took { total, ..took }, sent, pause))
}

fn detail(took: Took) -> Detail {
    Detail {
        apply: Some(took.apply),
        render: took.render,
        longest: took.longest,
        asked: Some(took.asked),
        ..Detail::default()
    }
}

/// A proxy that has synced its cluster, made when it is first needed.
struct Standing<'w> {
    writer: &'w Writer,
    size: Size,
    running: Option<Running>,
    round: u32,
}

impl Standing<'_> {
    fn running(&mut self) -> Result<&mut Running> {
        if self.running.is_none() {
            sandbox::fresh_network()?;
            self.running = Some(start(self.writer, self.size, false)?.0);
        }
        self.running.as_mut().context("a standing proxy")
    }

    /// One more proxy in place of the one that stands.
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

    /// Whether an event changes a rule. In userspace mode relays follow their endpoints without.
    fn sends(&self, event: Event) -> bool {
        let is_userspace = self.writer.mode == Mode::Userspace;
        let endpoints_alone = matches!(event, Event::Endpoint | Event::More | Event::Percent | Event::Udp);
        event != Event::Nothing && !(is_userspace && endpoints_alone)
    }

    /// What the proxy sends at an event. Batches name handles, so those are of a proxy that has done nothing else.
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
