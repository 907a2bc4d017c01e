//! The netlink codec: writes into one buffer, reads in place.
//!
//! Supports every netlink protocol (`Documentation/userspace-api/netlink/intro.rst`). Readers neither panic nor
//! allocate, whatever the bytes.

mod attributes;
mod message;
mod writer;

pub(crate) use attributes::text;
pub use attributes::{Attribute, Attributes};
pub use message::{HEADER_LENGTH, Message, MessageContent, Messages, header, patch_length};
pub(crate) use writer::NESTED;
pub use writer::{AttributeWriter, NET_BYTE_ORDER, OpenAttribute};
