//! The generation of nf_tables: a number that every transaction of rules, by nft or iptables-nft, increments.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};

/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN` (linux/netfilter/nfnetlink.h, nf_tables.h).
const GET_GENERATION: u16 = 10 << 8 | 16;
const NEW_GENERATION: u16 = 10 << 8 | 15;
const NLM_F_REQUEST: u16 = 1;
/// `NFTA_GEN_ID`.
const ID: u16 = 1;
/// `struct nlmsghdr` and `struct nfgenmsg`.
const HEAD: usize = 16 + 4;

/// Returns the generation of the thread's network namespace. `None` if the kernel has no nf_tables, or refuses.
pub(super) fn read() -> Option<u32> {
    let netlink: OwnedFd =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkNetFilter).ok()?;
    setsockopt(&netlink, ReceiveTimeout, &TimeVal::seconds(1)).ok()?;
    sendto(netlink.as_raw_fd(), &request(), &NetlinkAddr::new(0, 0), MsgFlags::empty()).ok()?;
    let mut buffer = [0; 512];
    let length = recv(netlink.as_raw_fd(), &mut buffer, MsgFlags::empty()).ok()?;
    generation(buffer.get(..length)?)
}

fn request() -> [u8; HEAD] {
    let mut message = [0; HEAD];
    message[..4].copy_from_slice(&(HEAD as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&GET_GENERATION.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    message
}

fn generation(answer: &[u8]) -> Option<u32> {
    let half = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    if half(4)? != NEW_GENERATION {
        return None;
    }
    let mut at = HEAD;
    loop {
        let length = usize::from(half(at)?);
        if half(at + 2)? == ID {
            return Some(u32::from_be_bytes(answer.get(at + 4..at + 8)?.try_into().ok()?));
        }
        // Attributes are aligned to four bytes; one without a header's length would never end.
        at += length.max(4).next_multiple_of(4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_generation_and_an_error_has_none() {
        let mut answer = request().to_vec();
        answer[4..6].copy_from_slice(&NEW_GENERATION.to_ne_bytes());
        let attribute = |kind: u16, value: &[u8]| {
            let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        assert_eq!(generation(&answer), None);
        answer.extend(attribute(3, b"nft\0x"));
        answer.extend(attribute(ID, &7_u32.to_be_bytes()));
        assert_eq!(generation(&answer), Some(7));
        assert_eq!(generation(&answer[..answer.len() - 1]), None);
        let refused = [&request()[..], &[0; 20]].concat();
        assert_eq!(generation(&refused), None);
    }
}
