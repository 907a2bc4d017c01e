use std::time::Duration;

use crate::support::{at, ip, net};
use svclab_sim::chance::Chance;
use svclab_sim::host::{Host, HostInterface, Listener, Route, Sysctls};
use svclab_sim::network::{HostId, Network, PacketVerdict};
use svclab_sim::packet::{Packet, PacketBody, TcpFlags};
use svclab_sim::protocol::{Family, Protocol};
use svclab_sim::rules::Rules;
use svclab_sim::set::Sets;

const SETS: &str = "\
create PORTS bitmap:port range 0-65535
add PORTS 80
create PAIRS hash:ip,port family inet
add PAIRS 192.0.2.1,tcp:80
create NETS hash:net family inet
add NETS 198.51.100.0/24
add NETS 198.51.100.7 nomatch
create TRIPLES hash:ip,port,net family inet
add TRIPLES 192.0.2.1,tcp:80,198.51.100.0/25
create SHORT hash:ip family inet timeout 0
add SHORT 198.51.100.8 timeout 10
create SIX hash:ip family inet6
add SIX fd00::1
";

fn network(family: Family, rules: &str, sysctls: Sysctls) -> (Network, HostId, HostId) {
    let any = |protocol| Listener { protocol, address: None, port: None };
    let server = Host::builder("server")
        .interface(HostInterface::new("eth0").address(ip("192.0.2.1"), 24).address(ip("fd00::1"), 64))
        .route(Route::via(net("198.51.100.0/24"), ip("192.0.2.2"), "eth0"))
        .rules(Rules::read(family, rules).unwrap())
        .sets(Sets::read(SETS).unwrap())
        .sysctls(sysctls)
        .listener(any(Protocol::TCP))
        .listener(any(Protocol::UDP))
        .listener(any(Protocol::SCTP));
    let client = Host::builder("client")
        .interface(HostInterface::new("eth0").address(ip("192.0.2.2"), 24).address(ip("fd00::2"), 64))
        .interface(HostInterface::new("lo2").address(ip("198.51.100.7"), 32).address(ip("198.51.100.8"), 32));
    let mut network = Network::new();
    let (server, client) = (network.add(server.build().unwrap()), network.add(client.build().unwrap()));
    network.link(&[(server, "eth0"), (client, "eth0")]).unwrap();
    (network, server, client)
}

/// Parses `tcp 1.2.3.4:5 6.7.8.9:10`, with optional flags or `invalid`.
fn packet(text: &str) -> Packet {
    let words: Vec<&str> = text.split(' ').collect();
    if words[0] == "ping" {
        return Packet {
            source: ip(words[1]),
            destination: ip(words[2]),
            body: PacketBody::Echo { id: 1, reply: false },
        };
    }
    let mut packet = Packet::first(Protocol::parse(words[0]).unwrap(), at(words[1]), at(words[2])).unwrap();
    if let PacketBody::Tcp { flags, .. } = &mut packet.body {
        match words.get(3) {
            Some(&"FIN") => *flags = TcpFlags(TcpFlags::FIN | TcpFlags::ACK),
            Some(&"ACK") => *flags = TcpFlags(TcpFlags::ACK),
            Some(&"SYNACK") => *flags = TcpFlags(TcpFlags::SYN | TcpFlags::ACK),
            _ => {}
        }
    }
    packet
}

fn dropped(network: &mut Network, client: HostId, packet: &Packet) -> bool {
    matches!(network.send_packet(client, packet, &mut Chance::seeded(1)).verdict, PacketVerdict::Dropped { .. })
}

#[test]
fn ipv4_matches() {
    const WEB: &str = "tcp 198.51.100.9:1000 192.0.2.1:80";
    for (rule, hit, miss) in [
        ("-s 198.51.100.0/24", WEB, "tcp 192.0.2.2:1 192.0.2.1:80"),
        ("! -s 198.51.100.0/24", "tcp 192.0.2.2:1 192.0.2.1:80", WEB),
        ("-d 192.0.2.1/32 -p tcp", WEB, "udp 198.51.100.9:1 192.0.2.1:80"),
        ("! -p tcp", "udp 198.51.100.9:1 192.0.2.1:80", WEB),
        ("-i eth+ -p tcp", WEB, "udp 198.51.100.9:1 192.0.2.1:80"),
        ("! -i lo -p sctp", "sctp 198.51.100.9:1 192.0.2.1:80", WEB),
        ("-p tcp -m tcp --dport 80", WEB, "tcp 198.51.100.9:1 192.0.2.1:81"),
        ("-p tcp -m tcp ! --dport 80:90", "tcp 198.51.100.9:1 192.0.2.1:91", WEB),
        ("-p tcp -m tcp --sport :999", "tcp 198.51.100.9:999 192.0.2.1:80", WEB),
        ("-p udp -m udp --dport 53", "udp 198.51.100.9:1 192.0.2.1:53", "tcp 198.51.100.9:1 192.0.2.1:53"),
        ("-p sctp -m sctp --dport 9", "sctp 198.51.100.9:1 192.0.2.1:9", "sctp 198.51.100.9:1 192.0.2.1:8"),
        ("-p tcp -m tcp --syn", WEB, "tcp 198.51.100.9:1 192.0.2.1:80 ACK"),
        ("-p tcp -m tcp --tcp-flags FIN,ACK FIN,ACK", "tcp 198.51.100.9:1 192.0.2.1:80 FIN", WEB),
        ("-p tcp -m multiport --dports 22,79:81", WEB, "tcp 198.51.100.9:1 192.0.2.1:82"),
        ("-p tcp -m multiport ! --ports 80", "tcp 198.51.100.9:1 192.0.2.1:82", WEB),
        ("-m addrtype --dst-type LOCAL -p tcp", WEB, "udp 198.51.100.9:1 192.0.2.1:80"),
        ("-m addrtype ! --src-type LOCAL -p tcp", WEB, "udp 198.51.100.9:1 192.0.2.1:80"),
        ("-m conntrack --ctstate NEW", WEB, "tcp 198.51.100.9:1 192.0.2.1:80 SYNACK"),
        ("-m conntrack --ctstate INVALID", "tcp 198.51.100.9:1 192.0.2.1:80 SYNACK", WEB),
        ("-m state --state NEW,ESTABLISHED", WEB, "tcp 198.51.100.9:1 192.0.2.1:80 SYNACK"),
        ("-m conntrack --ctproto 17", "udp 198.51.100.9:1 192.0.2.1:80", WEB),
        ("-m conntrack --ctorigdstport 81 --ctdir ORIGINAL", "tcp 198.51.100.9:1 192.0.2.1:81", WEB),
        ("-m conntrack --ctorigsrc 198.51.100.9", WEB, "tcp 192.0.2.2:1 192.0.2.1:80"),
        ("-m set --match-set PORTS dst", WEB, "tcp 198.51.100.9:1 192.0.2.1:81"),
        ("-m set --match-set PORTS dst", "udp 198.51.100.9:1 192.0.2.1:80", "ping 198.51.100.9 192.0.2.1"),
        ("-m set ! --match-set PORTS dst", "ping 198.51.100.9 192.0.2.1", WEB),
        ("-m set --match-set PAIRS dst,dst", WEB, "udp 198.51.100.9:1 192.0.2.1:80"),
        ("-m set --match-set NETS src", WEB, "tcp 198.51.100.7:1 192.0.2.1:80"),
        ("-m set --match-set NETS src --return-nomatch", "tcp 198.51.100.7:1 192.0.2.1:80", WEB),
        ("-m set --match-set TRIPLES dst,dst,src", WEB, "tcp 198.51.100.200:1 192.0.2.1:80"),
        ("-m set ! --match-set SIX src -p tcp", WEB, "udp 198.51.100.9:1 192.0.2.1:80"),
        ("-p icmp -m icmp --icmp-type 8", "ping 198.51.100.9 192.0.2.1", WEB),
        ("-p icmp -m icmp ! --icmp-type 3/4", "ping 198.51.100.9 192.0.2.1", WEB),
        ("-m iprange --src-range 198.51.100.1-198.51.100.9", WEB, "tcp 198.51.100.10:1 192.0.2.1:80"),
        ("-m physdev ! --physdev-is-in -p tcp", WEB, "udp 198.51.100.9:1 192.0.2.1:80"),
        ("-m mark --mark 0x0/0x1 -p tcp", WEB, "udp 198.51.100.9:1 192.0.2.1:80"),
        ("-m connmark --mark 0x0 -m nfacct --nfacct-name x -p tcp", WEB, "udp 198.51.100.9:1 192.0.2.1:80"),
        ("-m statistic --mode random --probability 1 -p tcp", WEB, "udp 198.51.100.9:1 192.0.2.1:80"),
        ("-m statistic --mode random ! --probability 0 -p tcp", WEB, "udp 198.51.100.9:1 192.0.2.1:80"),
        ("-m rpfilter --invert -p tcp", "tcp 203.0.113.9:1 192.0.2.1:80", WEB),
        ("-m rpfilter --loose -p tcp", WEB, "tcp 203.0.113.9:1 192.0.2.1:80"),
        ("! -f -p tcp", WEB, "udp 198.51.100.9:1 192.0.2.1:80"),
    ] {
        let rules = format!("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT {rule} -j DROP\nCOMMIT\n");
        for (text, expected) in [(hit, true), (miss, false)] {
            let (mut network, _, client) = network(Family::V4, &rules, Sysctls::default());
            assert_eq!(dropped(&mut network, client, &packet(text)), expected, "{rule} on {text}");
        }
    }
}

#[test]
fn ipv6_matches() {
    const WEB: &str = "tcp [fd00::2]:1000 [fd00::1]:80";
    for (rule, hit, miss) in [
        ("-s fd00::2/128", WEB, "tcp [fd00::3]:1 [fd00::1]:80"),
        ("-d fd00::/16 -p tcp -m tcp --dport 80", WEB, "tcp [fd00::2]:1 [fd00::1]:81"),
        ("-m set --match-set SIX dst -p tcp", WEB, "udp [fd00::2]:1 [fd00::1]:80"),
        ("-m set ! --match-set PAIRS dst,dst -p tcp", WEB, "udp [fd00::2]:1 [fd00::1]:80"),
        ("-m addrtype --dst-type LOCAL -p tcp", WEB, "udp [fd00::2]:1 [fd00::1]:80"),
        ("-m addrtype --dst-type UNICAST -p tcp", WEB, "udp [fd00::2]:1 [fd00::1]:80"),
        ("-m addrtype --dst-type LOCAL,UNICAST -p tcp", WEB, "udp [fd00::2]:1 [fd00::1]:80"),
        ("-m addrtype ! --dst-type MULTICAST -p tcp", WEB, "udp [fd00::2]:1 [fd00::1]:80"),
        ("-p ipv6-icmp -m icmp6 --icmpv6-type 128", "ping fd00::2 fd00::1", WEB),
        // Packets have no extension headers.
        ("-m ipv6header --header protocol --soft -p tcp", WEB, "udp [fd00::2]:1 [fd00::1]:80"),
        ("-m ipv6header ! --header ipv6-frag --soft -p tcp", WEB, "udp [fd00::2]:1 [fd00::1]:80"),
        ("-m ipv6header ! --header ipv6-frag,protocol -p tcp", WEB, "udp [fd00::2]:1 [fd00::1]:80"),
        ("-m ipv6header --header protocol -p tcp", WEB, "udp [fd00::2]:1 [fd00::1]:80"),
    ] {
        let rules = format!("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT {rule} -j DROP\nCOMMIT\n");
        for (text, expected) in [(hit, true), (miss, false)] {
            let (mut network, _, client) = network(Family::V6, &rules, Sysctls::default());
            assert_eq!(dropped(&mut network, client, &packet(text)), expected, "{rule} on {text}");
        }
    }
}

#[test]
fn matches_on_extension_headers_never_match() {
    for rule in [
        "-m ipv6header --header ipv6-frag --soft",
        "-m ipv6header --header ipv6-frag,protocol",
        "-m ipv6header ! --header protocol --soft",
        "-m ipv6header ! --header protocol",
        "-m rt --rt-type 0",
        "-m rt ! --rt-segsleft 0:1",
        "-m frag --fragid 0:4 --fragmore",
        "-m hbh --hbh-len 8",
        "-m dst --dst-opts 1:2,3",
        "-p mobility-header -m mh --mh-type 1",
        "-m srh --srh-next-hdr 6",
        "-m ah ! --ahspi 5",
    ] {
        let rules = format!("*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING {rule} -j DROP\nCOMMIT\n");
        let (mut network, _, client) = network(Family::V6, &rules, Sysctls::default());
        assert!(!dropped(&mut network, client, &packet("tcp [fd00::2]:1000 [fd00::1]:80")), "{rule}");
        let read = Rules::read(Family::V6, &rules).unwrap();
        assert!(read.to_string().contains(&format!("-A PREROUTING {rule} -j DROP\n")), "{read}");
    }
}

fn fate(rules: &str) -> bool {
    let (mut network, _, client) = network(Family::V4, rules, Sysctls::default());
    dropped(&mut network, client, &packet("tcp 198.51.100.9:1000 192.0.2.1:80"))
}

#[test]
fn jumps_gotos_and_returns_continue_as_in_the_kernel() {
    let filter = |rules: &str| format!("*filter\n:INPUT ACCEPT [0:0]\n:A - [0:0]\n:B - [0:0]\n{rules}COMMIT\n");
    assert!(fate(&filter("-A INPUT -j A\n-A INPUT -j DROP\n")));
    assert!(fate(&filter("-A INPUT -j A\n-A A -j RETURN\n-A A -j ACCEPT\n-A INPUT -j DROP\n")));
    // After a goto, a chain returns to the last jump's caller.
    assert!(fate(&filter("-A INPUT -j A\n-A A -g B\n-A A -j ACCEPT\n-A INPUT -j DROP\n")));
    // After a goto in a built-in chain its policy applies.
    assert!(!fate(&filter("-A INPUT -g A\n-A INPUT -j DROP\n")));
    assert!(fate("*filter\n:INPUT DROP [0:0]\n:A - [0:0]\n-A INPUT -g A\nCOMMIT\n"));
    assert!(!fate("*filter\n:INPUT DROP [0:0]\n-A INPUT -j LOG --log-prefix \"x \"\n-A INPUT -j ACCEPT\nCOMMIT\n"));
    // ACCEPT ends one table.
    assert!(fate("*mangle\n-A PREROUTING -j ACCEPT\nCOMMIT\n*filter\n-A INPUT -j DROP\nCOMMIT\n"));
    let marks =
        "*mangle\n-A PREROUTING -j MARK --set-xmark 0xff/0xff\n-A PREROUTING -j MARK --set-xmark 0x0f/0x00\nCOMMIT\n";
    assert!(fate(&format!("{marks}*filter\n-A INPUT -m mark --mark 0xf0 -j DROP\nCOMMIT\n")));
}

#[test]
fn untracked_packets_are_neither_new_nor_translated() {
    let rules = |state: &str| {
        format!(
            "*raw\n-A PREROUTING -j CT --notrack\nCOMMIT\n*nat\n-A PREROUTING -j REDIRECT --to-ports 9\nCOMMIT\n*filter\n-A INPUT -p tcp --dport 80 -m conntrack --ctstate {state} -j DROP\nCOMMIT\n"
        )
    };
    assert!(fate(&rules("UNTRACKED")));
    assert!(!fate(&rules("NEW,INVALID")));
}

#[test]
fn connmark_saves_and_restores_marks() {
    let rules = "*mangle\n-A PREROUTING -m conntrack --ctstate NEW -j CONNMARK --set-xmark 0x7/0xff\n-A PREROUTING -j CONNMARK --restore-mark\nCOMMIT\n\
                 *filter\n-A INPUT -m conntrack --ctstate ESTABLISHED -m mark --mark 0x7 -j DROP\nCOMMIT\n";
    let (mut network, _, client) = network(Family::V4, rules, Sysctls::default());
    let first = packet("tcp 192.0.2.2:1000 192.0.2.1:80");
    assert!(!dropped(&mut network, client, &first));
    assert!(dropped(&mut network, client, &first.later()));
}

#[test]
fn packets_out_of_window_are_invalid_unless_be_liberal() {
    let rules = "*filter\n-A INPUT -m conntrack --ctstate INVALID -j DROP\nCOMMIT\n";
    for liberal in [false, true] {
        let sysctls = Sysctls { tcp_be_liberal: liberal, ..Sysctls::default() };
        let (mut network, _, client) = network(Family::V4, rules, sysctls);
        let first = packet("tcp 192.0.2.2:1000 192.0.2.1:80");
        assert!(!dropped(&mut network, client, &first));
        let mut late = first.later();
        assert!(!dropped(&mut network, client, &late));
        if let PacketBody::Tcp { out_of_window, .. } = &mut late.body {
            *out_of_window = true;
        }
        assert_eq!(dropped(&mut network, client, &late), !liberal);
    }
}

#[test]
fn recent_compares_times() {
    let rules = "*filter\n-A INPUT -p tcp -m recent --rcheck --seconds 60 --reap --name L --mask 255.255.255.255 --rsource -j DROP\n\
                 -A INPUT -p udp -m recent --set --name L --mask 255.255.255.255 --rsource -j ACCEPT\nCOMMIT\n";
    let (mut network, _, client) = network(Family::V4, rules, Sysctls::default());
    let (ask, set) = (packet("tcp 192.0.2.2:1000 192.0.2.1:80"), packet("udp 192.0.2.2:1 192.0.2.1:1"));
    assert!(!dropped(&mut network, client, &ask));
    assert!(!dropped(&mut network, client, &set));
    assert!(dropped(&mut network, client, &ask));
    assert!(!dropped(&mut network, client, &packet("tcp 198.51.100.7:1 192.0.2.1:80")));
    network.advance(Duration::from_secs(60));
    assert!(dropped(&mut network, client, &ask));
    network.advance(Duration::from_secs(1));
    assert!(!dropped(&mut network, client, &ask));
}

#[test]
fn set_elements_expire() {
    let rules = "*filter\n-A INPUT -m set --match-set SHORT src -j DROP\nCOMMIT\n";
    let (mut network, _, client) = network(Family::V4, rules, Sysctls::default());
    let packet = packet("tcp 198.51.100.8:1000 192.0.2.1:80");
    assert!(dropped(&mut network, client, &packet));
    network.advance(Duration::from_secs(10));
    assert!(!dropped(&mut network, client, &packet));
}

#[test]
fn limit_matches_up_to_its_rate() {
    let rules = "*filter\n-A INPUT -m limit --limit 2/min --limit-burst 2 -j DROP\nCOMMIT\n";
    let (mut network, _, client) = network(Family::V4, rules, Sysctls::default());
    let fate =
        |network: &mut Network, port| dropped(network, client, &packet(&format!("udp 192.0.2.2:{port} 192.0.2.1:1")));
    assert_eq!([1, 2, 3].map(|port| fate(&mut network, port)), [true, true, false]);
    network.advance(Duration::from_secs(30));
    assert_eq!([4, 5].map(|port| fate(&mut network, port)), [true, false]);
}

#[test]
fn statistic_nth_matches_every_third_packet() {
    let rules = "*filter\n-A INPUT -m statistic --mode nth --every 3 --packet 1 -j DROP\nCOMMIT\n";
    let (mut network, _, client) = network(Family::V4, rules, Sysctls::default());
    let fates = (1..8).map(|port| dropped(&mut network, client, &packet(&format!("udp 192.0.2.2:{port} 192.0.2.1:1"))));
    assert_eq!(fates.collect::<Vec<_>>(), [false, true, false, false, true, false, false]);
}

#[test]
fn redirect_goes_to_this_machine() {
    let rules = "*nat\n-A PREROUTING -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 9999\nCOMMIT\n";
    let (mut network, server, client) = network(Family::V4, rules, Sysctls::default());
    let verdict =
        network.send_packet(client, &packet("tcp 192.0.2.2:1000 192.0.2.1:80"), &mut Chance::seeded(1)).verdict;
    assert_eq!(verdict.answered(), Some((server, at("192.0.2.1:9999"))));
}
