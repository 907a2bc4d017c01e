//! Judges idle proxies.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use svclab_cluster::process::{ProcessHandle, TreeUsage};

use super::lab::KernelLab;
use super::machine_time::MachineSample;
use crate::expect::Mismatch;
use crate::report::Idle;
use crate::scenario::execute::StepOutcome;
use crate::scenario::file::ExpectFile;

/// The default: an idle proxy may use 1/100 of a core.
const SHARE: u32 = 100;
/// Resident memory may grow by a twentieth and this many bytes: allocator fragments, first use of program pages.
const MEMORY: u64 = 1 << 20;
/// Permitted growth: some runtimes start a thread during a long system call, and keep it.
const THREADS: u64 = 2;
/// The measurement begins when a proxy uses less than the allowed part of a core over `CALM`, at the latest after `SETTLES`.
const SETTLES: Duration = Duration::from_secs(10);
const CALM: Duration = Duration::from_millis(500);
/// Short-lived resources (a connection, pipes of a command) may exist this long after the measurement.
const MOMENT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);
/// The samples of a median: one may count a child between fork and exec twice or not at all.
const LOOKS: usize = 3;
const APART: Duration = Duration::from_millis(10);
const SHOWN: usize = 3;

#[derive(Debug, Clone, Default)]
struct ProxySample {
    work: TreeUsage,
    lines: u64,
}

impl ProxySample {
    fn at(handle: &ProcessHandle) -> Option<ProxySample> {
        Some(ProxySample { work: handle.tree_usage()?, lines: handle.log_since(u64::MAX).0 })
    }

    async fn median_sample(handle: &ProcessHandle) -> Option<ProxySample> {
        let mut samples = vec![ProxySample::at(handle)?];
        while samples.len() < LOOKS {
            tokio::time::sleep(APART).await;
            samples.push(ProxySample::at(handle)?);
        }
        ProxySample::middle(samples)
    }

    fn middle(samples: Vec<ProxySample>) -> Option<ProxySample> {
        let middle = |figure: fn(&TreeUsage) -> u64| {
            let mut figures: Vec<u64> = samples.iter().map(|sample| figure(&sample.work)).collect();
            figures.sort_unstable();
            figures.get(figures.len() / 2).copied()
        };
        let (files, threads, memory) =
            (middle(|work| work.files)?, middle(|work| work.threads)?, middle(|work| work.memory)?);
        let last = samples.into_iter().next_back()?;
        Some(ProxySample { work: TreeUsage { files, threads, memory, ..last.work }, ..last })
    }

    fn grown(&self, before: &ProxySample) -> Option<String> {
        let (now, then) = (&self.work, &before.work);
        let files = now.files > then.files;
        let threads = now.threads > then.threads + THREADS;
        let memory = now.memory > then.memory + then.memory / 20 + MEMORY;
        let all = [
            files.then(|| format!("open files grew from {} to {}", then.files, now.files)),
            threads.then(|| format!("threads grew from {} to {}", then.threads, now.threads)),
            memory.then(|| format!("memory grew from {} KiB to {} KiB", then.memory / 1024, now.memory / 1024)),
        ];
        all.into_iter().flatten().reduce(|all, one| format!("{all}; {one}"))
    }
}

struct IdleUsage {
    processor: Duration,
    wake_ups: u64,
    over: Duration,
}

impl KernelLab {
    pub(super) async fn idle(&mut self, time: Duration, expect: &ExpectFile) -> StepOutcome {
        let (mut broken, mut texts) = (Vec::new(), Vec::new());
        let before = self.wait_until_calm().await;
        let machine = MachineSample::now().filter(|_| self.in_guest);
        let begin = Instant::now();
        tokio::time::sleep(time).await;
        let (over, machine_now) = (begin.elapsed(), MachineSample::now());
        let (after, mut proxies) = (self.samples(), Duration::ZERO);
        for node in self.nodes() {
            let Some(handle) = self.proxies.handle(&node) else { continue };
            let (Some(before), Some(after)) = (before.get(&node), after.get(&node)) else {
                let words = format!("it has ended: {}", handle.log_tail(SHOWN).trim());
                broken.push(Mismatch::new(format!("the proxy on {node} lives"), words));
                continue;
            };
            let did = IdleUsage {
                processor: after.work.processor.saturating_sub(before.work.processor),
                wake_ups: after.work.wakeups_since(&before.work),
                over,
            };
            proxies += did.processor;
            texts.push(format!("{node} {}", words(&did)));
            broken.extend(excesses(&node, &did, expect));
            if let Some(grown) = stays_grown(handle, before).await {
                broken.push(Mismatch::new(format!("the proxy on {node} stays as it is"), grown));
            }
            let lines = handle.log_since(before.lines).1;
            if !lines.is_empty() {
                let shown: Vec<&str> = lines.iter().take(SHOWN).map(String::as_str).collect();
                let words = format!("{} lines: {}", lines.len(), shown.join(" | "));
                broken.push(Mismatch::new(format!("the proxy on {node} logs nothing"), words));
            }
            self.idle_usage =
                std::mem::take(&mut self.idle_usage).and(&Idle { processor: did.processor, time: did.over });
        }
        match machine.zip(machine_now) {
            Some((before, after)) => {
                let kernel = after.kernel_since(&before, proxies);
                texts.push(format!("the kernel {}", share_words(kernel, over)));
                broken.extend(kernel_excess(kernel, over, expect, self.virtual_time));
            }
            None if expect.kernel.is_some() => {
                texts.push("the kernel's time is not measured on a shared machine".to_owned())
            }
            None => {}
        }
        StepOutcome::new(texts.join("; "), broken)
    }

    pub(super) async fn measure_idle(&mut self, time: Duration) {
        if !time.is_zero() && self.idle_usage == Idle::default() {
            self.idle(time, &ExpectFile::default()).await;
        }
    }

    async fn wait_until_calm(&self) -> BTreeMap<String, ProxySample> {
        let deadline = Instant::now() + SETTLES;
        let mut before = self.samples();
        loop {
            let begin = Instant::now();
            tokio::time::sleep(CALM).await;
            let (now, over) = (self.samples(), begin.elapsed());
            let calm = now.iter().all(|(node, sample)| {
                let then = before.get(node).map_or(sample.work.processor, |then| then.work.processor);
                sample.work.processor.saturating_sub(then) < over / SHARE
            });
            before = now;
            if calm || Instant::now() > deadline {
                break;
            }
        }
        for (node, sample) in &mut before {
            if let Some(handle) = self.proxies.handle(node)
                && let Some(steady) = ProxySample::median_sample(handle).await
            {
                *sample = steady;
            }
        }
        before
    }

    fn samples(&self) -> BTreeMap<String, ProxySample> {
        let nodes = self.nodes().into_iter();
        nodes.filter_map(|node| Some((node.clone(), ProxySample::at(self.proxies.handle(&node)?)?))).collect()
    }
}

/// Returns what has grown, if it stays grown for [`MOMENT`].
async fn stays_grown(handle: &ProcessHandle, before: &ProxySample) -> Option<String> {
    let deadline = Instant::now() + MOMENT;
    loop {
        let grown = ProxySample::median_sample(handle).await?.grown(before)?;
        if Instant::now() > deadline {
            return Some(grown);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn words(did: &IdleUsage) -> String {
    format!("{}, {} wake-ups", share_words(did.processor, did.over), did.wake_ups)
}

fn share_words(processor: Duration, over: Duration) -> String {
    let share = processor.as_secs_f64() / over.as_secs_f64() * 100.0;
    format!("{:.3} ms, {share:.3} % of a core", processor.as_secs_f64() * 1000.0)
}

/// Judges the kernel's time by the step's bounds; by default in virtual time only, as an emulated processor makes every
/// timer expensive.
fn kernel_excess(kernel: Duration, over: Duration, expect: &ExpectFile, virtual_time: bool) -> Vec<Mismatch> {
    let wrong = |promise: String| {
        let expected = format!("the kernel takes {promise}: kernel threads, timers and interrupts, for all nodes");
        Mismatch::new(expected, share_words(kernel, over))
    };
    match &expect.kernel {
        Some(bounds) => {
            let bounds = bounds.0.iter().map(|bound| bound.value).filter(|bound| !bound.accepts(kernel));
            bounds.map(|bound| wrong(format!("{bound} of processor time"))).collect()
        }
        None if virtual_time && kernel >= over / SHARE => vec![wrong("less than 1 % of a core's time".to_owned())],
        None => Vec::new(),
    }
}

fn excesses(node: &str, did: &IdleUsage, expect: &ExpectFile) -> Vec<Mismatch> {
    let mut broken = Vec::new();
    let mut wrong = |promise: String| {
        broken.push(Mismatch::new(format!("the proxy on {node} takes {promise}"), words(did)));
    };
    match &expect.processor {
        Some(bounds) => {
            let bounds = bounds.0.iter().map(|bound| bound.value).filter(|bound| !bound.accepts(did.processor));
            bounds.for_each(|bound| wrong(format!("{bound} of processor time")));
        }
        None if did.processor >= did.over / SHARE => wrong("less than 1 % of a core's time".to_owned()),
        None => {}
    }
    if let Some(count) = expect.wake_ups.as_ref().filter(|count| !count.accepts(did.wake_ups, |_| 0)) {
        wrong(format!("{count} wake-ups"));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::counters::PacketCount;
    use crate::scenario::values::{OneOrMany, TimeBound};

    fn did(millis: u64, wake_ups: u64) -> IdleUsage {
        IdleUsage { processor: Duration::from_millis(millis), wake_ups, over: Duration::from_secs(10) }
    }

    #[test]
    fn an_idle_proxy_that_uses_a_hundredth_of_a_core_fails_by_default() {
        let plain = ExpectFile::default();
        assert_eq!(excesses("a", &did(99, 1_000_000), &plain), []);
        let broken = excesses("a", &did(100, 7), &plain);
        assert_eq!(broken.len(), 1);
        assert_eq!(broken[0].expected, "the proxy on a takes less than 1 % of a core's time");
        assert_eq!(broken[0].seen, "100.000 ms, 1.000 % of a core, 7 wake-ups");
        let at = serde_saphyr::Location::UNKNOWN;
        let bound = serde_saphyr::Spanned::new(TimeBound::AtMost(Duration::from_millis(5)), at, at);
        let strict = ExpectFile {
            processor: Some(OneOrMany(vec![bound])),
            wake_ups: Some(PacketCount::AtMost(30)),
            ..ExpectFile::default()
        };
        assert_eq!(excesses("a", &did(5, 30), &strict), []);
        assert_eq!(excesses("a", &did(6, 31), &strict).len(), 2);
    }

    #[test]
    fn the_kernels_time_has_bounds_in_virtual_time_or_by_the_step() {
        let (over, plain) = (Duration::from_secs(10), ExpectFile::default());
        let excess = |millis, expect: &ExpectFile, virtual_time| {
            kernel_excess(Duration::from_millis(millis), over, expect, virtual_time).len()
        };
        assert_eq!([excess(99, &plain, true), excess(100, &plain, true), excess(9_999, &plain, false)], [0, 1, 0]);
        let at = serde_saphyr::Location::UNKNOWN;
        let bound = serde_saphyr::Spanned::new(TimeBound::AtMost(Duration::from_millis(500)), at, at);
        let step = ExpectFile { kernel: Some(OneOrMany(vec![bound])), ..ExpectFile::default() };
        assert_eq!([excess(500, &step, true), excess(501, &step, false)], [0, 1]);
    }

    #[test]
    fn a_short_lived_child_does_not_change_the_median() {
        let sample =
            |files, memory, lines| ProxySample { work: TreeUsage { files, memory, ..TreeUsage::default() }, lines };
        // The child's memory is missing in one sample, and double in another.
        let sample = ProxySample::middle(vec![sample(20, 100, 1), sample(25, 50, 1), sample(20, 200, 2)]).unwrap();
        assert_eq!((sample.work.files, sample.work.memory, sample.lines), (20, 100, 2));
        assert!(ProxySample::middle(Vec::new()).is_none());
    }

    #[test]
    fn growth_beyond_the_allowance_is_reported() {
        let sample = |files, threads, memory| ProxySample {
            work: TreeUsage { files, threads, memory, ..TreeUsage::default() },
            lines: 0,
        };
        let before = sample(20, 5, 20 << 20);
        assert_eq!(sample(20, 7, 22 << 20).grown(&before), None);
        assert_eq!(sample(19, 1, 1 << 20).grown(&before), None, "less is fine");
        assert!(sample(21, 5, 20 << 20).grown(&before).is_some_and(|words| words == "open files grew from 20 to 21"));
        assert!(sample(20, 8, 20 << 20).grown(&before).is_some_and(|words| words == "threads grew from 5 to 8"));
        assert!(
            sample(20, 5, 23 << 20).grown(&before).is_some_and(|words| words.starts_with("memory grew from 20480"))
        );
        let both = sample(21, 5, 23 << 20).grown(&before).unwrap();
        assert!(both.starts_with("open files grew") && both.contains("; memory grew"), "{both}");
    }
}
