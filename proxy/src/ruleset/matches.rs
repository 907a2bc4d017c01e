//! The matches of a rule, each spelled as `iptables-save` prints it.

use std::fmt;

use crate::model::{Family, Protocol};

/// A condition, or its opposite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Not<T> {
    /// The packet must not meet the condition.
    pub negated: bool,
    /// The condition.
    pub value: T,
}

impl<T> Not<T> {
    /// The condition itself.
    pub fn is(value: T) -> Not<T> {
        Not { negated: false, value }
    }

    /// Its opposite.
    pub fn is_not(value: T) -> Not<T> {
        Not { negated: true, value }
    }

    /// `! ` before the opposite.
    pub(super) fn sign(&self) -> &'static str {
        if self.negated { "! " } else { "" }
    }
}

/// Which of a packet's addresses `-m addrtype` looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressType {
    /// `--src-type`.
    Source,
    /// `--dst-type`.
    Destination,
}

/// Which of a packet's addresses and ports an element of an IP set is compared with, for each of its dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// `src`.
    Source,
    /// `dst`.
    Destination,
}

/// States of a connection, one bit each: the kernel's (`include/uapi/linux/netfilter/xt_conntrack.h`, `XT_CONNTRACK_STATE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionStates(pub u16);

impl ConnectionStates {
    /// `INVALID`.
    pub const INVALID: ConnectionStates = ConnectionStates(1);
    /// `NEW`.
    pub const NEW: ConnectionStates = ConnectionStates(1 << 3);
    /// `RELATED,ESTABLISHED`.
    pub const ESTABLISHED: ConnectionStates = ConnectionStates(1 << 1 | 1 << 2);
    /// `DNAT`: the destination was translated.
    pub const DNAT: ConnectionStates = ConnectionStates(1 << 7);

    /// Any of these or those.
    pub const fn or(self, other: ConnectionStates) -> ConnectionStates {
        ConnectionStates(self.0 | other.0)
    }

    /// In the order in which libxt_conntrack prints them.
    const NAMES: [(u16, &'static str); 5] =
        [(1, "INVALID"), (1 << 3, "NEW"), (1 << 2, "RELATED"), (1 << 1, "ESTABLISHED"), (1 << 7, "DNAT")];
}

impl fmt::Display for ConnectionStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (_, name) in Self::NAMES.into_iter().filter(|(bit, _)| self.0 & bit != 0) {
            write!(f, "{comma}{name}")?;
            comma = ",";
        }
        Ok(())
    }
}

/// A match of a rule besides addresses, interfaces and the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Match {
    /// `-m comment`. Matches every packet.
    Comment(Box<str>),
    /// `-m tcp --dport`, by protocol.
    Port(Protocol, u16),
    /// `-m tcp` alone, by protocol.
    Transport(Protocol),
    /// `-m conntrack --ctstate`: the connection is in one of these states.
    Conntrack(Not<ConnectionStates>),
    /// `-m addrtype`: one of the packet's addresses is the node's own.
    LocalAddress(Not<AddressType>),
    /// `-m set`: the packet is in an IP set.
    Set(Not<(Box<str>, &'static [Direction])>),
    /// `-m mark`: the bits of this mark are set.
    Mark(Not<u32>),
    /// `-m statistic --mode random`: one packet in so many.
    OneIn(usize),
    /// `-m recent --rcheck --reap`: the source was put on the list not longer ago than so many seconds.
    RecentCheck {
        /// The list.
        list: Box<str>,
        /// How long ago.
        seconds: u32,
        /// The family, which decides the mask.
        family: Family,
    },
    /// `-m recent --set`: puts the source on the list.
    RecentSet {
        /// The list.
        list: Box<str>,
        /// The family, which decides the mask.
        family: Family,
    },
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Match::Comment(text) => {
                // iptables-save leaves out the quotes where these are the only characters.
                let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
                let quote = if plain { "" } else { "\"" };
                write!(f, "-m comment --comment {quote}{text}{quote}")
            }
            Match::Port(protocol, port) => write!(f, "-m {protocol} --dport {port}"),
            Match::Transport(protocol) => write!(f, "-m {protocol}"),
            Match::Conntrack(states) => write!(f, "-m conntrack {}--ctstate {}", states.sign(), states.value),
            Match::LocalAddress(side) => {
                let option = match side.value {
                    AddressType::Source => "--src-type",
                    AddressType::Destination => "--dst-type",
                };
                write!(f, "-m addrtype {}{option} LOCAL", side.sign())
            }
            Match::Set(set) => {
                let (name, directions) = &set.value;
                write!(f, "-m set {}--match-set {name} ", set.sign())?;
                for (index, direction) in directions.iter().enumerate() {
                    let word = match direction {
                        Direction::Source => "src",
                        Direction::Destination => "dst",
                    };
                    write!(f, "{}{word}", if index == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            Match::Mark(mark) => write!(f, "-m mark {}--mark {1:#x}/{1:#x}", mark.sign(), mark.value),
            Match::OneIn(n) => write!(f, "-m statistic --mode random --probability {}", Probability(*n)),
            Match::RecentCheck { list, seconds, family } => {
                let mask = recent_mask(*family);
                write!(f, "-m recent --rcheck --seconds {seconds} --reap --name {list} --mask {mask} --rsource")
            }
            Match::RecentSet { list, family } => {
                write!(f, "-m recent --set --name {list} --mask {} --rsource", recent_mask(*family))
            }
        }
    }
}

fn recent_mask(family: Family) -> &'static str {
    match family {
        Family::V4 => "255.255.255.255",
        Family::V6 => "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    }
}

/// 1/n as the kernel keeps it: a fraction of 2³¹ (`struct xt_statistic_info`).
#[allow(clippy::cast_precision_loss, reason = "endpoint counts are far below 2^52")]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 2^31")]
fn kept_probability(n: usize) -> u32 {
    (f64::from(1u32 << 31) / n as f64).round() as u32
}

/// 1/n as `iptables-save` prints it: what the kernel keeps comes back with eleven digits.
struct Probability(usize);

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.11}", f64::from(kept_probability(self.0)) / f64::from(1u32 << 31))
    }
}

impl Match {
    /// What `-m statistic` keeps for one packet in `n`, as a fraction of 2³¹.
    pub fn probability(n: usize) -> u32 {
        kept_probability(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_read_as_the_kernel_keeps_them() {
        let table = [(2, "0.50000000000"), (3, "0.33333333349"), (7, "0.14285714272"), (10, "0.10000000009")];
        for (n, text) in table {
            assert_eq!(Probability(n).to_string(), text, "1/{n}");
        }
    }

    #[test]
    fn states_are_printed_in_the_order_of_iptables() {
        let states = ConnectionStates::DNAT.or(ConnectionStates::ESTABLISHED);
        assert_eq!(states.to_string(), "RELATED,ESTABLISHED,DNAT");
        let rule = Match::Conntrack(Not::is_not(states)).to_string();
        assert_eq!(rule, "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT");
    }
}
