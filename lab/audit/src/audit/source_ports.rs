//! Source ports that rules tell apart from the usual one.

use std::collections::BTreeSet;

use svclab_sim::cluster::NodeState;
use svclab_sim::nft::{Expr, Ruleset, Statement};
use svclab_sim::rules::Rules;
use svclab_sim::rules::matches::{Match, NumberRange};

use super::SOURCE_PORT;

/// Each port is asked with every service.
const MOST: usize = 4;

/// Returns a port for each range of source ports that rules match: inside, or outside if the usual one is inside.
pub(super) fn matched(state: &NodeState) -> BTreeSet<u16> {
    let ranges: BTreeSet<NumberRange> =
        [&state.v4, &state.v6].into_iter().flat_map(|rules| of_rules(rules)).chain(of_nft(&state.nft)).collect();
    ranges.into_iter().filter_map(other_side).take(MOST).collect()
}

fn other_side(range: NumberRange) -> Option<u16> {
    if !range.contains(SOURCE_PORT) {
        return Some(range.first.max(1));
    }
    let outside = range.last.checked_add(1).or_else(|| range.first.checked_sub(1));
    outside.filter(|port| *port > 0)
}

fn of_rules(rules: &Rules) -> impl Iterator<Item = NumberRange> + '_ {
    let all = rules.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
    all.flat_map(|rule| &rule.matches).filter_map(|one| match one {
        Match::Ports(ports) => ports.source.map(|test| test.is),
        _ => None,
    })
}

fn of_nft(ruleset: &Ruleset) -> impl Iterator<Item = NumberRange> + '_ {
    let rules = ruleset.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
    rules.flat_map(|rule| &rule.statements).filter_map(|statement| match statement {
        Statement::Match { left: Expr::Payload { field, .. }, right, .. } if field == "sport" => range(right),
        _ => None,
    })
}

fn range(expr: &Expr) -> Option<NumberRange> {
    let number = |expr: &Expr| if let Expr::Word(word) = expr { word.parse().ok() } else { None };
    match expr {
        Expr::Range(first, last) => Some(NumberRange { first: number(first)?, last: number(last)? }),
        one => number(one).map(|port| NumberRange { first: port, last: port }),
    }
}
