//! Resource usage of a process tree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use procfs::process::{Process, Stat, all_processes};

/// Usage of a process, its process group and all descendants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeUsage {
    /// CPU time: exact for running processes, in kernel ticks (usually 10 ms) for ended children.
    pub processor: Duration,
    /// Voluntary context switches by thread id.
    pub sleeps: BTreeMap<i32, u64>,
    /// Open files.
    pub files: u64,
    /// Number of threads.
    pub threads: u64,
    /// Memory in bytes, without file pages; shared pages count once.
    pub memory: u64,
}

impl TreeUsage {
    pub(super) fn of(leader: Pid) -> Option<TreeUsage> {
        Process::new(leader.as_raw()).ok()?;
        let all = all_processes().ok()?.flatten();
        // Skips processes that end meanwhile.
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
        Some(own.fold(TreeUsage::default(), |sum, (process, stat)| sum.and(process, stat)))
    }

    /// Returns the wake-ups since `before`, counted per thread: an ended thread must not reduce the sum.
    #[must_use]
    pub fn wakeups_since(&self, before: &TreeUsage) -> u64 {
        let since = |(thread, now): (&i32, &u64)| {
            // A lower count means a reused thread id.
            let then = before.sleeps.get(thread).filter(|then| *then <= now);
            now - then.unwrap_or(&0)
        };
        self.sleeps.iter().map(since).sum()
    }

    fn and(mut self, process: &Process, stat: &Stat) -> TreeUsage {
        let reaped = u64::try_from(stat.cutime + stat.cstime).unwrap_or_default() as f64;
        let tasks = process.tasks().into_iter().flatten().flatten();
        self.sleeps.extend(tasks.filter_map(|task| Some((task.tid, task.status().ok()?.voluntary_ctxt_switches?))));
        TreeUsage {
            processor: self.processor
                + clock(stat)
                + Duration::from_secs_f64(reaped / procfs::ticks_per_second() as f64),
            sleeps: self.sleeps,
            files: self.files + process.fd_count().unwrap_or_default() as u64,
            threads: self.threads + u64::try_from(stat.num_threads).unwrap_or_default(),
            memory: self.memory + memory(process).unwrap_or(stat.rss * procfs::page_size()),
        }
    }
}

/// Returns the proportional share (`Pss_Anon`, `Pss_Shmem` of `/proc/PID/smaps_rollup`, Linux 5.4).
fn memory(process: &Process) -> Option<u64> {
    let rollup = process.smaps_rollup().ok()?.memory_map_rollup;
    let figures = &rollup.0.first()?.extension.map;
    Some(figures.get("Pss_Anon")? + figures.get("Pss_Shmem")?)
}

/// Returns the CPU time without children; in ticks for an ended process.
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

    use std::time::Instant;

    use super::*;

    #[test]
    fn an_ended_thread_does_not_reduce_wakeups() {
        let work =
            |sleeps: &[(i32, u64)]| TreeUsage { sleeps: sleeps.iter().copied().collect(), ..TreeUsage::default() };
        let before = work(&[(1, 500), (2, 10)]);
        assert_eq!(work(&[(1, 500), (2, 10)]).wakeups_since(&before), 0);
        assert_eq!(work(&[(2, 40)]).wakeups_since(&before), 30);
        assert_eq!(
            work(&[(1, 3), (2, 10), (3, 4)]).wakeups_since(&before),
            7,
            "new ones, one of them with an old number"
        );
    }

    #[test]
    fn shared_memory_counts_once() {
        // 32 MB, shared by a shell and its forked child.
        let script = "text=$(head -c 32000000 /dev/zero | tr '\\0' x); (sleep 1000; :) & wait";
        let mut child = Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap();
        let leader = Pid::from_raw(child.id() as i32);
        let deadline = Instant::now() + Duration::from_secs(60);
        let has_sleep = || {
            let mut processes = all_processes().unwrap().flatten().filter_map(|one| one.stat().ok());
            processes.any(|stat| stat.pgrp == leader.as_raw() && stat.comm == "sleep")
        };
        while !has_sleep() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
        let work = TreeUsage::of(leader).unwrap();
        nix::sys::signal::killpg(leader, nix::sys::signal::Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        assert_eq!(work.threads, 3, "{work:?}");
        assert!(work.memory > 30_000_000, "{work:?}");
        assert!(work.memory < 60_000_000, "{work:?}");
    }

    #[test]
    fn children_and_process_group_are_counted() {
        let script = "sleep 1000 & setsid sleep 1000 & exec 3</dev/null; read line; while :; do :; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let leader = Pid::from_raw(child.id() as i32);
        let deadline = Instant::now() + Duration::from_secs(60);
        let look = |wanted: &dyn Fn(&TreeUsage) -> bool| loop {
            let work = TreeUsage::of(leader).unwrap();
            if wanted(&work) {
                break work;
            }
            assert!(Instant::now() < deadline, "{work:?}");
            std::thread::sleep(Duration::from_millis(1));
        };
        // The shell has four open files, each `sleep` three.
        let calm = look(&|work| work.threads == 3 && work.files >= 10 && work.wakeups_since(&TreeUsage::default()) > 0);
        assert!(calm.memory > 1 << 17 && calm.processor > Duration::ZERO, "{calm:?}");
        drop(child.stdin.take());
        let busy = look(&|work| work.processor >= calm.processor + Duration::from_millis(20));
        assert_eq!(busy.threads, 3);
        let group = procfs::process::all_processes().unwrap().flatten().filter_map(|one| one.stat().ok());
        let members: Vec<i32> = group.filter(|stat| stat.ppid == leader.as_raw()).map(|stat| stat.pid).collect();
        for pid in members.into_iter().chain([leader.as_raw()]) {
            nix::sys::signal::kill(Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        child.wait().unwrap();
        assert_eq!(TreeUsage::of(leader), None);
    }
}
