//! The netlink codec: messages and attributes, written into one buffer and read in place.
//!
//! It serves every netlink protocol, not only nf_tables (`Documentation/userspace-api/netlink/intro.rst`). Readers
//! neither panic nor allocate, whatever the bytes.

mod attributes;
mod message;
mod writer;

pub(crate) use attributes::text;
pub use attributes::{Attribute, Attributes};
pub use message::{HEADER_LENGTH, Message, MessageContent, Messages, header, patch_length};
pub(crate) use writer::NESTED;
pub use writer::{AttributeWriter, NET_BYTE_ORDER, OpenAttribute};
