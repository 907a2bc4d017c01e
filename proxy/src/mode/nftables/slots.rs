//! Which number each endpoint of a service port has. Numbers are 0 to N - 1 without gaps, and an endpoint keeps its own while others come
//! and go, as far as that goes: each that has another one is an element more to send.

use std::collections::BTreeSet;
use std::net::SocketAddr;

/// The endpoints in the order of their numbers; `before`: as it was.
pub fn assign(before: &[SocketAddr], wanted: &[SocketAddr]) -> Vec<SocketAddr> {
    let set: BTreeSet<&SocketAddr> = wanted.iter().collect();
    let known: BTreeSet<&SocketAddr> = before.iter().collect();
    let mut new = wanted.iter().filter(|endpoint| !known.contains(endpoint));
    let mut slots: Vec<Option<SocketAddr>> =
        before.iter().map(|endpoint| set.contains(endpoint).then_some(*endpoint)).collect();
    for slot in slots.iter_mut().filter(|slot| slot.is_none()) {
        *slot = new.next().copied();
    }
    slots.extend(new.map(|endpoint| Some(*endpoint)));
    // What is left of gaps is filled from the end.
    let mut full: Vec<SocketAddr> = Vec::with_capacity(wanted.len());
    let mut end = slots.len();
    for at in 0..slots.len() {
        if at >= end {
            break;
        }
        let mut slot = slots.get(at).copied().flatten();
        while slot.is_none() && end > at + 1 {
            end -= 1;
            slot = slots.get(end).copied().flatten();
        }
        full.extend(slot);
    }
    full
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn endpoints(numbers: &[u16]) -> Vec<SocketAddr> {
        numbers.iter().map(|number| SocketAddr::from(([10, 244, 0, 1], *number))).collect()
    }

    #[test]
    fn endpoints_keep_their_numbers() {
        for (before, wanted, after) in [
            (&[][..], &[1, 2, 3][..], &[1, 2, 3][..]),
            (&[1, 2, 3], &[1, 2, 4], &[1, 2, 4]),
            (&[1, 2, 3], &[2, 3, 4], &[4, 2, 3]),
            (&[1, 2, 3], &[2, 3], &[3, 2]),
            (&[1, 2, 3, 4], &[4], &[4]),
            (&[3, 1], &[1, 2, 3], &[3, 1, 2]),
            (&[1, 2, 3], &[], &[]),
        ] {
            assert_eq!(assign(&endpoints(before), &endpoints(wanted)), endpoints(after), "{before:?} {wanted:?}");
        }
    }

    proptest! {
        #[test]
        fn each_has_one_number(before in prop::collection::btree_set(0u16..20, 0..12), wanted in prop::collection::btree_set(0u16..20, 0..12)) {
            let (before, wanted): (Vec<u16>, Vec<u16>) = (before.into_iter().collect(), wanted.into_iter().collect());
            let (before, wanted) = (endpoints(&before), endpoints(&wanted));
            let after = assign(&before, &wanted);
            let mut sorted = after.clone();
            sorted.sort_unstable();
            prop_assert_eq!(&sorted, &wanted);
            // Who is moved, is so because there are fewer now.
            let moved = before.iter().zip(&after).filter(|(one, other)| one != other && after.contains(one)).count();
            prop_assert!(moved <= before.len().saturating_sub(wanted.len()));
        }
    }
}
