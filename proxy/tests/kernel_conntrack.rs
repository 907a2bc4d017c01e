//! Dumps of conntrack's table against the kernel.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::cell::RefCell;

use support::{inside, shell};
use svcproxy::kernel::conntrack::{Conntrack, Filter, Netlink};
use svcproxy::model::{Family, Protocol};
use svcproxy::plan::flows::Frontend;

/// What the kernel does not have to tell costs nothing: a busy node has hundreds of thousands of entries.
#[test]
fn a_dump_shows_what_its_filter_asks_for_and_nothing_else() {
    if !inside("a_dump_shows_what_its_filter_asks_for_and_nothing_else") {
        return;
    }
    let entry = |protocol: &str, to: &str, port: u16| {
        let from = if to.contains(':') { "fd00:244::9" } else { "10.244.0.9" };
        let state = if protocol == "tcp" { "--state ESTABLISHED" } else { "" };
        shell(&format!(
            "conntrack -I -p {protocol} -t 600 {state} -s {from} -d {to} --sport 4000 --dport {port} \
             -r {to} -q {from} --reply-port-src {port} --reply-port-dst 4000"
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
        entry(protocol, to, port);
    }
    let seen = |family, filter: Filter| {
        let seen = RefCell::new(Vec::new());
        let note = |flow: &svcproxy::plan::flows::Flow| {
            seen.borrow_mut().push(format!("{} {}", flow.protocol, flow.destination));
            false
        };
        assert_eq!(Netlink.delete(family, &[filter], &note).unwrap(), 0);
        let mut seen = seen.into_inner();
        seen.sort();
        seen
    };
    let address = |text: &str| Some(Frontend::Address(text.parse().unwrap()));
    let all = ["tcp 10.96.0.10:53", "udp 10.96.0.10:53", "udp 10.96.0.10:54", "udp 10.96.0.11:53"];
    for (family, filter, expected) in [
        (Family::V4, Filter::NONE, &all[..]),
        (Family::V4, Filter::to(Protocol::Udp, None), &all[1..]),
        (Family::V4, Filter::to(Protocol::Udp, address("10.96.0.10:53")), &all[1..2]),
        (Family::V4, Filter::to(Protocol::Udp, Some(Frontend::NodePort(53))), &[all[1], all[3]]),
        (Family::V4, Filter::to(Protocol::Tcp, address("10.96.0.10:53")), &all[..1]),
        (Family::V4, Filter::to(Protocol::Udp, address("10.96.0.12:53")), &[]),
        (Family::V6, Filter::to(Protocol::Udp, address("[fd00:96::10]:53")), &["udp [fd00:96::10]:53"]),
        (Family::V6, Filter::to(Protocol::Udp, None), &["udp [fd00:96::10]:53", "udp [fd00:96::10]:54"]),
    ] {
        assert_eq!(seen(family, filter.clone()), expected, "{family} {filter:?}");
    }
}
