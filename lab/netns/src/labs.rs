//! Which labs run on this machine, seen from another terminal.
//!
//! A lab lists its places in a file of its private `/run`, which this user sees as `/proc/PID/root/run/svclab/places`
//! as long as the lab runs; PID is the lab's first process inside. One that is up to be looked around in says in a second file
//! what it is, and may listen on a socket beside it.

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

/// File in [`sandbox::WORK_DIR`] with one `TID<tab>PLACE` line per place.
const PLACES: &str = "places";
/// File there with the lab's name, scenario and mode, a line each.
const ABOUT: &str = "about";
/// Bytes of a list that are read: thousands of places.
const LONGEST_LIST: u64 = 1 << 20;
/// How long a lab may take to end before it is killed: longer than its outer process leaves it.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks at whether a process is gone.
const LOOK: Duration = Duration::from_millis(10);

/// A place of a running lab, seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabPlace {
    /// Process id of the lab, in the caller's numbering.
    pub pid: i32,
    /// The place, as a cluster prints it, for example `node/a` or `pod/default/web`.
    pub place: String,
    /// Thread that lives in the place's namespaces, in the caller's numbering.
    pub tid: i32,
}

/// What a lab says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabDescription {
    /// Its name, which no other lab of this user has.
    pub name: String,
    /// What it was built from.
    pub scenario: String,
    /// The mode of its proxies.
    pub mode: String,
}

/// A running lab, seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningLab {
    /// Its first process inside, in the caller's numbering.
    pub pid: i32,
    /// The process that the user started.
    pub outer: i32,
    /// None: it is no lab to look around in, but a run of scenarios.
    pub about: Option<LabDescription>,
    /// When it was up.
    pub since: SystemTime,
    /// Its places.
    pub places: Vec<LabPlace>,
}

/// Writes the list of this lab's places.
///
/// # Errors
/// When the file cannot be written.
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

/// Says what this lab is.
///
/// # Errors
/// When the file cannot be written.
pub fn announce(about: &LabDescription) -> io::Result<()> {
    replace(ABOUT, &format!("{}\n{}\n{}\n", about.name, about.scenario, about.mode))
}

fn replace(name: &str, text: &str) -> io::Result<()> {
    let work = Path::new(sandbox::WORK_DIR);
    let fresh = work.join(format!("{name}.new"));
    fs::write(&fresh, text)?;
    fs::rename(fresh, work.join(name))
}

/// All running labs that this user has started, those that only run scenarios included.
#[must_use]
pub fn labs() -> Vec<RunningLab> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut labs: Vec<RunningLab> = pids.filter_map(|pid| Init::own(pid)?.lab(pid).ok()).collect();
    labs.sort_by_key(|lab| (lab.since, lab.pid));
    labs
}

/// All places of all running labs that this user has started.
#[must_use]
pub fn running() -> Vec<LabPlace> {
    labs().into_iter().flat_map(|lab| lab.places).collect()
}

/// Connects to the socket `name` of a lab's work directory.
///
/// # Errors
/// When process `pid` is no lab of this user's, or nothing listens there.
pub fn connect(pid: i32, name: &str) -> io::Result<UnixStream> {
    let init = Init::own(pid).ok_or_else(|| not_own(pid))?;
    let folder = init.work_dir()?;
    UnixStream::connect(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}

/// Ends a lab as ctrl-c does, and waits until it is gone, the process that the user started included.
///
/// # Errors
/// When it is no lab of this user's (any more), or does not even end when it is killed.
pub fn end(lab: &RunningLab) -> io::Result<()> {
    let init = Init::own(lab.pid).ok_or_else(|| not_own(lab.pid))?;
    let outer = Init::directory(lab.outer);
    kill(Pid::from_raw(lab.pid), Signal::SIGINT)?;
    if !init.is_gone_within(PATIENCE) {
        kill(Pid::from_raw(lab.pid), Signal::SIGKILL)?;
    }
    let gone = init.is_gone_within(PATIENCE) && outer.is_none_or(|outer| outer.is_gone_within(PATIENCE));
    if gone { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
}

/// What to say of a process that must not be entered.
pub(super) fn not_own(pid: i32) -> io::Error {
    let why = format!("process {pid} is no lab that this user has started");
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// The first process of a sandbox, by its open directory in `/proc`: what is opened by way of it is this process's, whatever
/// becomes of its number.
pub(super) struct Init(File);

impl Init {
    /// Process `pid`, if it can be a lab of this user's. Root could enter any other user's as well, and would run there what
    /// that user has put in the place of programs.
    pub(super) fn own(pid: i32) -> Option<Init> {
        let init = Init::directory(pid)?;
        let status = init.status().ok()?;
        let own = nix::unistd::geteuid().as_raw();
        let namespace = init.open("ns/user", OFlag::O_RDONLY).ok()?;
        let is_own = is_sandbox_init_of(&status, own)
            && (is_own_user_namespace(&namespace) || sys::namespace_owner(&namespace).ok()? == own);
        is_own.then_some(init)
    }

    /// Any process.
    fn directory(pid: i32) -> Option<Init> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Some(Init(open(Path::new(&format!("/proc/{pid}")), flags, Mode::empty()).ok()?.into()))
    }

    fn status(&self) -> io::Result<String> {
        let mut status = String::new();
        self.open("status", OFlag::O_RDONLY)?.take(LONGEST_LIST).read_to_string(&mut status)?;
        Ok(status)
    }

    /// Whether it has ended, or does so in time. One whose parent has not asked for its status yet has ended.
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

    /// Opens a file below its directory. Links of the kernel's own, such as namespaces, are followed.
    pub(super) fn open(&self, path: impl AsRef<Path>, flags: OFlag) -> io::Result<File> {
        Ok(openat(&self.0, path.as_ref(), flags | OFlag::O_CLOEXEC, Mode::empty())?.into())
    }

    /// The lab that it is.
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

    /// Its work directory: one of this user's, to which no link leads.
    fn work_dir(&self) -> io::Result<File> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_PATH | OFlag::O_DIRECTORY;
        let mut folder = self.open("root", OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        for part in Path::new(sandbox::WORK_DIR).iter().skip(1) {
            folder = openat(&folder, part, flags, Mode::empty())?.into();
        }
        if folder.metadata()?.uid() == nix::unistd::geteuid().as_raw() { Ok(folder) } else { Err(foreign()) }
    }
}

/// A file of this user's in a lab's work directory, and when it was written.
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

/// The words of a field of a process's `status`.
fn field<'a>(status: &'a str, name: &str) -> Vec<&'a str> {
    let values = status.lines().find_map(|line| line.strip_prefix(name));
    values.unwrap_or_default().split_whitespace().collect()
}

/// Whether a process, by its `status`, is the first of a PID namespace below ours (its programs see the same files) and is
/// user `own`, in all four user ids: a program that has got rights by its set-user-ID bit is not.
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

    #[test]
    fn what_a_lab_says_of_itself_is_read_again() {
        let about = LabDescription { name: "a".to_owned(), scenario: "s.yaml".to_owned(), mode: "ipvs".to_owned() };
        assert_eq!(about_of("a\ns.yaml\nipvs\n"), Some(about));
        assert_eq!(about_of("a\n"), None);
    }
}
