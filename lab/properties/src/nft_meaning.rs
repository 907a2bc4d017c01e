//! What tables of nftables mean, whichever number each endpoint has, and however much room there is: by these, proxies that came to a
//! state by different ways differ.

use std::collections::BTreeSet;

use svclab_sim::nft::{Chain, DeclaredType, ElementKey, Expr, NftReadError, Ruleset, Set, SetData, Statement, Table};

/// The name of the proxy's table.
const TABLE: &str = "kube-proxy";

/// Everything, as a listing.
///
/// # Errors
/// What of the listing is not understood.
pub fn meaning(text: &str) -> Result<String, NftReadError> {
    let mut ruleset = Ruleset::read(text)?;
    for table in &mut ruleset.tables {
        table.sets.iter_mut().for_each(without_numbers);
        table.chains.iter_mut().filter(|chain| chain.base.is_none()).for_each(without_draws);
    }
    Ok(ruleset.to_string())
}

/// What a kernel and a table in memory have in common, in lines: elements, and how many rules each chain has. Rules are not compared as
/// text: `nft` leaves out of a listing what it would put in itself.
///
/// # Errors
/// What of a listing is not understood.
pub fn content(text: &str) -> Result<BTreeSet<String>, NftReadError> {
    let mut ruleset = Ruleset::read(text)?;
    let own = ruleset.tables.iter_mut().filter(|table| table.name == TABLE);
    let mut lines = BTreeSet::new();
    for Table { family, sets, chains, .. } in own {
        for set in sets {
            without_numbers(set);
            // What rules put in is no proxy's.
            let elements = set.elements.iter().filter(|element| element.timeout.is_none() && element.expires.is_none());
            lines.insert(format!("{family} {}", set.name));
            lines.extend(elements.map(|element| format!("{family} {}: {element}", set.name)));
        }
        lines.extend(chains.iter().map(|chain| format!("{family} {}: {} rules", chain.name, chain.rules.len())));
    }
    Ok(lines)
}

fn without_numbers(set: &mut Set) {
    set.size = None;
    let numbered =
        matches!(set.holds, SetData::Data(_)) && matches!(set.key.last(), Some(DeclaredType::Of(Expr::Numgen { .. })));
    if numbered {
        for element in &mut set.elements {
            if let ElementKey::Parts(parts) = &mut element.key {
                parts.pop();
            }
        }
    }
    set.elements.sort_by_key(ToString::to_string);
}

/// Which endpoint of a service with session affinity is drawn first.
fn without_draws(chain: &mut Chain) {
    let is_draw = |statement: &Statement| matches!(statement, Statement::Match { left: Expr::Numgen { .. }, .. });
    chain.rules.iter_mut().for_each(|rule| rule.statements.retain(|statement| !is_draw(statement)));
    chain.rules.sort_by_key(ToString::to_string);
}
