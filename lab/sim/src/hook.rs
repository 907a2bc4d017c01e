//! Netfilter's hooks.

/// A netfilter hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// After ingress.
    Prerouting,
    /// Packets to local sockets.
    Input,
    /// Forwarded packets.
    Forward,
    /// Packets from local sockets.
    Output,
    /// Before egress.
    Postrouting,
}

impl Hook {
    /// The name of the hook's built-in chain.
    #[must_use]
    pub fn chain(self) -> &'static str {
        match self {
            Hook::Prerouting => "PREROUTING",
            Hook::Input => "INPUT",
            Hook::Forward => "FORWARD",
            Hook::Output => "OUTPUT",
            Hook::Postrouting => "POSTROUTING",
        }
    }
}
