//! Finds running labs.
//!
//! A lab lists its hosts in a file in its private `/run`, which its user sees below `/proc/PID/root` (PID: its first
//! inner process). Interactive labs also describe themselves and may listen on a socket.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use nix::fcntl::{OFlag, open, openat};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use super::namespace::Namespace;
use super::{sandbox, sys};

/// The file with a line `TID<tab>HOST` per host.
const PLACES: &str = "places";
/// The file with name, scenario and mode, one per line.
const ABOUT: &str = "about";
/// The size limit in bytes.
const LONGEST_LIST: u64 = 1 << 20;
/// The wait for a lab's end: longer than the outer process's ten seconds.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(10);

/// A running lab's host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabPlace {
    /// First process of the sandbox, in the caller's PID namespace.
    pub pid: i32,
    /// `node/a`, `pod/default/web`.
    pub place: String,
    /// Thread id of the host, in the caller's PID namespace.
    pub tid: i32,
}

/// The description of an interactive lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabDescription {
    /// Unique per user.
    pub name: String,
    /// The scenario's path.
    pub scenario: String,
    /// The proxies' mode.
    pub mode: String,
}

/// A running lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningLab {
    /// First process of the sandbox, in the caller's PID namespace.
    pub pid: i32,
    /// Process id of the process outside the sandbox.
    pub outer: i32,
    /// `None` if the lab is not interactive.
    pub about: Option<LabDescription>,
    /// Start time.
    pub since: SystemTime,
    /// Its hosts.
    pub places: Vec<LabPlace>,
}

/// Writes the hosts' list.
pub fn publish<'a>(places: impl Iterator<Item = (String, &'a Namespace)>) -> io::Result<()> {
    let mut text = String::new();
    for (place, namespace) in places {
        let tid = namespace.thread_dir().and_then(Path::file_name);
        if let Some(tid) = tid {
            text.push_str(&format!("{}\t{place}\n", tid.to_string_lossy()));
        }
    }
    replace(PLACES, &text)
}

/// Writes the description.
pub fn announce(about: &LabDescription) -> io::Result<()> {
    replace(ABOUT, &format!("{}\n{}\n{}\n", about.name, about.scenario, about.mode))
}

fn replace(name: &str, text: &str) -> io::Result<()> {
    let work = Path::new(sandbox::WORK_DIR);
    let fresh = work.join(format!("{name}.new"));
    fs::write(&fresh, text)?;
    fs::rename(fresh, work.join(name))
}

/// Returns all labs of this user.
#[must_use]
pub fn labs() -> Vec<RunningLab> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut labs: Vec<RunningLab> = pids.filter_map(|pid| SandboxInit::own(pid)?.lab(pid).ok()).collect();
    labs.sort_by_key(|lab| (lab.since, lab.pid));
    labs
}

/// Returns the hosts of this user's labs.
#[must_use]
pub fn running() -> Vec<LabPlace> {
    labs().into_iter().flat_map(|lab| lab.places).collect()
}

/// Connects to a socket in a lab's work directory.
pub fn connect(pid: i32, name: &str) -> io::Result<UnixStream> {
    let init = SandboxInit::own(pid).ok_or_else(|| not_own(pid))?;
    let folder = init.work_dir()?;
    UnixStream::connect(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}

/// Ends a lab: sends SIGINT, later SIGKILL, and waits for its processes.
///
/// # Errors
/// The lab is another user's, or survives SIGKILL.
pub fn end(lab: &RunningLab) -> io::Result<()> {
    let init = SandboxInit::own(lab.pid).ok_or_else(|| not_own(lab.pid))?;
    let outer = SandboxInit::directory(lab.outer);
    kill(Pid::from_raw(lab.pid), Signal::SIGINT)?;
    if !init.is_gone_within(PATIENCE) {
        kill(Pid::from_raw(lab.pid), Signal::SIGKILL)?;
    }
    let gone = init.is_gone_within(PATIENCE) && outer.is_none_or(|outer| outer.is_gone_within(PATIENCE));
    if gone { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
}

pub(super) fn not_own(pid: i32) -> io::Error {
    let why = format!("process {pid} is not a lab of this user");
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// A sandbox's first process, by its `/proc` directory, because process ids are reused.
pub(super) struct SandboxInit(File);

impl SandboxInit {
    /// `None` unless the process can be this user's lab: root must not enter labs that others control.
    pub(super) fn own(pid: i32) -> Option<SandboxInit> {
        let init = SandboxInit::directory(pid)?;
        let status = init.status().ok()?;
        let own = nix::unistd::geteuid().as_raw();
        let namespace = init.open("ns/user", OFlag::O_RDONLY).ok()?;
        let is_own = is_sandbox_init_of(&status, own)
            && (is_own_user_namespace(&namespace) || sys::namespace_owner(&namespace).ok()? == own);
        is_own.then_some(init)
    }

    fn directory(pid: i32) -> Option<SandboxInit> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Some(SandboxInit(open(Path::new(&format!("/proc/{pid}")), flags, Mode::empty()).ok()?.into()))
    }

    fn status(&self) -> io::Result<String> {
        let mut status = String::new();
        self.open("status", OFlag::O_RDONLY)?.take(LONGEST_LIST).read_to_string(&mut status)?;
        Ok(status)
    }

    /// Waits for the process's end; zombies count as ended.
    fn is_gone_within(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        loop {
            let gone =
                self.status().map_or(true, |status| matches!(field(&status, "State:").first(), Some(&("Z" | "X"))));
            if gone || Instant::now() >= end {
                return gone;
            }
            std::thread::sleep(LOOK);
        }
    }

    pub(super) fn open(&self, path: impl AsRef<Path>, flags: OFlag) -> io::Result<File> {
        Ok(openat(&self.0, path.as_ref(), flags | OFlag::O_CLOEXEC, Mode::empty())?.into())
    }

    fn lab(&self, pid: i32) -> io::Result<RunningLab> {
        let folder = self.work_dir()?;
        let (places, up) = read(&folder, PLACES)?;
        let places = places.lines().filter_map(|line| {
            let (tid, place) = line.split_once('\t')?;
            Some(LabPlace { pid, place: place.to_owned(), tid: tid.parse().ok()? })
        });
        let (about, since) = match read(&folder, ABOUT) {
            Ok((text, since)) => (about_of(&text), since),
            Err(_) => (None, up),
        };
        let outer = field(&self.status()?, "PPid:").first().and_then(|pid| pid.parse().ok()).unwrap_or(pid);
        Ok(RunningLab { pid, outer, about, since, places: places.collect() })
    }

    /// Opens the work directory; rejects links and other users' directories.
    fn work_dir(&self) -> io::Result<File> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_PATH | OFlag::O_DIRECTORY;
        let mut folder = self.open("root", OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        for part in Path::new(sandbox::WORK_DIR).iter().skip(1) {
            folder = openat(&folder, part, flags, Mode::empty())?.into();
        }
        if folder.metadata()?.uid() == nix::unistd::geteuid().as_raw() { Ok(folder) } else { Err(foreign()) }
    }
}

/// Returns a file's content and modification time; rejects other users' files.
fn read(folder: &File, name: &str) -> io::Result<(String, SystemTime)> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY | OFlag::O_NONBLOCK;
    let file = File::from(openat(folder, name, flags, Mode::empty())?);
    let meta = file.metadata()?;
    if meta.uid() != nix::unistd::geteuid().as_raw() || !meta.is_file() {
        return Err(foreign());
    }
    let mut text = String::new();
    file.take(LONGEST_LIST).read_to_string(&mut text)?;
    Ok((text, meta.modified()?))
}

fn foreign() -> io::Error {
    io::Error::from(io::ErrorKind::PermissionDenied)
}

fn about_of(text: &str) -> Option<LabDescription> {
    let mut lines = text.lines().map(str::to_owned);
    Some(LabDescription { name: lines.next()?, scenario: lines.next()?, mode: lines.next()? })
}

fn field<'a>(status: &'a str, name: &str) -> Vec<&'a str> {
    let values = status.lines().find_map(|line| line.strip_prefix(name));
    values.unwrap_or_default().split_whitespace().collect()
}

/// Whether the process is a nested namespace's PID 1, with `own` as all four user ids (unlike set-user-ID programs).
fn is_sandbox_init_of(status: &str, own: u32) -> bool {
    let (ids, users, own) = (field(status, "NSpid:"), field(status, "Uid:"), own.to_string());
    ids.len() > 1 && ids.last() == Some(&"1") && users.len() == 4 && users.iter().all(|user| *user == own)
}

pub(super) fn is_own_user_namespace(file: &File) -> bool {
    let own = fs::metadata("/proc/self/ns/user").map(|m| m.ino());
    matches!((own, file.metadata().map(|m| m.ino())), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_is_pid_1_with_all_user_ids_of_its_user() {
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

    #[test]
    fn a_labs_description_is_parsed() {
        let about = LabDescription { name: "a".to_owned(), scenario: "s.yaml".to_owned(), mode: "ipvs".to_owned() };
        assert_eq!(about_of("a\ns.yaml\nipvs\n"), Some(about));
        assert_eq!(about_of("a\n"), None);
    }
}
