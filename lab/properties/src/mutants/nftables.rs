use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use svclab_sim::cluster::NodeState;
use svclab_sim::nft::{
    BaseChain, Chain, Element, ElementKey, ElementValue, Expr, NatKind, NftVerdict, Relation, Rule, Ruleset,
    SetOperation, Statement,
};
use svclab_sim::rules::ChainPolicy;

use super::Mutant;
use super::tools::state;

fn edit(state: &mut NodeState, how: impl Fn(&mut Ruleset)) -> bool {
    let before = Arc::clone(&state.nft);
    how(Arc::make_mut(&mut state.nft));
    state.nft != before
}

fn elements(state: &mut NodeState, set: &str, how: impl Fn(&mut Vec<Element>)) -> bool {
    edit(state, |ruleset| {
        let sets = ruleset.tables.iter_mut().flat_map(|table| &mut table.sets);
        sets.filter(|one| one.name == set).for_each(|set| how(&mut set.elements));
    })
}

fn each_element(state: &mut NodeState, set: &str, how: impl Fn(&mut Element)) -> bool {
    elements(state, set, |all| all.iter_mut().for_each(&how))
}

fn clear(state: &mut NodeState, set: &str) -> bool {
    elements(state, set, Vec::clear)
}

fn chains(state: &mut NodeState, prefix: &str, how: impl Fn(&mut Chain)) -> bool {
    edit(state, |ruleset| {
        let chains = ruleset.tables.iter_mut().flat_map(|table| &mut table.chains);
        chains.filter(|chain| chain.name.starts_with(prefix)).for_each(&how);
    })
}

fn each_rule(state: &mut NodeState, prefix: &str, how: impl Fn(&mut Rule)) -> bool {
    chains(state, prefix, |chain| chain.rules.iter_mut().for_each(&how))
}

fn without_rules(state: &mut NodeState, prefix: &str, which: impl Fn(&Rule) -> bool) -> bool {
    chains(state, prefix, |chain| chain.rules.retain(|rule| !which(rule)))
}

fn without_statements(state: &mut NodeState, prefix: &str, which: impl Fn(&Statement) -> bool) -> bool {
    each_rule(state, prefix, |rule| rule.statements.retain(|statement| !which(statement)))
}

fn has(rule: &Rule, which: impl Fn(&Statement) -> bool) -> bool {
    rule.statements.iter().any(which)
}

fn is_mark(statement: &Statement) -> bool {
    matches!(statement, Statement::Set { what: Expr::Meta(_), .. })
}

fn is_match(statement: &Statement) -> bool {
    matches!(statement, Statement::Match { .. })
}

fn asks_fib(statement: &Statement) -> bool {
    matches!(statement, Statement::Match { left: Expr::Fib { .. }, .. })
}

fn asks_state(statement: &Statement) -> bool {
    matches!(statement, Statement::Match { left: Expr::Ct { key, .. }, .. } if key == "state")
}

fn asks_status(statement: &Statement) -> bool {
    matches!(statement, Statement::Match { left: Expr::Ct { key, .. }, .. } if key == "status")
}

fn jumps_to(rule: &Rule, chain: &str) -> bool {
    has(rule, |statement| matches!(statement, Statement::Verdict(NftVerdict::Jump(to)) if to == chain))
}

fn masquerades(statement: &Statement) -> bool {
    matches!(statement, Statement::Nat { kind: NatKind::Masquerade | NatKind::Snat, .. })
}

fn unasked(state: &mut NodeState, base: &str, chain: &str) -> bool {
    without_rules(state, base, |rule| jumps_to(rule, chain))
}

fn base_chains(state: &mut NodeState, prefix: &str, how: impl Fn(&mut BaseChain)) -> bool {
    chains(state, prefix, |chain| chain.base.iter_mut().for_each(&how))
}

fn next_number(expr: &mut Expr) {
    if let Expr::Word(word) = expr
        && let Ok(number) = word.parse::<u16>()
    {
        *word = number.wrapping_add(1).to_string();
    }
}

fn key_parts(element: &mut Element) -> &mut [Expr] {
    match &mut element.key {
        ElementKey::Parts(parts) => parts,
        ElementKey::Any => &mut [],
    }
}

fn numbered(element: &Element, number: &str) -> bool {
    matches!(&element.key, ElementKey::Parts(parts) if parts.last() == Some(&Expr::Word(number.to_owned())))
}

fn shift_port(element: &mut Element, at: usize) {
    if let Some(port) = key_parts(element).get_mut(at) {
        next_number(port);
    }
}

fn swap_protocol(element: &mut Element, at: usize) {
    if let Some(Expr::Word(word)) = key_parts(element).get_mut(at) {
        *word = if word == "tcp" { "udp" } else { "tcp" }.to_owned();
    }
}

fn next_endpoint_port(element: &mut Element) {
    if let ElementValue::Data(parts) = &mut element.value
        && let Some(port) = parts.get_mut(1)
    {
        next_number(port);
    }
}

fn rotate_values(all: &mut [Element]) {
    let mut values: Vec<ElementValue> = all.iter().map(|element| element.value.clone()).collect();
    if !values.is_empty() {
        values.rotate_left(1);
    }
    all.iter_mut().zip(values).for_each(|(element, value)| element.value = value);
}

fn redirect(state: &mut NodeState, map: &str, to: impl Fn(&str) -> Option<String>) -> bool {
    let known: Vec<String> =
        state.nft.tables.iter().flat_map(|table| table.chains.iter().map(|chain| chain.name.clone())).collect();
    each_element(state, map, |element| {
        if let ElementValue::Verdict(NftVerdict::Goto(chain)) = &mut element.value
            && let Some(other) = to(chain).filter(|other| known.contains(other))
        {
            *chain = other;
        }
    })
}

/// Renames `external-tcp-3` to `tcp-3`.
fn past(prefix: &'static str) -> impl Fn(&str) -> Option<String> {
    move |chain| {
        let (nodeport, rest) = chain.strip_prefix("nodeport-").map_or(("", chain), |rest| ("nodeport-", rest));
        rest.strip_prefix(prefix).map(|rest| format!("{nodeport}{rest}"))
    }
}

/// Renames `local-tcp-1-of-3` to `short-circuit-tcp-3` or `tcp-1`.
fn of_local(all: bool) -> impl Fn(&str) -> Option<String> {
    move |chain| {
        let (nodeport, rest) = chain.strip_prefix("nodeport-").map_or(("", chain), |rest| ("nodeport-", rest));
        let (protocol, counts) = rest.strip_prefix("local-")?.split_once('-')?;
        let (local, of) = counts.split_once("-of-")?;
        Some(if all {
            format!("{nodeport}short-circuit-{protocol}-{of}")
        } else {
            format!("{nodeport}{protocol}-{local}")
        })
    }
}

/// Turns `tcp-3` into `tcp-2`.
fn fewer(chain: &str) -> Option<String> {
    let (name, number) = chain.rsplit_once('-')?;
    let number: u32 = number.parse().ok()?;
    (number > 1).then(|| format!("{name}-{}", number - 1))
}

fn draws(state: &mut NodeState, how: impl Fn(u32) -> u32) -> bool {
    fn within(expr: &mut Expr, how: &dyn Fn(u32) -> u32) {
        match expr {
            Expr::Numgen { modulus, .. } => *modulus = how(*modulus),
            Expr::Concat(parts) => parts.iter_mut().for_each(|part| within(part, how)),
            Expr::Map { key, .. } => within(key, how),
            _ => {}
        }
    }
    each_rule(state, "", |rule| {
        for statement in &mut rule.statements {
            match statement {
                Statement::Nat { address: Some(address), .. } => within(address, &how),
                Statement::Match { left, .. } => within(left, &how),
                _ => {}
            }
        }
    })
}

fn verdicts(state: &mut NodeState, map: &str, from: &NftVerdict, to: &NftVerdict) -> bool {
    each_element(state, map, |element| {
        if element.value == ElementValue::Verdict(from.clone()) {
            element.value = ElementValue::Verdict(to.clone());
        }
    })
}

fn refusal() -> NftVerdict {
    NftVerdict::Goto("reject-chain".to_owned())
}

fn remembered(state: &mut NodeState, how: impl Fn(u64) -> u64) -> bool {
    each_rule(state, "endpoint-", |rule| {
        for statement in &mut rule.statements {
            if let Statement::Element { timeout: Some(timeout), .. } = statement {
                *timeout = how(*timeout);
            }
        }
    })
}

fn asks_memory(rule: &Rule) -> bool {
    has(
        rule,
        |statement| matches!(statement, Statement::Match { right: Expr::SetRef(set), .. } if set.starts_with("affinity-")),
    )
}

pub(super) fn catalogue() -> Vec<Mutant> {
    [frontends(), endpoints(), refusals(), firewall(), structure(), marking(), memory(), partial()].concat()
}

#[rustfmt::skip]
fn frontends() -> Vec<Mutant> {
    vec![
        state("the map of service addresses is empty", |s| clear(s, "service-ips")),
        state("the map of node ports is empty", |s| clear(s, "service-nodeports")),
        state("the verdicts of service addresses are rotated", |s| elements(s, "service-ips", |all| rotate_values(all))),
        state("service addresses are at the next port", |s| each_element(s, "service-ips", |one| shift_port(one, 2))),
        state("service addresses have the other protocol", |s| each_element(s, "service-ips", |one| swap_protocol(one, 1))),
        state("node ports are at the next port", |s| each_element(s, "service-nodeports", |one| shift_port(one, 1))),
        state("node ports have the other protocol", |s| each_element(s, "service-nodeports", |one| swap_protocol(one, 0))),
        state("the first service address is missing", |s| elements(s, "service-ips", |all| { all.drain(..1.min(all.len())); })),
        state("the set of node port addresses is empty", |s| clear(s, "nodeport-ips")),
        state("node ports answer on every local address", |s| each_rule(s, "services", |rule| {
            for statement in &mut rule.statements {
                if let Statement::Match { left, relation, right } = statement
                    && *right == Expr::SetRef("nodeport-ips".to_owned())
                {
                    *left = Expr::Fib { flags: vec!["daddr".to_owned()], result: "type".to_owned() };
                    *relation = Relation::Implicit;
                    *right = Expr::Word("local".to_owned());
                }
            }
        })),
        state("node ports answer on loopback addresses", |s| without_statements(s, "services", |statement| {
            matches!(statement, Statement::Match { left: Expr::Payload { .. }, relation: Relation::NotEqual, .. })
        })),
        state("node ports answer at any address", |s| without_statements(s, "services", asks_fib)),
    ]
}

#[rustfmt::skip]
fn endpoints() -> Vec<Mutant> {
    vec![
        state("no service has its first endpoint", |s| elements(s, "service-endpoints", |all| all.retain(|one| !numbered(one, "0")))),
        state("no service has its second endpoint", |s| elements(s, "service-endpoints", |all| all.retain(|one| !numbered(one, "1")))),
        state("no node port has its first endpoint", |s| elements(s, "nodeport-endpoints", |all| all.retain(|one| !numbered(one, "0")))),
        state("no short circuit has its first endpoint", |s| elements(s, "short-circuit-endpoints", |all| all.retain(|one| !numbered(one, "0")))),
        state("no short circuit of node ports has its first endpoint", |s| elements(s, "nodeport-short-circuit-endpoints", |all| all.retain(|one| !numbered(one, "0")))),
        state("endpoints are rotated", |s| elements(s, "service-endpoints", |all| rotate_values(all))),
        state("endpoints of node ports are rotated", |s| elements(s, "nodeport-endpoints", |all| rotate_values(all))),
        state("endpoints are at the next port", |s| each_element(s, "service-endpoints", next_endpoint_port)),
        state("endpoints of node ports are at the next port", |s| each_element(s, "nodeport-endpoints", next_endpoint_port)),
        state("endpoints of short circuits are at the next port", |s| each_element(s, "short-circuit-endpoints", next_endpoint_port)),
        state("each draw is among one fewer", |s| draws(s, |modulus| (modulus - 1).max(1))),
        state("each draw is among one more", |s| draws(s, |modulus| modulus + 1)),
        state("services use one endpoint fewer", |s| redirect(s, "service-ips", fewer)),
        state("node ports use one endpoint fewer", |s| redirect(s, "service-nodeports", fewer)),
        state("policy Local uses every endpoint for every client", |s| redirect(s, "service-ips", of_local(true))),
        state("policy Local uses local endpoints for every client", |s| redirect(s, "service-ips", of_local(false))),
        state("policy Local of node ports uses every endpoint for every client", |s| redirect(s, "service-nodeports", of_local(true))),
        state("policy Local of node ports uses local endpoints for every client", |s| redirect(s, "service-nodeports", of_local(false))),
        state("policy Local has no endpoint for outside clients", |s| chains(s, "local-", |chain| { chain.rules.pop(); })),
        state("policy Local of node ports has no endpoint for outside clients", |s| chains(s, "nodeport-local-", |chain| { chain.rules.pop(); })),
        state("short circuits exclude the node itself", |s| without_rules(s, "local-", |rule| has(rule, asks_fib))),
        state("short circuits exclude pods", |s| without_rules(s, "local-", |rule| !has(rule, asks_fib) && has(rule, is_match))),
        state("short circuits of node ports exclude pods", |s| without_rules(s, "nodeport-local-", |rule| !has(rule, asks_fib) && has(rule, is_match))),
        state("short circuits apply to every client", |s| without_statements(s, "local-", is_match)),
        state("translations do not match the protocol", |s| {
            ["tcp-", "udp-", "sctp-", "nodeport-tcp-", "nodeport-udp-"].map(|prefix| without_statements(s, prefix, is_match)).contains(&true)
        })
            .equivalent("the map has matched the protocol"),
    ]
}

#[rustfmt::skip]
fn refusals() -> Vec<Mutant> {
    vec![
        state("services without endpoints do not reject", |s| clear(s, "no-endpoint-services")),
        state("node ports without endpoints do not reject", |s| clear(s, "no-endpoint-nodeports")),
        state("services without endpoints drop", |s| verdicts(s, "no-endpoint-services", &refusal(), &NftVerdict::Drop)),
        state("node ports without endpoints drop", |s| verdicts(s, "no-endpoint-nodeports", &refusal(), &NftVerdict::Drop)),
        state("services without local endpoints reject", |s| verdicts(s, "no-endpoint-services", &NftVerdict::Drop, &refusal())),
        state("node ports without local endpoints reject", |s| verdicts(s, "no-endpoint-nodeports", &NftVerdict::Drop, &refusal())),
        state("the reject chain drops", |s| each_rule(s, "reject-chain", |rule| rule.statements = vec![Statement::Verdict(NftVerdict::Drop)])),
        state("the reject chain is empty", |s| chains(s, "reject-chain", |chain| chain.rules.clear())),
        state("the reject chain sends resets", |s| each_rule(s, "reject-chain", |rule| {
            rule.statements = vec![Statement::Reject(Some(("tcp".to_owned(), "reset".to_owned())))];
        })),
        state("forwarded packets are not rejected", |s| unasked(s, "filter-forward", "service-endpoints-check")),
        state("the node's own packets are not rejected", |s| unasked(s, "filter-output", "service-endpoints-check")),
        state("packets to the node itself are not rejected", |s| unasked(s, "filter-input", "service-endpoints-check"))
            .equivalent("in these clusters no address of a service is a node's own"),
        state("packets to node ports are not rejected", |s| unasked(s, "filter-input", "nodeport-endpoints-check")),
        state("forwarded packets to other ports of cluster IPs pass", |s| unasked(s, "filter-forward", "cluster-ips-check")),
        state("the node's own packets to other ports of cluster IPs pass", |s| unasked(s, "filter-output", "cluster-ips-check")),
        state("unused addresses of ServiceCIDRs pass", |s| clear(s, "service-cidrs")),
        state("the set of cluster IPs is empty", |s| clear(s, "cluster-ips")),
        state("the first cluster IP is missing", |s| elements(s, "cluster-ips", |all| { all.drain(..1.min(all.len())); })),
    ]
}

#[rustfmt::skip]
fn firewall() -> Vec<Mutant> {
    vec![
        state("no load-balancer address has source ranges", |s| clear(s, "firewall-restricted")),
        state("source ranges allow no client", |s| clear(s, "firewall-allowed")),
        state("source ranges are of the next port", |s| each_element(s, "firewall-allowed", |one| shift_port(one, 2))),
        state("source ranges are their first address", |s| each_element(s, "firewall-allowed", |one| {
            if let Some(part) = key_parts(one).last_mut()
                && let Expr::Prefix(address, _) = part
            {
                *part = (**address).clone();
            }
        })),
        state("source ranges contain every address", |s| each_element(s, "firewall-allowed", |one| {
            if let Some(Expr::Prefix(_, length)) = key_parts(one).last_mut() {
                *length = 0;
            }
        })),
        state("the firewall is inverted", |s| each_rule(s, "firewall-check", |rule| {
            for statement in &mut rule.statements {
                if let Statement::Match { relation, .. } = statement
                    && *relation == Relation::NotEqual
                {
                    *relation = Relation::Implicit;
                }
            }
        })),
        state("the firewall rejects", |s| each_rule(s, "firewall-check", |rule| {
            rule.statements.retain(|statement| *statement != Statement::Verdict(NftVerdict::Drop));
            rule.statements.push(Statement::Verdict(refusal()));
        })),
        state("the firewall does not see packets from outside", |s| unasked(s, "filter-prerouting-pre-dnat", "firewall-check")),
        state("the firewall does not see the node's own packets", |s| unasked(s, "filter-output-pre-dnat", "firewall-check")),
        state("the firewall runs after translation", |s| base_chains(s, "filter-prerouting-pre-dnat", |base| base.priority = -90)),
        state("the firewall runs after translation of the node's own packets", |s| base_chains(s, "filter-output-pre-dnat", |base| base.priority = -90)),
    ]
}

#[rustfmt::skip]
fn structure() -> Vec<Mutant> {
    vec![
        state("incoming packets are not translated", |s| chains(s, "nat-prerouting", |chain| chain.rules.clear())),
        state("the node's own packets are not translated", |s| chains(s, "nat-output", |chain| chain.rules.clear())),
        state("nat-prerouting has no hook", |s| chains(s, "nat-prerouting", |chain| chain.base = None)),
        state("nat-prerouting has the hook input", |s| base_chains(s, "nat-prerouting", |base| base.hook = "input".to_owned())),
        state("filter-forward has the policy drop", |s| base_chains(s, "filter-forward", |base| base.policy = ChainPolicy::Drop)),
        state("filter-input has the policy drop", |s| base_chains(s, "filter-input", |base| base.policy = ChainPolicy::Drop)),
        state("the table is dormant", |s| edit(s, |ruleset| ruleset.tables.iter_mut().for_each(|table| table.flags = vec!["dormant".to_owned()]))),
        state("every packet is checked, not only the first", |s| {
            ["filter-forward", "filter-output", "filter-input"].map(|chain| without_statements(s, chain, asks_state)).contains(&true)
        })
            .equivalent("translated packets have no frontend address, and replies go to clients"),
    ]
}

#[rustfmt::skip]
fn marking() -> Vec<Mutant> {
    vec![
        state("nothing is masqueraded", |s| without_rules(s, "masquerading", |rule| has(rule, masquerades))),
        state("nat-postrouting is empty", |s| chains(s, "nat-postrouting", |chain| chain.rules.clear())),
        state("everything is masqueraded", |s| without_statements(s, "masquerading", is_match)),
        state("hairpins are not masqueraded", |s| without_rules(s, "masquerading", |rule| has(rule, asks_status))),
        state("the hairpin set is empty", |s| clear(s, "hairpins")),
        state("external addresses are not masqueraded", |s| redirect(s, "service-ips", past("external-"))),
        state("node ports are not masqueraded", |s| redirect(s, "service-nodeports", past("external-"))),
        state("cluster IPs are not masqueraded", |s| redirect(s, "service-ips", past("cluster-ip-"))),
        state("packets of pods to cluster IPs are masqueraded", |s| without_statements(s, "cluster-ip-", is_match)),
        state("only packets of pods to cluster IPs are masqueraded", |s| each_rule(s, "cluster-ip-", |rule| {
            for statement in &mut rule.statements {
                if let Statement::Match { relation, .. } = statement {
                    *relation = if *relation == Relation::NotEqual { Relation::Implicit } else { Relation::NotEqual };
                }
            }
        })),
        state("the node's own packets are not masqueraded in short circuits", |s| ["local-", "nodeport-local-", "external-"].map(|prefix| {
            each_rule(s, prefix, |rule| if has(rule, asks_fib) { rule.statements.retain(|statement| !is_mark(statement)); })
        }).contains(&true))
            .equivalent("the node's packets already have its address, except to its own addresses"),
        state("the mark is another bit", |s| each_rule(s, "masquerading", |rule| {
            for statement in &mut rule.statements {
                if let Statement::Match { right, left: Expr::Binary(_, _, mask), .. } = statement {
                    *right = Expr::Word("0x1".to_owned());
                    **mask = Expr::Word("0x1".to_owned());
                }
            }
        })),
        state("the mark is not cleared", |s| without_statements(s, "masquerading", is_mark))
            .equivalent("no later rule reads the mark"),
    ]
}

#[rustfmt::skip]
fn memory() -> Vec<Mutant> {
    vec![
        state("affinity entries are not written", |s| without_statements(s, "endpoint-", |statement| matches!(statement, Statement::Element { .. }))),
        state("affinity lasts half the time", |s| remembered(s, |time| time / 2)),
        state("affinity lasts twice the time", |s| remembered(s, |time| time * 2)),
        state("affinity entries are not read", |s| without_rules(s, "service-", asks_memory)),
        state("affinity entries hold destinations", |s| each_rule(s, "endpoint-", |rule| {
            for statement in &mut rule.statements {
                if let Statement::Element { key: Expr::Payload { field, .. }, .. } = statement {
                    *field = "daddr".to_owned();
                }
            }
        })),
        state("endpoints with affinity are at the next port", |s| each_rule(s, "endpoint-", |rule| {
            for statement in &mut rule.statements {
                if let Statement::Nat { port: Some(port), .. } = statement {
                    next_number(port);
                }
            }
        })),
        state("affinity reads the next endpoint's set", |s| chains(s, "service-", |chain| {
            let mut sets: Vec<Expr> = chain.rules.iter().flat_map(|rule| &rule.statements).filter_map(|statement| match statement {
                Statement::Match { right: set @ Expr::SetRef(_), .. } => Some(set.clone()),
                _ => None,
            }).collect();
            if sets.is_empty() { return; }
            sets.rotate_left(1);
            let mut next = sets.into_iter();
            for statement in chain.rules.iter_mut().flat_map(|rule| &mut rule.statements) {
                if let Statement::Match { right: set @ Expr::SetRef(_), .. } = statement
                    && let Some(other) = next.next()
                {
                    *set = other;
                }
            }
        })),
        state("affinity sets have the size 0", |s| memory_size(s, 0)),
    ]
}

fn is_hold(statement: &Statement) -> bool {
    matches!(statement, Statement::Element { .. })
}

fn memory_sets(chain: &mut Chain) -> impl Iterator<Item = &mut Expr> {
    chain.rules.iter_mut().flat_map(|rule| &mut rule.statements).filter_map(|statement| match statement {
        Statement::Match { right: set @ Expr::SetRef(_), .. } => Some(set),
        _ => None,
    })
}

fn memory_size(state: &mut NodeState, size: u32) -> bool {
    edit(state, |ruleset| {
        let sets = ruleset.tables.iter_mut().flat_map(|table| &mut table.sets);
        sets.filter(|set| set.name.starts_with("affinity-")).for_each(|set| set.size = Some(size));
    })
}

fn change_ranges(state: &mut NodeState, how: impl Fn(u8) -> u8) -> bool {
    each_element(state, "firewall-allowed", |one| {
        if let Some(Expr::Prefix(address, length)) = key_parts(one).last_mut() {
            let masked = address_of(address)
                .and_then(|ip| IpNet::new(ip, how(*length).min(if ip.is_ipv4() { 32 } else { 128 })).ok());
            if let Some(range) = masked {
                (**address, *length) = (Expr::Word(range.network().to_string()), range.prefix_len());
            }
        }
    })
}

fn address_of(expr: &Expr) -> Option<IpAddr> {
    if let Expr::Word(word) = expr { word.parse().ok() } else { None }
}

/// Mutants that concern some endpoints, addresses or clients only.
#[rustfmt::skip]
fn partial() -> Vec<Mutant> {
    vec![
        state("every second hairpin is missing", |s| elements(s, "hairpins", |all| {
            let mut at = 0;
            all.retain(|_| { at += 1; at % 2 == 1 });
        })),
        state("every second endpoint's affinity entry is not written", |s| edit(s, |ruleset| {
            let chains = ruleset.tables.iter_mut().flat_map(|table| &mut table.chains);
            for chain in chains.filter(|chain| chain.name.starts_with("endpoint-")).skip(1).step_by(2) {
                chain.rules.iter_mut().for_each(|rule| rule.statements.retain(|statement| !is_hold(statement)));
            }
        })),
        state("the first endpoint's affinity reads the second's set", |s| chains(s, "service-", |chain| {
            let second = memory_sets(chain).nth(1).map(|set| set.clone());
            if let (Some(second), Some(first)) = (second, memory_sets(chain).next()) {
                *first = second;
            }
        })),
        state("affinity entries are not renewed", |s| each_rule(s, "endpoint-", |rule| {
            for statement in &mut rule.statements {
                if let Statement::Element { operation, .. } = statement {
                    *operation = SetOperation::Add;
                }
            }
        })),
        state("affinity sets have the size 1", |s| memory_size(s, 1)),
    ]
}

/// Mutants that only calls from or to certain addresses and ports show.
#[rustfmt::skip]
pub(super) fn narrow() -> Vec<Mutant> {
    vec![
        state("source ranges are one bit wider", |s| change_ranges(s, |length| length.saturating_sub(1))),
        state("source ranges are one bit narrower", |s| change_ranges(s, |length| length + 1)),
        state("a node port of no service is served", |s| elements(s, "service-nodeports", |all| {
            if let Some(mut more) = all.first().cloned() {
                if let Some(port) = key_parts(&mut more).last_mut() { *port = Expr::Word("32767".to_owned()); }
                all.push(more);
            }
        })),
        state("packets from privileged ports are dropped", |s| chains(s, "filter-forward", |chain| {
            let ports = Expr::Range(Box::new(Expr::Word("1".to_owned())), Box::new(Expr::Word("1023".to_owned())));
            let port = Expr::Payload { protocol: "tcp".to_owned(), field: "sport".to_owned() };
            let Some(mut rule) = chain.rules.first().cloned() else { return };
            rule.statements = vec![
                Statement::Match { left: port, relation: Relation::Implicit, right: ports },
                Statement::Verdict(NftVerdict::Drop),
            ];
            chain.rules.insert(0, rule);
        })),
    ]
}
