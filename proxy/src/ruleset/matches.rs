use std::fmt;

use crate::model::{Family, Protocol};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Not<T> {
    pub negated: bool,
    pub value: T,
}

impl<T> Not<T> {
    pub fn is(value: T) -> Not<T> {
        Not { negated: false, value }
    }

    pub fn is_not(value: T) -> Not<T> {
        Not { negated: true, value }
    }

    pub(super) fn sign(&self) -> &'static str {
        if self.negated { "! " } else { "" }
    }
}

/// The address that `-m addrtype` checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressTypeSide {
    Source,
    Destination,
}

/// The packet's side that a dimension of a set matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SetDirection {
    Source,
    Destination,
}

/// `XT_CONNTRACK_STATE_*` (`include/uapi/linux/netfilter/xt_conntrack.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionStates(pub u16);

impl ConnectionStates {
    pub const INVALID: ConnectionStates = ConnectionStates(1);
    pub const NEW: ConnectionStates = ConnectionStates(1 << 3);
    pub const ESTABLISHED: ConnectionStates = ConnectionStates(1 << 1 | 1 << 2);
    pub const DNAT: ConnectionStates = ConnectionStates(1 << 7);

    pub const fn or(self, other: ConnectionStates) -> ConnectionStates {
        ConnectionStates(self.0 | other.0)
    }

    /// The states in libxt_conntrack's order.
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

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Match {
    Comment(Box<str>),
    Port(Protocol, u16),
    /// A TCP port, but no connection's first packet: `--dport`, `! --syn`.
    OpenPort(u16),
    Transport(Protocol),
    Conntrack(Not<ConnectionStates>),
    /// `-m addrtype`: one of the packet's addresses is local.
    LocalAddress(Not<AddressTypeSide>),
    Set(Not<(Box<str>, &'static [SetDirection])>),
    Mark(Not<u32>),
    /// `-m statistic --mode random`.
    OneIn(usize),
    /// `-m recent --rcheck --reap`.
    RecentCheck {
        list: Box<str>,
        seconds: u32,
        family: Family,
    },
    /// `-m recent --set`.
    RecentSet {
        list: Box<str>,
        family: Family,
    },
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Match::Comment(text) => {
                // iptables-save quotes text with other characters.
                let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
                let quote = if plain { "" } else { "\"" };
                write!(f, "-m comment --comment {quote}{text}{quote}")
            }
            Match::Port(protocol, port) => write!(f, "-m {protocol} --dport {port}"),
            Match::OpenPort(port) => write!(f, "-m tcp --dport {port} ! --tcp-flags FIN,SYN,RST,ACK SYN"),
            Match::Transport(protocol) => write!(f, "-m {protocol}"),
            Match::Conntrack(states) => write!(f, "-m conntrack {}--ctstate {}", states.sign(), states.value),
            Match::LocalAddress(side) => {
                let option = match side.value {
                    AddressTypeSide::Source => "--src-type",
                    AddressTypeSide::Destination => "--dst-type",
                };
                write!(f, "-m addrtype {}{option} LOCAL", side.sign())
            }
            Match::Set(set) => {
                let (name, directions) = &set.value;
                write!(f, "-m set {}--match-set {name} ", set.sign())?;
                for (index, direction) in directions.iter().enumerate() {
                    let word = match direction {
                        SetDirection::Source => "src",
                        SetDirection::Destination => "dst",
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

/// Returns 1/n as a fraction of 2³¹ (`struct xt_statistic_info`).
#[allow(clippy::cast_precision_loss, reason = "endpoint counts are far below 2^52")]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 2^31")]
fn kept_probability(n: usize) -> u32 {
    (f64::from(1u32 << 31) / n as f64).round() as u32
}

/// 1/n as `iptables-save` prints the kernel's value, with eleven digits.
struct Probability(usize);

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.11}", f64::from(kept_probability(self.0)) / f64::from(1u32 << 31))
    }
}

impl Match {
    pub fn probability(n: usize) -> u32 {
        kept_probability(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_print_as_the_kernel_stores_them() {
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
