//! Asks nf_tables through netlink (`include/uapi/linux/netfilter/nf_tables.h`), where a command would be a process
//! each.

use nix::libc;

use netlink_sys::protocols::NETLINK_NETFILTER;

use super::netlink::{Attributes, Netlink, NetlinkError, Parsed, Request};
use crate::model::Family;

/// `NFNL_SUBSYS_NFTABLES` and `NFT_MSG_GETCHAIN`: the message's type.
const GET_CHAIN: u16 = 10 << 8 | 4;
/// `NFTA_CHAIN_TABLE`, `NFTA_CHAIN_NAME`, `NFTA_CHAIN_USE`.
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_USE: u16 = 6;
/// Length of `struct nfgenmsg`, before the attributes.
const NFGENMSG: usize = 4;

/// Asks over one socket, which is kept: making one for every question costs more than the question.
#[derive(Default)]
pub(super) struct ChainProbe {
    socket: Option<Netlink>,
}

impl ChainProbe {
    /// The rules of a chain of the nft variant plus the rules that lead to it; `None` without the chain, or the table. The kernel
    /// counts both in one number, by which it knows whether a chain may go.
    ///
    /// # Errors
    /// When the kernel refuses the question.
    pub(super) fn uses(&mut self, family: Family, table: &str, chain: &str) -> Result<Option<usize>, NetlinkError> {
        let operation = format!("ask nf_tables for the chain {chain} of the table {table}");
        // Taken out: after an error it is not known what is still to come on it.
        let opened = self.socket.take().map_or_else(|| Netlink::open(NETLINK_NETFILTER), Ok);
        let mut socket = opened.map_err(|error| NetlinkError::new(&operation, error))?;
        let family = match family {
            Family::V4 => libc::AF_INET,
            Family::V6 => libc::AF_INET6,
        };
        let question = Request {
            kind: GET_CHAIN,
            flags: 0,
            // `struct nfgenmsg`: family, version, resource.
            header: vec![u8::try_from(family).unwrap_or_default(), 0, 0, 0],
            attributes: Attributes::new().text(NFTA_CHAIN_TABLE, table).text(NFTA_CHAIN_NAME, chain),
            operation,
            harmless: &[],
        };
        let mut uses = 0;
        let answer = socket.ask(&question, false, |payload| {
            let attributes = Parsed::read(payload.get(NFGENMSG..).unwrap_or_default());
            uses = attributes.be32(NFTA_CHAIN_USE).and_then(|uses| usize::try_from(uses).ok()).unwrap_or(0);
        });
        let found = match answer {
            Ok(()) => Some(uses),
            Err(error) if error.code() == Some(libc::ENOENT) => None,
            Err(error) => return Err(error),
        };
        self.socket = Some(socket);
        Ok(found)
    }
}
