//! Source ports of TCP and SCTP probes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// Linux's default `net.ipv4.ip_local_port_range`.
const FIRST: u16 = 32_768;
const COUNT: u16 = 60_999 - FIRST + 1;

/// Gives each probe of a cluster a port that no earlier probe had, until all 28,232 are used.
///
/// A request that was lost leaves a conntrack entry for two minutes. A later probe from the same port would have the
/// fate of that entry instead of the present rules'. The kernel's own choice does not exclude this: it steps over ports
/// and shares its position between network namespaces.
#[derive(Clone, Default)]
pub(crate) struct SourcePorts(Arc<AtomicU16>);

impl SourcePorts {
    pub(crate) fn next(&self) -> u16 {
        let step = |used| Some((used + 1) % COUNT);
        let (Ok(used) | Err(used)) = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        FIRST + used
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_port_is_given_once_before_any_is_given_again() {
        let ports = SourcePorts::default();
        let all: BTreeSet<u16> = (0..COUNT).map(|_| ports.clone().next()).collect();
        assert_eq!((all.len(), all.first(), all.last()), (usize::from(COUNT), Some(&32_768), Some(&60_999)));
        assert_eq!(ports.next(), FIRST);
    }
}
