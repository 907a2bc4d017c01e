//! xt matches.

use std::net::IpAddr;

use super::XtExtension;
use crate::error::EncodeError;

/// `XT_MAX_COMMENT_LEN`.
const COMMENT_LENGTH: usize = 256;
/// `XT_RECENT_NAME_LEN`.
const RECENT_NAME_LENGTH: usize = 200;

fn fitting<'a>(what: &'static str, text: &'a str, room: usize) -> Result<&'a [u8], EncodeError> {
    if text.len() >= room {
        return Err(EncodeError::TooLong { what, length: text.len(), most: room - 1 });
    }
    if text.as_bytes().contains(&0) {
        return Err(EncodeError::Value { what: "a zero ends the text", value: format!("{text:?}") });
    }
    Ok(text.as_bytes())
}

/// `-m comment` (`xt_comment.h`): at most 255 bytes.
pub fn comment(text: &str) -> Result<XtExtension<COMMENT_LENGTH>, EncodeError> {
    Ok(XtExtension::new("comment", 0).at(0, fitting("comment", text, COMMENT_LENGTH)?))
}

/// Address types as bits `1 << RTN_…`; 0 matches any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddrTypeMatch {
    /// Source types.
    pub source: u16,
    /// Matches any other type.
    pub source_inverted: bool,
    /// Destination types.
    pub destination: u16,
    /// Matches any other type.
    pub destination_inverted: bool,
}

impl AddrTypeMatch {
    /// `XT_ADDRTYPE_LOCAL`: this machine's address.
    pub const LOCAL: u16 = 1 << 2;

    /// `--src-type LOCAL`.
    pub fn source_local() -> AddrTypeMatch {
        AddrTypeMatch { source: AddrTypeMatch::LOCAL, ..AddrTypeMatch::default() }
    }

    /// `! --src-type LOCAL`.
    pub fn source_not_local() -> AddrTypeMatch {
        AddrTypeMatch { source_inverted: true, ..AddrTypeMatch::source_local() }
    }

    /// `--dst-type LOCAL`.
    pub fn destination_local() -> AddrTypeMatch {
        AddrTypeMatch { destination: AddrTypeMatch::LOCAL, ..AddrTypeMatch::default() }
    }
}

/// `-m addrtype` (`xt_addrtype.h`, `struct xt_addrtype_info_v1`).
pub fn address_type(wanted: AddrTypeMatch) -> XtExtension<8> {
    // `XT_ADDRTYPE_INVERT_SOURCE`, `XT_ADDRTYPE_INVERT_DEST`.
    let flags = u32::from(wanted.source_inverted) | u32::from(wanted.destination_inverted) << 1;
    XtExtension::new("addrtype", 1).u16(0, wanted.source).u16(2, wanted.destination).u32(4, flags)
}

/// `XT_CONNTRACK_STATE_…` in `xt_conntrack.h`.
pub type CtStates = u16;
/// Packets that conntrack rejects.
pub const INVALID: CtStates = 1;
/// Packets of a connection with replies, or related ones.
pub const RELATED_ESTABLISHED: CtStates = 0b110;
/// A first packet.
pub const NEW: CtStates = 1 << 3;
/// The destination was translated.
pub const STATE_DNAT: CtStates = 1 << 7;

/// `-m conntrack --ctstate` (`xt_conntrack.h`, `struct xt_conntrack_mtinfo3`).
pub fn conntrack_state(states: CtStates, inverted: bool) -> XtExtension<168> {
    const STATE: u16 = 1;
    let invert = if inverted { STATE } else { 0 };
    XtExtension::new("conntrack", 3).u16(146, STATE).u16(148, invert).u16(150, states)
}

/// `-m statistic --mode random`: a fraction of 2³¹ (`xt_statistic.h`, `struct xt_statistic_info`).
pub fn one_in(n: u32) -> XtExtension<24> {
    let n = n.max(1);
    let probability = ((1 << 31) + n / 2) / n;
    // The kernel ignores iptables' `nth.count`.
    XtExtension::new("statistic", 0).u32(4, probability).u32(12, probability)
}

/// `-m recent --set --rsource` (`xt_recent.h`, `struct xt_recent_mtinfo_v1`).
pub fn recent_set(list: &str, whole: IpAddr) -> Result<XtExtension<232>, EncodeError> {
    const SET: u8 = 1 << 1;
    recent(list, whole, SET, 0)
}

/// `-m recent --rcheck --seconds … --reap --rsource` (`xt_recent.h`, `struct xt_recent_mtinfo_v1`).
pub fn recent_check(list: &str, mask: IpAddr, seconds: u32) -> Result<XtExtension<232>, EncodeError> {
    const CHECK_AND_REAP: u8 = 1 << 0 | 1 << 5;
    recent(list, mask, CHECK_AND_REAP, seconds)
}

fn recent(list: &str, mask: IpAddr, check_set: u8, seconds: u32) -> Result<XtExtension<232>, EncodeError> {
    let name = fitting("list's name", list, RECENT_NAME_LENGTH)?;
    let info = XtExtension::new("recent", 1).u32(0, seconds).at(8, &[check_set]).at(10, name);
    Ok(match mask {
        IpAddr::V4(mask) => info.at(212, &mask.octets()),
        IpAddr::V6(mask) => info.at(212, &mask.octets()),
    })
}

/// What a dimension of the set matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetDirection {
    /// `src`.
    Source,
    /// `dst`.
    Destination,
}

/// `-m set --match-set` (`xt_set.h`, `struct xt_set_info_match_v4`). `index` is from
/// [`NfSocket::ip_set`](crate::NfSocket::ip_set); one to six directions (`IPSET_DIM_MAX`).
pub fn set(index: u16, directions: &[SetDirection], inverted: bool) -> Result<XtExtension<48>, EncodeError> {
    let dimensions = u8::try_from(directions.len()).unwrap_or(u8::MAX);
    if !(1..=6).contains(&dimensions) {
        return Err(EncodeError::Value { what: "a set has 1 to 6 dimensions", value: directions.len().to_string() });
    }
    // `IPSET_INV_MATCH`, `IPSET_DIM_ONE_SRC`.
    let source = |(at, direction)| if direction == &SetDirection::Source { 2u8 << at } else { 0 };
    let flags = (0..6).zip(directions).map(source).fold(u8::from(inverted), |flags, bit| flags | bit);
    Ok(XtExtension::new("set", 4).u16(0, index).at(2, &[dimensions, flags]))
}

/// `-m tcp`, any port (`xt_tcpudp.h`, `struct xt_tcp`).
pub fn tcp() -> XtExtension<16> {
    XtExtension::new("tcp", 0).u16(2, u16::MAX).u16(6, u16::MAX)
}

/// `-m udp`, any port (`xt_tcpudp.h`, `struct xt_udp`).
pub fn udp() -> XtExtension<16> {
    XtExtension::new("udp", 0).u16(2, u16::MAX).u16(6, u16::MAX)
}

/// `-m sctp`, with an optional `--dport` (`xt_sctp.h`, `struct xt_sctp_info`).
pub fn sctp(destination_port: Option<u16>) -> XtExtension<296> {
    const DESTINATION_PORTS: u32 = 2;
    // iptables fills unused `flag_info` with these bytes.
    let info = [268, 271, 274, 277].into_iter().fold(XtExtension::new("sctp", 0), |info, at| info.at(at, &[0xff]));
    match destination_port {
        Some(port) => info.u16(0, port).u16(2, port).u32(284, DESTINATION_PORTS),
        None => info,
    }
}

/// `-m mark` (`xt_mark.h`, `struct xt_mark_mtinfo1`). iptables-nft uses native expressions:
/// [`iptables::RuleBuilder::mark`](crate::iptables::RuleBuilder::mark).
pub fn mark(mark: u32, mask: u32, inverted: bool) -> XtExtension<16> {
    XtExtension::new("mark", 1).u32(0, mark).u32(4, mask).at(8, &[u8::from(inverted)])
}
