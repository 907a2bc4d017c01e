//! Indexes of a service port's endpoints: 0 to N - 1 without gaps. Endpoints keep their index as far as possible: each
//! changed index is one more element to send.

use std::collections::BTreeSet;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::plan::BackendSet;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointIndex {
    pub cluster: IndexedEndpoints,
    pub local: IndexedEndpoints,
}

impl EndpointIndex {
    pub fn of(&self, set: BackendSet) -> &IndexedEndpoints {
        match set {
            BackendSet::Cluster => &self.cluster,
            BackendSet::Local => &self.local,
        }
    }
}

/// A compact list (six bytes per IPv4 endpoint): large clusters have hundreds of thousands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexedEndpoints {
    V4(Box<[SocketAddrV4]>),
    V6(Box<[SocketAddrV6]>),
}

impl Default for IndexedEndpoints {
    fn default() -> IndexedEndpoints {
        IndexedEndpoints::V4(Box::default())
    }
}

impl FromIterator<SocketAddr> for IndexedEndpoints {
    /// Ignores endpoints whose family differs from the first one's.
    fn from_iter<I: IntoIterator<Item = SocketAddr>>(endpoints: I) -> IndexedEndpoints {
        let mut endpoints = endpoints.into_iter().peekable();
        if matches!(endpoints.peek(), Some(SocketAddr::V6(_))) {
            let v6 = endpoints.filter_map(|one| if let SocketAddr::V6(one) = one { Some(one) } else { None });
            IndexedEndpoints::V6(v6.collect())
        } else {
            let v4 = endpoints.filter_map(|one| if let SocketAddr::V4(one) = one { Some(one) } else { None });
            IndexedEndpoints::V4(v4.collect())
        }
    }
}

impl IndexedEndpoints {
    pub fn count(&self) -> u32 {
        let count = match self {
            IndexedEndpoints::V4(endpoints) => endpoints.len(),
            IndexedEndpoints::V6(endpoints) => endpoints.len(),
        };
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    pub fn get(&self, number: u32) -> Option<SocketAddr> {
        let number = usize::try_from(number).ok()?;
        match self {
            IndexedEndpoints::V4(endpoints) => endpoints.get(number).copied().map(SocketAddr::V4),
            IndexedEndpoints::V6(endpoints) => endpoints.get(number).copied().map(SocketAddr::V6),
        }
    }

    pub fn numbered(&self) -> impl Iterator<Item = (u32, SocketAddr)> {
        (0..self.count()).filter_map(|number| Some((number, self.get(number)?)))
    }

    pub fn iter(&self) -> impl Iterator<Item = SocketAddr> {
        self.numbered().map(|(_, endpoint)| endpoint)
    }
}

pub fn assign(before: &IndexedEndpoints, wanted: &[SocketAddr]) -> IndexedEndpoints {
    if before.count() == 0 || before.iter().eq(wanted.iter().copied()) {
        return wanted.iter().copied().collect();
    }
    let set: BTreeSet<&SocketAddr> = wanted.iter().collect();
    let known: BTreeSet<SocketAddr> = before.iter().collect();
    let mut new = wanted.iter().copied().filter(|endpoint| !known.contains(endpoint));
    let mut slots: Vec<Option<SocketAddr>> =
        before.iter().map(|endpoint| set.contains(&endpoint).then_some(endpoint)).collect();
    for slot in slots.iter_mut().filter(|slot| slot.is_none()) {
        *slot = new.next();
    }
    slots.extend(new.map(Some));
    // The last endpoints move to gaps.
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
    full.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn endpoints(numbers: &[u16]) -> Vec<SocketAddr> {
        numbers.iter().map(|number| SocketAddr::from(([10, 244, 0, 1], *number))).collect()
    }

    fn assigned(before: &[SocketAddr], wanted: &[SocketAddr]) -> Vec<SocketAddr> {
        assign(&before.iter().copied().collect(), wanted).iter().collect()
    }

    #[test]
    fn endpoints_keep_their_indexes() {
        for (before, wanted, after) in [
            (&[][..], &[1, 2, 3][..], &[1, 2, 3][..]),
            (&[1, 2, 3], &[1, 2, 4], &[1, 2, 4]),
            (&[1, 2, 3], &[2, 3, 4], &[4, 2, 3]),
            (&[1, 2, 3], &[2, 3], &[3, 2]),
            (&[1, 2, 3, 4], &[4], &[4]),
            (&[3, 1], &[1, 2, 3], &[3, 1, 2]),
            (&[1, 2, 3], &[], &[]),
        ] {
            assert_eq!(assigned(&endpoints(before), &endpoints(wanted)), endpoints(after), "{before:?} {wanted:?}");
        }
    }

    #[test]
    fn endpoints_of_both_families_are_stored() {
        for endpoint in ["10.0.0.1:80", "[fd00::1]:80"] {
            let endpoint: SocketAddr = endpoint.parse().unwrap();
            let kept: IndexedEndpoints = [endpoint].into_iter().collect();
            assert_eq!((kept.count(), kept.get(0), kept.get(1)), (1, Some(endpoint), None));
        }
    }

    proptest! {
        #[test]
        fn every_endpoint_has_one_index(before in prop::collection::btree_set(0u16..20, 0..12), wanted in prop::collection::btree_set(0u16..20, 0..12)) {
            let (before, wanted): (Vec<u16>, Vec<u16>) = (before.into_iter().collect(), wanted.into_iter().collect());
            let (before, wanted) = (endpoints(&before), endpoints(&wanted));
            let after = assigned(&before, &wanted);
            let mut sorted = after.clone();
            sorted.sort_unstable();
            prop_assert_eq!(&sorted, &wanted);
            // An endpoint changes its index only when the list shrinks.
            let moved = before.iter().zip(&after).filter(|(one, other)| one != other && after.contains(one)).count();
            prop_assert!(moved <= before.len().saturating_sub(wanted.len()));
        }
    }
}
