//! Bytes that iptables-nft 1.8.9 writes into a kernel 6.18 on a little-endian machine.

use nf_tables::iptables::{InterfaceMatch, Prefix, RuleBuilder, RuleHeader};
use nf_tables::xt::{self, AddrTypeMatch, SetDirection};
use nf_tables::{Batch, Element, ElementValue, EncodeError, Family, NfVerdict, Rule, Table, expressions};

/// Returns `name type=value …`, in hexadecimal.
fn shown(rule: &Rule) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let one = |expression: nf_tables::Expression<'_>| {
        let attributes = expression.attributes.map(|attribute| format!(" {}={}", attribute.kind, hex(attribute.value)));
        format!("{}{}\n", expression.name, attributes.collect::<String>())
    };
    expressions(rule.expressions()).map(one).collect()
}

const COUNTER: &str = "counter 1=0000000000000000 2=0000000000000000\n";

#[test]
fn a_cluster_ip_s_rule() {
    let header = RuleHeader {
        input: Some(InterfaceMatch { name: "cni", prefix: true, negated: false }),
        output: Some(InterfaceMatch { name: "eth0", prefix: false, negated: true }),
        protocol: Some(6),
        source: Some(Prefix { address: "10.244.0.0".parse().unwrap(), length: 14, negated: true }),
        destination: Some(Prefix::host("10.96.0.1".parse().unwrap())),
    };
    let mut rule = Rule::new();
    RuleBuilder::new(&mut rule, Family::Ipv4, &header).destination_port(80).jump("X");
    let expected = [
        "meta 2=00000006 1=00000001",
        "cmp 1=00000001 2=00000000 3=07000100636e6900",
        "meta 2=00000007 1=00000001",
        "cmp 1=00000001 2=00000001 3=090001006574683000000000",
        "meta 2=00000010 1=00000001",
        "cmp 1=00000001 2=00000000 3=0500010006000000",
        "payload 1=00000001 2=00000001 3=0000000c 4=00000004",
        "bitwise 1=00000001 2=00000001 3=00000004 4=08000100fffc0000 5=0800010000000000",
        "cmp 1=00000001 2=00000001 3=080001000af40000",
        "payload 1=00000001 2=00000001 3=00000010 4=00000004",
        "cmp 1=00000001 2=00000000 3=080001000a600001",
        "payload 1=00000001 2=00000002 3=00000002 4=00000002",
        "cmp 1=00000001 2=00000000 3=0600010000500000",
        COUNTER.trim_end(),
        "immediate 1=00000000 2=1400028008000100fffffffd0600020058000000",
    ];
    assert_eq!(shown(&rule), expected.map(|line| format!("{line}\n")).concat());
    assert_eq!(rule.compat().unwrap().protocol, 6);
}

#[test]
fn shorter_prefixes_are_shorter_payloads() {
    let shown = |text: &str, length, family| {
        let source = Prefix { address: text.parse().unwrap(), length, negated: false };
        let mut rule = Rule::new();
        RuleBuilder::new(&mut rule, family, &RuleHeader { source: Some(source), ..RuleHeader::default() }).count();
        assert_eq!(rule.error(), None);
        shown(&rule).replace(COUNTER, "")
    };
    let payload = |offset, length, cmp: &str| {
        format!("payload 1=00000001 2=00000001 3={offset:08x} 4={length:08x}\ncmp 1=00000001 2=00000000 3={cmp}\n")
    };
    assert_eq!(shown("10.1.2.3", 8, Family::Ipv4), payload(12, 1, "050001000a000000"));
    assert_eq!(shown("10.1.2.3", 16, Family::Ipv4), payload(12, 2, "060001000a010000"));
    assert_eq!(shown("10.1.2.3", 24, Family::Ipv4), payload(12, 3, "070001000a010200"));
    assert_eq!(shown("fd00::1", 64, Family::Ipv6), payload(8, 8, "0c000100fd00000000000000"));
    assert_eq!(shown("10.1.2.3", 0, Family::Ipv4), "");
}

fn extension<const N: usize>(extension: &xt::XtExtension<N>) -> (&'static str, u32, usize, Vec<(usize, u8)>) {
    let bytes = extension.info.iter().copied().enumerate().filter(|(_, byte)| *byte != 0);
    (extension.name, extension.revision, N, bytes.collect())
}

#[test]
fn matches_and_targets_are_laid_out_as_in_the_kernel_s_headers() {
    assert_eq!(extension(&xt::comment("ab").unwrap()), ("comment", 0, 256, vec![(0, b'a'), (1, b'b')]));
    let local = xt::address_type(AddrTypeMatch::source_not_local());
    assert_eq!(extension(&local), ("addrtype", 1, 8, vec![(0, 4), (4, 1)]));
    let state = xt::conntrack_state(xt::RELATED_ESTABLISHED | xt::STATE_DNAT, true);
    assert_eq!(extension(&state), ("conntrack", 3, 168, vec![(146, 1), (148, 1), (150, 0x86)]));
    assert_eq!(xt::one_in(3).info, *b"\0\0\0\0\xab\xaa\xaa\x2a\0\0\0\0\xab\xaa\xaa\x2a\0\0\0\0\0\0\0\0");
    let recent = xt::recent_check("K", "255.255.255.255".parse().unwrap(), 10_800).unwrap();
    let mask = (212..216).map(|at| (at, 0xff));
    let expected = [(0, 0x30), (1, 0x2a), (8, 0x21), (10, b'K')].into_iter().chain(mask).collect();
    assert_eq!(extension(&recent), ("recent", 1, 232, expected));
    let recent = xt::recent_set("K", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap()).unwrap();
    let expected = [(8, 2), (10, b'K')].into_iter().chain((212..228).map(|at| (at, 0xff))).collect();
    assert_eq!(extension(&recent), ("recent", 1, 232, expected));
    let set = xt::set(258, &[SetDirection::Source, SetDirection::Destination, SetDirection::Source], true).unwrap();
    assert_eq!(extension(&set), ("set", 4, 48, vec![(0, 2), (1, 1), (2, 3), (3, 0b1011)]));
    assert_eq!(xt::tcp().info, *b"\0\0\xff\xff\0\0\xff\xff\0\0\0\0\0\0\0\0");
    assert_eq!(extension(&xt::udp()), ("udp", 0, 16, vec![(2, 255), (3, 255), (6, 255), (7, 255)]));
    let sctp = vec![(0, 80), (2, 80), (268, 255), (271, 255), (274, 255), (277, 255), (284, 2)];
    assert_eq!(extension(&xt::sctp(Some(80))), ("sctp", 0, 296, sctp));
    assert_eq!(extension(&xt::mark(0x4000, 0x8000, true)), ("mark", 1, 16, vec![(1, 0x40), (5, 0x80), (8, 1)]));
    assert_eq!(extension(&xt::set_xmark(0x4000, 0)), ("MARK", 2, 8, vec![(1, 0x40)]));
    assert_eq!(extension(&xt::masquerade_v4(true)), ("MASQUERADE", 0, 24, vec![(0, 1), (4, 0x10)]));
    assert_eq!(extension(&xt::masquerade_v6(true)), ("MASQUERADE", 0, 40, vec![(0, 0x10)]));
    let ports = |at: usize| [(at, 0xee), (at + 1, 0x48), (at + 2, 0xee), (at + 3, 0x48)];
    let redirect = [(0, 1), (4, 2)].into_iter().chain(ports(16)).collect();
    assert_eq!(extension(&xt::redirect_v4(61_000)), ("REDIRECT", 0, 24, redirect));
    let redirect = [(0, 2)].into_iter().chain(ports(36)).collect();
    assert_eq!(extension(&xt::redirect_v6(61_000)), ("REDIRECT", 0, 40, redirect));
    let dnat = [(0, 3), (4, 10), (7, 1), (20, 10), (23, 1)].into_iter().chain(ports(36)).collect();
    assert_eq!(extension(&xt::dnat("10.0.0.1:61000".parse().unwrap())), ("DNAT", 2, 48, dnat));
    assert_eq!(extension(&xt::reject_v4()), ("REJECT", 0, 8, vec![(0, 3)]));
    assert_eq!(extension(&xt::reject_v6()), ("REJECT", 0, 8, vec![(0, 4)]));
    assert_eq!(extension(&xt::reset_v4()), ("REJECT", 0, 8, vec![(0, 7)]));
    assert_eq!(extension(&xt::reset_v6()), ("REJECT", 0, 8, vec![(0, 6)]));
}

#[test]
fn text_that_does_not_fit_is_refused() {
    assert!(xt::comment(&"x".repeat(255)).is_ok());
    let error = xt::comment(&"x".repeat(256));
    assert_eq!(error, Err(EncodeError::TooLong { what: "comment", length: 256, most: 255 }));
    assert!(matches!(xt::comment("a\0b"), Err(EncodeError::Value { .. })));
    let any = "255.255.255.255".parse().unwrap();
    assert!(xt::recent_set(&"x".repeat(199), any).is_ok());
    let error = EncodeError::TooLong { what: "list's name", length: 200, most: 199 };
    assert_eq!(xt::recent_set(&"x".repeat(200), any), Err(error));
    assert!(xt::set(1, &[SetDirection::Source; 6], false).is_ok());
    assert!(xt::set(1, &[SetDirection::Source; 7], false).is_err());
}

#[test]
fn a_mistake_leaves_the_batch_as_it_was() {
    let table = Table::new(Family::Ipv4, "t");
    let mut batch = Batch::new();
    assert_eq!((batch.len(), batch.is_empty()), (40, true), "a beginning and an end");
    batch.add_table(table).unwrap();
    let before = (batch.len(), batch.operations(), batch.messages());
    let mut wrong = Rule::new();
    RuleBuilder::new(&mut wrong, Family::Ipv6, &RuleHeader::default()).dnat("10.0.0.1:80".parse().unwrap());
    assert!(batch.add_rule(table, "a", &wrong).is_err());
    assert!(batch.add_chain(table, "").is_err());
    assert!(batch.add_table(Table::new(Family::Ipv4, &"x".repeat(256))).is_err());
    assert!(batch.add_rule(table, "a", Rule::new().verdict(NfVerdict::Jump("a\0b"))).is_err());
    let long = vec![0; 66_000];
    let elements = [Element::new(&[1]), Element::to(&[2], ElementValue::Data(&long))];
    assert!(batch.add_elements(table, "s", elements).is_err());
    assert_eq!((batch.len(), batch.operations(), batch.messages()), before);
    // Two expressions of 40,000 bytes are too long for a rule.
    let mut rule = Rule::new();
    rule.raw("a", &long[..40_000]).raw("b", &long[..40_000]);
    let error = EncodeError::AttributeTooLong { kind: 4, length: rule.expressions().len() };
    assert_eq!(batch.add_rule(table, "a", &rule), Err(error));
    assert_eq!((batch.len(), batch.operations(), batch.messages()), before);
    let checkpoint = batch.checkpoint();
    assert_eq!(batch.add_chain(table, "a").unwrap().0, 1);
    batch.rollback(checkpoint);
    assert_eq!((batch.len(), batch.operations(), batch.messages()), before);
    assert_eq!(batch.add_chain(table, "b").unwrap().0, 1);
}
