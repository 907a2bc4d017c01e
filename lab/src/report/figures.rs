//! The costs of a scenario's proxies.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The proxies' costs, measured over one scenario on all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "FiguresJson", from = "FiguresJson")]
pub struct Figures {
    /// Times from a change to the first right answer on a node, unsorted: one entry per change and node.
    pub applied: Vec<Duration>,
    /// Rules in all iptables tables of all nodes at the end; and rules and elements of the proxies' tables of
    /// nftables.
    pub rules: usize,
    /// Chains, counted like `rules`.
    pub chains: usize,
    /// Peak memory of the largest proxy in bytes, without child processes.
    pub peak_memory: u64,
    /// Processor time of all proxies, child processes included.
    pub processor: Duration,
    pub idle: Idle,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Idle {
    pub processor: Duration,
    /// The time of observation, summed over all proxies.
    pub time: Duration,
}

impl Idle {
    #[must_use]
    pub fn and(self, other: &Idle) -> Idle {
        Idle { processor: self.processor + other.processor, time: self.time + other.time }
    }

    /// Returns the share of one core that an idle proxy uses; `None` if no proxy was observed.
    pub fn share(&self) -> Option<f64> {
        (!self.time.is_zero()).then(|| self.processor.as_secs_f64() / self.time.as_secs_f64())
    }
}

impl Figures {
    pub fn and(mut self, other: &Figures) -> Figures {
        self.applied.extend(&other.applied);
        self.rules += other.rules;
        self.chains += other.chains;
        self.peak_memory = self.peak_memory.max(other.peak_memory);
        self.processor += other.processor;
        self.idle = self.idle.and(&other.idle);
        self
    }

    /// Returns a percentile of `applied`; `None` if nothing changed.
    pub fn applied_within(&self, percent: usize) -> Option<Duration> {
        let mut sorted = self.applied.clone();
        sorted.sort_unstable();
        let index = (sorted.len() * percent).div_ceil(100).checked_sub(1)?;
        sorted.get(index).copied()
    }
}

/// [`Figures`] with times in seconds.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FiguresJson {
    changes: usize,
    applied_seconds: AppliedJson,
    rules: usize,
    chains: usize,
    peak_memory_bytes: u64,
    processor_seconds: f64,
    idle: IdleJson,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct AppliedJson {
    median: Option<f64>,
    percentile95: Option<f64>,
    largest: Option<f64>,
    all: Vec<f64>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct IdleJson {
    processor_seconds: f64,
    seconds: f64,
}

impl From<Figures> for FiguresJson {
    fn from(figures: Figures) -> FiguresJson {
        let seconds = |percent| figures.applied_within(percent).map(|took| took.as_secs_f64());
        FiguresJson {
            changes: figures.applied.len(),
            applied_seconds: AppliedJson {
                median: seconds(50),
                percentile95: seconds(95),
                largest: seconds(100),
                all: figures.applied.iter().map(Duration::as_secs_f64).collect(),
            },
            rules: figures.rules,
            chains: figures.chains,
            peak_memory_bytes: figures.peak_memory,
            processor_seconds: figures.processor.as_secs_f64(),
            idle: IdleJson {
                processor_seconds: figures.idle.processor.as_secs_f64(),
                seconds: figures.idle.time.as_secs_f64(),
            },
        }
    }
}

impl From<FiguresJson> for Figures {
    fn from(json: FiguresJson) -> Figures {
        let time = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        Figures {
            applied: json.applied_seconds.all.into_iter().map(time).collect(),
            rules: json.rules,
            chains: json.chains,
            peak_memory: json.peak_memory_bytes,
            processor: time(json.processor_seconds),
            idle: Idle { processor: time(json.idle.processor_seconds), time: time(json.idle.seconds) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_measured_time() {
        let figures = |millis: &[u64]| Figures {
            applied: millis.iter().copied().map(Duration::from_millis).collect(),
            ..Figures::default()
        };
        let within = |millis: &[u64], percent| figures(millis).applied_within(percent).map(|took| took.as_millis());
        assert_eq!(within(&[], 50), None);
        assert_eq!([within(&[7], 50), within(&[7], 95), within(&[7], 100)], [Some(7); 3]);
        assert_eq!(within(&[4, 1, 3, 2], 50), Some(2));
        assert_eq!(within(&[4, 1, 3, 2], 95), Some(4));
        assert_eq!(within(&[3, 1, 2], 50), Some(2));
    }

    #[test]
    fn json_reads_back() {
        let second = Duration::from_secs(1);
        let figures = Figures {
            applied: vec![2 * second, second],
            rules: 3,
            chains: 4,
            peak_memory: 5,
            processor: second / 2,
            idle: Idle { processor: second / 4, time: 6 * second },
        };
        let json = serde_json::to_value(&figures).unwrap();
        assert_eq!(serde_json::from_value::<Figures>(json).unwrap(), figures);
        assert_eq!(serde_json::from_str::<Figures>("{}").unwrap(), Figures::default());
    }

    #[test]
    fn the_figures_of_two_scenarios_add_up_and_memory_is_the_larger() {
        let one =
            Figures { rules: 3, chains: 1, peak_memory: 10, processor: Duration::from_secs(1), ..Figures::default() };
        let two =
            Figures { rules: 4, chains: 1, peak_memory: 7, processor: Duration::from_secs(2), ..Figures::default() };
        let both = one.and(&two);
        assert_eq!((both.rules, both.chains, both.peak_memory), (7, 2, 10));
        assert_eq!(both.processor, Duration::from_secs(3));
    }

    #[test]
    fn idle_load_is_a_share_of_the_time_of_all_proxies() {
        let idle =
            |millis, seconds| Idle { processor: Duration::from_millis(millis), time: Duration::from_secs(seconds) };
        assert_eq!(Idle::default().share(), None);
        assert_eq!(idle(30, 10).and(&idle(10, 10)).share(), Some(0.002));
    }
}
