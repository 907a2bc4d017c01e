//! A proxy's memory, file descriptors and metrics.

use procfs::process::Process;

use crate::scenario::run::metric::sum;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// Resident memory in KiB.
    pub(super) rss: u64,
    pub(super) fds: u64,
}

impl Sample {
    pub(super) fn of(pid: i32) -> Option<Sample> {
        let process = Process::new(pid).ok()?;
        Some(Sample { rss: process.status().ok()?.vmrss?, fds: process.fd_count().ok()? as u64 })
    }
}

pub(super) fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Allowed memory growth from the second tenth to the last, in KiB and percent: allocator fragments, varying numbers of
/// objects.
const GROWTH: (u64, u64) = (1024, 5);
/// Allowed growth of file descriptors: listeners of health-check node ports vary with the services.
const MORE_FDS: u64 = 16;

pub(super) fn growth(second: &[Sample], last: &[Sample]) -> Option<String> {
    let of = |samples: &[Sample], what: fn(&Sample) -> u64| median(samples.iter().map(what).collect());
    let (before, after) = (of(second, |sample| sample.rss), of(last, |sample| sample.rss));
    if after > before + before * GROWTH.1 / 100 + GROWTH.0 {
        return Some(format!("memory grew from {before} KiB in the second tenth to {after} KiB in the last"));
    }
    let (before, after) = (of(second, |sample| sample.fds), of(last, |sample| sample.fds));
    (after > before + MORE_FDS)
        .then(|| format!("open files grew from {before} in the second tenth to {after} in the last"))
}

pub(super) fn metric(text: &str, name: &str) -> u64 {
    sum(text, name).unwrap_or_default() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rss: u64, fds: u64) -> Vec<Sample> {
        (0..9).map(|wobble| Sample { rss: rss + wobble * 10, fds: fds + wobble % 2 }).collect()
    }

    #[test]
    fn growth_of_the_median_beyond_the_allowance_is_reported() {
        let before = samples(20_000, 20);
        assert_eq!(growth(&before, &samples(20_000, 20)), None);
        assert_eq!(growth(&before, &samples(21_500, 22)), None, "a megabyte and a twentieth are let pass");
        assert!(growth(&before, &samples(22_500, 20)).is_some_and(|words| words.contains("memory grew")));
        assert!(growth(&before, &samples(20_000, 40)).is_some_and(|words| words.contains("open files")));
    }

    #[test]
    fn memory_and_descriptors_of_a_process_are_read() {
        let own = Sample::of(std::process::id() as i32);
        assert!(own.is_some_and(|own| own.rss > 100 && own.fds >= 3), "{own:?}");
        assert_eq!(Sample::of(-1), None);
    }

    #[test]
    fn samples_of_a_metric_are_summed() {
        let text = "# HELP a b\na_total{x=\"1\"} 2\na_total{x=\"2\"} 3\na_total_more 7\nb 4\n";
        assert_eq!([metric(text, "a_total"), metric(text, "b"), metric(text, "c")], [5, 4, 0]);
    }
}
