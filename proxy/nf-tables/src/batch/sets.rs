use std::ops::BitOr;

use nix::libc;

use super::{Batch, NFT_OBJECT_COUNTER, Operation, flag};
use crate::error::EncodeError;
use crate::family::Table;
use crate::netlink::AttributeWriter;

/// `include/uapi/linux/netfilter/nf_tables.h`.
const NFTA_SET_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
const NFTA_SET_FLAGS: u16 = 3;
const NFTA_SET_KEY_TYPE: u16 = 4;
const NFTA_SET_KEY_LEN: u16 = 5;
const NFTA_SET_DATA_TYPE: u16 = 6;
const NFTA_SET_DATA_LEN: u16 = 7;
const NFTA_SET_DESC: u16 = 9;
const NFTA_SET_ID: u16 = 10;
const NFTA_SET_TIMEOUT: u16 = 11;
const NFTA_SET_USERDATA: u16 = 13;
const NFTA_SET_OBJ_TYPE: u16 = 15;
const NFTA_SET_DESC_SIZE: u16 = 1;
const NFTA_SET_DESC_CONCAT: u16 = 2;
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_SET_FIELD_LEN: u16 = 1;
const NFT_DATA_VERDICT: u32 = 0xffff_ff00;

/// `enum nft_set_flags`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetFlags(pub u32);

impl SetFlags {
    /// Elements cannot change while rules use the set.
    pub const CONSTANT: SetFlags = SetFlags(0x2);
    /// Keys are ranges.
    pub const INTERVAL: SetFlags = SetFlags(0x4);
    /// Implied by [`SetSpec::data`].
    pub const MAP: SetFlags = SetFlags(0x8);
    /// The values are objects; implied by [`SetSpec::data`].
    pub const OBJECT: SetFlags = SetFlags(0x40);
    /// Implied by [`SetSpec::timeout`].
    pub const TIMEOUT: SetFlags = SetFlags(0x10);
    /// Rules change the set.
    pub const DYNAMIC: SetFlags = SetFlags(0x20);
    /// Implied by [`SetSpec::fields`].
    pub const CONCAT: SetFlags = SetFlags(0x80);
}

impl BitOr for SetFlags {
    type Output = SetFlags;

    fn bitor(self, other: SetFlags) -> SetFlags {
        SetFlags(self.0 | other.0)
    }
}

/// A map's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapData {
    /// A value.
    Value {
        /// The type's number, for `nft` only.
        kind: u32,
        /// In bytes.
        length: u32,
    },
    /// A verdict.
    Verdict,
    /// A named counter of the table.
    Counter,
}

/// The definition of a set or map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetSpec<'a> {
    /// The name.
    pub name: &'a str,
    /// The flags, except implied ones.
    pub flags: SetFlags,
    /// The type's number for `nft`: `ipv4_addr` is 7; six bits per concatenated field.
    pub key_type: u32,
    /// In bytes; a concatenation pads each field to four.
    pub key_length: u32,
    /// The fields' unpadded lengths in a concatenation.
    pub fields: &'a [u32],
    /// `None` for sets.
    pub data: Option<MapData>,
    /// Default, in milliseconds.
    pub timeout: Option<u64>,
    /// The most elements. A size makes filling two to three times as fast.
    pub size: Option<u32>,
    /// At most 256 bytes; `nft` stores types there.
    pub user_data: &'a [u8],
}

impl Batch {
    /// Adds a set, unless it exists.
    pub fn add_set(&mut self, table: Table<'_>, set: &SetSpec<'_>) -> Result<Operation, EncodeError> {
        // The ID is unique in the batch.
        let id = self.operations + 1;
        self.operation(libc::NFT_MSG_NEWSET, flag::CREATE, table.family, |writer| {
            writer.name(NFTA_SET_TABLE, "table", table.name);
            writer.name(NFTA_SET_NAME, "set", set.name);
            describe(writer, set);
            writer.be32(NFTA_SET_ID, id);
        })
    }

    /// Deletes a set. The kernel refuses (`EBUSY`) while a rule uses the set.
    pub fn delete_set(&mut self, table: Table<'_>, set: &str) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_DELSET, 0, table.family, |writer| {
            writer.name(NFTA_SET_TABLE, "table", table.name);
            writer.name(NFTA_SET_NAME, "set", set);
        })
    }
}

fn describe(writer: &mut AttributeWriter, set: &SetSpec<'_>) {
    let follows = [
        (set.data.is_some_and(|data| data != MapData::Counter), SetFlags::MAP),
        (set.data == Some(MapData::Counter), SetFlags::OBJECT),
        (set.timeout.is_some(), SetFlags::TIMEOUT),
        (!set.fields.is_empty(), SetFlags::CONCAT),
    ];
    let flags = follows.into_iter().filter(|(yes, _)| *yes).fold(set.flags, |flags, (_, flag)| flags | flag);
    writer.be32(NFTA_SET_FLAGS, flags.0);
    writer.be32(NFTA_SET_KEY_TYPE, set.key_type);
    writer.be32(NFTA_SET_KEY_LEN, set.key_length);
    match set.data {
        Some(MapData::Value { kind, length }) => {
            writer.be32(NFTA_SET_DATA_TYPE, kind);
            writer.be32(NFTA_SET_DATA_LEN, length);
        }
        Some(MapData::Verdict) => writer.be32(NFTA_SET_DATA_TYPE, NFT_DATA_VERDICT),
        Some(MapData::Counter) => writer.be32(NFTA_SET_OBJ_TYPE, NFT_OBJECT_COUNTER),
        None => {}
    }
    if set.size.is_some() || !set.fields.is_empty() {
        writer.nest(NFTA_SET_DESC, |writer| {
            if let Some(size) = set.size {
                writer.be32(NFTA_SET_DESC_SIZE, size);
            }
            if !set.fields.is_empty() {
                writer.nest(NFTA_SET_DESC_CONCAT, |writer| {
                    for length in set.fields {
                        writer.nest(NFTA_LIST_ELEM, |writer| writer.be32(NFTA_SET_FIELD_LEN, *length));
                    }
                });
            }
        });
    }
    if let Some(timeout) = set.timeout {
        writer.be64(NFTA_SET_TIMEOUT, timeout);
    }
    if !set.user_data.is_empty() {
        writer.put(NFTA_SET_USERDATA, set.user_data);
    }
}
