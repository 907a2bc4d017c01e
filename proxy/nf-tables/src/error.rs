//! Encoding errors.

/// An error that leaves the batch unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The length exceeds a `u16` (`struct nlattr`).
    #[error("attribute {kind} would have {length} bytes, and 65531 fit")]
    AttributeTooLong {
        /// The type.
        kind: u16,
        /// In bytes.
        length: usize,
    },
    /// Names have 1 to 255 bytes, none of them zero.
    #[error("{name:?} is no name of a {what}: 1 to {most} bytes fit, none of them zero")]
    Name {
        /// The object.
        what: &'static str,
        /// The name.
        name: String,
        /// In bytes.
        most: usize,
    },
    /// The text is too long.
    #[error("a {what} of {length} bytes is too long: {most} fit")]
    TooLong {
        /// The object.
        what: &'static str,
        /// In bytes.
        length: usize,
        /// In bytes.
        most: usize,
    },
    /// `NFT_RULE_MAXEXPRS` (`net/netfilter/nf_tables_api.c`).
    #[error("a rule has at most 128 expressions")]
    TooManyExpressions,
    /// An invalid value.
    #[error("{what}: {value}")]
    Value {
        /// The problem.
        what: &'static str,
        /// The value.
        value: String,
    },
    /// The number of an operation is a `u32`.
    #[error("a batch has at most {} operations", u32::MAX - 2)]
    TooManyOperations,
}
