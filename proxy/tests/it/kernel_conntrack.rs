//! conntrack dumps and deletions.

use std::cell::RefCell;
use std::net::{Ipv4Addr, UdpSocket};

use crate::support::{inside, shell};
use svcproxy::kernel::conntrack::{
    Conntrack, ConntrackNetlink, DELETIONS_PER_DATAGRAM, ENTRIES_PER_STEP, FlowFilter, ScanStep,
};
use svcproxy::model::{Family, Protocol};
use svcproxy::plan::stale_flows::Frontend;

#[test]
fn a_dump_has_exactly_the_entries_of_its_filter() {
    if !inside!() {
        return;
    }
    let mut client = 4000;
    let mut led = |protocol: &str, to: &str, port: u16, server: &str, target: u16| {
        client += 1;
        let from = if to.contains(':') { "fd00:244::9" } else { "10.244.0.9" };
        let state = if protocol == "tcp" { "--state ESTABLISHED" } else { "" };
        shell(&format!(
            "conntrack -I -p {protocol} -t 600 {state} -s {from} -d {to} --sport {client} --dport {port} \
             -r {server} -q {from} --reply-port-src {target} --reply-port-dst {client}"
        ));
    };
    for (protocol, to, port) in [
        ("udp", "10.96.0.10", 53),
        ("udp", "10.96.0.10", 54),
        ("udp", "10.96.0.11", 53),
        ("tcp", "10.96.0.10", 53),
        ("udp", "fd00:96::10", 53),
        ("udp", "fd00:96::10", 54),
        ("tcp", "fd00:96::10", 53),
    ] {
        led(protocol, to, port, to, port);
    }
    let seen = |family, filter: FlowFilter| {
        let seen = RefCell::new(Vec::new());
        let note = |flow: &svcproxy::plan::stale_flows::Flow| {
            seen.borrow_mut().push(format!("{} {}", flow.protocol, flow.destination));
            false
        };
        assert_eq!(ConntrackNetlink::default().delete(family, &[filter], &note).unwrap(), 0);
        let mut seen = seen.into_inner();
        seen.sort();
        seen
    };
    let address = |text: &str| Frontend::Address(text.parse().unwrap());
    let all = ["tcp 10.96.0.10:53", "udp 10.96.0.10:53", "udp 10.96.0.10:54", "udp 10.96.0.11:53"];
    for (family, filter, expected) in [
        (Family::V4, FlowFilter::None, &all[..]),
        (Family::V4, FlowFilter::Protocol(Protocol::Udp), &all[1..]),
        (Family::V4, FlowFilter::To(Protocol::Udp, address("10.96.0.10:53")), &all[1..2]),
        (Family::V4, FlowFilter::To(Protocol::Udp, Frontend::NodePort(53)), &[all[1], all[3]]),
        (Family::V4, FlowFilter::To(Protocol::Tcp, address("10.96.0.10:53")), &all[..1]),
        (Family::V4, FlowFilter::To(Protocol::Udp, address("10.96.0.12:53")), &[]),
        (Family::V6, FlowFilter::To(Protocol::Udp, address("[fd00:96::10]:53")), &["udp [fd00:96::10]:53"]),
        (Family::V6, FlowFilter::Protocol(Protocol::Udp), &["udp [fd00:96::10]:53", "udp [fd00:96::10]:54"]),
    ] {
        assert_eq!(seen(family, filter), expected, "{family} {filter:?}");
    }
    // Flows for filters by server: two frontends share a server, and one of them has a second server.
    led("udp", "10.96.0.20", 53, "10.244.0.1", 5353);
    led("udp", "10.96.0.21", 53, "10.244.0.1", 5353);
    led("udp", "10.96.0.21", 54, "10.244.0.2", 5353);
    led("udp", "fd00:96::20", 53, "fd00:244::1", 5353);
    led("udp", "fd00:96::21", 53, "fd00:244::1", 5354);
    let from = |text: &str| FlowFilter::From(Protocol::Udp, text.parse().unwrap());
    for (family, filter, expected) in [
        (Family::V4, from("10.244.0.1:5353"), &["udp 10.96.0.20:53", "udp 10.96.0.21:53"][..]),
        (Family::V4, from("10.244.0.2:5353"), &["udp 10.96.0.21:54"]),
        (Family::V4, from("10.244.0.1:5354"), &[]),
        (Family::V6, from("[fd00:244::1]:5353"), &["udp [fd00:96::20]:53"]),
    ] {
        assert_eq!(seen(family, filter), expected, "{family} {filter:?}");
    }
}

/// Closing a netfilter socket takes milliseconds after a sync.
#[test]
fn one_socket_serves_all_dumps() {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    if !inside!() {
        return;
    }
    let (mut conntrack, before) = (ConntrackNetlink::default(), open());
    for _ in 0..3 {
        conntrack.delete(Family::V4, &[FlowFilter::Protocol(Protocol::Udp)], &|_| true).unwrap();
        conntrack.clients(Family::V6).unwrap();
        assert_eq!(open(), before + 1);
    }
}

#[test]
fn many_entries_go_in_pieces_and_by_few_datagrams() {
    if !inside!() {
        return;
    }
    const FLOWS: u16 = 10_000;
    shell(
        "ip link set lo up && nft add table ip watch && \
         nft 'add chain ip watch out { type filter hook output priority 0; }' && nft add rule ip watch out ct state new accept",
    );
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for port in 20_000..20_000 + FLOWS {
        // A send may fail because an earlier datagram's port was unreachable.
        let _ = socket.send_to(b"x", ("127.0.0.2", port)).or_else(|_| socket.send_to(b"x", ("127.0.0.2", port)));
    }
    let of_test = |flow: &svcproxy::plan::stale_flows::Flow| flow.destination.ip() == Ipv4Addr::new(127, 0, 0, 2);
    let is_stale =
        |flow: &svcproxy::plan::stale_flows::Flow| of_test(flow) && !flow.destination.port().is_multiple_of(10);
    let mut conntrack = ConntrackNetlink::default();
    let (mut pieces, mut anew) = (Vec::new(), true);
    while pieces.last().is_none_or(|piece: &ScanStep| !piece.is_last) {
        let filters = [FlowFilter::Protocol(Protocol::Udp)];
        pieces.push(conntrack.delete_some(Family::V4, &filters, anew, &is_stale).unwrap());
        anew = false;
    }
    let total = |of: fn(&ScanStep) -> usize| pieces.iter().map(of).sum::<usize>();
    let (seen, deleted, datagrams) = (total(|p| p.seen), total(|p| p.deleted), total(|p| p.datagrams));
    let flows = usize::from(FLOWS);
    assert!(seen >= flows && deleted == flows / 10 * 9, "{seen} seen, {deleted} deleted of {flows}");
    assert!(pieces.len() >= flows / ENTRIES_PER_STEP, "{pieces:?}");
    // A datagram of 32 KiB has some hundred entries.
    assert!(pieces.iter().all(|piece| piece.seen < ENTRIES_PER_STEP + 500), "{pieces:?}");
    assert!(
        datagrams < deleted / 50,
        "{datagrams} datagrams for {deleted} entries, of which one has {DELETIONS_PER_DATAGRAM} at most"
    );
    let left = RefCell::new(0);
    let count = |flow: &svcproxy::plan::stale_flows::Flow| {
        *left.borrow_mut() += usize::from(of_test(flow));
        false
    };
    conntrack.delete(Family::V4, &[FlowFilter::Protocol(Protocol::Udp)], &count).unwrap();
    assert_eq!(left.into_inner(), flows / 10);
}
