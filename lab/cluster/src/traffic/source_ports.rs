//! Source ports of probes.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// Linux's default `net.ipv4.ip_local_port_range`.
const FIRST: u16 = 32_768;
const COUNT: u16 = 60_999 - FIRST + 1;
/// How many ports are tried after the first: other sockets of the host, such as a proxy's, may have some.
const OTHER_PORTS: usize = 64;

/// Gives each probe of a cluster a port that no earlier probe had, until all 28,232 are used.
///
/// A TCP request that was lost leaves a conntrack entry for two minutes, and each datagram one for at least 30 seconds.
/// A later probe from the same port would have the fate of that entry instead of the present rules'. The kernel's own
/// choice does not exclude this: with TCP it steps over ports and shares its position between network namespaces, with
/// UDP it is random.
#[derive(Clone, Default)]
pub(crate) struct SourcePorts(Arc<AtomicU16>);

impl SourcePorts {
    /// Binds by `bind`, to the next port that is free if `address` has port 0.
    ///
    /// # Errors
    /// Those of `bind`; `AddrInUse` if the port of `address`, or each of the ports tried, is taken.
    pub(crate) fn bind<T>(&self, address: SocketAddr, bind: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
        if address.port() != 0 {
            return bind(address);
        }
        let mut bound = bind(SocketAddr::new(address.ip(), self.next()));
        for _ in 0..OTHER_PORTS {
            match bound {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                bound => return bound,
            }
            bound = bind(SocketAddr::new(address.ip(), self.next()));
        }
        bound
    }

    fn next(&self) -> u16 {
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

    fn taken(address: SocketAddr) -> io::Result<u16> {
        match address.port() {
            32_770.. => Ok(address.port()),
            _ => Err(ErrorKind::AddrInUse.into()),
        }
    }

    #[test]
    fn a_taken_port_is_passed_over() {
        let ports = SourcePorts::default();
        assert_eq!(ports.bind(SocketAddr::from(([0; 4], 0)), taken).unwrap(), 32_770);
        assert_eq!(ports.bind(SocketAddr::from(([0; 4], 0)), taken).unwrap(), 32_771);
    }

    #[test]
    fn only_taken_ports_are_passed_over_and_not_without_end() {
        let ports = SourcePorts::default();
        let bind = |kind: ErrorKind| ports.bind::<()>(SocketAddr::from(([0; 4], 0)), |_| Err(kind.into())).unwrap_err();
        assert_eq!(bind(ErrorKind::AddrInUse).kind(), ErrorKind::AddrInUse);
        assert_eq!(ports.next(), FIRST + 65);
        assert_eq!(bind(ErrorKind::AddrNotAvailable).kind(), ErrorKind::AddrNotAvailable);
        assert_eq!(ports.next(), FIRST + 67);
    }

    #[test]
    fn a_chosen_port_stays() {
        let ports = SourcePorts::default();
        assert_eq!(ports.bind(SocketAddr::from(([0; 4], 40_000)), taken).unwrap(), 40_000);
        assert!(ports.bind(SocketAddr::from(([0; 4], 7)), taken).is_err());
        assert_eq!(ports.next(), FIRST);
    }
}
