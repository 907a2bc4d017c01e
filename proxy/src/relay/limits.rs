/// File descriptors: two sockets, and a two-ended pipe per direction while bytes are in transit.
const PER_CONNECTION: u64 = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayLimits {
    pub listeners: usize,
    pub connections: usize,
    pub associations: usize,
}

impl RelayLimits {
    /// A quarter of the descriptors is for listeners, each of which may have accepted a waiting connection. Two thirds
    /// of the rest are for connections, one for associations.
    pub fn of(descriptors: u64) -> RelayLimits {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).clamp(1, 1 << 20);
        let listeners = descriptors / 4;
        let third = (descriptors - listeners) / 3;
        RelayLimits {
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
    fn limits_depend_on_the_descriptors() {
        assert_eq!(RelayLimits::of(512), RelayLimits { listeners: 64, connections: 42, associations: 128 });
        assert_eq!(
            RelayLimits::of(523_008),
            RelayLimits { listeners: 65_376, connections: 43_584, associations: 130_752 }
        );
        assert_eq!(RelayLimits::of(0), RelayLimits { listeners: 1, connections: 1, associations: 1 });
    }
}
