//! The fewest edits of a chain: unchanged rules keep their counters.

use std::collections::HashMap;

pub(super) type PresentRule<'a> = (u64, &'a [u8]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChainEdit {
    Delete(u64),
    Insert(usize, Option<u64>),
}

pub(super) fn edits(present: &[PresentRule<'_>], wanted: &[&[u8]]) -> Vec<ChainEdit> {
    let kept = kept(present, wanted);
    let mut edits: Vec<ChainEdit> = Vec::new();
    let mut stays = vec![false; present.len()];
    kept.iter().flatten().for_each(|at| stays[*at] = true);
    edits.extend(
        present.iter().zip(stays).filter(|(_, stays)| !stays).map(|((handle, _), _)| ChainEdit::Delete(*handle)),
    );
    // Each insertion names the next kept rule, before which it is added.
    let mut inserts = Vec::new();
    let mut next = None;
    for (index, kept) in kept.iter().enumerate().rev() {
        match kept {
            Some(at) => next = Some(present[*at].0),
            None => inserts.push(ChainEdit::Insert(index, next)),
        }
    }
    edits.extend(inserts.into_iter().rev());
    edits
}

/// Returns the index of the present rule that each wanted rule keeps.
fn kept(present: &[PresentRule<'_>], wanted: &[&[u8]]) -> Vec<Option<usize>> {
    let is = |at: usize, index: usize| present[at].1 == wanted[index];
    let shorter = present.len().min(wanted.len());
    let begin = (0..shorter).take_while(|at| is(*at, *at)).count();
    let end = (0..shorter - begin).take_while(|at| is(present.len() - 1 - at, wanted.len() - 1 - at)).count();
    let mut kept: Vec<Option<usize>> = vec![None; wanted.len()];
    (0..begin).for_each(|at| kept[at] = Some(at));
    (0..end).for_each(|at| kept[wanted.len() - 1 - at] = Some(present.len() - 1 - at));
    let (middle, last) = (begin..wanted.len() - end, present.len() - end);
    if middle.is_empty() || begin == last {
        return kept;
    }
    let mut places: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for at in (begin..last).rev() {
        places.entry(present[at].1).or_default().push(at);
    }
    let candidates: Vec<(usize, usize)> =
        middle.filter_map(|index| Some((index, places.get_mut(wanted[index])?.pop()?))).collect();
    for (index, at) in ascending(&candidates) {
        kept[index] = Some(at);
    }
    kept
}

/// Returns the longest subsequence with ascending second numbers.
fn ascending(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (number, (_, at)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end].1 < *at);
        before.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        match ends.get_mut(length) {
            Some(end) => *end = number,
            None => ends.push(number),
        }
    }
    let mut part: Vec<(usize, usize)> =
        std::iter::successors(ends.last().copied(), |number| before[*number]).map(|number| pairs[number]).collect();
    part.reverse();
    part
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wanted(rules: &[u8]) -> Vec<&[u8]> {
        rules.chunks(1).collect()
    }

    fn present(rules: &[u8]) -> Vec<PresentRule<'_>> {
        (100..).zip(rules.chunks(1)).collect()
    }

    fn apply<'a>(mut rules: Vec<PresentRule<'a>>, wanted: &[&'a [u8]], edits: &[ChainEdit]) -> Vec<PresentRule<'a>> {
        for edit in edits {
            let place =
                |rules: &[PresentRule], handle: u64| rules.iter().position(|(known, _)| *known == handle).unwrap();
            match edit {
                ChainEdit::Delete(handle) => {
                    let at = place(&rules, *handle);
                    rules.remove(at);
                }
                ChainEdit::Insert(index, before) => {
                    let at = before.map_or(rules.len(), |handle| place(&rules, handle));
                    rules.insert(at, (0, wanted[*index]));
                }
            }
        }
        rules
    }

    #[test]
    fn what_stays_is_not_touched() {
        assert_eq!(edits(&present(b"abc"), &wanted(b"abc")), []);
        assert_eq!(edits(&present(b"abc"), &wanted(b"abxc")), [ChainEdit::Insert(2, Some(102))]);
        assert_eq!(edits(&present(b"abc"), &wanted(b"ac")), [ChainEdit::Delete(101)]);
        assert_eq!(edits(&present(b""), &wanted(b"ab")), [ChainEdit::Insert(0, None), ChainEdit::Insert(1, None)]);
        let moved = edits(&present(b"abcdef"), &wanted(b"bcdefa"));
        assert_eq!(moved, [ChainEdit::Delete(100), ChainEdit::Insert(5, None)]);
    }

    proptest! {
        #[test]
        fn edits_lead_to_what_is_wanted(before in prop::collection::vec(0u8..6, 0..12), after in prop::collection::vec(0u8..6, 0..12)) {
            let (present, wanted) = (present(&before), wanted(&after));
            let edits = edits(&present, &wanted);
            let done = apply(present.clone(), &wanted, &edits);
            prop_assert_eq!(done.into_iter().map(|(_, rule)| rule).collect::<Vec<_>>(), wanted);
            prop_assert!(edits.len() <= before.len() + after.len());
        }
    }
}
