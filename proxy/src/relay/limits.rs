//! How many connections and associations there may be: as many as there are descriptors for.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors of the rest of the program: listeners, the API, the health ports, commands.
const RESERVED: u64 = 512;
/// A connection has two sockets, and a pipe of two ends for each direction while bytes are on their way.
const PER_CONNECTION: u64 = 6;

/// The limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// TCP connections at a time.
    pub connections: usize,
    /// UDP associations at a time.
    pub associations: usize,
}

impl Limits {
    /// What this many descriptors are enough for: two thirds for connections, the rest for associations.
    pub fn of(descriptors: u64) -> Limits {
        let usable = descriptors.saturating_sub(RESERVED).max(descriptors / 2);
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).clamp(1, 1 << 20);
        Limits { connections: count(usable / 3 * 2 / PER_CONNECTION), associations: count(usable / 3) }
    }
}

/// Raises this process's limit of descriptors as far as it may, and says how far that is.
pub fn raise_descriptors() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_from_the_descriptors() {
        assert_eq!(Limits::of(1024), Limits { connections: 56, associations: 170 });
        assert_eq!(Limits::of(524_288), Limits { connections: 58_197, associations: 174_592 });
        assert_eq!(Limits::of(0), Limits { connections: 1, associations: 1 });
    }
}
