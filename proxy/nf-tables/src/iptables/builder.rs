//! Matches and target of a rule.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Header;
use crate::error::EncodeError;
use crate::family::Family;
use crate::rule::{Bitwise, Compare, Compat, Header as Base, MetaKey, Register, Rule};
use crate::verdict::Verdict;
use crate::xt::{self, AddressType, Direction, Extension, State};

/// `IPPROTO_TCP`, `IPPROTO_UDP`, `IPPROTO_SCTP`.
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// Writes a rule: any number of matches, then a target. The rule keeps the first error ([`Rule::error`]).
#[derive(Debug)]
pub struct Builder<'r> {
    rule: &'r mut Rule,
    family: Family,
    protocol: u8,
}

impl<'r> Builder<'r> {
    /// Begins a rule with its header. Clear a used rule first.
    pub fn new(rule: &'r mut Rule, family: Family, header: &Header<'_>) -> Builder<'r> {
        if family == Family::Inet {
            let value = "inet".to_owned();
            rule.fail(EncodeError::Value { what: "iptables has tables of IPv4 and IPv6 only", value });
        }
        header.write(family, rule);
        let protocol = header.protocol.unwrap_or_default();
        rule.set_compat(Compat { protocol: u32::from(protocol), inverted: false });
        Builder { rule, family, protocol }
    }

    fn matches<const N: usize>(self, extension: Result<Extension<N>, EncodeError>) -> Builder<'r> {
        match extension {
            Ok(extension) => drop(self.rule.xt_match(&extension)),
            Err(error) => self.rule.fail(error),
        }
        self
    }

    /// Adds any xt match.
    pub fn xt_match<const N: usize>(self, extension: &Extension<N>) -> Builder<'r> {
        self.rule.xt_match(extension);
        self
    }

    /// `-m comment --comment`, at most 255 bytes.
    pub fn comment(self, text: &str) -> Builder<'r> {
        self.matches(xt::comment(text))
    }

    /// `--dport` with `-m tcp`, `-m udp` or `-m sctp`, as the header's protocol says.
    pub fn destination_port(mut self, port: u16) -> Builder<'r> {
        match self.protocol {
            TCP | UDP => {
                self.rule.payload(Base::Transport, 2, 2, Register::R1);
                self.rule.cmp(Register::R1, Compare::Equal, &port.to_be_bytes());
            }
            SCTP => drop(self.rule.xt_match(&xt::sctp(Some(port)))),
            other => self.fail_protocol("a port needs TCP, UDP or SCTP in the header", other),
        }
        self
    }

    /// `-m tcp`, `-m udp` or `-m sctp` without a port, as the header's protocol says.
    pub fn protocol_match(mut self) -> Builder<'r> {
        match self.protocol {
            TCP => drop(self.rule.xt_match(&xt::tcp())),
            UDP => drop(self.rule.xt_match(&xt::udp())),
            SCTP => drop(self.rule.xt_match(&xt::sctp(None))),
            other => self.fail_protocol("a match of the protocol needs TCP, UDP or SCTP in the header", other),
        }
        self
    }

    fn fail_protocol(&mut self, what: &'static str, protocol: u8) {
        self.rule.fail(EncodeError::Value { what, value: format!("protocol {protocol}") });
    }

    /// `-m mark --mark value/mask`, or (`negated`) `! --mark`.
    pub fn mark(self, value: u32, mask: u32, negated: bool) -> Builder<'r> {
        self.rule.meta(MetaKey::MARK, Register::R1);
        if mask != u32::MAX {
            let bits = Bitwise { mask: &mask.to_ne_bytes(), xor: &[0; 4] };
            self.rule.bitwise(Register::R1, Register::R1, bits);
        }
        self.rule.cmp(Register::R1, Compare::equal(!negated), &value.to_ne_bytes());
        self
    }

    /// `-m conntrack --ctstate`, or (`negated`) `! --ctstate`.
    pub fn conntrack_state(self, states: State, negated: bool) -> Builder<'r> {
        self.xt_match(&xt::conntrack_state(states, negated))
    }

    /// `-m addrtype`.
    pub fn address_type(self, wanted: AddressType) -> Builder<'r> {
        self.xt_match(&xt::address_type(wanted))
    }

    /// `-m statistic --mode random --probability 1/n`.
    pub fn one_in(self, n: u32) -> Builder<'r> {
        self.xt_match(&xt::one_in(n))
    }

    /// `-m recent --set --name list --rsource`, with the mask of a single address.
    pub fn recent_set(self, list: &str) -> Builder<'r> {
        let mask = self.single_address();
        self.matches(xt::recent_set(list, mask))
    }

    /// The current state, for [`Batch::rollback`].
    pub fn recent_check(self, list: &str, seconds: u32) -> Builder<'r> {
        let mask = self.single_address();
        self.matches(xt::recent_check(list, mask, seconds))
    }

    fn single_address(&self) -> IpAddr {
        match self.family {
            Family::Ipv6 => Ipv6Addr::from_bits(u128::MAX).into(),
            _ => Ipv4Addr::BROADCAST.into(),
        }
    }

    /// `-m set --match-set`, or (`negated`) `! --match-set`; `index` is the kernel's number of the set.
    pub fn set(self, index: u16, directions: &[Direction], negated: bool) -> Builder<'r> {
        self.matches(xt::set(index, directions, negated))
    }

    /// Adds any xt target.
    pub fn xt_target<const N: usize>(self, target: &Extension<N>) {
        self.rule.counter().xt_target(target);
    }

    /// `-j ACCEPT`, `DROP`, `RETURN` or a chain; `-g` for a goto.
    pub fn verdict(self, verdict: Verdict<'_>) {
        self.rule.counter().verdict(verdict);
    }

    /// `-j` to a chain.
    pub fn jump(self, chain: &str) {
        self.verdict(Verdict::Jump(chain));
    }

    /// Ends the rule without a target.
    pub fn count(self) {
        self.rule.counter();
    }

    /// `-j MARK --set-xmark value/mask`.
    pub fn set_xmark(self, value: u32, mask: u32) {
        self.xt_target(&xt::set_xmark(value, mask));
    }

    /// `-j MASQUERADE`, with `--random-fully`.
    pub fn masquerade(self, random_fully: bool) {
        match self.family {
            Family::Ipv6 => self.xt_target(&xt::masquerade_v6(random_fully)),
            _ => self.xt_target(&xt::masquerade_v4(random_fully)),
        }
    }

    /// `-j DNAT --to-destination`.
    pub fn dnat(self, to: SocketAddr) {
        if Family::of(to.ip()) != self.family {
            let value = to.to_string();
            self.rule.fail(EncodeError::Value { what: "the address is not of the rule's family", value });
        }
        self.xt_target(&xt::dnat(to));
    }

    /// `-j REDIRECT --to-ports`.
    pub fn redirect(self, port: u16) {
        match self.family {
            Family::Ipv6 => self.xt_target(&xt::redirect_v6(port)),
            _ => self.xt_target(&xt::redirect_v4(port)),
        }
    }

    /// `-j REJECT` with the family's ICMP port unreachable.
    pub fn reject(self) {
        match self.family {
            Family::Ipv6 => self.xt_target(&xt::reject_v6()),
            _ => self.xt_target(&xt::reject_v4()),
        }
    }
}
