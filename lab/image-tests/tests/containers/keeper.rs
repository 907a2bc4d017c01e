//! The tests' Docker daemon: a running one, or one from the distribution's package.
//!
//! The tests run in a child process, because `testcontainers` finds the daemon by the environment.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use testcontainers::bollard::API_DEFAULT_VERSION;

use super::versions;

/// The variable with a `/proc` of the daemon's PID namespace.
pub const PROC: &str = "IMAGE_TEST_PROC";
const START: Duration = Duration::from_secs(60);
/// Time limit for the end of the daemon's processes.
const END: Duration = Duration::from_secs(10);

struct Daemon {
    socket: PathBuf,
    /// The API version, such as `1.41`.
    version: String,
    proc: PathBuf,
    /// The daemon that the tests started; its containers end with this value.
    own: Option<Own>,
}

struct Own {
    unshare: Child,
    first: Option<PathBuf>,
    folder: tempfile::TempDir,
}

impl Drop for Own {
    fn drop(&mut self) {
        // `--kill-child` kills the daemon, the first process of its PID namespace, and the kernel all others.
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        let deadline = Instant::now() + END;
        while self.first.as_ref().is_some_and(|first| first.exists()) && Instant::now() < deadline {
            sleep(Duration::from_millis(10));
        }
    }
}

pub fn run() -> anyhow::Result<ExitCode> {
    ensure!(nix::unistd::geteuid().is_root(), "root is missing: the test wires containers' network namespaces");
    let daemon = match running() {
        Some(daemon) => daemon,
        None => start()?,
    };
    let folder = tempfile::tempdir()?;
    let client = format!("{}.{}", API_DEFAULT_VERSION.major_version, API_DEFAULT_VERSION.minor_version);
    let socket = if versions::less(&daemon.version, &client) {
        let translated = folder.path().join("docker.sock");
        versions::translate(&translated, &daemon.socket, &daemon.version)?;
        translated
    } else {
        daemon.socket.clone()
    };
    let mut tests = Command::new(std::env::current_exe()?);
    tests.args(std::env::args_os().skip(1)).env(PROC, &daemon.proc);
    tests.env("DOCKER_HOST", format!("unix://{}", socket.display()));
    svclab_netns::die_with_this_process(&mut tests);
    let status = tests.status().context("cannot start the tests")?;
    if let Some(own) = &daemon.own
        && !status.success()
    {
        eprintln!("the daemon's last lines:\n{}", last_lines(&own.folder.path().join("log")));
    }
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Finds a daemon at `DOCKER_HOST` or the default socket.
fn running() -> Option<Daemon> {
    let host = std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned());
    let socket = PathBuf::from(host.strip_prefix("unix://")?);
    let version = version(&socket).ok()?;
    Some(Daemon { socket, version, proc: PathBuf::from("/proc"), own: None })
}

/// Starts a daemon in its own namespaces and a temporary folder. It leaves the machine's network and rules alone;
/// containers have only the networks `none`, `host` and `container:`.
fn start() -> anyhow::Result<Daemon> {
    let folder = tempfile::Builder::new().prefix("image-test").tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let (socket, log) = (at("own.sock"), std::fs::File::create(at("log"))?);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "dockerd"]);
    command.args(["--iptables=false", "--ip6tables=false", "--bridge=none"]);
    for (flag, path) in [("data-root", "data"), ("exec-root", "exec"), ("pidfile", "pid")] {
        command.arg(format!("--{flag}={}", at(path).display()));
    }
    command.arg(format!("--host=unix://{}", socket.display()));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    svclab_netns::die_with_this_process(&mut command);
    let unshare = command.spawn().context("cannot start unshare (package util-linux)")?;
    let (pid, mut own) = (unshare.id(), Own { unshare, first: None, folder });
    let deadline = Instant::now() + START;
    loop {
        if let Ok(version) = version(&socket) {
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
            let first = children.split_whitespace().next().context("the daemon has no process")?;
            let first = Path::new("/proc").join(first);
            let proc = first.join("root/proc");
            own.first = Some(first);
            return Ok(Daemon { socket, version, proc, own: Some(own) });
        }
        let ended = own.unshare.try_wait()?.is_some();
        if ended || Instant::now() > deadline {
            let said = last_lines(&own.folder.path().join("log"));
            bail!("no Docker daemon answers, and none could be started (package docker.io):\n{said}");
        }
        sleep(Duration::from_millis(50));
    }
}

fn last_lines(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

fn version(socket: &Path) -> anyhow::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /version HTTP/1.0\r\nHost: docker\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no answer of HTTP")?;
    let body: serde_json::Value = serde_json::from_str(body)?;
    Ok(body["ApiVersion"].as_str().context("no version")?.to_owned())
}
