//! The encoder of rules.

mod action;
mod load;
mod test;

use crate::error::EncodeError;
use crate::netlink::AttributeWriter;

pub use action::{Nat, NatKind, Reject, SetUpdate};
pub use load::{Bitwise, FibResult, Header, Lookup, Numgen, Register};
pub use load::{CtKey, FIB_DESTINATION, FIB_SOURCE, MetaKey};
pub use test::Compare;

/// `NFTA_LIST_ELEM`, `NFTA_EXPR_NAME`, `NFTA_EXPR_DATA` (`include/uapi/linux/netfilter/nf_tables.h`).
const LIST_ELEM: u16 = 1;
const EXPR_NAME: u16 = 1;
const EXPR_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
/// `NFT_RULE_MAXEXPRS` (`net/netfilter/nf_tables_api.c`).
const MAX_EXPRESSIONS: usize = 128;
/// `NFT_USERDATA_MAXLEN`.
const USER_DATA_MAX: usize = 256;
/// `NFTNL_UDATA_RULE_COMMENT` of libnftnl.
pub(crate) const USER_DATA_COMMENT: u8 = 0;
/// Longest comment with its final zero (`NFTNL_UDATA_COMMENT_MAXLEN`).
const COMMENT_MAX: usize = 128;

/// The protocol for which the kernel checks a rule's xt matches and targets (`NFTA_RULE_COMPAT`); an xt `tcp` match
/// needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compat {
    /// The transport protocol; 0 for any.
    pub protocol: u32,
    /// Any other protocol (`NFT_RULE_COMPAT_F_INV`).
    pub inverted: bool,
}

/// Expressions in order, with what belongs to the rule as a whole. One value serves any number of rules: [`Rule::clear`]
/// keeps the memory.
///
/// Methods append and can be chained. The first mistake is kept: [`Rule::error`] returns it, and
/// [`Batch::add_rule`](crate::Batch::add_rule) refuses such a rule.
///
/// ```
/// use nf_tables::{Compare, Header, Register, Rule, Verdict};
///
/// // `ip daddr 10.96.0.10 counter jump web`
/// let mut rule = Rule::new();
/// rule.payload(Header::Network, 16, 4, Register::R1)
///     .cmp(Register::R1, Compare::Equal, &[10, 96, 0, 10])
///     .counter()
///     .verdict(Verdict::Jump("web"));
/// assert_eq!(rule.len(), 4);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Rule {
    writer: AttributeWriter,
    count: usize,
    compat: Option<Compat>,
    user_data: Vec<u8>,
}

impl Rule {
    /// A rule without expressions, which matches every packet and does nothing.
    pub fn new() -> Rule {
        Rule::default()
    }

    /// Empties the rule and keeps its allocation.
    pub fn clear(&mut self) -> &mut Rule {
        self.writer.clear();
        self.count = 0;
        self.compat = None;
        self.user_data.clear();
        self
    }

    /// How many expressions it has.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has no expressions.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The expressions as in `NFTA_RULE_EXPRESSIONS`; useless after an error.
    pub fn expressions(&self) -> &[u8] {
        &self.writer.bytes
    }

    /// The first encoding error.
    pub fn error(&self) -> Option<&EncodeError> {
        self.writer.error()
    }

    /// Appends an expression whose attributes `fill` writes.
    pub(crate) fn expression(&mut self, name: &str, fill: impl FnOnce(&mut AttributeWriter)) -> &mut Rule {
        if self.count == MAX_EXPRESSIONS {
            self.writer.fail(EncodeError::TooManyExpressions);
            return self;
        }
        self.count += 1;
        self.writer.nest(LIST_ELEM, |writer| {
            writer.name(EXPR_NAME, "expression", name);
            writer.nest(EXPR_DATA, fill);
        });
        self
    }

    /// Appends any expression, with its encoded attributes (`NFTA_EXPR_DATA`).
    pub fn raw(&mut self, name: &str, attributes: &[u8]) -> &mut Rule {
        self.expression(name, |writer| writer.bytes.extend_from_slice(attributes))
    }

    /// The protocol of the rule's xt matches and targets.
    pub fn set_compat(&mut self, compat: Compat) -> &mut Rule {
        self.compat = Some(compat);
        self
    }

    /// The protocol of the rule's xt matches and targets.
    pub fn compat(&self) -> Option<Compat> {
        self.compat
    }

    /// Stores at most 256 bytes with the rule.
    pub fn set_user_data(&mut self, bytes: &[u8]) -> &mut Rule {
        if bytes.len() > USER_DATA_MAX {
            self.fail_long("user data", bytes.len(), USER_DATA_MAX);
        }
        self.user_data.clear();
        self.user_data.extend_from_slice(bytes);
        self
    }

    /// Stores a comment of at most 127 bytes in the format of `nft`. `iptables-nft-save` prints it after all matches.
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

    /// The stored user data.
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
    writer.nest(kind, |writer| writer.put(DATA_VALUE, bytes));
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
