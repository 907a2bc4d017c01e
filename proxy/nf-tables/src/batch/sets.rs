//! Sets and maps in a batch.

use std::ops::BitOr;

use nix::libc;

use super::{Batch, Operation, flag};
use crate::error::EncodeError;
use crate::family::Table;
use crate::netlink::AttributeWriter;

/// `include/uapi/linux/netfilter/nf_tables.h`.
const SET_TABLE: u16 = 1;
const SET_NAME: u16 = 2;
const SET_FLAGS: u16 = 3;
const SET_KEY_TYPE: u16 = 4;
const SET_KEY_LENGTH: u16 = 5;
const SET_DATA_TYPE: u16 = 6;
const SET_DATA_LENGTH: u16 = 7;
const SET_DESCRIPTION: u16 = 9;
const SET_ID: u16 = 10;
const SET_TIMEOUT: u16 = 11;
const SET_USER_DATA: u16 = 13;
const DESCRIPTION_SIZE: u16 = 1;
const DESCRIPTION_FIELDS: u16 = 2;
const LIST_ELEM: u16 = 1;
const FIELD_LENGTH: u16 = 1;
const DATA_VERDICT: u32 = 0xffff_ff00;

/// `enum nft_set_flags`; combine them with `|`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetFlags(pub u32);

impl SetFlags {
    /// Rules that use the set fix its elements.
    pub const CONSTANT: SetFlags = SetFlags(0x2);
    /// Keys are ranges.
    pub const INTERVAL: SetFlags = SetFlags(0x4);
    /// Elements have values. [`SetSpec::data`] sets it.
    pub const MAP: SetFlags = SetFlags(0x8);
    /// Elements expire. [`SetSpec::timeout`] sets it.
    pub const TIMEOUT: SetFlags = SetFlags(0x10);
    /// Rules change the set.
    pub const DYNAMIC: SetFlags = SetFlags(0x20);
    /// Keys are concatenations. [`SetSpec::fields`] sets it.
    pub const CONCAT: SetFlags = SetFlags(0x80);
}

impl BitOr for SetFlags {
    type Output = SetFlags;

    fn bitor(self, other: SetFlags) -> SetFlags {
        SetFlags(self.0 | other.0)
    }
}

/// The values of a map's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapData {
    /// A value.
    Value {
        /// The type for `nft`; the kernel ignores it.
        kind: u32,
        /// The length in bytes.
        length: u32,
    },
    /// A verdict.
    Verdict,
}

/// The definition of a set or map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetSpec<'a> {
    /// Its name.
    pub name: &'a str,
    /// Flags, in addition to those that follow from other fields.
    pub flags: SetFlags,
    /// The key type for `nft`, which the kernel ignores: `ipv4_addr` is 7; a concatenation has six bits for each field.
    pub key_type: u32,
    /// Bytes of the key. The fields of a concatenation are padded to four bytes each.
    pub key_length: u32,
    /// Lengths of a concatenation's fields, without padding; empty for a plain key.
    pub fields: &'a [u32],
    /// The values; `None` for a set.
    pub data: Option<MapData>,
    /// Default timeout of the elements in milliseconds.
    pub timeout: Option<u64>,
    /// Most elements. The kernel allocates them at once, which makes filling two to three times as fast.
    pub size: Option<u32>,
    /// At most 256 bytes; `nft` stores the declared types there.
    pub user_data: &'a [u8],
}

impl Batch {
    /// Adds a set or map, unless it exists.
    pub fn add_set(&mut self, table: Table<'_>, set: &SetSpec<'_>) -> Result<Operation, EncodeError> {
        // The kernel demands a number for each set that is unique in the batch.
        let id = self.operations + 1;
        self.operation(libc::NFT_MSG_NEWSET, flag::CREATE, table.family, |writer| {
            writer.name(SET_TABLE, "table", table.name);
            writer.name(SET_NAME, "set", set.name);
            describe(writer, set);
            writer.be32(SET_ID, id);
        })
    }

    /// Deletes a set or map with its elements. The kernel refuses (`EBUSY`) while a rule uses it.
    pub fn delete_set(&mut self, table: Table<'_>, set: &str) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_DELSET, 0, table.family, |writer| {
            writer.name(SET_TABLE, "table", table.name);
            writer.name(SET_NAME, "set", set);
        })
    }
}

fn describe(writer: &mut AttributeWriter, set: &SetSpec<'_>) {
    let follows = [
        (set.data.is_some(), SetFlags::MAP),
        (set.timeout.is_some(), SetFlags::TIMEOUT),
        (!set.fields.is_empty(), SetFlags::CONCAT),
    ];
    let flags = follows.into_iter().filter(|(yes, _)| *yes).fold(set.flags, |flags, (_, flag)| flags | flag);
    writer.be32(SET_FLAGS, flags.0);
    writer.be32(SET_KEY_TYPE, set.key_type);
    writer.be32(SET_KEY_LENGTH, set.key_length);
    match set.data {
        Some(MapData::Value { kind, length }) => {
            writer.be32(SET_DATA_TYPE, kind);
            writer.be32(SET_DATA_LENGTH, length);
        }
        Some(MapData::Verdict) => writer.be32(SET_DATA_TYPE, DATA_VERDICT),
        None => {}
    }
    if set.size.is_some() || !set.fields.is_empty() {
        writer.nest(SET_DESCRIPTION, |writer| {
            if let Some(size) = set.size {
                writer.be32(DESCRIPTION_SIZE, size);
            }
            if !set.fields.is_empty() {
                writer.nest(DESCRIPTION_FIELDS, |writer| {
                    for length in set.fields {
                        writer.nest(LIST_ELEM, |writer| writer.be32(FIELD_LENGTH, *length));
                    }
                });
            }
        });
    }
    if let Some(timeout) = set.timeout {
        writer.be64(SET_TIMEOUT, timeout);
    }
    if !set.user_data.is_empty() {
        writer.put(SET_USER_DATA, set.user_data);
    }
}
