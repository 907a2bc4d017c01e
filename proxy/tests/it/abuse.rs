//! Malicious clients against every port of a proxy with few descriptors. A change of a Service still reaches the
//! kernel.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::support::{Proxy, every_kind, http_get, inside, shell, wait_for};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// More connections than a process of 1,024 descriptors can hold.
const CONNECTIONS: usize = 1100;
/// Requests per write. Their answers fill the buffers of both sides within some megabytes.
const REQUESTS: usize = 400;

fn write(directory: &Path, version: u32, hosts: &[u8]) {
    let partial = directory.join(".partial");
    std::fs::write(&partial, every_kind(version, hosts)).unwrap();
    std::fs::rename(partial, directory.join("cluster.json")).unwrap();
}

struct Abuser {
    address: SocketAddr,
    request: String,
    streams: Vec<TcpStream>,
}

impl Abuser {
    fn new(address: &str, path: &str) -> Abuser {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").repeat(REQUESTS);
        Abuser { address: address.parse().unwrap(), request, streams: Vec::new() }
    }

    /// Opens up to `more` connections, and fills them.
    fn press(&mut self, more: usize) {
        for _ in 0..more {
            let Ok(stream) = TcpStream::connect_timeout(&self.address, Duration::from_millis(100)) else { break };
            stream.set_nonblocking(true).unwrap();
            self.streams.push(stream);
        }
        self.send();
    }

    fn send(&mut self) {
        let request = self.request.as_bytes();
        self.streams.retain_mut(|stream| match stream.write(request) {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
    }
}

#[test]
fn a_change_reaches_the_kernel_while_clients_ask_and_never_read() {
    if !inside!() {
        return;
    }
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    for mode in ["iptables", "userspace"] {
        let directory = tempfile::tempdir_in("/run").unwrap();
        write(directory.path(), 1, &[2, 3]);
        let manifests = directory.path().to_str().unwrap();
        let flags = ["--proxy-mode", mode, "--hostname-override=node-a", "--manifests", manifests];
        let proxy = Proxy::limited("-n 1024", &[&flags[..], &["--iptables-min-sync-period=10ms"]].concat());
        proxy.synced(Some("1"));
        wait_for("the health check", || http_get("127.0.0.1:32004", "/"));
        let mut version = 1;
        for (address, path) in
            [("127.0.0.1:10256", "/healthz"), ("127.0.0.1:32004", "/"), ("127.0.0.1:10249", "/metrics")]
        {
            let mut abuser = Abuser::new(address, path);
            abuser.press(CONNECTIONS);
            (0..20).for_each(|_| abuser.press(0));
            version += 1;
            // Each version has a new endpoint, which the proxy must program.
            write(directory.path(), version, &[2, 100 + u8::try_from(version).unwrap()]);
            wait_for(&format!("the change under {address}, in {mode} mode"), || {
                abuser.press(20);
                let body = http_get("127.0.0.1:10256", "/healthz")?;
                body.contains(&format!("\"appliedResourceVersion\":\"{version}\"")).then_some(())
            });
            if mode == "iptables" {
                let endpoint = format!("10.244.1.{}:8080", 100 + version);
                assert!(shell("iptables-save -t nat").contains(&endpoint), "{endpoint} under {address}");
            }
            let descriptors = std::fs::read_dir(format!("/proc/{}/fd", proxy.0.id())).unwrap().count();
            assert!(descriptors < 768, "{descriptors} under {address}: a quarter stays free for syncs");
        }
    }
}

#[test]
fn a_proxy_with_few_descriptors_starts_and_syncs() {
    if !inside!() {
        return;
    }
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let directory = tempfile::tempdir_in("/run").unwrap();
    write(directory.path(), 1, &[2, 3]);
    let manifests = directory.path().to_str().unwrap();
    let flags = ["--hostname-override=node-a", "--manifests", manifests, "--iptables-min-sync-period=10ms"];
    let proxy = Proxy::limited("-n 64", &flags);
    proxy.synced(Some("1"));
    let mut abusers: Vec<Abuser> =
        [("127.0.0.1:10256", "/healthz"), ("127.0.0.1:32004", "/"), ("127.0.0.1:10249", "/metrics")]
            .into_iter()
            .map(|(address, path)| Abuser::new(address, path))
            .collect();
    abusers.iter_mut().for_each(|abuser| abuser.press(100));
    write(directory.path(), 2, &[2, 7]);
    wait_for("the change", || {
        abusers.iter_mut().for_each(|abuser| abuser.press(20));
        shell("iptables-save -t nat").contains("10.244.1.7:8080").then_some(())
    });
}

#[test]
fn the_soft_limit_of_descriptors_is_raised_at_the_start() {
    if !inside!() {
        return;
    }
    let directory = tempfile::tempdir_in("/run").unwrap();
    write(directory.path(), 1, &[2, 3]);
    let manifests = directory.path().to_str().unwrap();
    let proxy = Proxy::limited("-S -n 256", &["--hostname-override=node-a", "--manifests", manifests]);
    proxy.synced(Some("1"));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", proxy.0.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
    assert!(numbers[0] == numbers[1] && numbers[0] != "256", "{line}");
}

fn count(proxy: &Proxy, what: &str) -> usize {
    std::fs::read_dir(format!("/proc/{}/{what}", proxy.0.id())).unwrap().count()
}

#[test]
fn scrapes_that_are_abandoned_while_a_command_hangs_leave_nothing() {
    if !inside!() {
        return;
    }
    let directory = tempfile::tempdir_in("/run").unwrap();
    let (manifests, commands) = (directory.path().join("manifests"), directory.path().join("commands"));
    let (hang, started) = (directory.path().join("hang"), directory.path().join("started"));
    std::fs::create_dir(&manifests).unwrap();
    std::fs::create_dir(&commands).unwrap();
    write(&manifests, 1, &[2, 3]);
    // A script precedes the real command in PATH, and hangs when a scrape reads counters.
    let real = shell("command -v iptables");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *'-v -S'*) echo >>{started}; while [ -e {hang} ]; do sleep 0.05; done;; esac\nexec {} \"$@\"\n",
        real.trim(),
        started = started.display(),
        hang = hang.display(),
    );
    std::fs::write(commands.join("iptables"), script).unwrap();
    shell(&format!("chmod 755 {}/iptables", commands.display()));
    let path = format!("{}:{}", commands.display(), std::env::var("PATH").unwrap());
    let flags =
        ["--hostname-override=node-a", "--iptables-writer=commands", "--manifests", manifests.to_str().unwrap()];
    let proxy = Proxy::with_path(&path, &flags);
    proxy.synced(Some("1"));
    let whole = || {
        http_get("127.0.0.1:10249", "/metrics")
            .filter(|text| text.contains("\nkubeproxy_iptables_ct_state_invalid_dropped_packets_total 0\n"))
    };
    wait_for("a scrape", whole);
    let readings = || std::fs::read_to_string(&started).unwrap_or_default().lines().count();
    let (before, threads, descriptors) = (readings(), count(&proxy, "task"), count(&proxy, "fd"));

    std::fs::write(&hang, "").unwrap();
    for _ in 0..100 {
        let mut stream = TcpStream::connect("127.0.0.1:10249").unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    }
    wait_for("the command that hangs", || (readings() > before).then_some(()));
    // Waiting scrapes are answered with the metrics that need no command.
    let text = http_get("127.0.0.1:10249", "/metrics").unwrap();
    assert!(text.contains("\nprocess_resident_memory_bytes ") && text.starts_with("HTTP/1.1 200 "), "{text}");
    assert_eq!(readings(), before + 1, "one command for a hundred scrapes");
    // The reading thread, a blocking thread of the runtime, and the pipes of one command remain.
    wait_for("the end of the scrapes", || {
        (count(&proxy, "task") <= threads + 2 && count(&proxy, "fd") <= descriptors + 8).then_some(())
    });
    assert_eq!(readings(), before + 1);
    std::fs::remove_file(&hang).unwrap();
    wait_for("a scrape after it", whole);
}
