use crate::support::{Plan, outcomes, tcp};
use proptest::prelude::*;
use svclab_sim::fraction::Fraction;
use svclab_sim::protocol::Family;
use svclab_sim::rules::{RuleTarget, Rules};

fn service(endpoints: u32) -> String {
    let mut rules =
        String::from("*nat\n:SVC - [0:0]\n-A PREROUTING -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j SVC\n");
    for number in 0..endpoints {
        let left = f64::from(endpoints - number);
        let chance = format!("-m statistic --mode random --probability {:.10} ", 1.0 / left);
        let chance = if number + 1 == endpoints { "" } else { &chance };
        rules.push_str(&format!("-A SVC {chance}-p tcp -j DNAT --to-destination 10.244.0.{}:80\n", number + 100));
    }
    rules + "COMMIT\n"
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_endpoint_has_the_same_share(endpoints in 1_u32..40) {
        let network = Plan::new(&service(endpoints)).build();
        let all = network.outcomes(&tcp(&network, "client", "10.96.0.10:80")).unwrap();
        prop_assert_eq!(all.outcomes.len(), endpoints as usize);
        prop_assert_eq!(all.probability(|_| true), Fraction::one());
        let uniform = Fraction::new(1, endpoints.into());
        for outcome in &all.outcomes {
            prop_assert!(outcome.probability.within(&uniform, 1, 1_000_000_000), "{:?}", outcome);
        }
    }

    #[test]
    fn no_line_makes_the_reader_panic(words in proptest::collection::vec("-A|INPUT|-m|-p|tcp|!|--dport|80|-j|DROP|\"|[ -~]{0,6}|set|recent|--name", 0..12)) {
        let text = format!("*filter\n{}\nCOMMIT\n", words.join(" "));
        if let Ok(rules) = Rules::read(Family::V4, &text) {
            let printed = rules.to_string();
            prop_assert_eq!(Rules::read(Family::V4, &printed).unwrap().to_string(), printed);
        }
    }

    #[test]
    fn kept_text_reads_as_the_same(words in proptest::collection::vec("-m|-p|tcp|!|--dport|80|-j|DROP|LOG|\"a b\"|bpf|owner|--uid-owner|--[a-z]{1,3}|[a-z0-9]{1,3}|set|limit|CT|--zone|-s|10.0.0.1", 0..12)) {
        let text = format!("*raw\n-A OUTPUT {}\nCOMMIT\n", words.join(" "));
        let (strict, any) = (Rules::read(Family::V4, &text), Rules::read_any(Family::V4, &text));
        if let Ok(strict) = strict {
            prop_assert_eq!(&strict, any.as_ref().unwrap());
        }
        if let Ok(any) = any {
            let printed = any.to_string();
            prop_assert_eq!(Rules::read_any(Family::V4, &printed).unwrap().to_string(), printed);
        }
    }
}

#[test]
fn a_removed_rule_changes_outcomes() {
    let whole = Rules::read(Family::V4, &Plan::web().rules).unwrap();
    let mut silent = Vec::new();
    for (table, chain, rule) in places(&whole) {
        let mut mutant = whole.clone();
        let gone = mutant.tables[table].chains[chain].rules.remove(rule);
        let text = mutant.to_string();
        assert_eq!(Rules::read(Family::V4, &text).unwrap().len(), whole.len() - 1);
        if everything(&text) == everything(&Plan::web().rules) {
            silent.push(format!("-A {}{gone}", mutant.tables[table].chains[chain].name));
        }
    }
    insta::assert_snapshot!(silent.join("\n"));
}

fn places(rules: &Rules) -> Vec<(usize, usize, usize)> {
    let tables = rules.tables.iter().enumerate();
    let chains =
        tables.flat_map(|(table, one)| one.chains.iter().enumerate().map(move |(chain, one)| (table, chain, one)));
    chains.flat_map(|(table, chain, one)| (0..one.rules.len()).map(move |rule| (table, chain, rule))).collect()
}

fn everything(rules: &str) -> String {
    let network = Plan::new(rules).build();
    let mut report = String::new();
    for from in ["pod-a", "pod-b", "pod-c", "node-a", "client"] {
        for to in ["10.96.0.10:80", "172.18.0.2:30080", "10.96.0.66:80", "10.244.0.2:8080"] {
            report.push_str(&outcomes(&network, &tcp(&network, from, to)));
        }
    }
    report
}

#[test]
fn a_changed_target_changes_outcomes() {
    let mut rules = Rules::read(Family::V4, &Plan::web().rules).unwrap();
    for chain in rules.tables.iter_mut().flat_map(|table| &mut table.chains) {
        for rule in chain.rules.iter_mut().filter(|rule| matches!(rule.target, RuleTarget::Reject(_))) {
            rule.target = RuleTarget::Drop;
        }
    }
    let network = Plan::new(&rules.to_string()).build();
    let said = outcomes(&network, &tcp(&network, "client", "10.96.0.66:80"));
    assert!(said.contains("dropped by node-a: Rule(filter: -A KUBE-SERVICES"), "{said}");
}
