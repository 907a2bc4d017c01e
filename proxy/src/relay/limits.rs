//! How many listeners, connections and associations there may be: as many as there are descriptors for.

/// A connection has two sockets, and a pipe of two ends for each direction while bytes are on their way.
const PER_CONNECTION: u64 = 6;

/// The limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Listening sockets at a time.
    pub listeners: usize,
    /// TCP connections at a time.
    pub connections: usize,
    /// UDP associations at a time.
    pub associations: usize,
}

impl Limits {
    /// What this many descriptors are enough for: a quarter for listeners, each of which may have accepted a connection that waits for a place; of the rest, two thirds for connections, and one for associations.
    pub fn of(descriptors: u64) -> Limits {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).clamp(1, 1 << 20);
        let listeners = descriptors / 4;
        let third = (descriptors - listeners) / 3;
        Limits {
            listeners: count(listeners / 2),
            connections: count(third * 2 / PER_CONNECTION),
            associations: count(third),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_from_the_descriptors() {
        assert_eq!(Limits::of(512), Limits { listeners: 64, connections: 42, associations: 128 });
        assert_eq!(Limits::of(523_008), Limits { listeners: 65_376, connections: 43_584, associations: 130_752 });
        assert_eq!(Limits::of(0), Limits { listeners: 1, connections: 1, associations: 1 });
    }
}
