//! A time in which nothing happens: what do the proxies do in it?

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use svclab_cluster::process::{ProcessHandle, TreeUsage};

use super::lab::Lab;
use crate::expect::Mismatch;
use crate::report::Idle;
use crate::scenario::execute::Seen;
use crate::scenario::file::ExpectFile;

/// The processor time that an idle proxy may take, as a part of one core's, unless the step says otherwise.
const SHARE: u32 = 100;
/// What may be added to memory: a twentieth, and so much. An allocator's leftovers, and pages of the program that are
/// needed for the first time.
const MEMORY: u64 = 1 << 20;
/// What may be added to threads: the runtimes of some languages start one when a system call takes long, and keep it.
const THREADS: u64 = 2;
/// Before the time begins, a proxy may finish what it has to do after its rules: for so long, until it has taken less than
/// its share over so much.
const SETTLES: Duration = Duration::from_secs(10);
const CALM: Duration = Duration::from_millis(500);
/// What is there for a moment only (a request's connection, a command's pipes) is gone after this.
const MOMENT: Duration = Duration::from_secs(2);
/// Between two looks meanwhile.
const PAUSE: Duration = Duration::from_millis(50);
/// One look may meet a child between its fork and its program, whose memory is its parent's as well or is missing from both: of so
/// many looks, a moment apart, the middle one counts.
const LOOKS: usize = 3;
const APART: Duration = Duration::from_millis(10);
/// Lines of a log that are shown.
const SHOWN: usize = 3;

/// One look at a proxy.
#[derive(Debug, Clone, Default)]
struct Look {
    work: TreeUsage,
    /// Lines of its log so far.
    lines: u64,
}

impl Look {
    fn at(handle: &ProcessHandle) -> Option<Look> {
        Some(Look { work: handle.tree_usage()?, lines: handle.log_since(u64::MAX).0 })
    }

    /// The last of several looks, with what should not grow as it is in the middle one of them.
    async fn steady(handle: &ProcessHandle) -> Option<Look> {
        let mut looks = vec![Look::at(handle)?];
        while looks.len() < LOOKS {
            tokio::time::sleep(APART).await;
            looks.push(Look::at(handle)?);
        }
        Look::middle(looks)
    }

    fn middle(looks: Vec<Look>) -> Option<Look> {
        let middle = |figure: fn(&TreeUsage) -> u64| {
            let mut figures: Vec<u64> = looks.iter().map(|look| figure(&look.work)).collect();
            figures.sort_unstable();
            figures.get(figures.len() / 2).copied()
        };
        let (files, threads, memory) =
            (middle(|work| work.files)?, middle(|work| work.threads)?, middle(|work| work.memory)?);
        let last = looks.into_iter().next_back()?;
        Some(Look { work: TreeUsage { files, threads, memory, ..last.work }, ..last })
    }

    /// All that should not grow and is more than it was, in words. All of it: one of them may be the trace of a child that is just being
    /// started, and must not hide another that is there to stay.
    fn grown(&self, before: &Look) -> Option<String> {
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

/// What an idle proxy did.
struct Did {
    processor: Duration,
    wake_ups: u64,
    over: Duration,
}

impl Lab {
    /// Lets `time` pass and judges every running proxy.
    pub(super) async fn idle(&mut self, time: Duration, expect: &ExpectFile) -> Seen {
        let (mut broken, mut texts) = (Vec::new(), Vec::new());
        let before = self.begin_idleness().await;
        let begin = Instant::now();
        tokio::time::sleep(time).await;
        let after = self.looks();
        let over = begin.elapsed();
        for node in self.nodes() {
            let Some(handle) = self.proxies.handle(&node) else { continue };
            let (Some(before), Some(after)) = (before.get(&node), after.get(&node)) else {
                let words = format!("it has ended: {}", handle.log_tail(SHOWN).trim());
                broken.push(Mismatch::new(format!("the proxy on {node} lives"), words));
                continue;
            };
            let did = Did {
                processor: after.work.processor.saturating_sub(before.work.processor),
                wake_ups: after.work.wakeups_since(&before.work),
                over,
            };
            texts.push(format!("{node} {}", words(&did)));
            broken.extend(too_much(&node, &did, expect));
            if let Some(grown) = stays_grown(handle, before).await {
                broken.push(Mismatch::new(format!("the proxy on {node} stays as it is"), grown));
            }
            let lines = handle.log_since(before.lines).1;
            if !lines.is_empty() {
                let shown: Vec<&str> = lines.iter().take(SHOWN).map(String::as_str).collect();
                let words = format!("{} lines: {}", lines.len(), shown.join(" | "));
                broken.push(Mismatch::new(format!("the proxy on {node} logs nothing"), words));
            }
            self.rested = std::mem::take(&mut self.rested).and(&Idle { processor: did.processor, time: did.over });
        }
        Seen::new(texts.join("; "), broken)
    }

    /// Looks at the proxies over `time` in which nothing happens, for the figures alone; not where a step has done so.
    pub(super) async fn rest(&mut self, time: Duration) {
        if !time.is_zero() && self.rested == Idle::default() {
            self.idle(time, &ExpectFile::default()).await;
        }
    }

    /// Waits until every proxy is calm, or does not get so; a last look at each.
    async fn begin_idleness(&self) -> BTreeMap<String, Look> {
        let deadline = Instant::now() + SETTLES;
        let mut before = self.looks();
        loop {
            let begin = Instant::now();
            tokio::time::sleep(CALM).await;
            let (now, over) = (self.looks(), begin.elapsed());
            let calm = now.iter().all(|(node, look)| {
                let then = before.get(node).map_or(look.work.processor, |then| then.work.processor);
                look.work.processor.saturating_sub(then) < over / SHARE
            });
            before = now;
            if calm || Instant::now() > deadline {
                break;
            }
        }
        for (node, look) in &mut before {
            if let Some(handle) = self.proxies.handle(node)
                && let Some(steady) = Look::steady(handle).await
            {
                *look = steady;
            }
        }
        before
    }

    fn looks(&self) -> BTreeMap<String, Look> {
        let nodes = self.nodes().into_iter();
        nodes.filter_map(|node| Some((node.clone(), Look::at(self.proxies.handle(&node)?)?))).collect()
    }
}

/// What has grown and is still there after a moment.
async fn stays_grown(handle: &ProcessHandle, before: &Look) -> Option<String> {
    let deadline = Instant::now() + MOMENT;
    loop {
        let grown = Look::steady(handle).await?.grown(before)?;
        if Instant::now() > deadline {
            return Some(grown);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn words(did: &Did) -> String {
    let share = did.processor.as_secs_f64() / did.over.as_secs_f64() * 100.0;
    format!("{:.3} ms, {share:.3} % of a core, {} wake-ups", did.processor.as_secs_f64() * 1000.0, did.wake_ups)
}

fn too_much(node: &str, did: &Did, expect: &ExpectFile) -> Vec<Mismatch> {
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
    use crate::scenario::values::{Bound, OneOrMany};

    fn did(millis: u64, wake_ups: u64) -> Did {
        Did { processor: Duration::from_millis(millis), wake_ups, over: Duration::from_secs(10) }
    }

    #[test]
    fn a_hundredth_is_too_much_unless_the_step_says_otherwise() {
        let plain = ExpectFile::default();
        assert_eq!(too_much("a", &did(99, 1_000_000), &plain), []);
        let broken = too_much("a", &did(100, 7), &plain);
        assert_eq!(broken.len(), 1);
        assert_eq!(broken[0].expected, "the proxy on a takes less than 1 % of a core's time");
        assert_eq!(broken[0].seen, "100.000 ms, 1.000 % of a core, 7 wake-ups");
        let at = serde_saphyr::Location::UNKNOWN;
        let bound = serde_saphyr::Spanned::new(Bound::AtMost(Duration::from_millis(5)), at, at);
        let strict = ExpectFile {
            processor: Some(OneOrMany(vec![bound])),
            wake_ups: Some(PacketCount::AtMost(30)),
            ..ExpectFile::default()
        };
        assert_eq!(too_much("a", &did(5, 30), &strict), []);
        assert_eq!(too_much("a", &did(6, 31), &strict).len(), 2);
    }

    #[test]
    fn a_child_that_is_there_for_a_moment_does_not_count() {
        let look = |files, memory, lines| Look { work: TreeUsage { files, memory, ..TreeUsage::default() }, lines };
        // Its memory is missing once and is there twice once.
        let look = Look::middle(vec![look(20, 100, 1), look(25, 50, 1), look(20, 200, 2)]).unwrap();
        assert_eq!((look.work.files, look.work.memory, look.lines), (20, 100, 2));
        assert!(Look::middle(Vec::new()).is_none());
    }

    #[test]
    fn growth_is_told_from_leftovers() {
        let look = |files, threads, memory| Look {
            work: TreeUsage { files, threads, memory, ..TreeUsage::default() },
            lines: 0,
        };
        let before = look(20, 5, 20 << 20);
        assert_eq!(look(20, 7, 22 << 20).grown(&before), None);
        assert_eq!(look(19, 1, 1 << 20).grown(&before), None, "less is fine");
        assert!(look(21, 5, 20 << 20).grown(&before).is_some_and(|words| words == "open files grew from 20 to 21"));
        assert!(look(20, 8, 20 << 20).grown(&before).is_some_and(|words| words == "threads grew from 5 to 8"));
        assert!(look(20, 5, 23 << 20).grown(&before).is_some_and(|words| words.starts_with("memory grew from 20480")));
        let both = look(21, 5, 23 << 20).grown(&before).unwrap();
        assert!(both.starts_with("open files grew") && both.contains("; memory grew"), "{both}");
    }
}
