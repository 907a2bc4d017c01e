//! What a rule does with a packet that matches.

use std::fmt;
use std::net::SocketAddr;

use crate::model::Family;

/// The target of a rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Target {
    /// Nothing: the rule counts, and carries its comment.
    #[default]
    None,
    /// A jump to a chain.
    Jump(Box<str>),
    /// `ACCEPT`.
    Accept,
    /// `DROP`.
    Drop,
    /// `RETURN`.
    Return,
    /// `REJECT`, with the family's ICMP port unreachable.
    Reject(Family),
    /// `MARK --set-xmark`: the bits of the mask are cleared, and those of the mark flipped.
    Mark {
        /// The mark.
        mark: u32,
        /// The mask.
        mask: u32,
    },
    /// `MASQUERADE`.
    Masquerade {
        /// `--random-fully`: the source port is drawn at random.
        random_fully: bool,
    },
    /// `DNAT --to-destination`.
    Dnat(SocketAddr),
    /// `REDIRECT --to-ports`.
    Redirect(u16),
}

impl Target {
    /// The chain that it jumps to.
    pub fn chain(&self) -> Option<&str> {
        match self {
            Target::Jump(chain) => Some(chain),
            _ => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::None => Ok(()),
            Target::Jump(chain) => write!(f, "-j {chain}"),
            Target::Accept => f.write_str("-j ACCEPT"),
            Target::Drop => f.write_str("-j DROP"),
            Target::Return => f.write_str("-j RETURN"),
            Target::Reject(Family::V4) => f.write_str("-j REJECT --reject-with icmp-port-unreachable"),
            Target::Reject(Family::V6) => f.write_str("-j REJECT --reject-with icmp6-port-unreachable"),
            Target::Mark { mark, mask } => write!(f, "-j MARK --set-xmark {mark:#x}/{mask:#x}"),
            Target::Masquerade { random_fully: true } => f.write_str("-j MASQUERADE --random-fully"),
            Target::Masquerade { random_fully: false } => f.write_str("-j MASQUERADE"),
            Target::Dnat(to) => write!(f, "-j DNAT --to-destination {to}"),
            Target::Redirect(port) => write!(f, "-j REDIRECT --to-ports {port}"),
        }
    }
}
