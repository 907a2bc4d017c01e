//! Entering a running lab from another terminal.
//!
//! A lab lists its places in a file of its private `/run`, which this user sees as `/proc/PID/root/run/svclab/places`
//! as long as the lab runs; PID is the lab's first process inside. `/proc/PID/task/TID/ns/{net,mnt,uts}` are a place's
//! namespaces, `/proc/PID/ns/{user,pid}` the sandbox's.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use nix::fcntl::{OFlag, open, openat};
use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::Mode;

use super::namespace::Namespace;
use super::{NetnsError, sandbox, sys};

/// File in [`sandbox::WORK_DIR`] with one `TID<tab>PLACE` line per place.
const PLACES: &str = "places";
/// Bytes of a list that are read: thousands of places.
const LONGEST_LIST: u64 = 1 << 20;

/// A place of a running lab, seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Process id of the lab, in the caller's numbering.
    pub pid: i32,
    /// The place, as a cluster prints it, for example `node/a` or `pod/default/web`.
    pub place: String,
    /// Thread that lives in the place's namespaces, in the caller's numbering.
    pub tid: i32,
}

/// Writes the list that [`running`] reads.
pub fn publish<'a>(places: impl Iterator<Item = (String, &'a Namespace)>) -> std::io::Result<()> {
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
pub fn line(namespace: &Namespace) -> Option<String> {
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

/// All places of all running labs that this user has started.
pub fn running() -> Vec<Running> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let Some(text) = Init::own(pid).and_then(|init| init.places().ok()) else {
            continue;
        };
        found.extend(text.lines().filter_map(|line| {
            let (tid, place) = line.split_once('\t')?;
            Some(Running { pid, place: place.to_owned(), tid: tid.parse().ok()? })
        }));
    }
    found
}

/// The first process of a sandbox, by its open directory in `/proc`: what is opened by way of it is this process's, whatever
/// becomes of its number.
struct Init(File);

impl Init {
    /// Process `pid`, if it can be a lab of this user's. Root could enter any other user's as well, and would run there what
    /// that user has put in the place of programs.
    fn own(pid: i32) -> Option<Init> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let init = Init(open(Path::new(&format!("/proc/{pid}")), flags, Mode::empty()).ok()?.into());
        let mut status = String::new();
        init.open("status", OFlag::O_RDONLY).ok()?.take(LONGEST_LIST).read_to_string(&mut status).ok()?;
        let own = nix::unistd::geteuid().as_raw();
        let namespace = init.open("ns/user", OFlag::O_RDONLY).ok()?;
        let is_own = is_sandbox_init_of(&status, own)
            && (is_own_user_namespace(&namespace) || sys::namespace_owner(&namespace).ok()? == own);
        is_own.then_some(init)
    }

    /// Opens a file below its directory. Links of the kernel's own, such as namespaces, are followed.
    fn open(&self, path: impl AsRef<Path>, flags: OFlag) -> io::Result<File> {
        Ok(openat(&self.0, path.as_ref(), flags | OFlag::O_CLOEXEC, Mode::empty())?.into())
    }

    /// Its list of places: a file of this user's, to which no link leads.
    fn places(&self) -> io::Result<String> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut folder = self.open("root", OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        for part in Path::new(sandbox::WORK_DIR).iter().skip(1) {
            folder = openat(&folder, part, flags | OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty())?.into();
        }
        let list = openat(&folder, PLACES, flags | OFlag::O_RDONLY | OFlag::O_NONBLOCK, Mode::empty())?;
        let list = File::from(list);
        let own = nix::unistd::geteuid().as_raw();
        for part in [&folder, &list] {
            let meta = part.metadata()?;
            if meta.uid() != own || !(meta.is_file() || meta.is_dir()) {
                return Err(io::Error::from(io::ErrorKind::PermissionDenied));
            }
        }
        let mut text = String::new();
        list.take(LONGEST_LIST).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Whether a process, by its `status`, is the first of a PID namespace below ours (its programs see the same files) and is
/// user `own`, in all four user ids: a program that has got rights by its set-user-ID bit is not.
fn is_sandbox_init_of(status: &str, own: u32) -> bool {
    let field = |name: &str| {
        let values = status.lines().find_map(|line| line.strip_prefix(name));
        values.unwrap_or_default().split_whitespace().collect::<Vec<_>>()
    };
    let (ids, users, own) = (field("NSpid:"), field("Uid:"), own.to_string());
    ids.len() > 1 && ids.last() == Some(&"1") && users.len() == 4 && users.iter().all(|user| *user == own)
}

/// Runs a command in a running lab's place with this terminal. Call before any thread exists.
pub fn exec(place: &Running, argv: &[String]) -> Result<ExitStatus, NetnsError> {
    // Looked at anew: the number may be another process's by now.
    let init = Init::own(place.pid).ok_or_else(|| NetnsError::Io {
        attempted: format!("entering {}", place.place),
        source: io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("process {} is no lab that this user has started", place.pid),
        ),
    })?;
    let thread = Path::new("task").join(place.tid.to_string());
    let wanted = [
        (PathBuf::from("ns/user"), CloneFlags::CLONE_NEWUSER),
        (PathBuf::from("ns/pid"), CloneFlags::CLONE_NEWPID),
        (thread.join("ns/uts"), CloneFlags::CLONE_NEWUTS),
        (thread.join("ns/net"), CloneFlags::CLONE_NEWNET),
        // Last: /proc is another one after it.
        (thread.join("ns/mnt"), CloneFlags::CLONE_NEWNS),
    ];
    let failed = |path: &Path| NetnsError::io(format!("entering {} of process {}", path.display(), place.pid));
    let mut joined = Vec::new();
    for (path, kind) in wanted {
        let file = init.open(&path, OFlag::O_RDONLY).map_err(failed(&path))?;
        let same = kind == CloneFlags::CLONE_NEWUSER && is_own_user_namespace(&file);
        if !same {
            joined.push((path, kind, file));
        }
    }
    for (path, kind, file) in &joined {
        sys::join(file, *kind).map_err(failed(path))?;
    }
    let (program, args) = argv.split_first().ok_or_else(|| NetnsError::Io {
        attempted: format!("running a command in {}", place.place),
        source: io::Error::new(io::ErrorKind::InvalidInput, "no command given"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_is_a_first_process_that_is_its_user_in_every_way() {
        let status = |pids: &str, users: &str| format!("Name:\tx\nUid:\t{users}\nGid:\t0 0 0 0\nNSpid:\t{pids}\n");
        for (pids, users, is_own) in [
            ("4711\t1", "1000\t1000\t1000\t1000", true),
            ("4711\t77\t1", "1000\t1000\t1000\t1000", true),
            ("4711\t2", "1000\t1000\t1000\t1000", false),
            ("1", "1000\t1000\t1000\t1000", false),
            ("4711\t1", "1001\t1000\t1000\t1000", false),
            ("4711\t1", "1001\t1001\t1001\t1001", false),
        ] {
            assert_eq!(is_sandbox_init_of(&status(pids, users), 1000), is_own, "{pids} {users}");
        }
        assert!(!is_sandbox_init_of("", 1000));
    }
}
