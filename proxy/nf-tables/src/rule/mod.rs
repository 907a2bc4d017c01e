//! The encoder of rules.

mod action;
mod load;
mod test;

use crate::error::EncodeError;
use crate::netlink::AttributeWriter;

pub use action::{Nat, NatKind, Reject, SetUpdate};
pub use load::{Bitwise, FibResult, Jhash, Lookup, Numgen, PayloadBase, Register};
pub use load::{CtDirection, CtKey, FIB_DESTINATION, FIB_SOURCE, MetaKey};
pub use test::CmpOp;

/// `include/uapi/linux/netfilter/nf_tables.h`.
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
/// `net/netfilter/nf_tables_api.c`.
const NFT_RULE_MAXEXPRS: usize = 128;
const NFT_USERDATA_MAXLEN: usize = 256;
/// `NFTNL_UDATA_RULE_COMMENT` of libnftnl.
pub(crate) const USER_DATA_COMMENT: u8 = 0;
/// `NFTNL_UDATA_COMMENT_MAXLEN`.
const COMMENT_MAX: usize = 128;

/// `NFTA_RULE_COMPAT`: for the kernel's checks of xt matches and targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XtCompat {
    /// The protocol; 0 for any.
    pub protocol: u32,
    /// `NFT_RULE_COMPAT_F_INV`.
    pub inverted: bool,
}

/// The expressions, comment and protocol of one rule. [`Rule::clear`] keeps the allocation for the next rule.
///
/// Methods append and can be chained. [`Rule::error`] returns the first error, and
/// [`Batch::add_rule`](crate::Batch::add_rule) rejects a rule that has one.
///
/// ```
/// use nf_tables::{CmpOp, NfVerdict, PayloadBase, Register, Rule};
///
/// // `ip daddr 10.96.0.10 counter jump web`
/// let mut rule = Rule::new();
/// rule.payload(PayloadBase::Network, 16, 4, Register::R1)
///     .cmp(Register::R1, CmpOp::Equal, &[10, 96, 0, 10])
///     .counter()
///     .verdict(NfVerdict::Jump("web"));
/// assert_eq!(rule.len(), 4);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Rule {
    writer: AttributeWriter,
    count: usize,
    compat: Option<XtCompat>,
    user_data: Vec<u8>,
}

impl Rule {
    /// Returns a rule that matches every packet.
    pub fn new() -> Rule {
        Rule::default()
    }

    /// Removes all expressions; keeps the allocation.
    pub fn clear(&mut self) -> &mut Rule {
        self.writer.clear();
        self.count = 0;
        self.compat = None;
        self.user_data.clear();
        self
    }

    /// Number of expressions.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the rule has no expressions.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the bytes for `NFTA_RULE_EXPRESSIONS`.
    pub fn expressions(&self) -> &[u8] {
        &self.writer.bytes
    }

    /// First encoding error.
    pub fn error(&self) -> Option<&EncodeError> {
        self.writer.error()
    }

    pub(crate) fn expression(&mut self, name: &str, fill: impl FnOnce(&mut AttributeWriter)) -> &mut Rule {
        if self.count == NFT_RULE_MAXEXPRS {
            self.writer.fail(EncodeError::TooManyExpressions);
            return self;
        }
        self.count += 1;
        self.writer.nest(NFTA_LIST_ELEM, |writer| {
            writer.name(NFTA_EXPR_NAME, "expression", name);
            writer.nest(NFTA_EXPR_DATA, fill);
        });
        self
    }

    /// Appends an expression with encoded attributes.
    pub fn raw(&mut self, name: &str, attributes: &[u8]) -> &mut Rule {
        self.expression(name, |writer| writer.bytes.extend_from_slice(attributes))
    }

    /// Sets the protocol for xt extensions.
    pub fn set_compat(&mut self, compat: XtCompat) -> &mut Rule {
        self.compat = Some(compat);
        self
    }

    /// Returns the protocol for xt extensions.
    pub fn compat(&self) -> Option<XtCompat> {
        self.compat
    }

    /// Sets at most 256 bytes.
    pub fn set_user_data(&mut self, bytes: &[u8]) -> &mut Rule {
        if bytes.len() > NFT_USERDATA_MAXLEN {
            self.fail_long("user data", bytes.len(), NFT_USERDATA_MAXLEN);
        }
        self.user_data.clear();
        self.user_data.extend_from_slice(bytes);
        self
    }

    /// Sets a comment of at most 127 bytes, as `nft` does.
    pub fn set_comment(&mut self, text: &str) -> &mut Rule {
        self.user_data.clear();
        match u8::try_from(text.len() + 1) {
            Ok(length) if usize::from(length) <= COMMENT_MAX => {
                self.user_data.extend_from_slice(&[USER_DATA_COMMENT, length]);
                self.user_data.extend_from_slice(text.as_bytes());
                self.user_data.push(0);
            }
            _ => self.fail_long("comment in user data", text.len(), COMMENT_MAX - 1),
        }
        self
    }

    /// User data.
    pub fn user_data(&self) -> &[u8] {
        &self.user_data
    }

    pub(crate) fn fail(&mut self, error: EncodeError) {
        self.writer.fail(error);
    }

    fn fail_long(&mut self, what: &'static str, length: usize, most: usize) {
        self.writer.fail(EncodeError::TooLong { what, length, most });
    }
}

fn value(writer: &mut AttributeWriter, kind: u16, bytes: &[u8]) {
    writer.nest(kind, |writer| writer.put(NFTA_DATA_VALUE, bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_at_most_128_expressions() {
        let mut rule = Rule::new();
        for _ in 0..128 {
            rule.counter();
        }
        assert_eq!((rule.len(), rule.error()), (128, None));
        rule.counter();
        assert_eq!(rule.error(), Some(&EncodeError::TooManyExpressions));
        assert_eq!(rule.clear().error(), None);
    }

    #[test]
    fn user_data_is_bounded() {
        let mut rule = Rule::new();
        assert_eq!(rule.set_comment("web").user_data(), [0, 4, b'w', b'e', b'b', 0]);
        assert_eq!(rule.set_comment(&"x".repeat(127)).error(), None);
        let too_long = EncodeError::TooLong { what: "comment in user data", length: 128, most: 127 };
        assert_eq!(rule.set_comment(&"x".repeat(128)).error(), Some(&too_long));
        let too_long = EncodeError::TooLong { what: "user data", length: 257, most: 256 };
        assert_eq!(rule.clear().set_user_data(&[0; 257]).error(), Some(&too_long));
    }
}
