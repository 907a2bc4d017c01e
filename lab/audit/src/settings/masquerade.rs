//! `masqueradeSource` and `noMasqueradeCIDRs`, from the configuration or the rules.

use std::net::IpAddr;

use ipnet::IpNet;
use svclab_oracle::MasqueradeSource;
use svclab_sim::cluster::NodeState;
use svclab_sim::nft::{Expr, NatKind, NftVerdict, Relation, Rule as NftRule, Statement};
use svclab_sim::rules::{Rule, RuleTarget, TableName};

use super::wrong;
use crate::error::NodeError;
use crate::owner::ProxyTables;

pub(super) fn source(text: &str) -> Result<MasqueradeSource, NodeError> {
    let address = |part: &str| {
        let parsed = part.trim().parse::<IpAddr>();
        parsed.map_err(|_| wrong(&format!("masqueradeSource: {part:?} is neither primary nor an address")))
    };
    match text.trim() {
        "" => Ok(MasqueradeSource::OutgoingInterface),
        "primary" => Ok(MasqueradeSource::Primary),
        list => Ok(MasqueradeSource::Addresses(list.split(',').map(address).collect::<Result<_, _>>()?)),
    }
}

/// Returns the settings that the masquerade rules of both families show.
pub(super) fn of_rules(state: &NodeState, own: &ProxyTables) -> (MasqueradeSource, Vec<IpNet>) {
    let nat = state.v4.tables.iter().chain(&state.v6.tables).filter(|table| table.name == TableName::Nat);
    let iptables = nat.flat_map(|table| &table.chains).filter(|chain| chain.name == "KUBE-POSTROUTING");
    let iptables: Vec<&Rule> = iptables.flat_map(|chain| &chain.rules).collect();
    let tables = state.nft.tables.iter().filter(|table| own.has(table));
    let nft = tables.flat_map(|table| &table.chains).filter(|chain| chain.name == "masquerading");
    let nft: Vec<&NftRule> = nft.flat_map(|chain| &chain.rules).collect();
    let mut sources: Vec<IpAddr> = iptables.iter().filter_map(|rule| snat(rule)).collect();
    sources.extend(nft.iter().filter_map(|rule| nft_snat(rule)));
    sources.sort_unstable();
    sources.dedup();
    let exempt = iptables.iter().filter_map(|rule| exempt(rule)).chain(nft.iter().filter_map(|rule| nft_exempt(rule)));
    let source = match sources.is_empty() {
        true => MasqueradeSource::OutgoingInterface,
        false => MasqueradeSource::Addresses(sources),
    };
    (source, exempt.collect())
}

fn snat(rule: &Rule) -> Option<IpAddr> {
    match &rule.target {
        RuleTarget::Snat(range) => range.addresses.map(|(first, _)| first),
        _ => None,
    }
}

fn nft_snat(rule: &NftRule) -> Option<IpAddr> {
    rule.statements.iter().find_map(|statement| match statement {
        Statement::Nat { kind: NatKind::Snat, address: Some(Expr::Word(word)), .. } => word.parse().ok(),
        _ => None,
    })
}

fn exempt(rule: &Rule) -> Option<IpNet> {
    let to = rule.header.destination.filter(|test| !test.not && rule.target == RuleTarget::Return)?;
    IpNet::new(to.is.address(), to.is.prefix()?).ok()
}

fn nft_exempt(rule: &NftRule) -> Option<IpNet> {
    let returns = matches!(rule.statements.last(), Some(Statement::Verdict(NftVerdict::Return)));
    let range = |statement: &Statement| match statement {
        Statement::Match { left: Expr::Payload { field, .. }, relation, right } if field == "daddr" => {
            let (address, length) = match right {
                Expr::Prefix(address, length) => (address.as_ref(), Some(*length)),
                word => (word, None),
            };
            let Expr::Word(word) = address else { return None };
            let address: IpAddr = word.parse().ok()?;
            let all = if address.is_ipv4() { 32 } else { 128 };
            IpNet::new(address, length.unwrap_or(all)).ok().filter(|_| *relation != Relation::NotEqual)
        }
        _ => None,
    };
    rule.statements.iter().find_map(range).filter(|_| returns)
}

#[cfg(test)]
mod tests {
    use svclab_sim::protocol::Family;

    use super::*;

    #[test]
    fn rules_show_source_and_exceptions() {
        let expected = || {
            let source = MasqueradeSource::Addresses(vec!["172.18.0.2".parse().unwrap()]);
            (source, vec!["10.244.0.0/16".parse::<IpNet>().unwrap()])
        };
        let mut state = NodeState::default();
        let text = "*nat\n:KUBE-POSTROUTING - [0:0]\n\
            -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n\
            -A KUBE-POSTROUTING ! -s 127.0.0.0/8 -d 10.244.0.0/16 -m addrtype --src-type LOCAL -j RETURN\n\
            -A KUBE-POSTROUTING -j SNAT --to-source 172.18.0.2 --random-fully\nCOMMIT\n";
        state.read_any_rules("iptables-save", Family::V4, text).unwrap();
        assert_eq!(of_rules(&state, &ProxyTables::default()), expected());
        let mut state = NodeState::default();
        let text = "table ip kube-proxy {\nchain masquerading {\n\
            meta mark & 0x4000 == 0x4000 ip daddr 10.244.0.0/16 fib saddr type local ip saddr != 127.0.0.0/8 \
            meta mark set meta mark ^ 0x4000 return\n\
            meta mark & 0x4000 == 0x4000 meta mark set meta mark ^ 0x4000 snat to 172.18.0.2 fully-random\n}\n}\n";
        state.read_nft("nft list ruleset", text).unwrap();
        assert_eq!(of_rules(&state, &ProxyTables::default()), expected());
        assert_eq!(
            of_rules(&NodeState::default(), &ProxyTables::default()),
            (MasqueradeSource::OutgoingInterface, Vec::new())
        );
    }
}
