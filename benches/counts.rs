//! Counts of what following an event costs, and the comparison with `counts.yaml`: what a busy machine cannot change.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::allocations::Allocated;
use crate::cluster::Size;
use crate::events::Event;
use crate::subject::Mode;
use crate::subject::direct::{Cost, Direct, Left};
use crate::subject::kernel::Asked;

/// What the counts are compared with.
pub const COMMITTED: &str = include_str!("counts.yaml");
/// Where that is.
pub const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/counts.yaml");
/// Allocations may be this much above what the file says: compilers and the standard library differ.
const TOLERANCE: f64 = 1.05;

const HEAD: &str = "# What following an event costs: asked of the kernel, and allocated by the proxy's own work. Without a daemon, over a kernel
# in memory, so the same on every machine. `./just bench --quick` and the tests fail where a count grows (allocations by more
# than 5 %); `./just bench --quick --update` writes this file anew.
";

/// The modes that are counted.
const MODES: [Mode; 3] = [Mode::Iptables, Mode::Nftables, Mode::Userspace];
/// Two sizes, so that what grows with the cluster shows.
const SIZES: [Size; 2] = [Size { services: 100, endpoints: 10 }, Size { services: 1000, endpoints: 10 }];

/// One line of the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    #[serde(flatten)]
    asked: Asked,
    /// Allocations and reallocations.
    allocations: u64,
    /// Bytes that were allocated.
    allocated: u64,
}

/// Lines by mode, size and event.
pub type Counts = BTreeMap<String, BTreeMap<String, BTreeMap<String, Line>>>;

impl From<Cost> for Line {
    fn from(Cost { asked, allocated: Allocated { times, bytes } }: Cost) -> Line {
        Line { asked, allocations: times, allocated: bytes }
    }
}

impl Line {
    /// Each count with its name, and how large it may be for a line that says this.
    fn counts(&self) -> [(&'static str, u64, u64); 10] {
        let exact = |name, count: usize| (name, count as u64, count as u64);
        let about = |name, count: u64| (name, count, (count as f64 * TOLERANCE) as u64);
        let Asked { dumps, restores, looks, messages: _, lists: _, elements, bytes, rules, chains, removed_chains } =
            self.asked;
        [
            exact("dumps", dumps),
            exact("restores", restores),
            exact("looks", looks),
            exact("elements", elements),
            exact("rules", rules),
            exact("chains", chains),
            exact("removedChains", removed_chains),
            exact("bytes", bytes),
            about("allocations", self.allocations),
            about("allocated", self.allocated),
        ]
    }
}

/// Counts everything. The program that calls it must have [`crate::allocations::Counting`] as its allocator.
///
/// # Errors
/// When the kernel in memory refuses something.
pub fn count() -> Result<Counts> {
    let mut counts = Counts::new();
    for mode in MODES {
        for size in SIZES {
            let lines = of(mode, size).with_context(|| format!("{mode} mode with {size}"))?;
            counts.entry(mode.to_string()).or_default().insert(size.to_string(), lines);
        }
    }
    Ok(counts)
}

fn of(mode: Mode, size: Size) -> Result<BTreeMap<String, Line>> {
    let mut lines = BTreeMap::new();
    let mut note = |event: Event, cost: Cost| lines.insert(event.name().to_owned(), Line::from(cost));
    let mut proxy = Direct::new(mode, Left::default())?;
    proxy.keep_sent();
    note(Event::First, proxy.follow(&Event::First.input(size, 0))?);
    let mut proxy = Direct::new(mode, Direct::left(&proxy.keep_sent())?)?;
    note(Event::Restart, proxy.follow(&Event::Restart.input(size, 0))?);
    for (event, round) in Event::ALL.into_iter().zip(0..).filter(|(event, _)| !event.is_start()) {
        // What is made once, at the first event of a kind, is not counted.
        for round in [2 * round + 1, 2 * round + 2] {
            if let Some(before) = event.before(size) {
                proxy.follow(&before)?;
            }
            note(event, proxy.follow(&event.input(size, round))?);
        }
    }
    Ok(lines)
}

/// The file's text for these counts.
pub fn text(counts: &Counts) -> String {
    let mut text = HEAD.to_owned();
    for (mode, sizes) in counts {
        let _ = writeln!(text, "{mode}:");
        for (size, lines) in sizes {
            let _ = writeln!(text, "  {size}:");
            for (event, line) in lines {
                let parts: Vec<String> =
                    line.counts().iter().map(|(name, count, _)| format!("{name}: {count}")).collect();
                let _ = writeln!(text, "    {event}: {{{}}}", parts.join(", "));
            }
        }
    }
    text
}

/// Reads the file's text.
///
/// # Errors
/// When it is not what [`text`] writes.
pub fn read(text: &str) -> Result<Counts> {
    serde_saphyr::from_str(text).context("read counts.yaml")
}

/// Every count that is larger than it was, and every line that only one side has; each as a sentence.
pub fn regressions(before: &Counts, now: &Counts) -> Vec<String> {
    compare(before, now, |most, count| count > most)
}

/// Every count that is smaller than it was.
pub fn improvements(before: &Counts, now: &Counts) -> Vec<String> {
    compare(now, before, |most, count| count > most).into_iter().filter(|line| line.contains("not")).collect()
}

fn compare(before: &Counts, now: &Counts, is_worse: impl Fn(u64, u64) -> bool) -> Vec<String> {
    let flat = |counts: &Counts| -> BTreeMap<String, Line> {
        let sizes = counts.iter().flat_map(|(mode, sizes)| sizes.iter().map(move |(size, lines)| (mode, size, lines)));
        sizes
            .flat_map(|(mode, size, lines)| {
                lines.iter().map(move |(event, line)| (format!("{mode} {size} {event}"), *line))
            })
            .collect()
    };
    let (before, now) = (flat(before), flat(now));
    let mut found: Vec<String> =
        before.keys().filter(|key| !now.contains_key(*key)).map(|key| format!("{key} is counted no longer")).collect();
    for (key, line) in &now {
        let Some(old) = before.get(key) else {
            found.push(format!("{key} is not in counts.yaml"));
            continue;
        };
        for ((name, count, _), (_, was, most)) in line.counts().into_iter().zip(old.counts()) {
            if is_worse(most, count) {
                found.push(format!("{key}: {name} is {count}, not {was}"));
            }
        }
    }
    found
}
