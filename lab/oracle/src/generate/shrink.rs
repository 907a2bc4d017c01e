//! Makes a recipe smaller where each try is dear, as a run on the kernel is: what takes most away comes first, and nothing is tried twice.
//! Where tries are cheap proptest shrinks better.

use super::recipe::{Declared, Detect, Families, Hints, Kind, NodePorts, Recipe, ServiceRecipe, Stack};
use crate::world::ReversePath;

type Step = fn(&mut Recipe);

/// In the order in which they are tried.
const STEPS: [Step; 24] = [
    alone::<0>,
    alone::<1>,
    alone::<2>,
    alone::<3>,
    |recipe| recipe.nodes.truncate(1),
    |recipe| recipe.nodes.truncate(2),
    |recipe| recipe.pods.truncate(1),
    |recipe| recipe.pods.truncate(2),
    |recipe| recipe.services.iter_mut().for_each(plain),
    |recipe| recipe.services.iter_mut().for_each(|service| service.ports.truncate(1)),
    |recipe| recipe.services.iter_mut().for_each(|service| service.endpoints.truncate(1)),
    |recipe| recipe.services.iter_mut().for_each(|service| service.endpoints.truncate(2)),
    |recipe| {
        (recipe.point_to_point, recipe.link_gateways, recipe.overlay, recipe.second) = (false, false, false, false);
        recipe.reverse_path = ReversePath::Off;
    },
    |recipe| {
        recipe.families = Families::V4;
        recipe.services.iter_mut().for_each(|service| service.stack = Stack::First);
    },
    |recipe| recipe.services.iter_mut().for_each(|service| service.external_ips.clear()),
    |recipe| recipe.services.iter_mut().for_each(|service| service.ingress.clear()),
    |recipe| recipe.services.iter_mut().for_each(|service| service.source_ranges.clear()),
    |recipe| recipe.services.iter_mut().for_each(|service| service.affinity = None),
    |recipe| recipe.services.iter_mut().for_each(|service| service.hints = Hints::None),
    |recipe| recipe.services.iter_mut().for_each(|service| service.kind = Kind::ClusterIp),
    |recipe| (recipe.proxy.detect, recipe.proxy.masquerade_all) = (Detect::ClusterCidr, false),
    |recipe| recipe.proxy.node_ports = NodePorts::Unset,
    |recipe| recipe.service_cidrs = false,
    |recipe| {
        for node in &mut recipe.nodes {
            (node.zone, node.second_address, node.declared) = (None, false, Declared::Firsts);
        }
    },
];

/// Only the service of this number.
fn alone<const NUMBER: usize>(recipe: &mut Recipe) {
    if NUMBER < recipe.services.len() {
        recipe.services = vec![recipe.services.swap_remove(NUMBER)];
    }
}

/// Without what few services have.
fn plain(service: &mut ServiceRecipe) {
    (service.other_targets, service.other_names, service.disjoint) = (false, false, false);
    (service.left_out, service.newer) = (0, 0);
    (service.claims, service.made) = (None, None);
}

/// The smallest that still `shows` what `recipe` does, after at most so many `tries`.
///
/// # Errors
/// The first that `shows` returns.
pub fn shrink<E>(recipe: Recipe, tries: u32, shows: &mut dyn FnMut(&Recipe) -> Result<bool, E>) -> Result<Recipe, E> {
    let (mut smallest, mut left) = (recipe, tries);
    for step in STEPS {
        let mut other = smallest.clone();
        step(&mut other);
        if other == smallest {
            continue;
        }
        if left == 0 {
            break;
        }
        left -= 1;
        if shows(&other)? {
            smallest = other;
        }
    }
    Ok(smallest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::recipe;

    fn shrunk(recipe: Recipe, tries: u32, shows: fn(&Recipe) -> bool) -> (Recipe, u32) {
        let mut count = 0;
        let mut shows = |recipe: &Recipe| {
            count += 1;
            Ok::<_, ()>(shows(recipe))
        };
        let smallest = shrink(recipe.clone(), tries, &mut shows).unwrap_or(recipe);
        (smallest, count)
    }

    #[test]
    fn what_was_found_is_kept_and_little_else() {
        let has_affinity = |recipe: &Recipe| recipe.services.iter().any(|one| one.affinity.is_some());
        for seed in (0..200).filter(|seed| has_affinity(&recipe(*seed))) {
            let (smallest, count) = shrunk(recipe(seed), 100, has_affinity);
            assert!(has_affinity(&smallest), "{smallest:?}");
            assert_eq!((smallest.nodes.len(), smallest.pods.len(), smallest.services.len()), (1, 1, 1), "{smallest:?}");
            assert!(smallest.services[0].ports.len() == 1 && smallest.services[0].endpoints.len() <= 1);
            assert!(usize::try_from(count).is_ok_and(|count| count <= STEPS.len()));
        }
    }

    #[test]
    fn tries_are_bounded_and_what_two_services_show_keeps_both() {
        let two = |recipe: &Recipe| recipe.services.len() > 1;
        let seed = (0..).find(|seed| two(&recipe(*seed))).unwrap_or_default();
        let (smallest, count) = shrunk(recipe(seed), 3, two);
        assert_eq!((smallest.services.len(), count), (recipe(seed).services.len(), 3));
        assert_eq!(shrunk(recipe(seed), 0, |_| true), (recipe(seed), 0));
    }
}
