//! What a scenario cost the proxies in it.

use std::time::Duration;

use serde_json::{Value, json};

/// Measured over one scenario, on all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// From each change of an object to the first right answer on a node, in no order: one entry per change and node.
    pub applied: Vec<Duration>,
    /// Rules in all tables of iptables of both families of all nodes at the end, whoever made them; in nftables mode rules and elements of the
    /// proxies' tables as well.
    pub rules: usize,
    /// Chains, likewise.
    pub chains: usize,
    /// The most memory that any proxy had resident, in bytes, without that of the commands that it ran.
    pub peak_memory: u64,
    /// Processor time of all proxies, with that of the commands that they ran.
    pub processor: Duration,
    /// What they did while nothing happened.
    pub idle: Idle,
}

/// Proxies while nothing happens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Idle {
    /// Processor time of all, with their children's.
    pub processor: Duration,
    /// How long they were looked at, summed over all.
    pub time: Duration,
}

impl Idle {
    /// Both together.
    #[must_use]
    pub fn and(self, other: &Idle) -> Idle {
        Idle { processor: self.processor + other.processor, time: self.time + other.time }
    }

    /// The part of a core's time that a proxy took; `None` if none was looked at.
    pub fn share(&self) -> Option<f64> {
        (!self.time.is_zero()).then(|| self.processor.as_secs_f64() / self.time.as_secs_f64())
    }
}

impl Figures {
    /// Both scenarios in one.
    pub fn and(mut self, other: &Figures) -> Figures {
        self.applied.extend(&other.applied);
        self.rules += other.rules;
        self.chains += other.chains;
        self.peak_memory = self.peak_memory.max(other.peak_memory);
        self.processor += other.processor;
        self.idle = self.idle.and(&other.idle);
        self
    }

    /// As JSON; `appliedSeconds.all` are the times of single changes.
    pub fn json(&self) -> Value {
        let seconds = |percent| self.applied_within(percent).map(|took| took.as_secs_f64());
        let all: Vec<f64> = self.applied.iter().map(Duration::as_secs_f64).collect();
        json!({
            "changes": self.applied.len(),
            "appliedSeconds": { "median": seconds(50), "percentile95": seconds(95), "largest": seconds(100), "all": all },
            "rules": self.rules,
            "chains": self.chains,
            "peakMemoryBytes": self.peak_memory,
            "processorSeconds": self.processor.as_secs_f64(),
            "idle": {
                "processorSeconds": self.idle.processor.as_secs_f64(), "seconds": self.idle.time.as_secs_f64(),
            },
        })
    }

    /// What [`Figures::json`] has written; a figure that is not there is zero.
    pub fn read(json: &Value) -> Figures {
        let count = |value: &Value| value.as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
        let time = |value: &Value| Duration::try_from_secs_f64(value.as_f64().unwrap_or_default()).unwrap_or_default();
        Figures {
            applied: json["appliedSeconds"]["all"].as_array().into_iter().flatten().map(time).collect(),
            rules: count(&json["rules"]),
            chains: count(&json["chains"]),
            peak_memory: json["peakMemoryBytes"].as_u64().unwrap_or_default(),
            processor: time(&json["processorSeconds"]),
            idle: Idle { processor: time(&json["idle"]["processorSeconds"]), time: time(&json["idle"]["seconds"]) },
        }
    }

    /// The time within which `percent` of the changes were applied; `None` if nothing changed.
    pub fn applied_within(&self, percent: usize) -> Option<Duration> {
        let mut sorted = self.applied.clone();
        sorted.sort_unstable();
        let index = (sorted.len() * percent).div_ceil(100).checked_sub(1)?;
        sorted.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_time_that_was_measured() {
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
    fn json_is_read_as_it_was_written() {
        let second = Duration::from_secs(1);
        let figures = Figures {
            applied: vec![2 * second, second],
            rules: 3,
            chains: 4,
            peak_memory: 5,
            processor: second / 2,
            idle: Idle { processor: second / 4, time: 6 * second },
        };
        assert_eq!(Figures::read(&figures.json()), figures);
        assert_eq!(Figures::read(&Value::Null), Figures::default());
    }

    #[test]
    fn two_scenarios_add_up_but_memory_is_the_larger() {
        let one =
            Figures { rules: 3, chains: 1, peak_memory: 10, processor: Duration::from_secs(1), ..Figures::default() };
        let two =
            Figures { rules: 4, chains: 1, peak_memory: 7, processor: Duration::from_secs(2), ..Figures::default() };
        let both = one.and(&two);
        assert_eq!((both.rules, both.chains, both.peak_memory), (7, 2, 10));
        assert_eq!(both.processor, Duration::from_secs(3));
    }

    #[test]
    fn idleness_is_a_share_of_the_time_of_each() {
        let idle =
            |millis, seconds| Idle { processor: Duration::from_millis(millis), time: Duration::from_secs(seconds) };
        assert_eq!(Idle::default().share(), None);
        assert_eq!(idle(30, 10).and(&idle(10, 10)).share(), Some(0.002));
    }
}
