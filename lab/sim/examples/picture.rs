//! Draws a packet's paths: `cargo run -p svclab-sim --example picture -- hairpin > hairpin.svg`. Without an argument it
//! lists the names of its examples.
#![allow(clippy::print_stdout, reason = "it prints a picture")]

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::net::IpAddr;

use ipnet::IpNet;
use svclab_sim::cluster::{Cluster, ExternalHost, Node, NodeState, Pod};
use svclab_sim::host::Sysctls;
use svclab_sim::network::{Flow, Network};
use svclab_sim::picture::draw_outcomes;
use svclab_sim::protocol::{Family, Protocol};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Name, caller, destination, and a function for the nodes' state.
type PictureCase = (&'static str, &'static str, &'static str, fn() -> Result<NodeState>);

const CASES: [PictureCase; 10] = [
    ("cluster-ip", "default/client", "10.96.0.10:80", || rules(&iptables(&BACKENDS, ""))),
    ("node-port", "laptop", "172.18.0.2:30080", || rules(&iptables(&BACKENDS, ""))),
    ("no-endpoints", "default/client", "10.96.0.10:80", || rules(&iptables(&[], ""))),
    ("foreign-drop", "default/client", "10.96.0.10:80", || rules(&iptables(&BACKENDS, FOREIGN))),
    ("hundred", "laptop", "172.18.0.2:30080", || rules(&iptables(&hundred(), ""))),
    ("nftables", "laptop", "10.96.0.10:80", nftables),
    ("ipvs", "laptop", "10.96.0.10:80", ipvs),
    ("hairpin", "default/web-1", "10.96.0.10:80", || rules(&iptables(&BACKENDS, ""))),
    ("ipv6", "default/client", "[fd00:10:96:aaaa:bbbb:cccc:dddd:10]:80", ipv6),
    ("chaos", "default/client", "10.96.0.10:80", || rules(&iptables(&BACKENDS, CHAOS))),
];

const BACKENDS: [&str; 3] = ["10.244.0.5:8080", "10.244.1.6:8080", "10.244.1.7:8080"];
const LONG: [&str; 3] =
    ["fd00:10:244:0:aaaa:bbbb:cccc:5", "fd00:10:244:1:aaaa:bbbb:cccc:6", "fd00:10:244:1:aaaa:bbbb:cccc:7"];
const FOREIGN: &str = "-A FORWARD -j corporate-firewall-egress-restrictions\n\
    -A corporate-firewall-egress-restrictions -d 10.244.1.0/24 -p tcp -m comment --comment \"SEC-4711: nobody may talk to the \
    build machines' subnet until the audit of Q3 is through, ask <security@example.com> & wait\" -j DROP\n";
const CHAOS: &str = "-A FORWARD -d 10.244.0.0/16 -m statistic --mode random --probability 0.10000000009 -m conntrack --ctstate NEW \
    -m comment --comment \"chaos day\" -j DROP\n";

fn main() -> Result<()> {
    let Some(name) = std::env::args().nth(1) else {
        CASES.iter().for_each(|(name, ..)| println!("{name}"));
        return Ok(());
    };
    let case = CASES.iter().find(|(own, ..)| *own == name);
    let (_, from, to, state) = case.ok_or("no such picture")?;
    let network = network(&state()?)?;
    let from = network.find(from).ok_or("no such machine")?;
    print!("{}", draw_outcomes(&network.outcomes(&Flow::tcp(from, to.parse()?))?, std::env::args().nth(2).is_some()));
    Ok(())
}

fn rules(text: &str) -> Result<NodeState> {
    let mut state = NodeState::default();
    state.read_rules("rules", Family::V4, text)?;
    Ok(state)
}

fn hundred() -> Vec<&'static str> {
    let address = |last: usize| format!("10.244.{}.{}:8080", last % 2, last + 5);
    (0..100).map(|last| &*String::leak(address(last))).collect()
}

/// Returns kube-proxy's rules for `backends`, with `foreign` rules in FORWARD.
fn iptables(backends: &[&str], foreign: &str) -> String {
    let mut nat = String::new();
    let mut chains = String::new();
    for (at, backend) in backends.iter().enumerate() {
        let chain = format!("KUBE-SEP-{at:0>8}ZYXWVUTS");
        let (ip, _) = backend.rsplit_once(':').unwrap_or((backend, ""));
        let (ip, length) = (ip.trim_matches(['[', ']']), if backend.starts_with('[') { 128 } else { 32 });
        let comment = "-m comment --comment \"default/web:http\"";
        let left = backends.len() - at;
        let chance = format!("-m statistic --mode random --probability {:.11} ", 1.0 / left as f64);
        let chance = if left == 1 { String::new() } else { chance };
        let _ = writeln!(chains, ":{chain} - [0:0]");
        let _ = writeln!(
            nat,
            "-A KUBE-SVC-TCOU7JCQXEZGVUNU -m comment --comment \"default/web:http -> {backend}\" {chance}-j {chain}\n\
             -A {chain} -s {ip}/{length} {comment} -j KUBE-MARK-MASQ\n\
             -A {chain} -p tcp {comment} -m tcp -j DNAT --to-destination {backend}"
        );
    }
    let v6 = backends.first().is_some_and(|first| first.starts_with('['));
    let (vip, pods, unreachable) = if v6 {
        ("fd00:10:96:aaaa:bbbb:cccc:dddd:10/128", "fd00:10:244::/48", "icmp6-port-unreachable")
    } else {
        ("10.96.0.10/32", "10.244.0.0/16", "icmp-port-unreachable")
    };
    let (reject, dispatch) = if backends.is_empty() {
        let no = "-m comment --comment \"default/web:http has no endpoints\"";
        (
            format!("-A KUBE-SERVICES -d {vip} -p tcp {no} -m tcp --dport 80 -j REJECT --reject-with {unreachable}\n"),
            String::new(),
        )
    } else {
        let to = "-m comment --comment \"default/web:http cluster IP\"";
        let dispatch =
            format!("-A KUBE-SERVICES -d {vip} -p tcp {to} -m tcp --dport 80 -j KUBE-SVC-TCOU7JCQXEZGVUNU\n");
        (String::new(), dispatch)
    };
    let portals = "-m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES";
    let declared = foreign.split_whitespace().find(|word| word.starts_with("corporate"));
    let declared = declared.map(|chain| format!(":{chain} - [0:0]\n")).unwrap_or_default();
    format!(
        "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-FORWARD - [0:0]\n{declared}\
         {foreign}\
         -A FORWARD -m conntrack --ctstate NEW {portals}\n\
         -A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD\n\
         -A OUTPUT -m conntrack --ctstate NEW {portals}\n\
         -A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n\
         -A KUBE-FORWARD -m comment --comment \"kubernetes forwarding rules\" -m mark --mark 0x4000/0x4000 -j ACCEPT\n\
         -A KUBE-FORWARD -m comment --comment \"kubernetes forwarding conntrack rule\" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
         {reject}COMMIT\n\
         *nat\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n\
         :KUBE-MARK-MASQ - [0:0]\n:KUBE-NODEPORTS - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:KUBE-SERVICES - [0:0]\n\
         :KUBE-EXT-TCOU7JCQXEZGVUNU - [0:0]\n:KUBE-SVC-TCOU7JCQXEZGVUNU - [0:0]\n{chains}\
         -A PREROUTING {portals}\n-A OUTPUT {portals}\n\
         -A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING\n\
         -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n\
         -A KUBE-NODEPORTS -p tcp -m comment --comment \"default/web:http\" -m tcp --dport 30080 -j KUBE-EXT-TCOU7JCQXEZGVUNU\n\
         -A KUBE-EXT-TCOU7JCQXEZGVUNU -m comment --comment \"masquerade traffic for default/web:http external destinations\" -j KUBE-MARK-MASQ\n\
         -A KUBE-EXT-TCOU7JCQXEZGVUNU -j KUBE-SVC-TCOU7JCQXEZGVUNU\n\
         -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n\
         -A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0\n\
         -A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully\n\
         {dispatch}\
         -A KUBE-SERVICES -m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n\
         -A KUBE-SVC-TCOU7JCQXEZGVUNU ! -s {pods} -d {vip} -p tcp -m comment --comment \"default/web:http cluster IP\" -m tcp --dport 80 -j KUBE-MARK-MASQ\n\
         {nat}COMMIT\n"
    )
}

fn ipv6() -> Result<NodeState> {
    let backends = LONG.map(|own| &*String::leak(format!("[{own}]:8080")));
    let mut state = NodeState::default();
    state.read_rules("rules", Family::V6, &iptables(&backends, ""))?;
    Ok(state)
}

fn nftables() -> Result<NodeState> {
    let mut state = NodeState::default();
    state.read_nft(
        "nft",
        "table ip kube-proxy {\n\
         \tmap service-ips {\n\t\ttype ipv4_addr . inet_proto . inet_service : verdict\n\t\t\
         elements = { 10.96.0.10 . tcp . 80 : goto service-ULMVA6XW-default/web/tcp/http }\n\t}\n\
         \tchain endpoint-5OJB2KTY-default/web/tcp/http__10.244.0.5/8080 {\n\
         \t\tip saddr 10.244.0.5 jump mark-for-masquerade\n\t\tmeta l4proto tcp dnat to 10.244.0.5:8080\n\t}\n\
         \tchain endpoint-6XHDZ4JF-default/web/tcp/http__10.244.1.6/8080 {\n\
         \t\tip saddr 10.244.1.6 jump mark-for-masquerade\n\t\tmeta l4proto tcp dnat to 10.244.1.6:8080\n\t}\n\
         \tchain service-ULMVA6XW-default/web/tcp/http {\n\
         \t\tip daddr 10.96.0.10 tcp dport 80 ip saddr != 10.244.0.0/16 jump mark-for-masquerade\n\
         \t\tnumgen random mod 2 vmap { 0 : goto endpoint-5OJB2KTY-default/web/tcp/http__10.244.0.5/8080, \
         1 : goto endpoint-6XHDZ4JF-default/web/tcp/http__10.244.1.6/8080 }\n\t}\n\
         \tchain mark-for-masquerade {\n\t\tmeta mark set meta mark | 0x00004000\n\t}\n\
         \tchain services {\n\t\tip daddr . meta l4proto . th dport vmap @service-ips\n\t}\n\
         \tchain masquerading {\n\
         \t\tmeta mark & 0x00004000 == 0x00004000 meta mark set meta mark ^ 0x00004000 masquerade fully-random\n\t}\n\
         \tchain nat-prerouting {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\tjump services\n\t}\n\
         \tchain nat-output {\n\t\ttype nat hook output priority -100; policy accept;\n\t\tjump services\n\t}\n\
         \tchain nat-postrouting {\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n\t\tjump masquerading\n\t}\n\
         }\n",
    )?;
    Ok(state)
}

fn ipvs() -> Result<NodeState> {
    let mut state = rules(include_str!("../tests/data/service-ipvs.txt"))?;
    state.read_sets("ipset", include_str!("../tests/data/service-ipvs-sets.txt"))?;
    let servers = BACKENDS.map(|backend| format!("-a -t 10.96.0.10:80 -r {backend} -m -w 1\n"));
    state.read_servers("ipvsadm", &format!("-A -t 10.96.0.10:80 -s rr\n{}", servers.concat()))?;
    state.read_addresses("addresses", "ip addr add 10.96.0.10/32 dev kube-ipvs0")?;
    Ok(state)
}

fn node(number: u8, pods: &[(&str, &str, &str)]) -> Result<Node> {
    let socket = BTreeSet::from([(Protocol::TCP, 8080)]);
    let pod = |(name, v4, v6): &(&str, &str, &str)| -> Result<(String, Option<Pod>)> {
        Ok((
            format!("default/{name}"),
            Some(Pod { addresses: vec![v4.parse()?, v6.parse()?], listening: socket.clone() }),
        ))
    };
    Ok(Node {
        name: format!("node-{}", if number == 0 { "a" } else { "b" }),
        addresses: vec![
            IpNet::new(IpAddr::from([172, 18, 0, 2 + number]), 16)?,
            format!("fd00:172:18:aaaa:bbbb:cccc:dddd:{}/64", 2 + number).parse()?,
        ],
        secondary: Vec::new(),
        pod_ranges: vec![format!("10.244.{number}.0/24").parse()?, format!("fd00:10:244:{number}::/64").parse()?],
        gateways: vec![format!("10.244.{number}.1/24").parse()?, format!("fd00:10:244:{number}::1/64").parse()?],
        overlay: Vec::new(),
        second: Vec::new(),
        sysctls: Sysctls::node(),
        listening: BTreeSet::new(),
        pods: pods.iter().map(pod).collect::<Result<_>>()?,
    })
}

fn network(state: &NodeState) -> Result<Network> {
    let mut here = vec![("web-1", "10.244.0.5", LONG[0]), ("client", "10.244.0.4", "fd00:10:244:0:aaaa:bbbb:cccc:4")];
    let mut there = vec![("web-2", "10.244.1.6", LONG[1]), ("web-3", "10.244.1.7", LONG[2])];
    let more: Vec<(String, String, String)> = (7..105)
        .map(|last| {
            (
                format!("web-{last}"),
                format!("10.244.{}.{last}", (last - 5) % 2),
                format!("fd00:10:244:{}::{last}", (last - 5) % 2),
            )
        })
        .collect();
    for (at, (name, v4, v6)) in more.iter().enumerate() {
        if at % 2 == 0 { &mut here } else { &mut there }.push((name, v4, v6));
    }
    let outside = ExternalHost {
        name: "laptop".to_owned(),
        addresses: vec!["172.18.0.100/16".parse()?],
        routes: vec![("10.96.0.0/16".parse()?, IpAddr::from([172, 18, 0, 2]))],
    };
    let cluster = Cluster { bridged: false, nodes: vec![node(0, &here)?, node(1, &there)?], outside: vec![outside] };
    let mut network = Network::new();
    cluster.put(&mut network, |_| Some(state))?;
    Ok(network)
}
