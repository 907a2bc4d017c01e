use std::fmt;

/// Whether an interface passes packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum LinkState {
    /// Passes packets.
    #[default]
    Up,
    /// Set down by an administrator (no `IFF_UP`).
    Down,
    /// Without carrier: the other end is down or missing (`IFF_LOWER_UP`).
    NoCarrier,
    /// A bridge port that the spanning tree protocol does not let forward.
    Blocked,
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkState::Up => "is up",
            LinkState::Down => "is down",
            LinkState::NoCarrier => "has no carrier",
            LinkState::Blocked => "does not forward (spanning tree)",
        })
    }
}
