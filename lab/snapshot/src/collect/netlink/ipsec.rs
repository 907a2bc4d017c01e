//! Policies of IPsec over `NETLINK_XFRM` (include/uapi/linux/xfrm.h).

use std::io;
use std::net::IpAddr;

use rtnetlink::sys::protocols::NETLINK_XFRM;
use rtnetlink::sys::{Socket, SocketAddr};

use super::range;
use crate::network::IpsecPolicy;

const GET_POLICY: u16 = 0x15;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const REQUEST_ALL: u16 = 0x01 | 0x300;
const DONE: u16 = 3;
const ERROR: u16 = 2;
const HEADER: usize = 16;
/// Size of `struct xfrm_userpolicy_id`.
const POLICY_ID: usize = 64;
/// Size of `struct xfrm_userpolicy_info`.
const POLICY: usize = 168;
const DIRECTIONS: [&str; 3] = ["in", "out", "fwd"];
const TEMPLATES: u16 = 5;
const MARK: u16 = 21;
const INTERFACE_ID: u16 = 31;

/// Returns the policies; none if the kernel has no IPsec.
pub(super) fn read() -> io::Result<Vec<IpsecPolicy>> {
    let mut socket = match Socket::new(NETLINK_XFRM) {
        Ok(socket) => socket,
        Err(error) if error.raw_os_error() == Some(nix::libc::EPROTONOSUPPORT) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&request(), 0)?;
    let mut policies = Vec::new();
    loop {
        let (answer, _) = socket.recv_from_full()?;
        let mut rest = &answer[..];
        while let Some((kind, body, behind)) = message(rest) {
            rest = behind;
            match kind {
                DONE => return Ok(policies),
                ERROR => return Err(refusal(body)),
                _ => policies.extend(policy(body)),
            }
        }
    }
}

fn request() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + POLICY_ID);
    bytes.extend(u32::try_from(HEADER + POLICY_ID).unwrap_or_default().to_ne_bytes());
    bytes.extend(GET_POLICY.to_ne_bytes());
    bytes.extend(REQUEST_ALL.to_ne_bytes());
    bytes.resize(HEADER + POLICY_ID, 0);
    bytes
}

/// Splits the first message off: its type, its body and the rest.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let body = bytes.get(HEADER..length)?;
    Some((u16_at(bytes, 4)?, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn refusal(body: &[u8]) -> io::Error {
    let code = u32_at(body, 0).map(u32::cast_signed).unwrap_or_default();
    io::Error::from_raw_os_error(code.saturating_neg())
}

/// `None` for the policies of sockets, whose directions follow those of the machine.
fn policy(body: &[u8]) -> Option<IpsecPolicy> {
    let extra = body.get(POLICY..)?;
    let direction = DIRECTIONS.get(usize::from(*body.get(160)?))?;
    let family = u16_at(body, 40)?;
    let address = |at: usize| match i32::from(family) {
        nix::libc::AF_INET => Some(IpAddr::from(<[u8; 4]>::try_from(body.get(at..at + 4)?).ok()?)),
        nix::libc::AF_INET6 => Some(IpAddr::from(<[u8; 16]>::try_from(body.get(at..at + 16)?).ok()?)),
        _ => None,
    };
    let (to, from) = (range(address(0)?, *body.get(42)?)?, range(address(16)?, *body.get(43)?)?);
    let ports = body.get(32..40)?.iter().any(|byte| *byte != 0);
    let interface = u32_at(body, 48)? != 0;
    let attributes = attributes(extra);
    let has = |kind: u16| attributes.contains(&kind);
    Some(IpsecPolicy {
        direction: (*direction).to_owned(),
        from,
        to,
        protocol: Some(*body.get(44)?).filter(|protocol| *protocol != 0),
        narrower: ports || interface || has(MARK) || has(INTERFACE_ID),
        priority: u32_at(body, 152)?,
        action: if *body.get(161)? == 0 { "allow" } else { "block" }.to_owned(),
        transforms: has(TEMPLATES),
    })
}

/// Returns the types of the attributes that have a value.
fn attributes(mut bytes: &[u8]) -> Vec<u16> {
    let mut found = Vec::new();
    while let (Some(length), Some(kind)) = (u16_at(bytes, 0), u16_at(bytes, 2)) {
        if length > 4 {
            found.push(kind);
        }
        let Some(rest) = bytes.get(usize::from(length.max(4)).next_multiple_of(4)..) else { break };
        bytes = rest;
    }
    found
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.18 lists `ip xfrm policy add src 10.0.0.0/8 dst 10.1.0.0/16 dir out priority 7 tmpl …`.
    fn listed() -> Vec<u8> {
        let mut body = vec![0; POLICY];
        body[..4].copy_from_slice(&[10, 1, 0, 0]);
        body[16..20].copy_from_slice(&[10, 0, 0, 0]);
        body[40..42].copy_from_slice(&2u16.to_ne_bytes());
        (body[42], body[43]) = (16, 8);
        body[152..156].copy_from_slice(&7u32.to_ne_bytes());
        body[160] = 1;
        body.extend([8u16.to_ne_bytes(), TEMPLATES.to_ne_bytes(), [0; 2], [0; 2]].concat());
        body
    }

    #[test]
    fn a_policy_is_read() {
        let expected = IpsecPolicy {
            direction: "out".to_owned(),
            from: "10.0.0.0/8".parse().unwrap(),
            to: "10.1.0.0/16".parse().unwrap(),
            protocol: None,
            narrower: false,
            priority: 7,
            action: "allow".to_owned(),
            transforms: true,
        };
        assert_eq!(policy(&listed()), Some(expected.clone()));
        let mut narrower = listed();
        narrower[44] = 6;
        narrower[33] = 80;
        assert_eq!(policy(&narrower), Some(IpsecPolicy { protocol: Some(6), narrower: true, ..expected }));
        let mut of_socket = listed();
        of_socket[160] = 4;
        assert_eq!(policy(&of_socket), None);
        assert_eq!((0..POLICY).find_map(|length| policy(&listed()[..length])), None, "a truncated message");
    }
}
