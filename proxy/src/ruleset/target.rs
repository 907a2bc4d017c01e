use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::model::Family;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum RuleTarget {
    /// No target: the rule only counts.
    #[default]
    None,
    Jump(Box<str>),
    Accept,
    Drop,
    Return,
    Reject(Family),
    /// `REJECT --reject-with tcp-reset`.
    Reset,
    /// `MARK --set-xmark`: clears the mask's bits, and flips the mark's.
    Mark {
        mark: u32,
        mask: u32,
    },
    Masquerade {
        /// `--random-fully`: picks a random source port.
        random_fully: bool,
    },
    Snat {
        to: IpAddr,
        random_fully: bool,
    },
    Dnat(SocketAddr),
    Redirect(u16),
}

impl RuleTarget {
    pub fn chain(&self) -> Option<&str> {
        match self {
            RuleTarget::Jump(chain) => Some(chain),
            _ => None,
        }
    }
}

impl fmt::Display for RuleTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleTarget::None => Ok(()),
            RuleTarget::Jump(chain) => write!(f, "-j {chain}"),
            RuleTarget::Accept => f.write_str("-j ACCEPT"),
            RuleTarget::Drop => f.write_str("-j DROP"),
            RuleTarget::Return => f.write_str("-j RETURN"),
            RuleTarget::Reject(Family::V4) => f.write_str("-j REJECT --reject-with icmp-port-unreachable"),
            RuleTarget::Reject(Family::V6) => f.write_str("-j REJECT --reject-with icmp6-port-unreachable"),
            RuleTarget::Reset => f.write_str("-j REJECT --reject-with tcp-reset"),
            RuleTarget::Mark { mark, mask } => write!(f, "-j MARK --set-xmark {mark:#x}/{mask:#x}"),
            RuleTarget::Masquerade { random_fully: true } => f.write_str("-j MASQUERADE --random-fully"),
            RuleTarget::Masquerade { random_fully: false } => f.write_str("-j MASQUERADE"),
            RuleTarget::Snat { to, random_fully } => {
                write!(f, "-j SNAT --to-source {to}{}", if *random_fully { " --random-fully" } else { "" })
            }
            RuleTarget::Dnat(to) => write!(f, "-j DNAT --to-destination {to}"),
            RuleTarget::Redirect(port) => write!(f, "-j REDIRECT --to-ports {port}"),
        }
    }
}
