//! Shrinks a recipe where each try is expensive: large reductions first, each once.

use super::recipe::{
    AnnotationRecipe, DeclaredAddresses, DetectRecipe, Families, HintsRecipe, NodePortsRecipe, Recipe, ServiceFamilies,
    ServiceKind, ServiceRecipe,
};
use crate::world::ReversePath;

type Reduction = fn(&mut Recipe);

const REDUCTIONS: [Reduction; 25] = [
    only_service::<0>,
    only_service::<1>,
    only_service::<2>,
    only_service::<3>,
    |recipe| recipe.nodes.truncate(1),
    |recipe| recipe.nodes.truncate(2),
    |recipe| recipe.pods.truncate(1),
    |recipe| recipe.pods.truncate(2),
    |recipe| recipe.services.iter_mut().for_each(without_rare_fields),
    |recipe| recipe.services.iter_mut().for_each(|service| service.ports.truncate(1)),
    |recipe| recipe.services.iter_mut().for_each(|service| service.endpoints.truncate(1)),
    |recipe| recipe.services.iter_mut().for_each(|service| service.endpoints.truncate(2)),
    |recipe| {
        (recipe.point_to_point, recipe.link_gateways, recipe.overlay, recipe.second) = (false, false, false, false);
        recipe.reverse_path = ReversePath::Off;
    },
    |recipe| {
        recipe.families = Families::V4;
        recipe.services.iter_mut().for_each(|service| service.stack = ServiceFamilies::First);
    },
    |recipe| recipe.services.iter_mut().for_each(|service| service.external_ips.clear()),
    |recipe| recipe.services.iter_mut().for_each(|service| service.ingress.clear()),
    |recipe| recipe.services.iter_mut().for_each(|service| service.source_ranges.clear()),
    |recipe| recipe.services.iter_mut().for_each(|service| service.annotations = AnnotationRecipe::default()),
    |recipe| recipe.services.iter_mut().for_each(|service| service.affinity = None),
    |recipe| recipe.services.iter_mut().for_each(|service| service.hints = HintsRecipe::None),
    |recipe| recipe.services.iter_mut().for_each(|service| service.kind = ServiceKind::ClusterIp),
    |recipe| (recipe.proxy.detect, recipe.proxy.masquerade_all) = (DetectRecipe::ClusterCidr, false),
    |recipe| recipe.proxy.node_ports = NodePortsRecipe::Unset,
    |recipe| recipe.service_cidrs = false,
    |recipe| {
        for node in &mut recipe.nodes {
            (node.zone, node.second_address, node.declared) = (None, false, DeclaredAddresses::Firsts);
        }
    },
];

fn only_service<const NUMBER: usize>(recipe: &mut Recipe) {
    if NUMBER < recipe.services.len() {
        recipe.services = vec![recipe.services.swap_remove(NUMBER)];
    }
}

fn without_rare_fields(service: &mut ServiceRecipe) {
    (service.other_targets, service.other_names, service.disjoint) = (false, false, false);
    (service.left_out, service.newer) = (0, 0);
    (service.claims, service.created) = (None, None);
}

/// Returns the smallest recipe that still `shows` the failure, after at most `tries` tries. The error is the first
/// error of `shows`.
pub fn shrink<E>(recipe: Recipe, tries: u32, shows: &mut dyn FnMut(&Recipe) -> Result<bool, E>) -> Result<Recipe, E> {
    let (mut smallest, mut left) = (recipe, tries);
    for step in REDUCTIONS {
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
            assert!(usize::try_from(count).is_ok_and(|count| count <= REDUCTIONS.len()));
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
