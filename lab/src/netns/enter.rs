//! Entering a running lab from another terminal.
//!
//! A lab lists its places in a file of its private `/run`, which this user sees as `/proc/PID/root/run/svclab/places`
//! as long as the lab runs; PID is the lab's first process inside. `/proc/PID/task/TID/ns/{net,mnt,uts}` are a place's
//! namespaces, `/proc/PID/ns/{user,pid}` the sandbox's.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, Signal};

use super::namespace::Namespace;
use super::{NetnsError, sandbox, sys};

/// File in [`sandbox::WORK_DIR`] with one `TID<tab>PLACE` line per place.
const PLACES: &str = "places";

/// A place of a running lab, seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Process id of the lab, in the caller's numbering.
    pub pid: i32,
    /// The place, as [`crate::traffic::probe::Place`] prints it, for example `node/a` or `pod/default/web`.
    pub place: String,
    /// Thread that lives in the place's namespaces, in the caller's numbering.
    pub tid: i32,
}

/// Writes the list that [`running`] reads.
pub(crate) fn publish<'a>(places: impl Iterator<Item = (String, &'a Namespace)>) -> std::io::Result<()> {
    let mut text = String::new();
    for (place, namespace) in places {
        let tid = namespace.thread_dir().and_then(Path::file_name);
        if let Some(tid) = tid {
            text.push_str(&format!("{}\t{place}\n", tid.to_string_lossy()));
        }
    }
    let work = Path::new(sandbox::WORK_DIR);
    let fresh = work.join("places.new");
    fs::write(&fresh, text)?;
    fs::rename(fresh, work.join(PLACES))
}

/// The line that enters a place from another terminal; needs `nsenter` of util-linux.
pub(crate) fn line(namespace: &Namespace) -> Option<String> {
    let thread = namespace.thread_dir()?;
    let process = thread.parent()?.parent()?.display();
    let thread = thread.display();
    let user = match sandbox::outside()?.user_namespace {
        true => format!(" --user={process}/ns/user --preserve-credentials"),
        false => String::new(),
    };
    Some(format!(
        "nsenter{user} --pid={process}/ns/pid --mount={thread}/ns/mnt --uts={thread}/ns/uts --net={thread}/ns/net"
    ))
}

/// All places of all running labs that this user may enter.
pub fn running() -> Vec<Running> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let list = entry.path().join("root").join(&sandbox::WORK_DIR[1..]).join(PLACES);
        if !is_sandbox_init(&entry.path()) {
            continue;
        }
        let Ok(text) = fs::read_to_string(list) else {
            continue;
        };
        found.extend(text.lines().filter_map(|line| {
            let (tid, place) = line.split_once('\t')?;
            Some(Running { pid, place: place.to_owned(), tid: tid.parse().ok()? })
        }));
    }
    found
}

/// Whether a process is the first of a PID namespace below ours (its programs see the same files).
fn is_sandbox_init(process: &Path) -> bool {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let ids: Vec<&str> = ids.unwrap_or_default().split_whitespace().collect();
    ids.len() > 1 && ids.last() == Some(&"1")
}

/// Runs a command in a running lab's place with this terminal. Call before any thread exists.
pub fn exec(place: &Running, argv: &[String]) -> Result<ExitStatus, NetnsError> {
    let process = PathBuf::from(format!("/proc/{}", place.pid));
    let thread = process.join("task").join(place.tid.to_string());
    let wanted = [
        (process.join("ns/user"), CloneFlags::CLONE_NEWUSER),
        (process.join("ns/pid"), CloneFlags::CLONE_NEWPID),
        (thread.join("ns/uts"), CloneFlags::CLONE_NEWUTS),
        (thread.join("ns/net"), CloneFlags::CLONE_NEWNET),
        // Last: /proc is another one after it.
        (thread.join("ns/mnt"), CloneFlags::CLONE_NEWNS),
    ];
    let failed = |path: &Path| NetnsError::io(format!("entering {}", path.display()));
    let mut open = Vec::new();
    for (path, kind) in wanted {
        let file = File::open(&path).map_err(failed(&path))?;
        let same = kind == CloneFlags::CLONE_NEWUSER && is_own_user_namespace(&file);
        if !same {
            open.push((path, kind, file));
        }
    }
    for (path, kind, file) in &open {
        sys::join(file, *kind).map_err(failed(path))?;
    }
    let (program, args) = argv.split_first().ok_or_else(|| NetnsError::Io {
        attempted: format!("running a command in {}", place.place),
        source: std::io::Error::new(std::io::ErrorKind::InvalidInput, "no command given"),
    })?;
    let mut command = Command::new(program);
    command.args(args);
    // The terminal's Ctrl-C is for the command; this process stays to return its status.
    let mut quiet = SigSet::empty();
    quiet.add(Signal::SIGINT);
    quiet.add(Signal::SIGQUIT);
    let _ = quiet.thread_block();
    sys::unblock_signals(&mut command);
    command.status().map_err(NetnsError::io(format!("running {program} in {}", place.place)))
}

fn is_own_user_namespace(file: &File) -> bool {
    let own = fs::metadata("/proc/self/ns/user").map(|m| m.ino());
    matches!((own, file.metadata().map(|m| m.ino())), (Ok(a), Ok(b)) if a == b)
}
