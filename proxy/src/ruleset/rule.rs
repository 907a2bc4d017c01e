//! `Display` prints exactly the text of `iptables-save` (1.8, both variants), for comparisons with dumps and for golden
//! files.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::matches::{AddressTypeSide, ConnectionStates, Match, Not, SetDirection};
use super::target::RuleTarget;
use crate::model::{Family, Protocol};

/// `XT_MAX_COMMENT_LEN` (`include/uapi/linux/netfilter/xt_comment.h`) less the final zero.
const COMMENT_MAX: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum InputInterface {
    Name(Box<str>),
    /// The first letters of an interface's name.
    Prefix(Box<str>),
}

impl fmt::Display for InputInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InputInterface::Name(name) => f.write_str(name),
            InputInterface::Prefix(prefix) => write!(f, "{prefix}+"),
        }
    }
}

/// Matches are in order of addition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    pub source: Option<Not<IpNet>>,
    pub destination: Option<Not<IpNet>>,
    pub input: Option<Not<InputInterface>>,
    pub protocol: Option<Protocol>,
    pub matches: Vec<Match>,
    pub target: RuleTarget,
}

impl Rule {
    pub fn new() -> Rule {
        Rule::default()
    }

    pub fn commented(text: impl AsRef<str>) -> Rule {
        Rule::new().comment(text)
    }

    /// Adds a comment. `text` is validated; still, characters that could end the quoted text or line are replaced: no
    /// text can become a rule.
    pub fn comment(self, text: impl AsRef<str>) -> Rule {
        let safe =
            |c: char| if (c.is_ascii_graphic() || c == ' ') && !matches!(c, '"' | '\\' | '\'') { c } else { '?' };
        let text: String = text.as_ref().chars().map(safe).take(COMMENT_MAX).collect();
        self.and(Match::Comment(text.into()))
    }

    pub fn source(mut self, range: IpNet) -> Rule {
        self.source = Some(Not::is(range));
        self
    }

    pub fn source_not(mut self, range: IpNet) -> Rule {
        self.source = Some(Not::is_not(range));
        self
    }

    pub fn source_ip(self, address: IpAddr) -> Rule {
        self.source(IpNet::from(address))
    }

    pub fn destination(self, address: IpAddr) -> Rule {
        self.destination_range(IpNet::from(address))
    }

    pub fn destination_range(mut self, range: IpNet) -> Rule {
        self.destination = Some(Not::is(range));
        self
    }

    /// Matches the loopback range; `negated`: outside.
    pub fn destination_loopback(mut self, family: Family, negated: bool) -> Rule {
        self.destination = Some(Not { negated, value: family.loopback_range() });
        self
    }

    pub fn source_loopback(self, family: Family) -> Rule {
        self.source(family.loopback_range())
    }

    pub fn source_not_loopback(self, family: Family) -> Rule {
        self.source_not(family.loopback_range())
    }

    pub fn input(mut self, interface: InputInterface, negated: bool) -> Rule {
        self.input = Some(Not { negated, value: interface });
        self
    }

    pub fn protocol(mut self, protocol: Protocol) -> Rule {
        self.protocol = Some(protocol);
        self
    }

    pub fn port(self, protocol: Protocol, port: u16) -> Rule {
        self.protocol(protocol).and(Match::Port(protocol, port))
    }

    /// Matches open connections to a TCP port: all packets but the first.
    pub fn open_port(self, port: u16) -> Rule {
        self.protocol(Protocol::Tcp).and(Match::OpenPort(port))
    }

    pub fn conntrack(self, states: ConnectionStates) -> Rule {
        self.and(Match::Conntrack(Not::is(states)))
    }

    pub fn conntrack_not(self, states: ConnectionStates) -> Rule {
        self.and(Match::Conntrack(Not::is_not(states)))
    }

    pub fn to_local_address(self) -> Rule {
        self.and(Match::LocalAddress(Not::is(AddressTypeSide::Destination)))
    }

    pub fn from_local_address(self) -> Rule {
        self.and(Match::LocalAddress(Not::is(AddressTypeSide::Source)))
    }

    pub fn not_from_local_address(self) -> Rule {
        self.and(Match::LocalAddress(Not::is_not(AddressTypeSide::Source)))
    }

    pub fn in_set(self, set: &str, directions: &'static [SetDirection], negated: bool) -> Rule {
        self.and(Match::Set(Not { negated, value: (set.into(), directions) }))
    }

    pub fn marked(self, mark: u32, negated: bool) -> Rule {
        self.and(Match::Mark(Not { negated, value: mark }))
    }

    pub fn one_in(self, n: usize) -> Rule {
        self.and(Match::OneIn(n))
    }

    pub fn recent_check(self, list: &str, seconds: u64, family: Family) -> Rule {
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        self.and(Match::RecentCheck { list: list.into(), seconds, family })
    }

    pub fn recent_set(self, list: &str, family: Family) -> Rule {
        self.and(Match::RecentSet { list: list.into(), family })
    }

    pub fn sets(&self) -> impl Iterator<Item = &str> {
        self.matches.iter().filter_map(|one| match one {
            Match::Set(set) => Some(&*set.value.0),
            _ => None,
        })
    }

    pub fn and(mut self, one: Match) -> Rule {
        self.matches.push(one);
        self
    }

    pub fn target(mut self, target: RuleTarget) -> Rule {
        self.target = target;
        self
    }

    pub fn jump(self, chain: impl AsRef<str>) -> Rule {
        self.target(RuleTarget::Jump(chain.as_ref().into()))
    }

    pub fn reject(self, family: Family) -> Rule {
        self.target(RuleTarget::Reject(family))
    }

    pub fn dnat(self, protocol: Protocol, to: SocketAddr) -> Rule {
        self.protocol(protocol).and(Match::Transport(protocol)).target(RuleTarget::Dnat(to))
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
            RuleTarget::None => Ok(()),
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
    fn options_are_in_the_order_of_iptables_save() {
        let rule = Rule::commented("a b").port(Protocol::Tcp, 80).destination("10.0.0.1".parse().unwrap());
        let rule = rule.input(InputInterface::Prefix("cni".into()), true).source_not_loopback(Family::V4).jump("X");
        let text =
            "! -s 127.0.0.0/8 -d 10.0.0.1/32 ! -i cni+ -p tcp -m comment --comment \"a b\" -m tcp --dport 80 -j X";
        assert_eq!(rule.to_string(), text);
    }
}
