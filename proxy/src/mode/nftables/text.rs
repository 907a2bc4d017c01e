use std::collections::{BTreeMap, BTreeSet};

use super::endpoint_index::EndpointIndex;
use super::objects::{AffinityObjects, render};
use super::{counters, layout};
use crate::model::ServiceSelection;
use crate::nftables::text::Table;
use crate::nftables::{Chain, Element, Name, Set};
use crate::plan::{NodePlan, ServicePortPlan};

/// Returns the table as `nft` prints it, with counters for the Services in `counted`.
pub fn table(node: &NodePlan, plans: &[ServicePortPlan], counted: Option<&ServiceSelection>) -> String {
    let mut elements: Vec<Element> = layout::elements(node);
    let mut names: BTreeSet<Name> = BTreeSet::new();
    let (mut shared, mut own) = (BTreeMap::new(), AffinityObjects::default());
    for plan in plans {
        let mut objects = render(plan, node, &EndpointIndex::default());
        objects.count(counters::selected(counted, &plan.name));
        names.extend(objects.counters().cloned());
        elements.extend(objects.elements());
        shared.extend(objects.shared().map(|shared| (shared, shared.chain(node))));
        objects.own().iter().for_each(|objects| own.extend(objects));
    }
    elements.sort_unstable();
    elements.dedup();
    let sets: Vec<(Name, Set)> = layout::sets(node, |_| 0)
        .into_iter()
        // Omits sizes, which would limit later additions.
        .map(|(name, set)| (name.into(), Set { size: None, ..set }))
        .chain(own.sets)
        .chain(own.shared_sets)
        .collect();
    let names: Vec<Name> = names.into_iter().collect();
    let shared = shared.into_iter().map(|(shared, chain)| (shared.name(), chain));
    let chains: Vec<(Name, Chain)> = layout::chains(node).into_iter().chain(shared).chain(own.chains).collect();
    Table {
        name: layout::TABLE,
        comment: layout::COMMENT,
        family: node.family,
        counters: &names,
        sets: &sets,
        flowtable: None,
        chains: &chains,
        elements: &elements,
    }
    .to_string()
}
