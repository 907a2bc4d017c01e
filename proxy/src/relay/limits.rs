//! How many connections and associations there may be: as many as there are descriptors for.

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
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).clamp(1, 1 << 20);
        Limits { connections: count(descriptors / 3 * 2 / PER_CONNECTION), associations: count(descriptors / 3) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_from_the_descriptors() {
        assert_eq!(Limits::of(512), Limits { connections: 56, associations: 170 });
        assert_eq!(Limits::of(523_008), Limits { connections: 58_112, associations: 174_336 });
        assert_eq!(Limits::of(0), Limits { connections: 1, associations: 1 });
    }
}
