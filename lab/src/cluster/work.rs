//! What a program on a node uses together with its children, at one moment.

use std::collections::BTreeSet;
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use procfs::process::{Process, Stat, all_processes};

/// Of a process, its process group and all of their descendants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Processor time so far: of the processes that there are to the nanosecond, threads that have ended included; of
    /// children that have ended to the kernel's tick of usually 10 ms.
    pub processor: Duration,
    /// How often a thread that is still there has gone to sleep, and so has woken up (`voluntary_ctxt_switches`).
    pub wake_ups: u64,
    /// Open files.
    pub files: u64,
    /// Threads.
    pub threads: u64,
    /// Resident memory in bytes.
    pub memory: u64,
}

impl Work {
    /// Of the group that `leader` leads; `None` when it has ended.
    pub(super) fn of(leader: Pid) -> Option<Work> {
        Process::new(leader.as_raw()).ok()?;
        let all = all_processes().ok()?.flatten();
        // What ends meanwhile is not there at the next look.
        let all: Vec<(Process, Stat)> =
            all.filter_map(|one| Some((one.stat().ok()?, one))).map(|(a, b)| (b, a)).collect();
        let mut members = BTreeSet::from([leader.as_raw()]);
        loop {
            let known = members.len();
            let belongs = |stat: &&Stat| stat.pgrp == leader.as_raw() || members.contains(&stat.ppid);
            let found: Vec<i32> = all.iter().map(|(_, stat)| stat).filter(belongs).map(|stat| stat.pid).collect();
            members.extend(found);
            if members.len() == known {
                break;
            }
        }
        let own = all.iter().filter(|(_, stat)| members.contains(&stat.pid));
        Some(own.fold(Work::default(), |sum, (process, stat)| sum.and(process, stat)))
    }

    fn and(self, process: &Process, stat: &Stat) -> Work {
        let reaped = u64::try_from(stat.cutime + stat.cstime).unwrap_or_default() as f64;
        let sleeps = process.tasks().into_iter().flatten().flatten().filter_map(|task| task.status().ok());
        Work {
            processor: self.processor
                + clock(stat)
                + Duration::from_secs_f64(reaped / procfs::ticks_per_second() as f64),
            wake_ups: self.wake_ups + sleeps.filter_map(|task| task.voluntary_ctxt_switches).sum::<u64>(),
            files: self.files + process.fd_count().unwrap_or_default() as u64,
            threads: self.threads + u64::try_from(stat.num_threads).unwrap_or_default(),
            memory: self.memory + stat.rss * procfs::page_size(),
        }
    }
}

/// The processor time of a process without its children's; one that has ended has its ticks still.
fn clock(stat: &Stat) -> Duration {
    let now = clock_getcpuclockid(Pid::from_raw(stat.pid)).and_then(|clock| clock.now());
    now.map(|now: TimeSpec| Duration::from(now)).unwrap_or_else(|_| {
        Duration::from_secs_f64((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn children_and_the_group_are_counted() {
        let script = "sleep 1000 & setsid sleep 1000 & exec 3</dev/null; read line; while :; do :; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let leader = Pid::from_raw(child.id() as i32);
        let look = |wanted: &dyn Fn(&Work) -> bool| loop {
            let work = Work::of(leader).unwrap();
            if wanted(&work) {
                break work;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        // The shell with four files, and two that sleep.
        let calm = look(&|work| work.threads == 3 && work.files >= 10 && work.wake_ups > 0);
        assert!(calm.memory > 1 << 20 && calm.processor > Duration::ZERO, "{calm:?}");
        drop(child.stdin.take());
        let busy = look(&|work| work.processor >= calm.processor + Duration::from_millis(20));
        assert_eq!(busy.threads, 3);
        let group = procfs::process::all_processes().unwrap().flatten().filter_map(|one| one.stat().ok());
        let members: Vec<i32> = group.filter(|stat| stat.ppid == leader.as_raw()).map(|stat| stat.pid).collect();
        for pid in members.into_iter().chain([leader.as_raw()]) {
            nix::sys::signal::kill(Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        child.wait().unwrap();
        assert_eq!(Work::of(leader), None);
    }
}
