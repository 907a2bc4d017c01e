//! Questions to nf_tables through netlink (`include/uapi/linux/netfilter/nf_tables.h`), where a command would be a process
//! each.

use std::io;

use netlink_packet_core::NLM_F_ACK;
use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::nftables::{ChainAttribute, ChainMessage, NfTablesMessage};

use super::netfilter;
use crate::model::Family;

/// Whether a table of the nft variant has a chain; without the table there is no chain either.
///
/// # Errors
/// When the kernel refuses the question.
pub(super) fn chain_exists(family: Family, table: &str, chain: &str) -> io::Result<bool> {
    let attributes = vec![ChainAttribute::Table(table.to_owned()), ChainAttribute::Name(chain.to_owned())];
    let question = NfTablesMessage::GetChain(ChainMessage { attributes });
    let family = match family {
        Family::V4 => NetfilterProtoFamily::IPv4,
        Family::V6 => NetfilterProtoFamily::IPv6,
    };
    match netfilter::exchange(&netfilter::connect()?, family, NLM_F_ACK, question, |_| {}) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(nix::libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}
