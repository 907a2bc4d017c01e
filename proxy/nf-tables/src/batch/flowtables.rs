//! Flowtables.

use nix::libc;

use super::{Batch, Operation, flag};
use crate::error::EncodeError;
use crate::family::Table;

/// `include/uapi/linux/netfilter/nf_tables.h`.
pub(super) const NFT_MSG_NEWFLOWTABLE: libc::c_int = 22;
const NFTA_FLOWTABLE_TABLE: u16 = 1;
const NFTA_FLOWTABLE_NAME: u16 = 2;
const NFTA_FLOWTABLE_HOOK: u16 = 3;
const NFTA_FLOWTABLE_FLAGS: u16 = 7;
const NFTA_FLOWTABLE_HOOK_NUM: u16 = 1;
const NFTA_FLOWTABLE_HOOK_PRIORITY: u16 = 2;
const NFTA_FLOWTABLE_HOOK_DEVS: u16 = 3;
const NFTA_DEVICE_NAME: u16 = 1;
/// The only hook (`include/uapi/linux/netfilter.h`).
const NF_NETDEV_INGRESS: u32 = 0;

impl Batch {
    /// Adds a flowtable, or missing links to one of the same priority. The kernel accepts 256 links, refuses (`ENOENT`)
    /// unknown ones, and removes links that disappear.
    pub fn add_flowtable<'a>(
        &mut self,
        table: Table<'_>,
        flowtable: &str,
        priority: i32,
        links: impl IntoIterator<Item = &'a str>,
    ) -> Result<Operation, EncodeError> {
        self.operation(NFT_MSG_NEWFLOWTABLE, flag::CREATE, table.family, |writer| {
            writer.name(NFTA_FLOWTABLE_TABLE, "table", table.name);
            writer.name(NFTA_FLOWTABLE_NAME, "flowtable", flowtable);
            writer.nest(NFTA_FLOWTABLE_HOOK, |writer| {
                writer.be32(NFTA_FLOWTABLE_HOOK_NUM, NF_NETDEV_INGRESS);
                writer.put(NFTA_FLOWTABLE_HOOK_PRIORITY, &priority.to_be_bytes());
                writer.nest(NFTA_FLOWTABLE_HOOK_DEVS, |writer| {
                    links.into_iter().for_each(|link| writer.name(NFTA_DEVICE_NAME, "link", link));
                });
            });
            writer.be32(NFTA_FLOWTABLE_FLAGS, 0);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use crate::netlink::HEADER_LENGTH;

    /// From `nft --debug=mnl` 1.0.6 for `table ip t { flowtable f { hook ingress priority filter; devices = { v1, v0 };
    /// } }`.
    const BY_NFT: &[u8] = &[
        2, 0, 0, 0, // IPv4
        6, 0, 1, 0, b't', 0, 0, 0, // table
        6, 0, 2, 0, b'f', 0, 0, 0, // name
        40, 0, 3, 0x80, // hook
        8, 0, 1, 0, 0, 0, 0, 0, // number
        8, 0, 2, 0, 0, 0, 0, 0, // priority
        20, 0, 3, 0x80, // devices
        7, 0, 1, 0, b'v', b'1', 0, 0, //
        7, 0, 1, 0, b'v', b'0', 0, 0, //
        8, 0, 7, 0, 0, 0, 0, 0, // flags
    ];

    #[test]
    fn the_message_is_that_of_nft() {
        let mut batch = Batch::new();
        batch.add_flowtable(Table::new(Family::Ipv4, "t"), "f", 0, ["v1", "v0"]).unwrap();
        let message = &batch.writer.bytes;
        assert_eq!(message.len(), 84, "the length that nft shows");
        assert_eq!(u16::from_ne_bytes([message[4], message[5]]), 2582, "the type");
        assert_eq!(&message[HEADER_LENGTH..], BY_NFT);
    }
}
