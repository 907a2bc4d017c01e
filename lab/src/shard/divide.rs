use std::collections::BTreeMap;

use super::{AssignedItem, ItemTime, WorkItem};

/// The times of a former report.
#[derive(Debug, Clone, Default)]
pub struct Times(Vec<ItemTime>);

impl Times {
    pub fn new(times: Vec<ItemTime>) -> Times {
        Times(times)
    }

    /// Returns the mean time of the item, else of its scenario in the same mode, else of everything; 1 without times.
    fn of(&self, item: &WorkItem) -> f64 {
        let same_mode = |one: &ItemTime| (&one.item.scenario, &one.item.mode) == (&item.scenario, &item.mode);
        self.mean(|one| one.item == *item)
            .or_else(|| self.mean(same_mode))
            .or_else(|| self.mean(|_| true))
            .unwrap_or(1.0)
    }

    fn mean(&self, wanted: impl Fn(&ItemTime) -> bool) -> Option<f64> {
        let times: Vec<f64> = self.0.iter().filter(|one| wanted(one)).map(|one| one.seconds).collect();
        (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
    }
}

/// Assigns each item to a shard from 1 to `of`: by a hash of its text; with `times` the longest first, each to the shard
/// that has least to do. `by_seed`: items of one seed stay together, since each seed has a microVM, and without `times` the shards
/// take turns, since all seeds take about as long.
pub fn divide(items: &[WorkItem], of: usize, times: Option<&Times>, by_seed: bool) -> Vec<AssignedItem> {
    let alike = Times::default();
    let times = times.or(by_seed.then_some(&alike));
    let unit = |item: &WorkItem| if by_seed { format!("seed {}", item.seed) } else { item.to_string() };
    let mut units: BTreeMap<String, f64> = BTreeMap::new();
    // Sorted, because the order of a sum of floating-point numbers changes it.
    let mut sorted: Vec<&WorkItem> = items.iter().collect();
    sorted.sort();
    for item in sorted {
        *units.entry(unit(item)).or_default() += times.map_or(0.0, |times| times.of(item));
    }
    let shards = match times {
        Some(_) => balanced(units, of),
        None => units
            .into_keys()
            .map(|unit| {
                let shard = by_hash(&unit, of);
                (unit, shard)
            })
            .collect(),
    };
    let assigned = |item: &WorkItem| AssignedItem { item: item.clone(), shard: shards[&unit(item)] };
    items.iter().map(assigned).collect()
}

fn balanced(units: BTreeMap<String, f64>, of: usize) -> BTreeMap<String, usize> {
    let mut units: Vec<(String, f64)> = units.into_iter().collect();
    units.sort_by(|(one, time_of_one), (other, time_of_other)| {
        time_of_other.total_cmp(time_of_one).then_with(|| one.cmp(other))
    });
    let mut loads = vec![0.0; of];
    let mut assign = |(unit, time): (String, f64)| {
        let least = (0..of).min_by(|one, other| f64::total_cmp(&loads[*one], &loads[*other])).unwrap_or_default();
        loads[least] += time;
        (unit, least + 1)
    };
    units.into_iter().map(&mut assign).collect()
}

/// FNV-1a, and the finisher of `MurmurHash3`, because FNV's low bits mix badly.
fn by_hash(text: &str, of: usize) -> usize {
    let fnv = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mix = |hash: u64, factor: u64| (hash ^ (hash >> 33)).wrapping_mul(factor);
    let hash = mix(mix(fnv, 0xff51_afd7_ed55_8ccd), 0xc4ce_b9fe_1a85_ec53);
    usize::try_from((hash ^ (hash >> 33)) % of as u64).unwrap_or_default() + 1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use crate::mode::Mode;
    use crate::scenario::{self, Scenario};
    use crate::shipped;

    fn item(scenario: &str, mode: &str, seed: u64) -> WorkItem {
        WorkItem { scenario: scenario.to_owned(), mode: mode.to_owned(), place: "auto".to_owned(), seed }
    }

    /// Returns every embedded scenario in all of its modes.
    fn everything(seeds: u64) -> Vec<WorkItem> {
        static SCENARIOS: LazyLock<Vec<Scenario>> =
            LazyLock::new(|| shipped::scenarios().filter_map(|path| scenario::load(path, 0).ok()).collect());
        assert!(SCENARIOS.len() > 60);
        let modes = SCENARIOS.iter().flat_map(|one| one.modes.iter().map(|mode: &Mode| (&one.name, mode.to_string())));
        modes.flat_map(|(name, mode)| (0..seeds).map(move |seed| item(name, &mode, seed))).collect()
    }

    fn times(items: &[WorkItem], seconds: &[f64]) -> Times {
        let each = items.iter().zip(seconds.iter().cycle());
        Times::new(each.map(|(item, seconds)| ItemTime { item: item.clone(), seconds: *seconds }).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn every_item_is_in_one_shard(
            of in 1usize..300,
            seconds in proptest::collection::vec(0.0f64..100.0, 0..30),
            balance: bool,
            by_seed: bool,
        ) {
            let items = everything(if by_seed { 3 } else { 1 });
            let times = balance.then(|| times(&items, &seconds));
            let divided = divide(&items, of, times.as_ref(), by_seed);
            prop_assert_eq!(divided.iter().map(|one| &one.item).collect::<Vec<_>>(), items.iter().collect::<Vec<_>>());
            prop_assert!(divided.iter().all(|one| (1..=of).contains(&one.shard)));
            // Another machine lists the same items in another order.
            let mut others = items.clone();
            others.reverse();
            let mut again = divide(&others, of, times.as_ref(), by_seed);
            again.reverse();
            prop_assert_eq!(&again, &divided);
            if by_seed {
                let shards: BTreeSet<(u64, usize)> = divided.iter().map(|one| (one.item.seed, one.shard)).collect();
                prop_assert_eq!(shards.len(), 3);
                let busy: BTreeSet<usize> = shards.iter().map(|(_, shard)| *shard).collect();
                prop_assert!(balance || busy.len() == of.min(3), "{:?}", shards);
            }
        }

        #[test]
        fn no_shard_exceeds_the_mean_by_more_than_the_longest_item(
            of in 1usize..20,
            seconds in proptest::collection::vec(0.1f64..100.0, 1..30),
        ) {
            let items = everything(1);
            let times = times(&items, &seconds);
            let mut loads = vec![0.0; of];
            for one in divide(&items, of, Some(&times), false) {
                loads[one.shard - 1] += times.of(&one.item);
            }
            let longest = seconds.iter().copied().fold(0.0, f64::max);
            let mean = loads.iter().sum::<f64>() / of as f64;
            prop_assert!(loads.iter().all(|load| *load <= mean + longest + 1e-9), "{:?}", loads);
        }
    }

    #[test]
    fn the_hash_is_the_same_in_every_version_and_spreads() {
        let shards = |of| divide(&everything(1), of, None, false).into_iter().map(|one| one.shard).collect::<Vec<_>>();
        let one = |name| divide(&[item(name, "iptables", 0)], 1000, None, false)[0].shard;
        assert_eq!(["hairpin", "udp", "affinity"].map(one), [145, 368, 43]);
        let all = shards(4);
        let counts: Vec<usize> =
            (1..=4).map(|shard| all.iter().filter(|one| **one == shard).count() * 100 / all.len()).collect();
        assert!(counts.iter().all(|percent| (17..34).contains(percent)), "{counts:?}");
    }

    #[test]
    fn unknown_times_are_those_of_the_scenario_or_the_mean() {
        let known = [item("a", "iptables", 0), item("a", "iptables", 1), item("b", "iptables", 0)];
        let times = times(&known, &[2.0, 4.0, 9.0]);
        assert_eq!(times.of(&known[1]), 4.0);
        assert_eq!(times.of(&item("a", "iptables", 7)), 3.0);
        assert_eq!(times.of(&item("a", "ipvs", 0)), 5.0);
        assert_eq!(Times::default().of(&known[0]), 1.0);
    }
}
