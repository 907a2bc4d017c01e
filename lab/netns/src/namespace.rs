//! A network namespace with its thread.
//!
//! A socket belongs to the namespace of the thread that creates it: closures create sockets on this thread, for the
//! caller's runtime. Programs inherit the thread's namespaces and die with it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use futures_util::try_join;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::{RwLock, RwLockReadGuard, oneshot};

use super::links::{Links, VethEnd};
use super::sandbox::{self, SandboxRights, WORK_DIR};
use super::{NetnsError, guard, sys};

/// Linux allows 64 characters, Kubernetes 63.
const LONGEST_HOST_NAME: usize = 63;

/// Taken for reading by sockets that must not be copied, for writing by the start of a program.
static STARTS: RwLock<()> = RwLock::const_new(());

/// See [`hold_starts`].
pub type NoStarts = RwLockReadGuard<'static, ()>;

type NamespaceJob = Box<dyn FnOnce() + Send>;

/// What a host has of its own besides the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Only a host name, for pods and clients.
    Network,
    /// Host name, `/sys` and `/run`, for nodes.
    Host,
}

/// Delays the start of programs in all namespaces until the guard is dropped. Until its `exec` a started program has
/// copies of this process's sockets, and a socket that is closed meanwhile keeps its port.
pub async fn hold_starts() -> NoStarts {
    STARTS.read().await
}

/// A host, which ends with this handle, its sockets and programs.
pub struct Namespace {
    name: String,
    jobs: mpsc::Sender<NamespaceJob>,
    net: File,
    thread_dir: Option<PathBuf>,
    links: Links,
}

struct NamespaceParts {
    net: File,
    thread_dir: Option<PathBuf>,
    links: Links,
}

impl Namespace {
    /// Creates a namespace; its host name is `name` after the last `/`.
    pub async fn create(name: &str, isolation: Isolation) -> Result<Namespace, NetnsError> {
        let (jobs, queue) = mpsc::channel::<NamespaceJob>();
        let (ready, started) = oneshot::channel();
        let runtime = Handle::current();
        let thread_name = name.to_owned();
        thread::Builder::new()
            .name(name.chars().take(15).collect())
            .spawn(move || {
                let result = start(&thread_name, isolation, &runtime);
                let stands = result.is_ok();
                if ready.send(result).is_ok() && stands {
                    for job in queue {
                        job();
                    }
                }
            })
            .map_err(NetnsError::io(format!("starting a thread for namespace {name}")))?;
        let NamespaceParts { net, thread_dir, links } =
            started.await.map_err(|_| NetnsError::Gone(name.to_owned()))??;
        Ok(Namespace { name: name.to_owned(), jobs, net, thread_dir, links })
    }

    /// The name given to [`Namespace::create`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace's descriptor.
    pub fn net_fd(&self) -> RawFd {
        self.net.as_raw_fd()
    }

    /// Returns the socket for interfaces, addresses and routes.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Adds a veth pair (`near` optionally a bridge port; `far` in `into`) and waits until it is operational.
    pub async fn add_veth(
        &self,
        near: &VethEnd<'_>,
        controller: Option<u32>,
        far: &VethEnd<'_>,
        into: &Namespace,
    ) -> Result<(), NetnsError> {
        self.links.make_veth(near, controller, far, into.net_fd()).await?;
        into.links.up(far.index).await?;
        try_join!(self.links.working(near.index), into.links.working(far.index))?;
        match controller {
            Some(bridge) => self.links.working(bridge).await,
            None => Ok(()),
        }
    }

    /// The thread's directory in the host's `/proc`; `None` outside a sandbox.
    pub fn thread_dir(&self) -> Option<&Path> {
        self.thread_dir.as_deref()
    }

    /// Runs `work` on the namespace's thread, which it blocks. Panics continue in the caller.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, NetnsError> {
        let (reply, answer) = oneshot::channel();
        let job: NamespaceJob = Box::new(move || {
            let _ = reply.send(catch_unwind(AssertUnwindSafe(work)));
        });
        let gone = || NetnsError::Gone(self.name.clone());
        self.jobs.send(job).map_err(|_| gone())?;
        match answer.await.map_err(|_| gone())? {
            Ok(value) => Ok(value),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Starts a program, when [`hold_starts`] allows, as a process group that dies with the namespace.
    pub async fn spawn(&self, mut command: Command) -> Result<Child, NetnsError> {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        for variable in sandbox::PRIVATE_ENVIRONMENT {
            command.env_remove(variable);
        }
        command.process_group(0);
        sys::tie_to_parent(command.as_std_mut());
        let (runtime, start) = (Handle::current(), STARTS.write().await);
        let started = self
            .run(move || {
                let (_context, _start) = (runtime.enter(), start);
                // Returns after the program's `exec`.
                command.spawn()
            })
            .await?;
        started.map_err(NetnsError::io(format!("starting {program} in {}", self.name)))
    }

    /// Writes kernel settings such as `("net/ipv4/ip_forward", "1")`.
    pub async fn sysctl(&self, settings: Vec<(String, String)>) -> Result<(), NetnsError> {
        let name = self.name.clone();
        self.run(move || {
            settings.into_iter().try_for_each(|(key, value)| {
                fs::write(format!("/proc/sys/{key}"), &value)
                    .map_err(NetnsError::io(format!("{name}: setting {key} to {value}")))
            })
        })
        .await?
    }
}

fn start(name: &str, isolation: Isolation, runtime: &Handle) -> Result<NamespaceParts, NetnsError> {
    let io = |what: &str| NetnsError::io(format!("namespace {name}: {what}"));
    let own = "/proc/thread-self/ns/net";
    let before = fs::metadata(own).map_err(io("reading its inode number"))?.ino();
    match isolation {
        Isolation::Network => sys::unshare_net().map_err(io("creating namespaces"))?,
        Isolation::Host => {
            sys::unshare_host().map_err(io("creating namespaces"))?;
            host_mounts().map_err(io("mounting its own /sys and /run"))?;
        }
    }
    nix::unistd::sethostname(host_name(name)).map_err(|e| io("setting the host name")(io::Error::from(e)))?;
    let net = File::open(own).map_err(io("opening it"))?;
    let after = net.metadata().map_err(io("reading its inode number"))?.ino();
    if before == after {
        return Err(io("comparing inode numbers")(io::Error::other("still in the old namespace")));
    }
    let links = Links::open(name, runtime)?;
    let thread_dir = sandbox::outside().map(sandbox::HostView::thread_dir).transpose();
    let thread_dir = thread_dir.map_err(io("finding the thread in the outer /proc"))?;
    Ok(NamespaceParts { net, thread_dir, links })
}

fn host_name(name: &str) -> &str {
    let name = name.rsplit('/').next().unwrap_or(name);
    let end = name.char_indices().nth(LONGEST_HOST_NAME).map_or(name.len(), |(end, _)| end);
    name[..end].trim_end_matches(['-', '.'])
}

/// Mounts a node's own `/sys`, and a `/run` with only the work directory.
fn host_mounts() -> io::Result<()> {
    if sandbox::outside().is_some_and(|outside| outside.rights == SandboxRights::Root) {
        guard::devices()?;
    } else {
        // A container with a masked /sys refuses this mount.
        let _ = sys::mount_pseudo("sysfs", Path::new("/sys"));
    }
    let work = File::open(WORK_DIR)?;
    sys::mount_tmpfs(Path::new("/run"))?;
    fs::create_dir_all(WORK_DIR)?;
    let work = format!("/proc/thread-self/fd/{}", work.as_raw_fd());
    sys::bind_mount(Path::new(&work), Path::new(WORK_DIR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_is_the_last_part_of_the_name() {
        assert_eq!(host_name("node-a"), "node-a");
        assert_eq!(host_name("pod/default/web-1"), "web-1");
        let long = format!("pod/default/{}-{}", "a".repeat(62), "b".repeat(40));
        assert_eq!(host_name(&long), "a".repeat(62));
    }
}
