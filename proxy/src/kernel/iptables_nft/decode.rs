//! Decodes the proxy's rules: encodes the result again, and compares the bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use nf_tables::netlink::Attributes;
use nf_tables::{Expression, NfVerdict, canonical, expressions, verdict};

use super::encode::encode;
use crate::model::{Family, Protocol};
use crate::nftables::text::of_kernel;
use crate::ruleset::{AddressTypeSide, ConnectionStates, InputInterface, Match, Not, Rule, RuleTarget, SetDirection};

pub(super) fn text(bytes: &[u8], family: Family, sets: &mut dyn FnMut(u16) -> Option<String>) -> String {
    if let Some(rule) = decode(bytes, family, sets) {
        return rule.to_string();
    }
    match verdict(bytes) {
        Some(NfVerdict::Jump(chain)) => format!("-m not-understood -j {chain}"),
        Some(NfVerdict::Goto(chain)) => format!("-m not-understood -g {chain}"),
        _ => "-m not-understood".to_owned(),
    }
}

/// Returns `None` for a form of rule that the proxy never writes.
pub(super) fn decode(bytes: &[u8], family: Family, sets: &mut dyn FnMut(u16) -> Option<String>) -> Option<Rule> {
    let mut reader = RuleDecoder {
        family,
        rule: Rule::new(),
        loaded: LoadedField::Nothing,
        mask: None,
        is_open: false,
        sets,
        indices: Vec::new(),
    };
    expressions(bytes).try_for_each(|expression| reader.read(&expression))?;
    let RuleDecoder { mut rule, indices, .. } = reader;
    match verdict(bytes) {
        Some(NfVerdict::Accept) => rule.target = RuleTarget::Accept,
        Some(NfVerdict::Drop) => rule.target = RuleTarget::Drop,
        Some(NfVerdict::Return) => rule.target = RuleTarget::Return,
        Some(NfVerdict::Jump(chain)) => rule.target = RuleTarget::Jump(chain.into()),
        Some(NfVerdict::Goto(_) | NfVerdict::Continue) => return None,
        None => {}
    }
    let mut again = nf_tables::Rule::new();
    let of = of_kernel(family);
    let index = |name: &str| indices.iter().find(|(known, _)| known == name).map(|(_, index)| *index).ok_or(());
    encode(&rule, family, &mut again, index).ok()?;
    (again.error().is_none() && canonical(of, again.expressions()) == canonical(of, bytes)).then_some(rule)
}

/// The content of the register that `cmp` compares.
#[derive(Clone, Copy)]
enum LoadedField {
    Nothing,
    Input,
    Protocol,
    Mark,
    Source,
    Destination,
    Port,
    TcpFlags,
}

struct RuleDecoder<'a> {
    family: Family,
    rule: Rule,
    loaded: LoadedField,
    mask: Option<Vec<u8>>,
    /// Whether the flags have been compared, which iptables-nft does before the port.
    is_open: bool,
    sets: &'a mut dyn FnMut(u16) -> Option<String>,
    indices: Vec<(String, u16)>,
}

impl RuleDecoder<'_> {
    /// `None` rejects the rule. May ignore parts, which encoding again reveals.
    fn read(&mut self, expression: &Expression<'_>) -> Option<()> {
        let attributes = expression.attributes;
        match expression.name {
            // `NFTA_META_KEY`; `NFT_META_IIFNAME`, `NFT_META_L4PROTO`, `NFT_META_MARK`.
            "meta" => {
                self.loaded = match attributes.be32(2)? {
                    6 => LoadedField::Input,
                    16 => LoadedField::Protocol,
                    3 => LoadedField::Mark,
                    _ => return None,
                }
            }
            // `NFTA_PAYLOAD_BASE`, `NFTA_PAYLOAD_OFFSET`; `NFT_PAYLOAD_NETWORK_HEADER` is 1, the transport header 2.
            "payload" => {
                self.loaded = match (self.family, attributes.be32(2)?, attributes.be32(3)?) {
                    (Family::V4, 1, 12) | (Family::V6, 1, 8) => LoadedField::Source,
                    (Family::V4, 1, 16) | (Family::V6, 1, 24) => LoadedField::Destination,
                    // iptables-nft writes this form since 1.8.10.
                    (Family::V4, 1, 9) => LoadedField::Protocol,
                    (_, 2, 2) => LoadedField::Port,
                    (_, 2, 13) => LoadedField::TcpFlags,
                    _ => return None,
                }
            }
            // `NFTA_BITWISE_MASK`, `NFTA_DATA_VALUE`.
            "bitwise" => self.mask = Some(attributes.nested(4).get(1)?.to_vec()),
            "cmp" => self.compare(attributes)?,
            "match" => {
                let one = self.xt_match(attributes.text(1)?, attributes.get(3)?)?;
                self.rule.matches.push(one);
            }
            "counter" => {}
            "immediate" => {}
            "target" => self.rule.target = self.xt_target(attributes.text(1)?, attributes.get(3)?)?,
            _ => return None,
        }
        Some(())
    }

    fn compare(&mut self, attributes: Attributes<'_>) -> Option<()> {
        // `NFTA_CMP_OP`, `NFTA_CMP_DATA`; `NFT_CMP_EQ` is 0, `NFT_CMP_NEQ` 1.
        let (negated, data) = (attributes.be32(2)? == 1, attributes.nested(3).get(1)?);
        let mask = self.mask.take();
        match std::mem::replace(&mut self.loaded, LoadedField::Nothing) {
            LoadedField::Nothing => return None,
            LoadedField::Input => self.rule.input = Some(Not { negated, value: interface(data)? }),
            LoadedField::Protocol => self.rule.protocol = Some(protocol(*data.first()?)?),
            LoadedField::Mark => {
                let mark = u32::from_ne_bytes(data.try_into().ok()?);
                self.rule.matches.push(Match::Mark(Not { negated, value: mark }));
            }
            LoadedField::Source => self.rule.source = Some(Not { negated, value: self.net(data, mask.as_deref())? }),
            LoadedField::Destination => {
                self.rule.destination = Some(Not { negated, value: self.net(data, mask.as_deref())? });
            }
            LoadedField::Port => {
                let port = u16::from_be_bytes(data.try_into().ok()?);
                let one = if self.is_open { Match::OpenPort(port) } else { Match::Port(self.rule.protocol?, port) };
                self.rule.matches.push(one);
            }
            LoadedField::TcpFlags => self.is_open = true,
        }
        Some(())
    }

    /// A prefix's `data` may be shorter than an address.
    fn net(&self, data: &[u8], mask: Option<&[u8]>) -> Option<IpNet> {
        let ones = |mask: &[u8]| mask.iter().map(|byte| byte.count_ones()).sum();
        let length = mask.map_or_else(|| u32::try_from(data.len() * 8).unwrap_or(u32::MAX), ones);
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
        let address: IpAddr = match self.family {
            Family::V4 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(..4)?).ok()?).into(),
            Family::V6 => Ipv6Addr::from(bytes).into(),
        };
        IpNet::new(address, u8::try_from(length).ok()?).ok()
    }

    /// Decodes an xt match; [`nf_tables::xt`] names the structures.
    fn xt_match(&mut self, name: &str, info: &[u8]) -> Option<Match> {
        let u16_at = |at: usize| Some(u16::from_ne_bytes(info.get(at..at + 2)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_ne_bytes(info.get(at..at + 4)?.try_into().ok()?));
        Some(match name {
            "comment" => Match::Comment(text_of(info)?.into()),
            "tcp" => Match::Transport(Protocol::Tcp),
            "udp" => Match::Transport(Protocol::Udp),
            "sctp" => match u32_at(284)? {
                0 => Match::Transport(Protocol::Sctp),
                _ => Match::Port(Protocol::Sctp, u16_at(0)?),
            },
            "conntrack" => Match::Conntrack(Not { negated: u16_at(148)? != 0, value: ConnectionStates(u16_at(150)?) }),
            "addrtype" => {
                let value = if u16_at(0)? != 0 { AddressTypeSide::Source } else { AddressTypeSide::Destination };
                Match::LocalAddress(Not { negated: u32_at(4)? != 0, value })
            }
            "statistic" => {
                let kept = f64::from(u32_at(4)?).max(1.0);
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 2^31")]
                let n = (f64::from(1u32 << 31) / kept).round() as usize;
                Match::OneIn(n)
            }
            "recent" => {
                let (list, family) = (text_of(info.get(10..210)?)?.into(), self.family);
                match u32_at(0)? {
                    0 => Match::RecentSet { list, family },
                    seconds => Match::RecentCheck { list, seconds, family },
                }
            }
            "set" => {
                let (index, dimensions, flags) = (u16_at(0)?, *info.get(2)?, *info.get(3)?);
                let name = (self.sets)(index)?;
                self.indices.push((name.clone(), index));
                Match::Set(Not { negated: flags & 1 != 0, value: (name.into(), directions(dimensions, flags)?) })
            }
            _ => return None,
        })
    }

    fn xt_target(&self, name: &str, info: &[u8]) -> Option<RuleTarget> {
        let u32_at = |at: usize| Some(u32::from_ne_bytes(info.get(at..at + 4)?.try_into().ok()?));
        let port_at = |at: usize| Some(u16::from_be_bytes(info.get(at..at + 2)?.try_into().ok()?));
        let v4 = self.family == Family::V4;
        Some(match name {
            "MARK" => RuleTarget::Mark { mark: u32_at(0)?, mask: u32_at(4)? },
            "MASQUERADE" => RuleTarget::Masquerade { random_fully: u32_at(if v4 { 4 } else { 0 })? != 0 },
            // `IPT_TCP_RESET`, `IP6T_TCP_RESET`.
            "REJECT" if u32_at(0)? == if v4 { 7 } else { 6 } => RuleTarget::Reset,
            "REJECT" => RuleTarget::Reject(self.family),
            "REDIRECT" => RuleTarget::Redirect(port_at(if v4 { 16 } else { 36 })?),
            // Without addresses (`NF_NAT_RANGE_MAP_IPS`) encoding again gives other bytes.
            "SNAT" => {
                let (flags, address) = if v4 { (4, 8) } else { (0, 4) };
                let random_fully = u32_at(flags)? & NAT_RANDOM_FULLY != 0;
                RuleTarget::Snat { to: self.address_at(info, address)?, random_fully }
            }
            "DNAT" => RuleTarget::Dnat(SocketAddr::new(self.address_at(info, 4)?, port_at(36)?)),
            _ => return None,
        })
    }

    fn address_at(&self, info: &[u8], at: usize) -> Option<IpAddr> {
        Some(match self.family {
            Family::V4 => Ipv4Addr::from(<[u8; 4]>::try_from(info.get(at..at + 4)?).ok()?).into(),
            Family::V6 => Ipv6Addr::from(<[u8; 16]>::try_from(info.get(at..at + 16)?).ok()?).into(),
        })
    }
}

/// `NF_NAT_RANGE_PROTO_RANDOM_FULLY` (`nf_nat.h`).
const NAT_RANDOM_FULLY: u32 = 1 << 4;

fn protocol(number: u8) -> Option<Protocol> {
    Protocol::ALL.into_iter().find(|protocol| protocol.number() == number)
}

/// A whole name has a final zero, a prefix none.
fn interface(data: &[u8]) -> Option<InputInterface> {
    let name = text_of(data)?.into();
    Some(if data.contains(&0) { InputInterface::Name(name) } else { InputInterface::Prefix(name) })
}

/// `None` unless the proxy writes this combination.
fn directions(dimensions: u8, flags: u8) -> Option<&'static [SetDirection]> {
    use SetDirection::{Destination as D, Source as S};
    const KNOWN: [&[SetDirection]; 4] = [&[D], &[D, D], &[S, D], &[D, D, S]];
    let source = |at: usize| flags & 2 << at != 0;
    let fits = |known: &&[SetDirection]| {
        known.len() == usize::from(dimensions) && known.iter().enumerate().all(|(at, one)| source(at) == (*one == S))
    };
    KNOWN.into_iter().find(fits)
}

fn text_of(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    std::str::from_utf8(bytes.get(..end)?).ok()
}
