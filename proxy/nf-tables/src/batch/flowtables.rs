//! Flowtables: fast paths for established connections, from the ingress hook of a link.

use nix::libc;

use super::{Batch, Operation, flag};
use crate::error::EncodeError;
use crate::family::Table;

/// `NFT_MSG_NEWFLOWTABLE` (`include/uapi/linux/netfilter/nf_tables.h`).
pub(super) const NEW_FLOWTABLE: libc::c_int = 22;
const TABLE: u16 = 1;
const NAME: u16 = 2;
const HOOK: u16 = 3;
const FLAGS: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_DEVICES: u16 = 3;
const DEVICE_NAME: u16 = 1;
/// `NF_NETDEV_INGRESS` (`include/uapi/linux/netfilter.h`), the only hook of flowtables.
const INGRESS: u32 = 0;

impl Batch {
    /// Adds a flowtable on the ingress hook of at most 256 links. An existing one must have the same priority, and gets
    /// the links that it lacks. The kernel refuses (`ENOENT`) unknown links, and removes a link that disappears.
    pub fn add_flowtable<'a>(
        &mut self,
        table: Table<'_>,
        flowtable: &str,
        priority: i32,
        links: impl IntoIterator<Item = &'a str>,
    ) -> Result<Operation, EncodeError> {
        self.operation(NEW_FLOWTABLE, flag::CREATE, table.family, |writer| {
            writer.name(TABLE, "table", table.name);
            writer.name(NAME, "flowtable", flowtable);
            writer.nest(HOOK, |writer| {
                writer.be32(HOOK_NUMBER, INGRESS);
                writer.put(HOOK_PRIORITY, &priority.to_be_bytes());
                writer.nest(HOOK_DEVICES, |writer| {
                    links.into_iter().for_each(|link| writer.name(DEVICE_NAME, "link", link));
                });
            });
            writer.be32(FLAGS, 0);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use crate::netlink::HEADER_LENGTH;

    /// From `nfgenmsg` on, what `nft --debug=mnl` 1.0.6 shows for `table ip t { flowtable f { hook ingress priority
    /// filter; devices = { v1, v0 }; } }`.
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
