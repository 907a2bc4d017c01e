//! Compares with iptables-nft, as bytes and text.

use std::net::IpAddr;

use crate::support::{fed, inside, shell};
use nf_tables::iptables::{BUILT_IN, InterfaceMatch, Prefix, RuleBuilder, RuleHeader, built_in};
use nf_tables::xt::{self, AddrTypeMatch, SetDirection::Destination, SetDirection::Source};
use nf_tables::{Batch, EncodeError, Family, NfSocket, NfVerdict, Rule, Table, canonical};

struct RuleForm {
    table: &'static str,
    text: String,
    write: Box<dyn Fn(&mut Rule)>,
}

fn form(table: &'static str, text: impl Into<String>, write: impl Fn(&mut Rule) + 'static) -> RuleForm {
    RuleForm { table, text: text.into(), write: Box::new(write) }
}

fn prefix(text: &str) -> Prefix {
    let (negated, text) = text.strip_prefix("! ").map_or((false, text), |text| (true, text));
    let (address, length) = text.split_once('/').unwrap();
    Prefix { address: address.parse().unwrap(), length: length.parse().unwrap(), negated }
}

fn protocol(number: u8) -> RuleHeader<'static> {
    RuleHeader { protocol: Some(number), ..RuleHeader::default() }
}

const PROTOCOLS: [(u8, &str); 3] = [(6, "tcp"), (17, "udp"), (132, "sctp")];

fn of_any_family(family: Family) -> Vec<RuleForm> {
    let build = move |rule: &mut Rule, header: &RuleHeader<'_>, rest: &dyn Fn(RuleBuilder<'_>)| {
        rest(RuleBuilder::new(rule, family, header));
    };
    let plain = move |table, text: &str, rest: fn(RuleBuilder<'_>)| {
        form(table, text, move |rule| build(rule, &RuleHeader::default(), &rest))
    };
    let (mask, icmp) = match family {
        Family::Ipv6 => ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "icmp6"),
        _ => ("255.255.255.255", "icmp"),
    };
    let (recent_set, recent_check) = (
        format!("-m recent --set --name KUBE-SEP-A --mask {mask} --rsource"),
        format!("-m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-A --mask {mask} --rsource -j CHAIN"),
    );
    let mut forms = vec![
        plain("nat", "-j CHAIN", |rule| rule.jump("CHAIN")),
        plain("nat", "-g CHAIN", |rule| rule.verdict(NfVerdict::Goto("CHAIN"))),
        plain("nat", "-j RETURN", |rule| rule.verdict(NfVerdict::Return)),
        plain("filter", "-j ACCEPT", |rule| rule.verdict(NfVerdict::Accept)),
        plain("filter", "-j DROP", |rule| rule.verdict(NfVerdict::Drop)),
        plain("nat", "-m comment --comment plain", |rule| rule.comment("plain").count()),
        plain("nat", "-m comment --comment \"a/b:c -> d\" -j CHAIN", |rule| rule.comment("a/b:c -> d").jump("CHAIN")),
        plain("nat", "-m mark --mark 0x4000/0x4000 -j ACCEPT", |rule| {
            rule.mark(0x4000, 0x4000, false).verdict(NfVerdict::Accept);
        }),
        plain("nat", "-m mark ! --mark 0x4000/0x4000 -j RETURN", |rule| {
            rule.mark(0x4000, 0x4000, true).verdict(NfVerdict::Return);
        }),
        plain("nat", "-m mark --mark 0x7 -j RETURN", |rule| rule.mark(7, u32::MAX, false).verdict(NfVerdict::Return)),
        plain("nat", "-m addrtype --dst-type LOCAL -j CHAIN", |rule| {
            rule.address_type(AddrTypeMatch::destination_local()).jump("CHAIN");
        }),
        plain("nat", "-m addrtype --src-type LOCAL -j CHAIN", |rule| {
            rule.address_type(AddrTypeMatch::source_local()).jump("CHAIN");
        }),
        plain("nat", "-m addrtype ! --src-type LOCAL -j CHAIN", |rule| {
            rule.address_type(AddrTypeMatch::source_not_local()).jump("CHAIN");
        }),
        plain("filter", "-m conntrack --ctstate INVALID -j DROP", |rule| {
            rule.conntrack_state(xt::INVALID, false).verdict(NfVerdict::Drop);
        }),
        plain("filter", "-m conntrack --ctstate NEW -j CHAIN", |rule| {
            rule.conntrack_state(xt::NEW, false).jump("CHAIN");
        }),
        plain("filter", "-m conntrack ! --ctstate NEW -j RETURN", |rule| {
            rule.conntrack_state(xt::NEW, true).verdict(NfVerdict::Return);
        }),
        plain("filter", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", |rule| {
            rule.conntrack_state(xt::RELATED_ESTABLISHED, false).verdict(NfVerdict::Accept);
        }),
        plain("filter", "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP", |rule| {
            rule.conntrack_state(xt::RELATED_ESTABLISHED | xt::STATE_DNAT, true).verdict(NfVerdict::Drop);
        }),
        plain(
            "filter",
            "-m comment --comment led -m conntrack --ctstate DNAT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            |rule| {
                let rule = rule.comment("led").conntrack_state(xt::STATE_DNAT, false);
                rule.conntrack_state(xt::RELATED_ESTABLISHED, false).verdict(NfVerdict::Accept);
            },
        ),
        plain("nat", &recent_set, |rule| rule.recent_set("KUBE-SEP-A").count()),
        plain("nat", &recent_check, |rule| rule.recent_check("KUBE-SEP-A", 10_800).jump("CHAIN")),
        plain("nat", "-j MARK --set-xmark 0x4000/0x4000", |rule| rule.set_xmark(0x4000, 0x4000)),
        plain("nat", "-j MARK --set-xmark 0x4000/0x0", |rule| rule.set_xmark(0x4000, 0)),
        plain("nat", "-j MASQUERADE", |rule| rule.masquerade(false)),
        plain("nat", "-j MASQUERADE --random-fully", |rule| rule.masquerade(true)),
    ];
    let reject = format!("-m conntrack --ctstate NEW -j REJECT --reject-with {icmp}-port-unreachable");
    forms.push(plain("filter", &reject, |rule| rule.conntrack_state(xt::NEW, false).reject()));
    let reset = "-p tcp -m tcp --dport 80 ! --tcp-flags FIN,SYN,RST,ACK SYN -j REJECT --reject-with tcp-reset";
    forms.push(form("filter", reset.to_owned(), move |rule| {
        build(rule, &protocol(6), &|rule| rule.not_syn().destination_port(80).reset());
    }));
    for (n, kept) in [(2, "0.50000000000"), (3, "0.33333333349"), (7, "0.14285714272"), (10, "0.10000000009")] {
        forms.push(form("nat", format!("-m statistic --mode random --probability {kept} -j CHAIN"), move |rule| {
            build(rule, &RuleHeader::default(), &|rule| rule.one_in(n).jump("CHAIN"));
        }));
    }
    for (number, name) in PROTOCOLS {
        forms.push(form("nat", format!("-p {name} -j CHAIN"), move |rule| {
            build(rule, &protocol(number), &|rule| rule.jump("CHAIN"));
        }));
        forms.push(form("nat", format!("-p {name} -m {name} -j CHAIN"), move |rule| {
            build(rule, &protocol(number), &|rule| rule.protocol_match().jump("CHAIN"));
        }));
        forms.push(form("nat", format!("-p {name} -m {name} --dport 8080 -j CHAIN"), move |rule| {
            build(rule, &protocol(number), &|rule| rule.destination_port(8080).jump("CHAIN"));
        }));
        let text = format!("-p {name} -m comment --comment a -m {name} --dport 53 -j REDIRECT --to-ports 61000");
        forms.push(form("nat", text, move |rule| {
            build(rule, &protocol(number), &|rule| rule.comment("a").destination_port(53).redirect(61_000));
        }));
    }
    for (name, is_prefix) in [("eth0", false), ("cni", true), ("an-interface-15", false), ("an-interface-1", true)] {
        for negated in [false, true] {
            let interface = InterfaceMatch { name, prefix: is_prefix, negated };
            let (not, plus) = (if negated { "! " } else { "" }, if is_prefix { "+" } else { "" });
            forms.push(form("filter", format!("{not}-i {name}{plus} -j CHAIN"), move |rule| {
                build(rule, &RuleHeader { input: Some(interface), ..RuleHeader::default() }, &|rule| {
                    rule.jump("CHAIN")
                });
            }));
            forms.push(form("filter", format!("{not}-o {name}{plus} -j CHAIN"), move |rule| {
                build(rule, &RuleHeader { output: Some(interface), ..RuleHeader::default() }, &|rule| {
                    rule.jump("CHAIN")
                });
            }));
        }
    }
    forms
}

fn with_addresses(family: Family) -> Vec<RuleForm> {
    let (prefixes, backend): (&[&str], &str) = match family {
        Family::Ipv6 => (
            &["fd00:96::a/128", "fd00::/8", "fd00::/64", "fd00:244::/60", "fd00::/127", "::1/128"],
            "[fd00:244::5]:8080",
        ),
        _ => (
            &[
                "10.96.0.10/32",
                "10.0.0.0/8",
                "127.0.0.0/8",
                "10.244.0.0/16",
                "10.244.7.0/24",
                "10.244.0.0/14",
                "10.0.0.2/31",
            ],
            "10.244.1.5:8080",
        ),
    };
    let mut forms = Vec::new();
    for text in prefixes {
        for (option, negated) in [("-s", false), ("-s", true), ("-d", false), ("-d", true)] {
            let wanted = Prefix { negated, ..prefix(text) };
            let text = format!("{}{option} {text} -j CHAIN", if negated { "! " } else { "" });
            forms.push(form("nat", text, move |rule| {
                let header = match option {
                    "-s" => RuleHeader { source: Some(wanted), ..RuleHeader::default() },
                    _ => RuleHeader { destination: Some(wanted), ..RuleHeader::default() },
                };
                RuleBuilder::new(rule, family, &header).jump("CHAIN");
            }));
        }
    }
    let (first, second) = (prefix(prefixes[0]), Prefix { negated: true, ..prefix(prefixes[3]) });
    for (number, name) in PROTOCOLS {
        let text = format!(
            "! -s {} -d {} -i eth0 -o cni+ -p {name} -m comment --comment \"a cluster IP\" -m {name} --dport 80 -j CHAIN",
            prefixes[3], prefixes[0]
        );
        forms.push(form("filter", text, move |rule| {
            let header = RuleHeader {
                input: Some(InterfaceMatch { name: "eth0", prefix: false, negated: false }),
                output: Some(InterfaceMatch { name: "cni", prefix: true, negated: false }),
                protocol: Some(number),
                source: Some(second),
                destination: Some(first),
            };
            RuleBuilder::new(rule, family, &header).comment("a cluster IP").destination_port(80).jump("CHAIN");
        }));
        let text = format!("-p {name} -m comment --comment \"a/b\" -m {name} -j DNAT --to-destination {backend}");
        let to = backend.parse().unwrap();
        forms.push(form("nat", text, move |rule| {
            RuleBuilder::new(rule, family, &protocol(number)).comment("a/b").protocol_match().dnat(to);
        }));
    }
    let source = if family == Family::Ipv6 { "fd00:18::2" } else { "172.18.0.2" };
    for (random_fully, option) in [(false, ""), (true, " --random-fully")] {
        forms.push(form("nat", format!("-j SNAT --to-source {source}{option}"), move |rule| {
            let to = source.parse().unwrap();
            RuleBuilder::new(rule, family, &RuleHeader::default()).snat(to, random_fully);
        }));
    }
    forms
}

fn of_sets(family: Family, socket: &mut NfSocket) -> Vec<RuleForm> {
    let inet = if family == Family::Ipv6 { "inet6" } else { "inet" };
    // No tested set has number 0.
    shell(&format!("ipset create filler-{inet} hash:ip"));
    let sets: [(&str, &str, &[xt::SetDirection]); 4] = [
        ("A", "hash:ip", &[Destination]),
        ("B", "hash:ip,port", &[Destination, Destination]),
        ("C", "hash:ip,port,ip", &[Destination, Destination, Source]),
        ("D", "hash:ip,port,net", &[Source, Destination, Source]),
    ];
    let text = |direction: &xt::SetDirection| if *direction == Source { "src" } else { "dst" };
    let mut forms = Vec::new();
    for (name, kind, directions) in sets {
        // The kernel releases a set some time after its last rule, so families share none.
        let name = format!("{name}-{inet}");
        shell(&format!("ipset create {name} {kind} family {inet}"));
        let index = socket.ip_set(&name).unwrap().unwrap();
        let list = directions.iter().map(text).collect::<Vec<_>>().join(",");
        for negated in [false, true] {
            let not = if negated { "! " } else { "" };
            let text = format!("-m comment --comment s -m set {not}--match-set {name} {list} -j ACCEPT");
            forms.push(form("filter", text, move |rule| {
                let builder = RuleBuilder::new(rule, family, &RuleHeader::default()).comment("s");
                builder.set(index, directions, negated).verdict(NfVerdict::Accept);
            }));
        }
    }
    forms
}

const FAMILIES: [(Family, &str); 2] = [(Family::Ipv4, "iptables-nft"), (Family::Ipv6, "ip6tables-nft")];

fn save(command: &str) -> String {
    let printed = shell(&format!("{command}-save"));
    printed.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

/// One chain per rule, so that a failure names the rule.
fn chain(at: usize) -> String {
    format!("FORM-{at}")
}

fn write_all(socket: &mut NfSocket, family: Family, forms: &[RuleForm]) -> Vec<Vec<u8>> {
    let (mut batch, mut rule, mut encoded) = (Batch::new(), Rule::new(), Vec::new());
    for name in ["filter", "nat"] {
        let table = Table::new(family, name);
        batch.add_table(table).unwrap();
        for (_, chain, base) in BUILT_IN.iter().filter(|(of, _, _)| *of == name) {
            batch.add_base_chain(table, chain, base).unwrap();
        }
        batch.add_chain(table, "CHAIN").unwrap();
    }
    for (at, form) in forms.iter().enumerate() {
        let table = Table::new(family, form.table);
        batch.add_chain(table, &chain(at)).unwrap();
        (form.write)(rule.clear());
        batch.add_rule(table, &chain(at), &rule).unwrap_or_else(|error| panic!("{}: {error}", form.text));
        encoded.push(canonical(family, rule.expressions()));
    }
    socket.commit(&batch).unwrap();
    encoded
}

fn restore(command: &str, forms: &[RuleForm]) {
    let mut text = String::new();
    for table in ["filter", "nat"] {
        text.push_str(&format!("*{table}\n:CHAIN - [0:0]\n"));
        for (_, name, _) in BUILT_IN.iter().filter(|(of, _, _)| *of == table) {
            text.push_str(&format!(":{name} ACCEPT [0:0]\n"));
        }
        let of_table = || forms.iter().enumerate().filter(|(_, form)| form.table == table);
        of_table().for_each(|(at, _)| text.push_str(&format!(":{} - [0:0]\n", chain(at))));
        of_table().for_each(|(at, form)| text.push_str(&format!("-A {} {}\n", chain(at), form.text)));
        text.push_str("COMMIT\n");
    }
    fed(&format!("{command}-restore"), &text);
}

fn read_all(socket: &mut NfSocket, family: Family, forms: &[RuleForm]) -> Vec<Vec<u8>> {
    let mut read = |(at, form): (usize, &RuleForm)| {
        let chain = chain(at);
        let rules = socket.rules(Table::new(family, form.table), &chain).unwrap();
        let rules: Vec<_> = rules.map(|rule| canonical(family, rule.expressions)).collect();
        assert_eq!(rules.len(), 1, "{}", form.text);
        rules.concat()
    };
    forms.iter().enumerate().map(&mut read).collect()
}

fn clear(socket: &mut NfSocket, family: Family) {
    let mut batch = Batch::new();
    for name in ["filter", "nat"] {
        batch.delete_table(Table::new(family, name)).unwrap();
    }
    socket.commit(&batch).unwrap();
}

fn compare(family: Family, command: &str, forms: &[RuleForm], socket: &mut NfSocket) {
    let sent = write_all(socket, family, forms);
    let (ours, printed) = (read_all(socket, family, forms), save(command));
    clear(socket, family);
    restore(command, forms);
    let (theirs, expected) = (read_all(socket, family, forms), save(command));
    for (at, form) in forms.iter().enumerate() {
        let line = format!("-A {} {}", chain(at), form.text);
        assert!(printed.lines().any(|printed| printed == line), "{family:?}: not printed as {line}:\n{printed}");
        assert_eq!(ours[at], sent[at], "{family:?} {}: the dump of what we sent", form.text);
        assert_eq!(theirs[at], sent[at], "{family:?} {}: the dump of what iptables sent", form.text);
    }
    assert_eq!(printed, expected, "{family:?}");
    clear(socket, family);
}

/// Both programs' rules print the same, and the kernel reports the sent canonical bytes.
#[test]
fn every_form_is_as_iptables_writes_it() {
    if !inside!() {
        return;
    }
    let mut socket = NfSocket::open().unwrap();
    for (family, command) in FAMILIES {
        let mut forms = of_any_family(family);
        forms.extend(with_addresses(family));
        forms.extend(of_sets(family, &mut socket));
        compare(family, command, &forms, &mut socket);
    }
}

#[test]
fn random_rules_are_as_iptables_writes_them() {
    use proptest::prelude::*;
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    if !inside!() {
        return;
    }
    let mut socket = NfSocket::open().unwrap();
    let mut runner = TestRunner::deterministic();
    for (family, command) in FAMILIES {
        let bits = if family == Family::Ipv6 { 128u8 } else { 32 };
        let address = any::<u128>().prop_map(move |bits| match family {
            Family::Ipv6 => IpAddr::from(bits.to_be_bytes()),
            _ => IpAddr::from((bits as u32).to_be_bytes()),
        });
        let prefix = || {
            prop::option::of((address.clone(), 1..=bits, any::<bool>()))
                .prop_map(|drawn| drawn.map(|(address, length, negated)| Prefix { address, length, negated }))
        };
        let interface = || {
            let name = prop::sample::select(vec!["e", "eth0", "veth1234567890"]);
            prop::option::of((name, any::<bool>(), any::<bool>()))
                .prop_map(|drawn| drawn.map(|(name, prefix, negated)| InterfaceMatch { name, prefix, negated }))
        };
        let rule = (prefix(), prefix(), interface(), interface(), prop::option::of((0..3usize, any::<u16>())));
        let forms: Vec<RuleForm> = (0..150)
            .map(|_| {
                let (source, destination, input, output, port) = rule.new_tree(&mut runner).unwrap().current();
                let port = port.map(|(at, port)| (PROTOCOLS[at], port));
                let header = RuleHeader { input, output, protocol: port.map(|(p, _)| p.0), source, destination };
                form("filter", text_of(&header, port), move |rule| {
                    let builder = RuleBuilder::new(rule, family, &header);
                    match port {
                        Some((_, port)) => builder.destination_port(port).jump("CHAIN"),
                        None => builder.jump("CHAIN"),
                    }
                })
            })
            .collect();
        compare(family, command, &forms, &mut socket);
    }
}

fn text_of(header: &RuleHeader<'_>, port: Option<((u8, &str), u16)>) -> String {
    let not = |negated: bool| if negated { "! " } else { "" };
    let prefix = |option: &str, prefix: Option<Prefix>| {
        prefix.map(|Prefix { address, length, negated }| {
            let network = match address {
                IpAddr::V4(a) => IpAddr::from((a.to_bits() & u32::MAX << (32 - length)).to_be_bytes()),
                IpAddr::V6(a) => IpAddr::from((a.to_bits() & u128::MAX << (128 - length)).to_be_bytes()),
            };
            format!("{}{option} {network}/{length}", not(negated))
        })
    };
    let interface = |option: &str, interface: Option<InterfaceMatch<'_>>| {
        interface.map(|InterfaceMatch { name, prefix, negated }| {
            format!("{}{option} {name}{}", not(negated), if prefix { "+" } else { "" })
        })
    };
    let parts = [
        prefix("-s", header.source),
        prefix("-d", header.destination),
        interface("-i", header.input),
        interface("-o", header.output),
        port.map(|((_, name), port)| format!("-p {name} -m {name} --dport {port}")),
        Some("-j CHAIN".to_owned()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// iptables-nft accepts this crate's base chains, and `BUILT_IN` describes its own.
#[test]
fn base_chains_are_those_of_iptables() {
    if !inside!() {
        return;
    }
    let mut socket = NfSocket::open().unwrap();
    for (family, command) in FAMILIES {
        for table in ["raw", "mangle", "filter", "security", "nat"] {
            // iptables creates a table's chains at the first rule.
            let names = BUILT_IN.iter().filter(|(of, _, _)| *of == table).map(|(_, name, _)| *name);
            names.for_each(|name| drop(shell(&format!("{command} -t {table} -A {name}"))));
        }
        let mut seen = 0;
        for chain in socket.chains(family).unwrap() {
            let (base, wanted) = (chain.base.unwrap(), built_in(chain.table, chain.name).unwrap());
            assert_eq!((base.kind, base.hook, base.priority), (wanted.kind, Some(wanted.hook), wanted.priority));
            assert_eq!((Some(base.policy), chain.uses), (wanted.policy, 1));
            seen += 1;
        }
        assert_eq!(seen, BUILT_IN.len());
        let mut batch = Batch::new();
        for (table, name, base) in &BUILT_IN {
            batch.add_base_chain(Table::new(family, table), name, base).unwrap();
        }
        socket.commit(&batch).unwrap();
    }
}

#[test]
fn mistakes_are_named() {
    let outcome = |family, header: &RuleHeader<'_>, rest: fn(RuleBuilder<'_>)| {
        let mut rule = Rule::new();
        rest(RuleBuilder::new(&mut rule, family, header));
        rule.error().map(ToString::to_string)
    };
    let count: fn(RuleBuilder<'_>) = |rule| rule.count();
    let source = |text| RuleHeader { source: Some(prefix(text)), ..RuleHeader::default() };
    let input = |name| RuleHeader {
        input: Some(InterfaceMatch { name, prefix: true, negated: false }),
        ..RuleHeader::default()
    };
    assert_eq!(outcome(Family::Ipv4, &source("0.0.0.0/0"), count), None, "everything");
    let cases = [
        (source("! 0.0.0.0/0"), count, "no address is outside of this prefix: 0.0.0.0/0"),
        (source("10.0.0.0/33"), count, "the prefix is longer than the address: 10.0.0.0/33"),
        (source("::1/128"), count, "the address is not of the rule's family: ::1/128"),
        (input(""), count, "\"\" is no name of a network interface: 1 to 14 bytes fit, none of them zero"),
        (
            protocol(1),
            |rule| rule.destination_port(80).count(),
            "a port needs TCP, UDP or SCTP in the header: protocol 1",
        ),
        (
            RuleHeader::default(),
            |rule| rule.dnat("[::1]:80".parse().unwrap()),
            "the address is not of the rule's family: ::1",
        ),
        (RuleHeader::default(), |rule| rule.set(1, &[], false).count(), "a set has 1 to 6 dimensions: 0"),
    ];
    for (header, rest, text) in cases {
        assert_eq!(outcome(Family::Ipv4, &header, rest).as_deref(), Some(text));
    }
    let long = "x".repeat(256);
    assert_eq!(xt::comment(&long), Err(EncodeError::TooLong { what: "comment", length: 256, most: 255 }));
}
