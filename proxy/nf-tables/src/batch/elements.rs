use nix::libc;

use super::{Batch, Operation, flag};
use crate::error::EncodeError;
use crate::family::Table;
use crate::netlink::{AttributeWriter, NESTED};
use crate::verdict::NfVerdict;

/// `include/uapi/linux/netfilter/nf_tables.h`.
const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
const NFTA_SET_ELEM_LIST_SET: u16 = 2;
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_SET_ELEM_DATA: u16 = 2;
const NFTA_SET_ELEM_FLAGS: u16 = 3;
const NFTA_SET_ELEM_TIMEOUT: u16 = 4;
const NFTA_SET_ELEM_USERDATA: u16 = 6;
const NFTA_SET_ELEM_OBJREF: u16 = 9;
const NFTA_SET_ELEM_KEY_END: u16 = 10;
const NFTA_DATA_VALUE: u16 = 1;
pub(crate) const NFT_SET_ELEM_INTERVAL_END: u32 = 1;
/// An element takes a few hundred bytes, and 65,531 fit into a list.
const LIST_BYTES: usize = 60_000;

/// A map's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementValue<'a> {
    /// Bytes, as many as the map's data has.
    Data(&'a [u8]),
    /// A verdict map's value.
    Verdict(NfVerdict<'a>),
    /// The name of a counter, which several elements may share.
    Counter(&'a str),
}

/// An element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element<'a> {
    /// A concatenation pads each field to four bytes.
    pub key: &'a [u8],
    /// A range's last key, in sets of concatenated ranges.
    pub key_end: Option<&'a [u8]>,
    /// Whether the key is the first after a plain range.
    pub interval_end: bool,
    /// The value, in maps.
    pub value: Option<ElementValue<'a>>,
    /// In milliseconds, in sets with timeouts.
    pub timeout: Option<u64>,
    /// At most 256 bytes.
    pub user_data: &'a [u8],
}

impl<'a> Element<'a> {
    /// Returns an element for a set or a deletion.
    pub fn new(key: &'a [u8]) -> Element<'a> {
        Element { key, key_end: None, interval_end: false, value: None, timeout: None, user_data: &[] }
    }

    /// Returns an element for a map.
    pub fn to(key: &'a [u8], value: ElementValue<'a>) -> Element<'a> {
        Element { value: Some(value), ..Element::new(key) }
    }

    fn write(&self, writer: &mut AttributeWriter) {
        writer.nest(NFTA_LIST_ELEM, |writer| {
            writer.nest(NFTA_SET_ELEM_KEY, |writer| writer.put(NFTA_DATA_VALUE, self.key));
            if let Some(end) = self.key_end {
                writer.nest(NFTA_SET_ELEM_KEY_END, |writer| writer.put(NFTA_DATA_VALUE, end));
            }
            match self.value {
                Some(ElementValue::Data(data)) => {
                    writer.nest(NFTA_SET_ELEM_DATA, |writer| writer.put(NFTA_DATA_VALUE, data))
                }
                Some(ElementValue::Verdict(verdict)) => writer.nest(NFTA_SET_ELEM_DATA, |writer| verdict.write(writer)),
                Some(ElementValue::Counter(name)) => writer.name(NFTA_SET_ELEM_OBJREF, "counter", name),
                None => {}
            }
            if self.interval_end {
                writer.be32(NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_INTERVAL_END);
            }
            if let Some(timeout) = self.timeout {
                writer.be64(NFTA_SET_ELEM_TIMEOUT, timeout);
            }
            if !self.user_data.is_empty() {
                writer.put(NFTA_SET_ELEM_USERDATA, self.user_data);
            }
        });
    }
}

impl Batch {
    /// Adds elements, unless they exist with the same value.
    pub fn add_elements<'a>(
        &mut self,
        table: Table<'_>,
        set: &str,
        elements: impl IntoIterator<Item = Element<'a>>,
    ) -> Result<Option<Operation>, EncodeError> {
        self.elements(libc::NFT_MSG_NEWSETELEM, flag::CREATE, table, set, elements)
    }

    /// Deletes elements, which must exist.
    pub fn delete_elements<'a>(
        &mut self,
        table: Table<'_>,
        set: &str,
        elements: impl IntoIterator<Item = Element<'a>>,
    ) -> Result<Option<Operation>, EncodeError> {
        self.elements(libc::NFT_MSG_DELSETELEM, 0, table, set, elements)
    }

    /// Deletes all elements.
    pub fn flush_set(&mut self, table: Table<'_>, set: &str) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_DELSETELEM, 0, table.family, |writer| {
            writer.name(NFTA_SET_ELEM_LIST_TABLE, "table", table.name);
            writer.name(NFTA_SET_ELEM_LIST_SET, "set", set);
        })
    }

    fn elements<'a>(
        &mut self,
        kind: libc::c_int,
        flags: u16,
        table: Table<'_>,
        set: &str,
        elements: impl IntoIterator<Item = Element<'a>>,
    ) -> Result<Option<Operation>, EncodeError> {
        let mut elements = elements.into_iter().peekable();
        if elements.peek().is_none() {
            return Ok(None);
        }
        let operation = self.operation_of(|batch| {
            while elements.peek().is_some() {
                batch.message(kind, flags, table.family, |writer| {
                    writer.name(NFTA_SET_ELEM_LIST_TABLE, "table", table.name);
                    writer.name(NFTA_SET_ELEM_LIST_SET, "set", set);
                    let list = writer.open(NFTA_SET_ELEM_LIST_ELEMENTS | NESTED);
                    let begin = writer.bytes.len();
                    while let Some(element) = elements.next_if(|_| writer.bytes.len() - begin < LIST_BYTES) {
                        element.write(writer);
                    }
                    writer.close(list);
                });
            }
        })?;
        Ok(Some(operation))
    }
}
