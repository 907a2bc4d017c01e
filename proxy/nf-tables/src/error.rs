//! What cannot be written as a message.

/// Something that does not fit into a message. Nothing was added to the batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The length of an attribute is a `u16` (`struct nlattr` in `include/uapi/linux/netlink.h`).
    #[error("attribute {kind} would have {length} bytes, and 65531 fit")]
    AttributeTooLong {
        /// Its type.
        kind: u16,
        /// Bytes of its value.
        length: usize,
    },
    /// Names have 1 to 255 bytes (`NFT_NAME_MAXLEN`) and end at the first zero.
    #[error("{name:?} is no name of a {what}: 1 to {most} bytes fit, none of them zero")]
    Name {
        /// What was named: a table, a chain, a set, an interface.
        what: &'static str,
        /// The name.
        name: String,
        /// Bytes that fit.
        most: usize,
    },
    /// Text or bytes of a fixed room, such as a comment.
    #[error("a {what} of {length} bytes is too long: {most} fit")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its bytes.
        length: usize,
        /// Bytes that fit.
        most: usize,
    },
    /// The kernel takes 128 expressions in a rule (`NFT_RULE_MAXEXPRS` in `net/netfilter/nf_tables_api.c`).
    #[error("a rule has at most 128 expressions")]
    TooManyExpressions,
    /// A value that has no meaning where it stands.
    #[error("{what}: {value}")]
    Value {
        /// What is wrong.
        what: &'static str,
        /// The value.
        value: String,
    },
    /// The number of an operation is a `u32`.
    #[error("a batch has at most {} operations", u32::MAX - 2)]
    TooManyOperations,
}
