//! The whole table as `nft -f` takes it.

use std::collections::BTreeMap;

use super::layout;
use super::objects::{Own, render};
use super::slots::Slots;
use crate::nftables::text::Table;
use crate::nftables::{Chain, Element, Name, Set};
use crate::plan::{NodePlan, ServicePortPlan};

/// The table of a family, with the endpoints of each service port in the order of their addresses.
pub fn table(node: &NodePlan, plans: &[ServicePortPlan]) -> String {
    let mut elements: Vec<Element> = layout::elements(node);
    let (mut shared, mut own, mut own_sets) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for plan in plans {
        let objects = render(plan, node, &Slots::default());
        elements.extend(objects.elements());
        shared.extend(objects.shared().map(|shared| (shared, shared.chain(node))));
        if let Some(Own { chains, sets }) = objects.own() {
            own.extend(chains.clone());
            own_sets.extend(sets.clone());
        }
    }
    elements.sort_unstable();
    elements.dedup();
    let sets: Vec<(Name, Set)> = layout::sets(|_| 0)
        .into_iter()
        // Without a size: who loads the text may add to it.
        .map(|(name, set)| (name.into(), Set { size: None, ..set }))
        .chain(own_sets)
        .collect();
    let shared = shared.into_iter().map(|(shared, chain)| (shared.name(), chain));
    let chains: Vec<(Name, Chain)> = layout::chains(node).into_iter().chain(shared).chain(own).collect();
    Table {
        name: layout::TABLE,
        comment: layout::COMMENT,
        family: node.family,
        sets: &sets,
        flowtable: None,
        chains: &chains,
        elements: &elements,
    }
    .to_string()
}
