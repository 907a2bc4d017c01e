//! Processor time of the whole machine, most of all the kernel's own: timers, kernel threads and interrupts, which belong
//! to no process.

use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use procfs::{CpuTime, CurrentSI, KernelStats};

/// A reading of all processors. The kernel gives their idle time in hundredths of a second, exact to these.
#[derive(Debug, Clone, Copy)]
pub(super) struct MachineSample {
    at: Instant,
    processors: u32,
    idle: Duration,
    /// This program's own time.
    lab: Duration,
}

impl MachineSample {
    pub(super) fn now() -> Option<MachineSample> {
        let stats = KernelStats::current().ok()?;
        let idle = |time: &CpuTime| time.idle_duration() + time.iowait_duration().unwrap_or_default();
        Some(MachineSample {
            at: Instant::now(),
            processors: u32::try_from(stats.cpu_time.len()).ok()?,
            idle: stats.cpu_time.iter().map(idle).sum(),
            lab: clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(|time: TimeSpec| Duration::from(time)).ok()?,
        })
    }

    /// Returns the time since `before` that neither the lab nor the proxies, which took `proxies`, have used.
    pub(super) fn kernel_since(&self, before: &MachineSample, proxies: Duration) -> Duration {
        let all = (self.at - before.at) * self.processors;
        let busy = all.saturating_sub(self.idle.saturating_sub(before.idle));
        busy.saturating_sub(self.lab.saturating_sub(before.lab)).saturating_sub(proxies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_has_what_is_neither_idle_nor_the_labs_nor_the_proxies() {
        let (at, millis) = (Instant::now(), Duration::from_millis);
        let before = MachineSample { at, processors: 2, idle: millis(5_000), lab: millis(100) };
        let after = MachineSample { at: at + millis(1_000), processors: 2, idle: millis(6_500), lab: millis(150) };
        assert_eq!(after.kernel_since(&before, millis(50)), millis(400));
        assert_eq!(after.kernel_since(&before, millis(1_000)), Duration::ZERO);
    }

    #[test]
    fn this_machine_has_idle_time() {
        let sample = MachineSample::now().unwrap();
        assert!(sample.processors > 0 && sample.lab > Duration::ZERO);
    }
}
