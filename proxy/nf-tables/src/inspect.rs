//! Readers of rules.

use crate::netlink::{Attribute, Attributes, text};
use crate::verdict::NfVerdict;

/// One expression.
#[derive(Debug, Clone, Copy)]
pub struct Expression<'a> {
    /// Such as `cmp`.
    pub name: &'a str,
    /// Types are in `include/uapi/linux/netfilter/nf_tables.h`.
    pub attributes: Attributes<'a>,
}

impl<'a> Expression<'a> {
    /// `NFTA_EXPR_NAME`, `NFTA_EXPR_DATA`.
    fn read(element: Attribute<'a>) -> Expression<'a> {
        let attributes = Attributes::new(element.value);
        Expression { name: attributes.text(1).unwrap_or_default(), attributes: attributes.nested(2) }
    }
}

/// Reads expressions of `NFTA_RULE_EXPRESSIONS`, up to a truncated one.
pub fn expressions(bytes: &[u8]) -> impl Iterator<Item = Expression<'_>> + Clone {
    Attributes::new(bytes).map(Expression::read)
}

/// A counter's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// The packets' bytes.
    pub bytes: u64,
}

/// Returns the rule's first counter.
pub fn counter(rule: &[u8]) -> Option<Counter> {
    let counter = expressions(rule).find(|expression| expression.name == "counter")?.attributes;
    // `NFTA_COUNTER_PACKETS`, `NFTA_COUNTER_BYTES`.
    Some(Counter { packets: counter.be64(2)?, bytes: counter.be64(1)? })
}

/// Returns the rule's verdict.
pub fn verdict(rule: &[u8]) -> Option<NfVerdict<'_>> {
    // `NFTA_IMMEDIATE_DREG` (verdict register), `NFTA_IMMEDIATE_DATA`.
    let immediate =
        |expression: Expression<'_>| expression.name == "immediate" && expression.attributes.be32(1) == Some(0);
    let found = expressions(rule).find(|expression| immediate(*expression))?;
    NfVerdict::read(found.attributes.nested(2))
}

/// Returns the target's name and data.
pub fn xt_target(rule: &[u8]) -> Option<(&str, &[u8])> {
    let target = expressions(rule).find(|expression| expression.name == "target")?.attributes;
    // `NFTA_TARGET_NAME`, `NFTA_TARGET_INFO`.
    Some((target.text(1)?, target.get(3)?))
}

/// Returns the first comment match's text.
pub fn xt_comment(rule: &[u8]) -> Option<&str> {
    // `NFTA_MATCH_NAME`, `NFTA_MATCH_INFO`.
    let comment =
        |expression: &Expression<'_>| expression.name == "match" && expression.attributes.text(1) == Some("comment");
    text(expressions(rule).find(comment)?.attributes.get(3)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use crate::iptables::{RuleBuilder, RuleHeader};
    use crate::rule::Rule;
    use proptest::prelude::*;

    #[test]
    fn a_rule_is_read_as_it_was_written() {
        let mut rule = Rule::new();
        RuleBuilder::new(&mut rule, Family::Ipv4, &RuleHeader::default())
            .one_in(2)
            .comment("default/web:http")
            .jump("WEB");
        let bytes = rule.expressions();
        let names: Vec<&str> = expressions(bytes).map(|expression| expression.name).collect();
        assert_eq!(names, ["match", "match", "counter", "immediate"]);
        assert_eq!((xt_comment(bytes), verdict(bytes)), (Some("default/web:http"), Some(NfVerdict::Jump("WEB"))));
        assert_eq!((counter(bytes), xt_target(bytes)), (Some(Counter::default()), None));

        rule.clear();
        RuleBuilder::new(&mut rule, Family::Ipv4, &RuleHeader::default()).set_xmark(0x4000, 0x4000);
        let info = [0x4000u32.to_ne_bytes(), 0x4000u32.to_ne_bytes()].concat();
        assert_eq!(xt_target(rule.expressions()), Some(("MARK", &info[..])));
        assert_eq!((verdict(rule.expressions()), xt_comment(rule.expressions())), (None, None));
        assert_eq!(counter(rule.clear().counter_from(3, 180).expressions()), Some(Counter { packets: 3, bytes: 180 }));
        // An immediate value is not a verdict.
        rule.clear().immediate(&[0; 4], crate::Register::R1).verdict(NfVerdict::Drop);
        assert_eq!(verdict(rule.expressions()), Some(NfVerdict::Drop));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (counter(&bytes), verdict(&bytes), xt_target(&bytes), xt_comment(&bytes));
        }
    }
}
