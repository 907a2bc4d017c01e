//! Listening sockets, without their programs and peers, for privacy.

use std::net::SocketAddr;

use procfs::net::{TcpNetEntries, TcpNetEntry, TcpState, UdpNetEntries, UdpNetEntry, UdpState};
use procfs::{FromReadSI, ProcResult, current_system_info};

use super::{files, unread};
use crate::archive::entries::ArchivePart;
use crate::{ListeningSocket, Unread};

/// Returns the sockets, sorted and without duplicates (`SO_REUSEPORT`).
pub(super) fn read() -> Result<Vec<ListeningSocket>, Unread> {
    let mut sockets = Vec::new();
    let mut add = |protocol: &str, at: SocketAddr| {
        sockets.push(ListeningSocket { protocol: protocol.to_owned(), address: at.ip(), port: at.port() });
    };
    for name in ["tcp", "tcp6"] {
        let entries: Vec<TcpNetEntry> =
            table(name, |text| TcpNetEntries::from_read(text, current_system_info()).map(|all| all.0))?;
        let listening = entries.into_iter().filter(|entry| entry.state == TcpState::Listen);
        listening.for_each(|entry| add("tcp", entry.local_address));
    }
    for name in ["udp", "udp6"] {
        let entries: Vec<UdpNetEntry> =
            table(name, |text| UdpNetEntries::from_read(text, current_system_info()).map(|all| all.0))?;
        // Unconnected UDP sockets have TCP's closed state (net/ipv4/udp.c).
        let unconnected = entries.into_iter().filter(|entry| entry.state == UdpState::Close);
        unconnected.for_each(|entry| add("udp", entry.local_address));
    }
    sockets.sort();
    sockets.dedup();
    Ok(sockets)
}

fn table<T>(name: &str, parse: impl FnOnce(&[u8]) -> ProcResult<Vec<T>>) -> Result<Vec<T>, Unread> {
    let failed =
        |error: &dyn std::fmt::Display| unread(ArchivePart::Sockets.path(), format!("/proc/net/{name}: {error}"));
    match files::net(name) {
        Ok(text) => parse(text.as_bytes()).map_err(|error| failed(&error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(&error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn who_waits_is_found_and_who_talks_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let found = read().unwrap();
        let has = |protocol: &str, at: SocketAddr| {
            found.contains(&ListeningSocket { protocol: protocol.to_owned(), address: at.ip(), port: at.port() })
        };
        assert!(has("tcp", listener.local_addr().unwrap()));
        assert!(has("udp", udp.local_addr().unwrap()));
        assert!(!has("tcp", client.local_addr().unwrap()));
    }
}
