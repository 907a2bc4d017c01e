//! How this process's file descriptors are shared out, so that no client can take those that a sync needs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors that no connection takes: for commands and netlink sockets of syncs, the API, watches, and listening sockets.
const RESERVED: u64 = 256;
/// What they take without any load, inherited ones included.
const LEAST_RESERVED: u64 = 32;
/// Most connections to the proxy's own ports, all together.
const OWN_CONNECTIONS: u64 = 1024;

/// Descriptors that must be free at the start: a command with its pipes, netlink sockets, watches, listening sockets and the API for
/// both families. With half of them the slimmest modes already sync.
const FEWEST: usize = 48;

/// A limit with which the proxy would fail now and then.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot run within {limit} file descriptors (RLIMIT_NOFILE), of which fewer than {FEWEST} are free: raise the limit (ulimit -n, \
     or LimitNOFILE= of the unit)"
)]
pub struct TooFewDescriptors {
    limit: u64,
}

/// What each part may have open at a time. What is not shared out is for syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Connections to the port of `/healthz`.
    pub healthz: usize,
    /// Connections to the port of `/metrics`.
    pub metrics: usize,
    /// Connections to all health-check node ports together.
    pub health_checks: usize,
    /// Descriptors of relays, in userspace mode.
    pub relays: u64,
}

impl Shares {
    /// Of so many descriptors.
    pub fn of(limit: u64) -> Shares {
        let own = (limit / 4).min(OWN_CONNECTIONS);
        let part = |of: u64| usize::try_from(own / of).unwrap_or(usize::MAX).max(1);
        let relays = limit.saturating_sub(own).saturating_sub(RESERVED.min(limit / 4).max(LEAST_RESERVED));
        Shares { healthz: part(4), metrics: part(4), health_checks: part(2), relays }
    }
}

/// Raises this process's soft limit of descriptors (`RLIMIT_NOFILE`) to the hard one, and returns what it is then.
pub fn raise() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}

/// Checks that a proxy can run within this limit.
///
/// # Errors
/// When too few descriptors are free.
pub fn check(limit: u64) -> Result<(), TooFewDescriptors> {
    // Inherited descriptors count against the limit, so that it alone does not say how many are free.
    let free: io::Result<Vec<OwnedFd>> = (0..FEWEST).map(|_| io::stderr().as_fd().try_clone_to_owned()).collect();
    free.map(drop).map_err(|_| TooFewDescriptors { limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_left_for_syncs_whatever_the_limit() {
        let of_1024 = Shares { healthz: 64, metrics: 64, health_checks: 128, relays: 512 };
        assert_eq!(Shares::of(1024), of_1024);
        assert_eq!(Shares::of(64), Shares { healthz: 4, metrics: 4, health_checks: 8, relays: 16 });
        assert_eq!(Shares::of(524_288), Shares { healthz: 256, metrics: 256, health_checks: 512, relays: 523_008 });
        for limit in [0, 3, 64, 1000, 1024, 4096, 1 << 20, u64::MAX] {
            let shares = Shares::of(limit);
            let shared = (shares.healthz + shares.metrics + shares.health_checks) as u64 + shares.relays;
            assert!(limit < 16 || shared <= limit - (limit / 4).min(RESERVED), "{limit}: {shares:?}");
        }
    }
}
