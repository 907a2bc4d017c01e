//! Netfilter's hooks.

/// A netfilter hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// After ingress.
    Prerouting,
    /// To local sockets.
    Input,
    /// Through the machine.
    Forward,
    /// From local sockets.
    Output,
    /// Before egress.
    Postrouting,
}

impl Hook {
    /// Its built-in chain.
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
