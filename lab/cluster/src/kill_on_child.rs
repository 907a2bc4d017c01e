use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use procfs::ProcResult;
use procfs::process::{Process, all_processes};
use tokio::task::JoinHandle;

/// Polling interval; restoring a few rules takes ten times as long.
const LOOK: Duration = Duration::from_micros(300);

/// A pending kill.
pub struct KillOnChild(JoinHandle<Option<String>>);

impl KillOnChild {
    /// Waits for a matching child of process group `victim`, then for `after` or the child's end, and kills the group.
    pub(super) fn start(victim: Pid, child: &'static str, after: Duration, limit: Duration) -> KillOnChild {
        KillOnChild(tokio::task::spawn_blocking(move || {
            let deadline = Instant::now() + limit;
            while Instant::now() < deadline {
                if let Some((pid, command)) = child_of(victim, child) {
                    let seen = Instant::now();
                    while seen.elapsed() < after && command_line(pid).is_some_and(|line| line == command) {
                        sleep(LOOK);
                    }
                    let lives = command_line(pid).is_some_and(|line| line == command);
                    let _ = killpg(victim, Signal::SIGKILL);
                    let program = command.split(' ').next().and_then(|path| path.rsplit('/').next()).unwrap_or(child);
                    let (spent, where_) =
                        (seen.elapsed().as_millis(), if lives { "into" } else { "after the start of" });
                    let end = if lives { "" } else { ", which had just ended" };
                    return Some(format!("{spent} ms {where_} {program}{end}"));
                }
                sleep(LOOK);
            }
            None
        }))
    }

    /// Returns when the kill happened; `None` if it did not.
    pub async fn moment(self) -> Option<String> {
        self.0.await.ok().flatten()
    }
}

/// Finds a child by command line; skips one with its parent's, which has not called exec yet.
fn child_of(parent: Pid, wanted: &str) -> Option<(i32, String)> {
    let parents_own = command_line(parent.as_raw())?;
    let children = children(parent.as_raw()).unwrap_or_else(|_| children_among_all(parent.as_raw()));
    let mut commands = children.into_iter().filter_map(|child| Some((child, command_line(child)?)));
    commands.find(|(_, command)| command.contains(wanted) && *command != parents_own)
}

/// Fails on a kernel without `CONFIG_PROC_CHILDREN`, and when a thread ends meanwhile.
fn children(parent: i32) -> ProcResult<Vec<i32>> {
    let mut children = Vec::new();
    for thread in Process::new(parent)?.tasks()? {
        children.extend(thread?.children()?);
    }
    Ok(children.into_iter().filter_map(|child| child.try_into().ok()).collect())
}

/// Slow: on a busy machine a child may begin and end meanwhile.
fn children_among_all(parent: i32) -> Vec<i32> {
    let is_child = |process: &Process| process.stat().is_ok_and(|stat| stat.ppid == parent);
    let all = all_processes().into_iter().flatten().flatten();
    all.filter(is_child).map(|process| process.pid).collect()
}

/// Returns the words joined by spaces; `None` for an ended process or a zombie.
fn command_line(pid: i32) -> Option<String> {
    let words = Process::new(pid).ok()?.cmdline().ok()?;
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn a_program_is_killed_while_its_child_runs() {
        // The kill must wait for the second child.
        let script = "sleep 0.2; echo begun >&2; sleep 77; echo survived >&2";
        let shell =
            Command::new("sh").args(["-c", script]).stderr(std::process::Stdio::piped()).process_group(0).spawn();
        let shell = shell.unwrap();
        let pid = Pid::from_raw(shell.id() as i32);
        let kill = KillOnChild::start(pid, "sleep 77", Duration::from_millis(5), Duration::from_secs(20));
        let moment = kill.moment().await.unwrap();
        assert!(moment.ends_with(" ms into sleep"), "{moment}");
        let output = shell.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(9));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "begun\n");
        let never = KillOnChild::start(pid, "sleep 77", Duration::ZERO, Duration::from_millis(5));
        assert_eq!(never.moment().await, None);
    }
}
