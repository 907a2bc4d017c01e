//! One rule. Its `Display` is the very spelling that `iptables-save` prints (1.8, both variants), so what is wanted can be compared
//! with a dump as text, and a golden file reads like the dump of a node.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::matches::{AddressType, ConnectionStates, Direction, Match, Not};
use super::target::Target;
use crate::model::{Family, Protocol};

/// Longest comment that the kernel keeps, less the final zero (`XT_MAX_COMMENT_LEN` in
/// `include/uapi/linux/netfilter/xt_comment.h`).
const COMMENT_MAX: usize = 255;

/// The interface that a packet came in by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Interface {
    /// The one of this name.
    Name(Box<str>),
    /// Any whose name begins so.
    Prefix(Box<str>),
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Interface::Name(name) => f.write_str(name),
            Interface::Prefix(prefix) => write!(f, "{prefix}+"),
        }
    }
}

/// A rule. Matches stand in the order in which they were added, after addresses, interface and protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// `-s`.
    pub source: Option<Not<IpNet>>,
    /// `-d`.
    pub destination: Option<Not<IpNet>>,
    /// `-i`.
    pub input: Option<Not<Interface>>,
    /// `-p`.
    pub protocol: Option<Protocol>,
    /// Every `-m`.
    pub matches: Vec<Match>,
    /// `-j`.
    pub target: Target,
}

impl Rule {
    /// A rule that matches everything and does nothing.
    pub fn new() -> Rule {
        Rule::default()
    }

    /// A rule with a comment.
    pub fn commented(text: impl AsRef<str>) -> Rule {
        Rule::new().comment(text)
    }

    /// `-m comment`. Names in it come from validated objects; what could still end the quoted text, or a line, is
    /// replaced all the same, so that no text can become a rule.
    pub fn comment(self, text: impl AsRef<str>) -> Rule {
        let safe =
            |c: char| if (c.is_ascii_graphic() || c == ' ') && !matches!(c, '"' | '\\' | '\'') { c } else { '?' };
        let text: String = text.as_ref().chars().map(safe).take(COMMENT_MAX).collect();
        self.and(Match::Comment(text.into()))
    }

    /// Source range.
    pub fn source(mut self, range: IpNet) -> Rule {
        self.source = Some(Not::is(range));
        self
    }

    /// Source outside of a range.
    pub fn source_not(mut self, range: IpNet) -> Rule {
        self.source = Some(Not::is_not(range));
        self
    }

    /// A single source address.
    pub fn source_ip(self, address: IpAddr) -> Rule {
        self.source(IpNet::from(address))
    }

    /// A single destination address.
    pub fn destination(mut self, address: IpAddr) -> Rule {
        self.destination = Some(Not::is(IpNet::from(address)));
        self
    }

    /// Destination in, or (`negated`) outside, the family's loopback range.
    pub fn destination_loopback(mut self, family: Family, negated: bool) -> Rule {
        self.destination = Some(Not { negated, value: family.loopback_range() });
        self
    }

    /// Source in the family's loopback range.
    pub fn source_loopback(self, family: Family) -> Rule {
        self.source(family.loopback_range())
    }

    /// Source outside the family's loopback range.
    pub fn source_not_loopback(self, family: Family) -> Rule {
        self.source_not(family.loopback_range())
    }

    /// The interface that the packet came in by, or (`negated`) did not.
    pub fn input(mut self, interface: Interface, negated: bool) -> Rule {
        self.input = Some(Not { negated, value: interface });
        self
    }

    /// The transport protocol alone.
    pub fn protocol(mut self, protocol: Protocol) -> Rule {
        self.protocol = Some(protocol);
        self
    }

    /// Transport protocol and destination port.
    pub fn port(self, protocol: Protocol, port: u16) -> Rule {
        self.protocol(protocol).and(Match::Port(protocol, port))
    }

    /// The connection is in one of these states.
    pub fn conntrack(self, states: ConnectionStates) -> Rule {
        self.and(Match::Conntrack(Not::is(states)))
    }

    /// The connection is in none of these states.
    pub fn conntrack_not(self, states: ConnectionStates) -> Rule {
        self.and(Match::Conntrack(Not::is_not(states)))
    }

    /// The destination is an address of this node.
    pub fn to_local_address(self) -> Rule {
        self.and(Match::LocalAddress(Not::is(AddressType::Destination)))
    }

    /// The source is an address of this node.
    pub fn from_local_address(self) -> Rule {
        self.and(Match::LocalAddress(Not::is(AddressType::Source)))
    }

    /// The source is no address of this node.
    pub fn not_from_local_address(self) -> Rule {
        self.and(Match::LocalAddress(Not::is_not(AddressType::Source)))
    }

    /// The packet is, or (`negated`) is not, in an IP set, by these of its addresses and ports.
    pub fn in_set(self, set: &str, directions: &'static [Direction], negated: bool) -> Rule {
        self.and(Match::Set(Not { negated, value: (set.into(), directions) }))
    }

    /// The mark's bit is set, or (`negated`) is not.
    pub fn marked(self, mark: u32, negated: bool) -> Rule {
        self.and(Match::Mark(Not { negated, value: mark }))
    }

    /// Matches one packet in `n`.
    pub fn one_in(self, n: usize) -> Rule {
        self.and(Match::OneIn(n))
    }

    /// The source is on the list called `list`, not older than `seconds`.
    pub fn recent_check(self, list: &str, seconds: u64, family: Family) -> Rule {
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        self.and(Match::RecentCheck { list: list.into(), seconds, family })
    }

    /// Puts the source on the list called `list`.
    pub fn recent_set(self, list: &str, family: Family) -> Rule {
        self.and(Match::RecentSet { list: list.into(), family })
    }

    /// A further match.
    pub fn and(mut self, one: Match) -> Rule {
        self.matches.push(one);
        self
    }

    /// Its target, in place of any before.
    pub fn target(mut self, target: Target) -> Rule {
        self.target = target;
        self
    }

    /// A jump to a chain.
    pub fn jump(self, chain: impl AsRef<str>) -> Rule {
        self.target(Target::Jump(chain.as_ref().into()))
    }

    /// Refuses, with the family's ICMP port unreachable.
    pub fn reject(self, family: Family) -> Rule {
        self.target(Target::Reject(family))
    }

    /// A new destination for the connection, of the same protocol.
    pub fn dnat(self, protocol: Protocol, to: SocketAddr) -> Rule {
        self.protocol(protocol).and(Match::Transport(protocol)).target(Target::Dnat(to))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut space = "";
        let mut part = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            f.write_str(std::mem::replace(&mut space, " "))?;
            f.write_fmt(text)
        };
        if let Some(source) = &self.source {
            part(f, format_args!("{}-s {}", source.sign(), source.value))?;
        }
        if let Some(destination) = &self.destination {
            part(f, format_args!("{}-d {}", destination.sign(), destination.value))?;
        }
        if let Some(input) = &self.input {
            part(f, format_args!("{}-i {}", input.sign(), input.value))?;
        }
        if let Some(protocol) = self.protocol {
            part(f, format_args!("-p {protocol}"))?;
        }
        for one in &self.matches {
            part(f, format_args!("{one}"))?;
        }
        match &self.target {
            Target::None => Ok(()),
            target => part(f, format_args!("{target}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_cannot_end_the_rule() {
        let rule = Rule::commented("a/b\" -j ACCEPT\n-A INPUT -j ACCEPT").jump("X");
        assert_eq!(rule.to_string(), "-m comment --comment \"a/b? -j ACCEPT?-A INPUT -j ACCEPT\" -j X");
        assert_eq!(Rule::commented("plain").to_string(), "-m comment --comment plain");
        assert_eq!(Rule::new().to_string(), "");
    }

    #[test]
    fn parts_stand_in_the_order_of_iptables_save() {
        let rule = Rule::commented("a b").port(Protocol::Tcp, 80).destination("10.0.0.1".parse().unwrap());
        let rule = rule.input(Interface::Prefix("cni".into()), true).source_not_loopback(Family::V4).jump("X");
        let text =
            "! -s 127.0.0.0/8 -d 10.0.0.1/32 ! -i cni+ -p tcp -m comment --comment \"a b\" -m tcp --dport 80 -j X";
        assert_eq!(rule.to_string(), text);
    }
}
