//! The hooks of netfilter.

/// A place in the kernel where packets meet rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// As it comes in.
    Prerouting,
    /// On its way to a socket here.
    Input,
    /// On its way through.
    Forward,
    /// From a socket here.
    Output,
    /// As it leaves.
    Postrouting,
}

impl Hook {
    /// The built-in chain of that name.
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
