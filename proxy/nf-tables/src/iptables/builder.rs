use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::RuleHeader;
use crate::error::EncodeError;
use crate::family::Family;
use crate::rule::{Bitwise, CmpOp, MetaKey, PayloadBase, Register, Rule, XtCompat};
use crate::verdict::NfVerdict;
use crate::xt::{self, AddrTypeMatch, CtStates, SetDirection, XtExtension};

/// `IPPROTO_TCP`, `IPPROTO_UDP`, `IPPROTO_SCTP`.
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
/// The offset of the flags in TCP's header.
const TCP_FLAGS: u32 = 13;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Appends matches, then a target. The rule keeps the first error ([`Rule::error`]).
#[derive(Debug)]
pub struct RuleBuilder<'r> {
    rule: &'r mut Rule,
    family: Family,
    protocol: u8,
}

impl<'r> RuleBuilder<'r> {
    /// `rule` must be empty.
    pub fn new(rule: &'r mut Rule, family: Family, header: &RuleHeader<'_>) -> RuleBuilder<'r> {
        if family == Family::Inet {
            let value = "inet".to_owned();
            rule.fail(EncodeError::Value { what: "iptables has tables of IPv4 and IPv6 only", value });
        }
        header.write(family, rule);
        let protocol = header.protocol.unwrap_or_default();
        rule.set_compat(XtCompat { protocol: u32::from(protocol), inverted: false });
        RuleBuilder { rule, family, protocol }
    }

    fn matches<const N: usize>(self, extension: Result<XtExtension<N>, EncodeError>) -> RuleBuilder<'r> {
        match extension {
            Ok(extension) => drop(self.rule.xt_match(&extension)),
            Err(error) => self.rule.fail(error),
        }
        self
    }

    /// Any xt match.
    pub fn xt_match<const N: usize>(self, extension: &XtExtension<N>) -> RuleBuilder<'r> {
        self.rule.xt_match(extension);
        self
    }

    /// `-m comment --comment`, at most 255 bytes.
    pub fn comment(self, text: &str) -> RuleBuilder<'r> {
        self.matches(xt::comment(text))
    }

    /// `--dport`, for TCP, UDP and SCTP.
    pub fn destination_port(mut self, port: u16) -> RuleBuilder<'r> {
        match self.protocol {
            TCP | UDP => {
                self.rule.payload(PayloadBase::Transport, 2, 2, Register::R1);
                self.rule.cmp(Register::R1, CmpOp::Equal, &port.to_be_bytes());
            }
            SCTP => drop(self.rule.xt_match(&xt::sctp(Some(port)))),
            other => self.fail_protocol("a port needs TCP, UDP or SCTP in the header", other),
        }
        self
    }

    /// `! --syn`: any TCP packet but a connection's first. iptables-nft adds it before the ports.
    pub fn not_syn(mut self) -> RuleBuilder<'r> {
        if self.protocol != TCP {
            self.fail_protocol("flags need TCP in the header", self.protocol);
        }
        self.rule.payload(PayloadBase::Transport, TCP_FLAGS, 1, Register::R1);
        self.rule.bitwise(Register::R1, Register::R1, Bitwise { mask: &[FIN | SYN | RST | ACK], xor: &[0] });
        self.rule.cmp(Register::R1, CmpOp::NotEqual, &[SYN]);
        self
    }

    /// `-m tcp`, `-m udp` or `-m sctp`, by the header's protocol.
    pub fn protocol_match(mut self) -> RuleBuilder<'r> {
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

    /// `-m mark --mark value/mask`; `negated`: `! --mark`.
    pub fn mark(self, value: u32, mask: u32, negated: bool) -> RuleBuilder<'r> {
        self.rule.meta(MetaKey::MARK, Register::R1);
        if mask != u32::MAX {
            let bits = Bitwise { mask: &mask.to_ne_bytes(), xor: &[0; 4] };
            self.rule.bitwise(Register::R1, Register::R1, bits);
        }
        self.rule.cmp(Register::R1, CmpOp::equal(!negated), &value.to_ne_bytes());
        self
    }

    /// `-m conntrack --ctstate`; `negated`: `! --ctstate`.
    pub fn conntrack_state(self, states: CtStates, negated: bool) -> RuleBuilder<'r> {
        self.xt_match(&xt::conntrack_state(states, negated))
    }

    /// `-m addrtype`.
    pub fn address_type(self, wanted: AddrTypeMatch) -> RuleBuilder<'r> {
        self.xt_match(&xt::address_type(wanted))
    }

    /// `-m statistic --mode random --probability 1/n`.
    pub fn one_in(self, n: u32) -> RuleBuilder<'r> {
        self.xt_match(&xt::one_in(n))
    }

    /// `-m recent --set --name list --rsource`.
    pub fn recent_set(self, list: &str) -> RuleBuilder<'r> {
        let mask = self.single_address();
        self.matches(xt::recent_set(list, mask))
    }

    /// `-m recent --rcheck --seconds … --reap --name list --rsource`.
    pub fn recent_check(self, list: &str, seconds: u32) -> RuleBuilder<'r> {
        let mask = self.single_address();
        self.matches(xt::recent_check(list, mask, seconds))
    }

    fn single_address(&self) -> IpAddr {
        match self.family {
            Family::Ipv6 => Ipv6Addr::from_bits(u128::MAX).into(),
            _ => Ipv4Addr::BROADCAST.into(),
        }
    }

    /// `-m set --match-set` by the set's number; `negated`: `! --match-set`.
    pub fn set(self, index: u16, directions: &[SetDirection], negated: bool) -> RuleBuilder<'r> {
        self.matches(xt::set(index, directions, negated))
    }

    /// Any xt target.
    pub fn xt_target<const N: usize>(self, target: &XtExtension<N>) {
        self.rule.counter().xt_target(target);
    }

    /// Verdict, jump or goto.
    pub fn verdict(self, verdict: NfVerdict<'_>) {
        self.rule.counter().verdict(verdict);
    }

    /// `-j CHAIN`.
    pub fn jump(self, chain: &str) {
        self.verdict(NfVerdict::Jump(chain));
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

    /// `-j SNAT --to-source`, with `--random-fully`.
    pub fn snat(mut self, to: IpAddr, random_fully: bool) {
        self.require_family(to);
        match to {
            IpAddr::V4(to) => self.xt_target(&xt::snat_v4(to, random_fully)),
            IpAddr::V6(to) => self.xt_target(&xt::snat_v6(to, random_fully)),
        }
    }

    /// `-j DNAT --to-destination`.
    pub fn dnat(mut self, to: SocketAddr) {
        self.require_family(to.ip());
        self.xt_target(&xt::dnat(to));
    }

    fn require_family(&mut self, address: IpAddr) {
        if Family::of(address) != self.family {
            let value = address.to_string();
            self.rule.fail(EncodeError::Value { what: "the address is not of the rule's family", value });
        }
    }

    /// `-j REDIRECT --to-ports`.
    pub fn redirect(self, port: u16) {
        match self.family {
            Family::Ipv6 => self.xt_target(&xt::redirect_v6(port)),
            _ => self.xt_target(&xt::redirect_v4(port)),
        }
    }

    /// `-j REJECT`, port unreachable.
    pub fn reject(self) {
        match self.family {
            Family::Ipv6 => self.xt_target(&xt::reject_v6()),
            _ => self.xt_target(&xt::reject_v4()),
        }
    }

    /// `-j REJECT --reject-with tcp-reset`.
    pub fn reset(self) {
        match self.family {
            Family::Ipv6 => self.xt_target(&xt::reset_v6()),
            _ => self.xt_target(&xt::reset_v4()),
        }
    }
}
