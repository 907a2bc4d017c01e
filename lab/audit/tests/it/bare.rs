//! Where the addresses of a machine are, of which only rules are known.

use svclab_audit::explain::{Bare, Caller, ExplainCall, NodeFacts, explain};
use svclab_sim::assume::Assumptions;
use svclab_sim::cluster::NodeState;
use svclab_sim::protocol::{Family, Protocol};
use svclab_sim::render;

const REDIRECT: &str = "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A PREROUTING -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 8080\nCOMMIT\n";
const NFT_REDIRECT: &str = "table ip n {\n\tchain p {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\ttcp dport 80 redirect to :8080\n\t}\n}\n";

fn call(rules: &str, own: &[&str], input: Option<&str>, from: &str, to: &str) -> String {
    let mut state = NodeState::default();
    let read = if rules.starts_with('*') {
        state.read_any_rules("iptables-save", Family::V4, rules)
    } else {
        state.read_nft("nft list ruleset", rules)
    };
    read.unwrap();
    let call = ExplainCall {
        from: Caller::Address(from.parse().unwrap()),
        to: to.parse().unwrap(),
        protocol: Protocol::TCP,
        input: input.map(str::to_owned),
        assumptions: Assumptions::new(),
    };
    let own = own.iter().map(|own| own.parse().unwrap()).collect();
    match explain(NodeFacts::Bare(&Bare { own, has_sets: false }), &state, &call) {
        Ok(found) => {
            let all = found.outcomes.outcomes.iter();
            let verdicts = all.map(|one| render::verdict(&found.machines.network, &one.verdict));
            verdicts.chain(found.assumed.iter().cloned()).collect::<Vec<_>>().join("\n")
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_redirected_packet_reaches_the_address_of_its_interface() {
    let own = "192.0.2.1/24";
    for rules in [REDIRECT, NFT_REDIRECT] {
        for (addresses, input, from, at) in [
            (&[own][..], Some("eth0"), "192.0.2.9", "192.0.2.1"),
            (&[own], None, "192.0.2.9", "192.0.2.1"),
            (&[own], Some("eth0"), "198.51.100.7", "192.0.2.1"),
            (&[own, "10.244.0.1/24"], Some("cni0"), "10.244.0.7", "10.244.0.1"),
        ] {
            for to in [own.trim_end_matches("/24"), "10.96.0.10"] {
                let found = call(rules, addresses, input, from, &format!("{to}:80"));
                assert!(
                    found.contains(&format!("answers at {at}:8080 and sees {from}")),
                    "{rules}{from} {to}: {found}"
                );
                assert!(found.contains(&format!("addresses: {at}/24 on the caller's interface")), "{found}");
            }
        }
        let unknown = call(rules, &[own], None, "198.51.100.7", "192.0.2.1:80");
        assert!(unknown.contains("needs an address of the input interface, which is not known"), "{unknown}");
    }
}

#[test]
fn local_addresses_of_the_input_interface_are_those_of_the_caller() {
    let addrtype = |option: &str, rule: &str| {
        format!("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m addrtype --dst-type LOCAL {option} {rule}\nCOMMIT\n")
    };
    let fib = |rule: &str| {
        format!(
            "table ip t {{\n\tchain c {{\n\t\ttype filter hook input priority 0; policy accept;\n\t\t{rule}\n\t}}\n}}\n"
        )
    };
    for (rules, to, dropped) in [
        (addrtype("--limit-iface-in", "-j DROP"), "192.0.2.1:80", true),
        (addrtype("--limit-iface-in", "-j DROP"), "10.244.0.1:80", false),
        (fib("fib daddr . iif type local drop"), "192.0.2.1:80", true),
        (fib("fib daddr . iif type local drop"), "10.244.0.1:80", false),
        (fib("fib saddr . iif oif missing drop"), "192.0.2.1:80", false),
    ] {
        let found = call(&rules, &["192.0.2.1/24", "10.244.0.1/24"], Some("eth0"), "192.0.2.9", to);
        assert_eq!(found.contains("dropped"), dropped, "{rules}{to}: {found}");
    }
}
