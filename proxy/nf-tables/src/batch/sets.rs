//! Sets and maps.

use std::ops::BitOr;

use nix::libc;

use super::{Batch, Operation, flag};
use crate::error::EncodeError;
use crate::family::Table;
use crate::writer::Writer;

/// `NFTA_SET_…` (`include/uapi/linux/netfilter/nf_tables.h`).
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
/// `NFTA_SET_DESC_SIZE`, `NFTA_SET_DESC_CONCAT`, `NFTA_LIST_ELEM`, `NFTA_SET_FIELD_LEN`.
const DESCRIPTION_SIZE: u16 = 1;
const DESCRIPTION_FIELDS: u16 = 2;
const LIST_ELEM: u16 = 1;
const FIELD_LENGTH: u16 = 1;
/// `NFT_DATA_VERDICT`.
const DATA_VERDICT: u32 = 0xffff_ff00;

/// `enum nft_set_flags`; join them with `|`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetFlags(pub u32);

impl SetFlags {
    /// Elements never change once rules use it.
    pub const CONSTANT: SetFlags = SetFlags(0x2);
    /// Keys are ranges.
    pub const INTERVAL: SetFlags = SetFlags(0x4);
    /// Elements have values. [`SetSpec::data`] sets it.
    pub const MAP: SetFlags = SetFlags(0x8);
    /// Elements go after a time. [`SetSpec::timeout`] sets it.
    pub const TIMEOUT: SetFlags = SetFlags(0x10);
    /// Rules change it.
    pub const DYNAMIC: SetFlags = SetFlags(0x20);
    /// Keys are several fields. [`SetSpec::fields`] sets it.
    pub const CONCAT: SetFlags = SetFlags(0x80);
}

impl BitOr for SetFlags {
    type Output = SetFlags;

    fn bitor(self, other: SetFlags) -> SetFlags {
        SetFlags(self.0 | other.0)
    }
}

/// What the elements of a map have besides their key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapData {
    /// A value: its type for `nft`, its length in bytes.
    Value {
        /// The type, which only `nft` reads.
        kind: u32,
        /// Bytes.
        length: u32,
    },
    /// A verdict.
    Verdict,
}

/// What a set or map is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetSpec<'a> {
    /// Its name.
    pub name: &'a str,
    /// Flags, besides those that follow from the rest.
    pub flags: SetFlags,
    /// The type of the key, which only `nft` reads: `ipv4_addr` is 7; of a concatenation, six bits for each field.
    pub key_type: u32,
    /// Length of the key in bytes; of a concatenation, the sum of its fields, each padded to four.
    pub key_length: u32,
    /// The lengths of a concatenation's fields, without padding; empty for a plain key.
    pub fields: &'a [u32],
    /// What a map's elements have besides their key; `None` for a set.
    pub data: Option<MapData>,
    /// Milliseconds after which elements go, unless they have a time of their own.
    pub timeout: Option<u64>,
    /// At most so many elements. The kernel makes room for them at once, which makes filling it two to three times as fast.
    pub size: Option<u32>,
    /// At most 256 bytes that the kernel keeps with it; `nft` keeps the declared types there.
    pub user_data: &'a [u8],
}

impl Batch {
    /// A set or map, unless it is there already.
    ///
    /// # Errors
    /// Where a name is none.
    pub fn add_set(&mut self, table: Table<'_>, set: &SetSpec<'_>) -> Result<Operation, EncodeError> {
        // The kernel asks for a number of each set that is unique within the batch.
        let id = self.operations + 1;
        self.operation(libc::NFT_MSG_NEWSET, flag::CREATE, table.family, |writer| {
            writer.name(SET_TABLE, "table", table.name);
            writer.name(SET_NAME, "set", set.name);
            describe(writer, set);
            writer.be32(SET_ID, id);
        })
    }

    /// Deletes a set or map with its elements. The kernel refuses (`EBUSY`) while a rule looks into it.
    ///
    /// # Errors
    /// Where a name is none.
    pub fn delete_set(&mut self, table: Table<'_>, set: &str) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_DELSET, 0, table.family, |writer| {
            writer.name(SET_TABLE, "table", table.name);
            writer.name(SET_NAME, "set", set);
        })
    }
}

fn describe(writer: &mut Writer, set: &SetSpec<'_>) {
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
