//! Matches: the part of a rule after `-m`, one file per match with reader and printer.
//!
//! # How to add a match or an expression of the simulator
//! A match of iptables:
//! 1. `rules/matches/statistic.rs` is an example of the fields, `read` and `Display` of a match.
//! 2. `rules/matches/mod.rs`: a variant of [`Match`] in `read`, `name` and `Display`.
//! 3. `program/iptables/mod.rs`: a variant of `Check`, or of `OpenCheck` if the result is unknown for some packets.
//! 4. `program/iptables/compile.rs`: the translation of the match into the check.
//! 5. `walk/check.rs`: the result for a packet; unknown results are in `walk/undecided.rs`.
//!
//! An expression of nftables:
//! 1. A field of packets or connections: spelling, data type and `PacketField` in `nft/selector.rs`, the value in
//!    `walk/nft/load.rs`.
//! 2. Another expression: a variant in `nft/expression.rs`, the readers in `nft/text/expression.rs` and
//!    `nft/json/expression.rs`, the printer in `nft/print.rs`, the translation in
//!    `program/nft/compile/expression.rs`, the value in `walk/nft/load.rs`.
//! 3. A statement: the same in `nft/statement.rs`, `nft/text/statement.rs`, `nft/json/statement.rs`, `nft/print.rs`,
//!    `program/nft/compile/statement.rs` and `walk/nft/act.rs`.

mod addrtype;
mod conntrack;
mod extension_header;
mod hop_limit;
mod icmp;
mod iprange;
mod ipvs;
mod limit;
mod link;
mod owner;
mod physdev;
mod policy;
mod ports;
mod quota;
mod recent;
mod rpfilter;
mod set;
mod socket;
mod statistic;

use std::fmt;

pub use addrtype::{AddressType, AddressTypes, Addrtype};
pub use conntrack::{ConnectionStates, Conntrack, FieldTest, Status, TupleField};
pub use extension_header::ExtensionHeader;
pub use hop_limit::HopLimit;
pub use icmp::Icmp;
pub use iprange::IpRange;
pub use ipvs::{Ipvs, IpvsCondition};
pub use limit::Limit;
pub use link::{MacAddress, PacketType};
pub use owner::{IdRange, Owner};
pub use physdev::Physdev;
pub use policy::IpsecPolicy;
pub use ports::{Multiport, MultiportSide, NumberRange, PortMatch, TcpFlagsTest};
pub use quota::{Connlimit, Hashlimit};
pub use recent::{Recent, RecentAction};
pub use rpfilter::Rpfilter;
pub use set::{SetMatch, Side};
pub use socket::SocketMatch;
pub use statistic::{Statistic, THRESHOLD_ONE};

use super::Test;
use super::error::{ParseResult, Problem};
use super::header::RuleHeader;
use super::tokens::{OptionReader, marked, quote};
use crate::protocol::{Family, Protocol};

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Match {
    /// Always matches.
    Comment(String),
    /// `true` for `-m state`.
    Conntrack(Conntrack, bool),
    /// Value and mask.
    Mark(Test<(u32, u32)>),
    /// Connection mark and mask.
    Connmark(Test<(u32, u32)>),
    Statistic(Statistic),
    Recent(Recent),
    Set(SetMatch),
    Addrtype(Addrtype),
    Ports(PortMatch),
    Multiport(Multiport),
    Physdev(Physdev),
    Icmp(Icmp),
    IpRange(IpRange),
    Rpfilter(Rpfilter),
    Limit(Limit),
    /// Always matches, assuming an object without quota.
    Nfacct(String),
    Owner(Owner),
    Socket(SocketMatch),
    Hashlimit(Hashlimit),
    Connlimit(Connlimit),
    Mac(Test<MacAddress>),
    PacketType(Test<PacketType>),
    Length(Test<NumberRange>),
    TcpMss(Test<NumberRange>),
    Policy(IpsecPolicy),
    Ipvs(Ipvs),
    ExtensionHeader(ExtensionHeader),
    HopLimit(HopLimit),
    /// An unmodelled match, or a protocol with an unknown name (`name` is empty), kept by [`super::Rules::read_any`].
    Unknown {
        name: String,
        options: String,
    },
}

fn text(words: &mut OptionReader<'_>, of: &str, option: &'static str) -> ParseResult<String> {
    words.require(of, option)?;
    words.plain()?;
    Ok(words.value()?.to_owned())
}

/// Reads the sizes of `length` and `tcpmss` (net/netfilter/xt_length.c, xt_tcpmss.c).
fn sizes(words: &mut OptionReader<'_>, of: &str, option: &'static str) -> ParseResult<Test<NumberRange>> {
    words.require(&format!("match {of}"), option)?;
    words.test("a number, or first:last", NumberRange::parse)
}

impl Match {
    pub(crate) fn read(
        name: &str,
        words: &mut OptionReader<'_>,
        family: Family,
        header: &RuleHeader,
    ) -> ParseResult<Match> {
        let of_protocol = |protocol: Protocol| {
            if header.protocol == Some(Test::is(protocol)) {
                return Ok(());
            }
            Err(Problem::Impossible(format!("match {name} needs -p {protocol} before it")))
        };
        Ok(match name {
            "comment" => Match::Comment(text(words, name, "--comment")?),
            "conntrack" => Match::Conntrack(Conntrack::read(words)?, false),
            "state" => Match::Conntrack(Conntrack::read_state(words)?, true),
            "mark" | "connmark" => {
                words.require(name, "--mark")?;
                let test = words.test("a mark, or mark/mask", marked)?;
                if name == "mark" { Match::Mark(test) } else { Match::Connmark(test) }
            }
            "statistic" => Match::Statistic(Statistic::read(words)?),
            "recent" => Match::Recent(Recent::read(words, family)?),
            "set" => Match::Set(SetMatch::read(words)?),
            "addrtype" => Match::Addrtype(Addrtype::read(words)?),
            "tcp" | "udp" | "sctp" => {
                let protocol = match name {
                    "tcp" => Protocol::TCP,
                    "udp" => Protocol::UDP,
                    _ => Protocol::SCTP,
                };
                of_protocol(protocol)?;
                Match::Ports(PortMatch::read(words, protocol)?)
            }
            "multiport" => {
                let protocol = header.protocol.filter(|test| !test.not && test.is.has_ports());
                protocol.ok_or_else(|| Problem::Impossible("multiport needs -p tcp, udp or sctp".to_owned()))?;
                Match::Multiport(Multiport::read(words)?)
            }
            "physdev" => Match::Physdev(Physdev::read(words)?),
            "icmp" => {
                of_protocol(Protocol::ICMP)?;
                Match::Icmp(Icmp::read(words, Family::V4)?)
            }
            "icmp6" | "icmpv6" => {
                of_protocol(Protocol::ICMPV6)?;
                Match::Icmp(Icmp::read(words, Family::V6)?)
            }
            "iprange" => Match::IpRange(IpRange::read(words)?),
            "rpfilter" => Match::Rpfilter(Rpfilter::read(words)?),
            "limit" => Match::Limit(Limit::read(words)?),
            "owner" => Match::Owner(Owner::read(words)?),
            "socket" => Match::Socket(SocketMatch::read(words)?),
            "hashlimit" => Match::Hashlimit(Hashlimit::read(words)?),
            "connlimit" => Match::Connlimit(Connlimit::read(words, family)?),
            "mac" => Match::Mac(MacAddress::read(words)?),
            "pkttype" => Match::PacketType(PacketType::read(words)?),
            "length" => Match::Length(sizes(words, name, "--length")?),
            "tcpmss" => {
                of_protocol(Protocol::TCP)?;
                Match::TcpMss(sizes(words, name, "--mss")?)
            }
            "policy" => Match::Policy(IpsecPolicy::read(words)?),
            "ipvs" => Match::Ipvs(Ipvs::read(words)?),
            "ttl" | "hl" => Match::HopLimit(HopLimit::read(name, words)?),
            "nfacct" => Match::Nfacct(text(words, name, "--nfacct-name")?),
            _ => match ExtensionHeader::read(name, words) {
                Some(header) => Match::ExtensionHeader(header),
                None => return Err(Problem::UnknownMatch(name.to_owned())),
            },
        })
    }

    /// Returns the name in iptables.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Match::Comment(_) => "comment",
            Match::Conntrack(_, false) => "conntrack",
            Match::Conntrack(_, true) => "state",
            Match::Mark(_) => "mark",
            Match::Connmark(_) => "connmark",
            Match::Statistic(_) => "statistic",
            Match::Recent(_) => "recent",
            Match::Set(_) => "set",
            Match::Addrtype(_) => "addrtype",
            Match::Ports(ports) => match ports.protocol {
                Protocol::TCP => "tcp",
                Protocol::UDP => "udp",
                _ => "sctp",
            },
            Match::Multiport(_) => "multiport",
            Match::Physdev(_) => "physdev",
            Match::Icmp(icmp) if icmp.family == Family::V4 => "icmp",
            Match::Icmp(_) => "icmp6",
            Match::IpRange(_) => "iprange",
            Match::Rpfilter(_) => "rpfilter",
            Match::Limit(_) => "limit",
            Match::Nfacct(_) => "nfacct",
            Match::Owner(_) => "owner",
            Match::Socket(_) => "socket",
            Match::Hashlimit(_) => "hashlimit",
            Match::Connlimit(_) => "connlimit",
            Match::Mac(_) => "mac",
            Match::PacketType(_) => "pkttype",
            Match::Length(_) => "length",
            Match::TcpMss(_) => "tcpmss",
            Match::Policy(_) => "policy",
            Match::Ipvs(_) => "ipvs",
            Match::ExtensionHeader(header) => header.name,
            Match::HopLimit(limit) => limit.name(),
            Match::Unknown { name, .. } => name,
        }
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name().is_empty() {
            write!(f, " -m {}", self.name())?;
        }
        match self {
            Match::Comment(comment) => write!(f, " --comment {}", quote(comment)),
            Match::Conntrack(conntrack, false) => write!(f, "{conntrack}"),
            Match::Conntrack(conntrack, true) => conntrack.print_state(f),
            Match::Mark(test) | Match::Connmark(test) => {
                let (value, mask) = test.is;
                write!(f, "{} --mark 0x{value:x}", test.negation())?;
                if mask == u32::MAX { Ok(()) } else { write!(f, "/0x{mask:x}") }
            }
            Match::Statistic(statistic) => write!(f, "{statistic}"),
            Match::Recent(recent) => write!(f, "{recent}"),
            Match::Set(set) => write!(f, "{set}"),
            Match::Addrtype(addrtype) => write!(f, "{addrtype}"),
            Match::Ports(ports) => write!(f, "{ports}"),
            Match::Multiport(multiport) => write!(f, "{multiport}"),
            Match::Physdev(physdev) => write!(f, "{physdev}"),
            Match::Icmp(icmp) => write!(f, "{icmp}"),
            Match::IpRange(range) => write!(f, "{range}"),
            Match::Rpfilter(rpfilter) => write!(f, "{rpfilter}"),
            Match::Limit(limit) => write!(f, "{limit}"),
            Match::Owner(owner) => write!(f, "{owner}"),
            Match::Socket(socket) => write!(f, "{socket}"),
            Match::Hashlimit(limit) => write!(f, "{limit}"),
            Match::Connlimit(limit) => write!(f, "{limit}"),
            Match::Mac(test) => write!(f, "{} --mac-source {}", test.negation(), test.is),
            Match::PacketType(test) => write!(f, "{} --pkt-type {}", test.negation(), test.is),
            Match::Length(test) => write!(f, "{} --length {}", test.negation(), test.is),
            Match::TcpMss(test) => write!(f, "{} --mss {}", test.negation(), test.is),
            Match::Policy(policy) => write!(f, "{policy}"),
            Match::Ipvs(ipvs) => write!(f, "{ipvs}"),
            Match::ExtensionHeader(header) => write!(f, "{header}"),
            Match::HopLimit(limit) => write!(f, "{limit}"),
            Match::Unknown { options, .. } if options.is_empty() => Ok(()),
            Match::Unknown { options, .. } => write!(f, " {options}"),
            Match::Nfacct(name) => write!(f, " --nfacct-name {}", quote(name)),
        }
    }
}
