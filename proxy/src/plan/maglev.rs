//! Tables of consistent hashing: which endpoint each slot has, the same on every node.
//!
//! The population is that of Maglev (Eisenbud et al., NSDI 2016, §3.4): endpoints take turns, and each takes its next
//! free slot in a permutation of its own. The permutation depends only on the endpoint's address and port, and endpoints
//! take turns in the order of their addresses; so lists of the same endpoints have the same table.

use std::net::SocketAddr;

use sha2::{Digest as _, Sha256};

use crate::habits::{self, Habit};

/// The sizes of tables: primes, each about four times the one before. Few sizes, because a change of the size moves most
/// clients.
const SIZES: [u16; 4] = [1021, 4093, 16_381, 65_521];

/// With a hundred, an endpoint that goes moves more than 2 % of the others' clients in lists of ten or forty.
const PER_ENDPOINT: usize = 200;

/// Returns how many slots a table has: the smallest size with 200 slots per endpoint, or else the largest size.
pub fn slots(endpoints: usize) -> u16 {
    let wanted = endpoints.saturating_mul(PER_ENDPOINT);
    let [.., largest] = SIZES;
    SIZES.into_iter().find(|size| usize::from(*size) >= wanted).unwrap_or(largest)
}

/// Returns for each slot the position in `endpoints` of its endpoint. Endpoints beyond the largest table's size have no
/// slot. Empty without endpoints.
pub fn table(endpoints: &[SocketAddr]) -> Box<[u16]> {
    let size = slots(endpoints.len());
    let mut sorted: Vec<(&SocketAddr, u16)> = endpoints.iter().zip(0..u16::MAX).collect();
    sorted.sort_unstable();
    let mut turns: Vec<(Permutation, u16)> = sorted
        .into_iter()
        .zip(0..)
        .map(|((endpoint, position), rank)| (Permutation::of(endpoint, rank, size), position))
        .collect();
    let mut table = vec![None; if turns.is_empty() { 0 } else { usize::from(size) }];
    let mut free = table.len();
    while free > 0 {
        for (permutation, position) in turns.iter_mut().take(free) {
            permutation.take(&mut table, *position);
            free -= 1;
        }
    }
    table.into_iter().flatten().collect()
}

/// An order of all slots: `next`, `next + skip`, … modulo the size, which is a prime.
struct Permutation {
    next: u32,
    skip: u32,
    size: u32,
}

impl Permutation {
    /// The two numbers are the first eight bytes, in network order, of the SHA-256 of `ADDRESS:PORT` and the next eight.
    fn of(endpoint: &SocketAddr, rank: u16, size: u16) -> Permutation {
        let name = if habits::has(Habit::MaglevByRank) { rank.to_string() } else { endpoint.to_string() };
        let digest = Sha256::digest(name.as_bytes());
        let number = |at: usize, modulus: u16| {
            let bytes = digest.iter().skip(at).take(8);
            let number = bytes.fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
            u32::try_from(number % u64::from(modulus)).unwrap_or_default()
        };
        Permutation { next: number(0, size), skip: number(8, size - 1) + 1, size: size.into() }
    }

    /// Takes the next free slot, of which there must be one.
    fn take(&mut self, table: &mut [Option<u16>], position: u16) {
        loop {
            let at = usize::try_from(self.next).unwrap_or_default();
            self.next = (self.next + self.skip) % self.size;
            match table.get_mut(at) {
                Some(Some(_)) => {}
                Some(slot) => {
                    *slot = Some(position);
                    return;
                }
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn endpoints() -> impl Strategy<Value = Vec<SocketAddr>> {
        let v4 = prop::collection::btree_set((any::<[u8; 4]>(), 1..u16::MAX).prop_map(SocketAddr::from), 2..60);
        let v6 = prop::collection::btree_set((any::<[u16; 8]>(), 1..u16::MAX).prop_map(SocketAddr::from), 2..60);
        prop_oneof![v4, v6].prop_map(|all| all.into_iter().collect::<Vec<_>>()).prop_shuffle()
    }

    /// Neighbouring addresses with one port, as in a cluster.
    fn pods(network: u8, count: u16) -> Vec<SocketAddr> {
        let pod =
            |number: u16| SocketAddr::from(([10, network, number.to_be_bytes()[0], number.to_be_bytes()[1]], 8080));
        (1..=count).map(pod).collect()
    }

    fn named(endpoints: &[SocketAddr]) -> Vec<SocketAddr> {
        table(endpoints).iter().map(|position| endpoints[usize::from(*position)]).collect()
    }

    fn shares(table: &[SocketAddr]) -> BTreeMap<SocketAddr, usize> {
        let mut shares = BTreeMap::new();
        table.iter().for_each(|endpoint| *shares.entry(*endpoint).or_default() += 1);
        shares
    }

    /// Returns the part of other endpoints' slots that moves when `lost` goes.
    fn moved(endpoints: &[SocketAddr], lost: SocketAddr) -> f64 {
        let rest: Vec<SocketAddr> = endpoints.iter().copied().filter(|endpoint| *endpoint != lost).collect();
        let (before, after) = (named(endpoints), named(&rest));
        assert_eq!(before.len(), after.len(), "the size stays");
        let others = before.iter().filter(|endpoint| **endpoint != lost).count();
        let moved = before.iter().zip(&after).filter(|(old, new)| **old != lost && old != new).count();
        moved as f64 / others as f64
    }

    proptest! {
        #[test]
        fn the_order_of_endpoints_does_not_matter(endpoints in endpoints()) {
            let mut sorted = endpoints.clone();
            sorted.sort_unstable();
            prop_assert_eq!(named(&endpoints), named(&sorted));
        }

        /// Endpoints take turns, so shares differ by one slot at most.
        #[test]
        fn every_endpoint_has_the_same_share(endpoints in endpoints()) {
            let shares = shares(&named(&endpoints));
            prop_assert_eq!(shares.len(), endpoints.len());
            let (least, most) = (shares.values().min().unwrap(), shares.values().max().unwrap());
            prop_assert!(most - least <= 1, "{least} to {most}");
            prop_assert!(*least >= 200, "{least}");
        }

        #[test]
        fn an_endpoint_of_a_long_list_that_goes_moves_few_other_clients(endpoints in endpoints(), lost in any::<prop::sample::Index>()) {
            let lost = endpoints[lost.index(endpoints.len())];
            if endpoints.len() >= 20 && slots(endpoints.len()) == slots(endpoints.len() - 1) {
                let moved = moved(&endpoints, lost);
                prop_assert!(moved <= 0.1, "{moved} of the others move");
            }
        }
    }

    /// The paper (§5.3) measures this average, too; single endpoints of short lists move up to 14 %.
    #[test]
    fn an_endpoint_that_goes_moves_two_percent_of_other_clients_on_average() {
        for count in [3, 5, 10, 20, 60] {
            let lists: Vec<Vec<SocketAddr>> = (0..10).map(|network| pods(network, count)).collect();
            let each =
                lists.iter().flat_map(|list| list.iter().step_by(1 + list.len() / 8).map(|lost| moved(list, *lost)));
            let each: Vec<f64> = each.collect();
            let mean = each.iter().sum::<f64>() / each.len() as f64;
            assert!(mean <= 0.02, "{count}: {mean}");
        }
    }

    #[test]
    fn the_size_changes_in_three_steps() {
        for (endpoints, size) in
            [(0, 1021), (1, 1021), (5, 1021), (6, 4093), (20, 4093), (21, 16_381), (81, 16_381), (82, 65_521)]
        {
            assert_eq!(slots(endpoints), size, "{endpoints}");
        }
        assert_eq!([327, 328, usize::MAX].map(slots), [65_521; 3]);
        for size in SIZES.map(u32::from) {
            assert!((2..size).take_while(|one| one * one <= size).all(|one| size % one != 0), "{size} is a prime");
        }
    }

    /// A change of these numbers moves the clients of a cluster whose nodes have different versions.
    #[test]
    fn tables_stay_the_same_between_versions() {
        assert_eq!(table(&pods(244, 2))[..16], [1, 1, 0, 1, 0, 1, 1, 0, 1, 1, 0, 0, 0, 1, 1, 0]);
        let digest = Sha256::digest(table(&pods(244, 40)).iter().flat_map(|at| at.to_be_bytes()).collect::<Vec<u8>>());
        assert_eq!(digest[..4], [204, 66, 135, 53]);
    }

    #[test]
    fn lists_of_any_length_have_a_table() {
        assert!(table(&[]).is_empty());
        assert_eq!(table(&pods(244, 1))[..], [0; 1021]);
        let table = table(&pods(244, u16::MAX));
        assert_eq!((table.len(), table.iter().collect::<std::collections::BTreeSet<_>>().len()), (65_521, 65_521));
    }

    #[test]
    fn large_lists_lose_an_endpoint_as_small_ones_do() {
        let pods = pods(244, 327);
        for lost in [pods[0], pods[150], pods[326]] {
            assert!(moved(&pods, lost) <= 0.02);
        }
    }
}
