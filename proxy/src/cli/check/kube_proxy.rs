//! Looks for a kube-proxy that still runs in this network namespace.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// The name of its process (proc(5), `comm`).
const NAME: &str = "kube-proxy";
/// Its default ports of metrics and health, a path that it answers there, and a part of the answer.
const PORTS: [(u16, &str, &[&str]); 2] =
    [(10249, "/proxyMode", &["iptables", "ipvs", "nftables"]), (10256, "/healthz", &["\"lastUpdated\""])];
const CONNECT: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(2);
/// In bytes. The answers are shorter.
const LARGEST: u64 = 4 << 10;

/// In a container without the host's processes only the ports tell.
pub(super) fn running() -> Option<String> {
    process().map(|process| format!("process {process} is a kube-proxy")).or_else(answering_port)
}

fn process() -> Option<String> {
    let own = fs::read_link("/proc/self/ns/net").ok();
    let mut processes = fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    processes.find(|process| {
        let is_named = || fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.trim_end() == NAME);
        // Nodes in containers of this machine have network namespaces of their own.
        let is_here = || {
            fs::read_link(format!("/proc/{process}/ns/net"))
                .ok()
                .is_none_or(|of| own.as_ref().is_none_or(|own| *own == of))
        };
        process.bytes().all(|byte| byte.is_ascii_digit()) && is_named() && is_here()
    })
}

fn answering_port() -> Option<String> {
    let answers = |(port, path, parts): &(u16, &str, &[&str])| {
        let text = get(*port, path).unwrap_or_default();
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        parts.iter().any(|part| body.contains(part))
    };
    let (port, path, _) = PORTS.iter().find(|port| answers(port))?;
    Some(format!("port {port} answers to {path} as kube-proxy does"))
}

fn get(port: u16, path: &str) -> std::io::Result<String> {
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let mut stream = TcpStream::connect_timeout(&address, CONNECT)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    // In one write: a server may answer the first piece and close, and then the next one fails.
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    // A server may keep the connection open after its answer.
    let read = stream.take(LARGEST).read_to_end(&mut answer);
    if answer.is_empty() {
        read?;
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
