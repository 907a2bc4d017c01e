//! Named counters.

use nix::libc;

use super::{Batch, Operation, flag};
use crate::error::EncodeError;
use crate::family::Table;

/// `include/uapi/linux/netfilter/nf_tables.h`.
const NFTA_OBJ_TABLE: u16 = 1;
const NFTA_OBJ_NAME: u16 = 2;
const NFTA_OBJ_TYPE: u16 = 3;
const NFTA_OBJ_DATA: u16 = 4;
const NFTA_COUNTER_BYTES: u16 = 1;
const NFTA_COUNTER_PACKETS: u16 = 2;
/// `NFT_OBJECT_COUNTER`.
pub(crate) const NFT_OBJECT_COUNTER: u32 = 1;

impl Batch {
    /// Adds a counter that begins at zero, unless it exists.
    pub fn add_counter(&mut self, table: Table<'_>, counter: &str) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_NEWOBJ, flag::CREATE, table.family, |writer| {
            writer.name(NFTA_OBJ_TABLE, "table", table.name);
            writer.name(NFTA_OBJ_NAME, "counter", counter);
            writer.be32(NFTA_OBJ_TYPE, NFT_OBJECT_COUNTER);
            writer.nest(NFTA_OBJ_DATA, |writer| {
                writer.be64(NFTA_COUNTER_BYTES, 0);
                writer.be64(NFTA_COUNTER_PACKETS, 0);
            });
        })
    }

    /// Deletes a counter. The kernel refuses (`EBUSY`) while an element or a rule refers to it.
    pub fn delete_counter(&mut self, table: Table<'_>, counter: &str) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_DELOBJ, 0, table.family, |writer| {
            writer.name(NFTA_OBJ_TABLE, "table", table.name);
            writer.name(NFTA_OBJ_NAME, "counter", counter);
            writer.be32(NFTA_OBJ_TYPE, NFT_OBJECT_COUNTER);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use crate::netlink::HEADER_LENGTH;

    /// From `nft --debug=mnl` 1.0.6 for `table ip t { counter conn-default/web.x/tcp { } }`.
    const BY_NFT: &[u8] = &[
        2, 0, 0, 0, // IPv4
        6, 0, 1, 0, b't', 0, 0, 0, // table
        27, 0, 2, 0, b'c', b'o', b'n', b'n', b'-', b'd', b'e', b'f', b'a', b'u', b'l', b't', b'/', b'w', b'e', b'b',
        b'.', b'x', b'/', b't', b'c', b'p', 0, 0, // name
        8, 0, 3, 0, 0, 0, 0, 1, // type
        28, 0, 4, 0x80, // values
        12, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, // bytes
        12, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, // packets
    ];

    #[test]
    fn the_message_is_that_of_nft() {
        let mut batch = Batch::new();
        batch.add_counter(Table::new(Family::Ipv4, "t"), "conn-default/web.x/tcp").unwrap();
        let message = &batch.writer.bytes;
        assert_eq!(message.len(), 92, "the length that nft shows");
        assert_eq!(u16::from_ne_bytes([message[4], message[5]]), 2578, "the type");
        assert_eq!(&message[HEADER_LENGTH..], BY_NFT);
    }
}
