//! Divides the process's file descriptors: clients must leave enough for syncs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

const RESERVED: u64 = 256;
/// An idle proxy uses this many descriptors.
const LEAST_RESERVED: u64 = 32;
/// The most connections to all of the proxy's own ports.
const OWN_CONNECTIONS: u64 = 1024;

/// The proxy needs this many to start. The smallest modes sync with half.
const FEWEST: usize = 48;

#[derive(Debug, thiserror::Error)]
#[error(
    "cannot run within {limit} file descriptors (RLIMIT_NOFILE), of which fewer than {FEWEST} are free: raise the limit (ulimit -n, \
     or LimitNOFILE= of the unit)"
)]
pub struct TooFewDescriptors {
    limit: u64,
}

/// Limits per kind of client; the rest is for syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorShares {
    pub healthz: usize,
    pub metrics: usize,
    pub health_checks: usize,
    /// Only for userspace mode.
    pub relays: u64,
}

impl DescriptorShares {
    pub fn of(limit: u64) -> DescriptorShares {
        let own = (limit / 4).min(OWN_CONNECTIONS);
        let part = |of: u64| usize::try_from(own / of).unwrap_or(usize::MAX).max(1);
        let relays = limit.saturating_sub(own).saturating_sub(RESERVED.min(limit / 4).max(LEAST_RESERVED));
        DescriptorShares { healthz: part(4), metrics: part(4), health_checks: part(2), relays }
    }
}

pub fn raise() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}

pub fn check(limit: u64) -> Result<(), TooFewDescriptors> {
    // Opens descriptors, because inherited ones count, too.
    let free: io::Result<Vec<OwnedFd>> = (0..FEWEST).map(|_| io::stderr().as_fd().try_clone_to_owned()).collect();
    free.map(drop).map_err(|_| TooFewDescriptors { limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_left_for_syncs_whatever_the_limit() {
        let of_1024 = DescriptorShares { healthz: 64, metrics: 64, health_checks: 128, relays: 512 };
        assert_eq!(DescriptorShares::of(1024), of_1024);
        assert_eq!(DescriptorShares::of(64), DescriptorShares { healthz: 4, metrics: 4, health_checks: 8, relays: 16 });
        assert_eq!(
            DescriptorShares::of(524_288),
            DescriptorShares { healthz: 256, metrics: 256, health_checks: 512, relays: 523_008 }
        );
        for limit in [0, 3, 64, 1000, 1024, 4096, 1 << 20, u64::MAX] {
            let shares = DescriptorShares::of(limit);
            let shared = (shares.healthz + shares.metrics + shares.health_checks) as u64 + shares.relays;
            assert!(limit < 16 || shared <= limit - (limit / 4).min(RESERVED), "{limit}: {shares:?}");
        }
    }
}
