//! Questions to nf_tables through netlink (`include/uapi/linux/netfilter/nf_tables.h`), where a command would be a process
//! each.

use nix::libc;

use netlink_sys::protocols::NETLINK_NETFILTER;

use super::netlink::{Attributes, Netlink, NetlinkError, Request};
use crate::model::Family;

/// `NFNL_SUBSYS_NFTABLES` and `NFT_MSG_GETCHAIN`: the message's type.
const GET_CHAIN: u16 = 10 << 8 | 4;
/// `NFTA_CHAIN_TABLE`, `NFTA_CHAIN_NAME`.
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;

/// Asks over one socket, which is kept: making one for every question costs more than the question.
#[derive(Default)]
pub(super) struct Questions {
    socket: Option<Netlink>,
}

impl Questions {
    /// Whether a table of the nft variant has a chain; without the table there is no chain either.
    ///
    /// # Errors
    /// When the kernel refuses the question.
    pub(super) fn chain_exists(&mut self, family: Family, table: &str, chain: &str) -> Result<bool, NetlinkError> {
        let attempt = format!("ask nf_tables for the chain {chain} of the table {table}");
        // Taken out: after an error nobody knows what is still to come on it.
        let opened = self.socket.take().map_or_else(|| Netlink::open(NETLINK_NETFILTER), Ok);
        let mut socket = opened.map_err(|error| NetlinkError::new(&attempt, error))?;
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
            attempt,
            harmless: &[],
        };
        let exists = match socket.ask(&question, false, |_| {}) {
            Ok(()) => true,
            Err(error) if error.code() == Some(libc::ENOENT) => false,
            Err(error) => return Err(error),
        };
        self.socket = Some(socket);
        Ok(exists)
    }
}
