//! Counts a sync's requests to the kernel and allocations after each event.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::allocations::Allocated;
use crate::cluster::ClusterSize;
use crate::count_file::{CountFile, CountTable, Counts};
use crate::events::Event;
use crate::subject::direct::{DirectProxy, EventCost, FakeKernel};
use crate::subject::kernel::KernelRequests;
use crate::subject::{BenchWriter, Mode, NodeOption, WITH_OPTIONS};

/// Allocations may grow by this factor: compilers and standard libraries differ.
const TOLERANCE: f64 = 1.05;

pub const FILE: CountFile = CountFile { name: "counts.yaml", committed: include_str!("counts.yaml"), head: HEAD };
const HEAD: &str = "# What following an event costs: asked of the kernel, and allocated by the proxy's own work. Without a daemon, over a kernel
# in memory, so the same on every machine. `./just bench --quick` and the tests fail where a count grows (allocations by more
# than 5 %); `./just bench --quick --update` writes this file anew.
";

const MODES: [Mode; 3] = [Mode::Iptables, Mode::Nftables, Mode::Userspace];
const SIZES: [ClusterSize; 2] =
    [ClusterSize { services: 100, endpoints: 10 }, ClusterSize { services: 1000, endpoints: 10 }];

/// Small: consistent hashing has thousands of elements per frontend.
const WITH_OPTION: ClusterSize = ClusterSize { services: 20, endpoints: 10 };

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventCounts {
    #[serde(flatten)]
    asked: KernelRequests,
    allocations: u64,
    allocated: u64,
}

impl From<EventCost> for EventCounts {
    fn from(EventCost { asked, allocated: Allocated { times, bytes } }: EventCost) -> EventCounts {
        EventCounts { asked, allocations: times, allocated: bytes }
    }
}

impl Counts for EventCounts {
    fn text(&self) -> String {
        let counts: Vec<String> = self.counts().iter().map(|(name, count, _)| format!("{name}: {count}")).collect();
        format!("{{{}}}", counts.join(", "))
    }

    fn counts(&self) -> Vec<(&'static str, u64, u64)> {
        let exact = |name, count: usize| (name, count as u64, count as u64);
        let about = |name, count: u64| (name, count, (count as f64 * TOLERANCE) as u64);
        let KernelRequests {
            dumps,
            restores,
            looks,
            messages: _,
            lists: _,
            elements,
            bytes,
            rules,
            chains,
            removed_chains,
        } = self.asked;
        vec![
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

/// Returns all counts. The program must have [`crate::allocations::Counting`] as its allocator.
pub fn count() -> Result<CountTable<EventCounts>> {
    let mut counts = CountTable::new();
    for mode in MODES {
        for size in SIZES {
            let lines = of(mode, NodeOption::Nothing, size).with_context(|| format!("{mode} mode with {size}"))?;
            counts.entry(mode.to_string()).or_default().insert(size.to_string(), lines);
        }
    }
    for BenchWriter { name, mode, option, .. } in WITH_OPTIONS {
        let lines = of(mode, option, WITH_OPTION).with_context(|| format!("{name} with {WITH_OPTION}"))?;
        counts.entry(name.to_owned()).or_default().insert(WITH_OPTION.to_string(), lines);
    }
    Ok(counts)
}

fn of(mode: Mode, option: NodeOption, size: ClusterSize) -> Result<BTreeMap<String, EventCounts>> {
    let mut lines = BTreeMap::new();
    let mut note = |event: Event, cost: EventCost| lines.insert(event.name().to_owned(), EventCounts::from(cost));
    let mut proxy = DirectProxy::new(mode, option, FakeKernel::default())?;
    proxy.keep_sent();
    note(Event::First, proxy.follow(&Event::First.input(size, 0))?);
    let mut proxy = DirectProxy::new(mode, option, DirectProxy::left(&proxy.keep_sent())?)?;
    note(Event::Restart, proxy.follow(&Event::Restart.input(size, 0))?);
    for (event, round) in Event::ALL.into_iter().zip(0..).filter(|(event, _)| !event.is_start()) {
        // The first event of a kind creates some objects once, so the second one counts.
        for round in [2 * round + 1, 2 * round + 2] {
            if let Some(before) = event.before(size) {
                proxy.follow(&before)?;
            }
            note(event, proxy.follow(&event.input(size, round))?);
        }
    }
    Ok(lines)
}
