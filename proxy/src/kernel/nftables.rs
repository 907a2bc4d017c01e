//! Questions to nf_tables through netlink (`include/uapi/linux/netfilter/nf_tables.h`), where a command would be a process
//! each.

use std::io;

use netlink_packet_core::NLM_F_ACK;
use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::nftables::{ChainAttribute, ChainMessage, NfTablesMessage};
use netlink_sys::Socket;

use super::netfilter;
use crate::model::Family;

/// Asks over one socket, which is kept: making one for every question costs more than the question.
#[derive(Default)]
pub(super) struct Questions {
    socket: Option<Socket>,
}

impl Questions {
    /// Whether a table of the nft variant has a chain; without the table there is no chain either.
    ///
    /// # Errors
    /// When the kernel refuses the question.
    pub(super) fn chain_exists(&mut self, family: Family, table: &str, chain: &str) -> io::Result<bool> {
        // Taken out: after an error nobody knows what is still to come on it.
        let socket = self.socket.take().map_or_else(netfilter::connect, Ok)?;
        let attributes = vec![ChainAttribute::Table(table.to_owned()), ChainAttribute::Name(chain.to_owned())];
        let question = NfTablesMessage::GetChain(ChainMessage { attributes });
        let family = match family {
            Family::V4 => NetfilterProtoFamily::IPv4,
            Family::V6 => NetfilterProtoFamily::IPv6,
        };
        let exists = match netfilter::exchange(&socket, family, NLM_F_ACK, question, |_| {}) {
            Ok(()) => true,
            Err(error) if error.raw_os_error() == Some(nix::libc::ENOENT) => false,
            Err(error) => return Err(error),
        };
        self.socket = Some(socket);
        Ok(exists)
    }
}
