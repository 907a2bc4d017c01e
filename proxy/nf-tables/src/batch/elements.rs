//! Elements of sets and maps in a batch.

use nix::libc;

use super::{Batch, Operation, flag};
use crate::error::EncodeError;
use crate::family::Table;
use crate::netlink::{AttributeWriter, NESTED};
use crate::verdict::Verdict;

/// `include/uapi/linux/netfilter/nf_tables.h`.
const LIST_TABLE: u16 = 1;
const LIST_SET: u16 = 2;
const LIST_ELEMENTS: u16 = 3;
const LIST_ELEM: u16 = 1;
const ELEM_KEY: u16 = 1;
const ELEM_DATA: u16 = 2;
const ELEM_FLAGS: u16 = 3;
const ELEM_TIMEOUT: u16 = 4;
const ELEM_USER_DATA: u16 = 6;
const ELEM_KEY_END: u16 = 10;
const DATA_VALUE: u16 = 1;
pub(crate) const INTERVAL_END: u32 = 1;
/// Closes a list at this length: an element takes a few hundred bytes, and 65,531 fit.
const LIST_BYTES: usize = 60_000;

/// The value of a map's element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Bytes, as long as the map's data.
    Data(&'a [u8]),
    /// A verdict, in a verdict map.
    Verdict(Verdict<'a>),
}

/// An element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element<'a> {
    /// As long as the set's key. The fields of a concatenation are padded to four bytes each.
    pub key: &'a [u8],
    /// The last key of a range, in sets of concatenated ranges.
    pub key_end: Option<&'a [u8]>,
    /// The key marks the end of a plain range: the first key after it.
    pub interval_end: bool,
    /// The value, in maps.
    pub value: Option<Value<'a>>,
    /// Timeout in milliseconds, in sets with timeouts.
    pub timeout: Option<u64>,
    /// At most 256 bytes.
    pub user_data: &'a [u8],
}

impl<'a> Element<'a> {
    /// An element of a set. It is also enough to delete any element.
    pub fn new(key: &'a [u8]) -> Element<'a> {
        Element { key, key_end: None, interval_end: false, value: None, timeout: None, user_data: &[] }
    }

    /// An element of a map.
    pub fn to(key: &'a [u8], value: Value<'a>) -> Element<'a> {
        Element { value: Some(value), ..Element::new(key) }
    }

    fn write(&self, writer: &mut AttributeWriter) {
        writer.nest(LIST_ELEM, |writer| {
            writer.nest(ELEM_KEY, |writer| writer.put(DATA_VALUE, self.key));
            if let Some(end) = self.key_end {
                writer.nest(ELEM_KEY_END, |writer| writer.put(DATA_VALUE, end));
            }
            match self.value {
                Some(Value::Data(data)) => writer.nest(ELEM_DATA, |writer| writer.put(DATA_VALUE, data)),
                Some(Value::Verdict(verdict)) => writer.nest(ELEM_DATA, |writer| verdict.write(writer)),
                None => {}
            }
            if self.interval_end {
                writer.be32(ELEM_FLAGS, INTERVAL_END);
            }
            if let Some(timeout) = self.timeout {
                writer.be64(ELEM_TIMEOUT, timeout);
            }
            if !self.user_data.is_empty() {
                writer.put(ELEM_USER_DATA, self.user_data);
            }
        });
    }
}

impl Batch {
    /// Adds elements, unless they exist with the same value. Returns `None` without elements.
    pub fn add_elements<'a>(
        &mut self,
        table: Table<'_>,
        set: &str,
        elements: impl IntoIterator<Item = Element<'a>>,
    ) -> Result<Option<Operation>, EncodeError> {
        self.elements(libc::NFT_MSG_NEWSETELEM, flag::CREATE, table, set, elements)
    }

    /// Deletes elements, which must exist. Returns `None` without elements.
    pub fn delete_elements<'a>(
        &mut self,
        table: Table<'_>,
        set: &str,
        elements: impl IntoIterator<Item = Element<'a>>,
    ) -> Result<Option<Operation>, EncodeError> {
        self.elements(libc::NFT_MSG_DELSETELEM, 0, table, set, elements)
    }

    /// Deletes all elements of a set or map.
    pub fn flush_set(&mut self, table: Table<'_>, set: &str) -> Result<Operation, EncodeError> {
        self.operation(libc::NFT_MSG_DELSETELEM, 0, table.family, |writer| {
            writer.name(LIST_TABLE, "table", table.name);
            writer.name(LIST_SET, "set", set);
        })
    }

    /// Adds one operation of as many messages as the elements need.
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
                    writer.name(LIST_TABLE, "table", table.name);
                    writer.name(LIST_SET, "set", set);
                    let list = writer.open(LIST_ELEMENTS | NESTED);
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
