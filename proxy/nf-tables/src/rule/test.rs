//! Expressions that end the rule where a register does not hold what is asked for.

use super::load::Register;
use super::{Rule, value};
use crate::xt::Extension;

/// How values are compared, byte by byte from the first (`enum nft_cmp_ops`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Compare {
    /// The same.
    Equal = 0,
    /// Not the same.
    NotEqual = 1,
    /// Below.
    Less = 2,
    /// Below or the same.
    LessOrEqual = 3,
    /// Above.
    Greater = 4,
    /// Above or the same.
    GreaterOrEqual = 5,
}

impl Compare {
    /// Equal, or not.
    pub fn equal(equal: bool) -> Compare {
        if equal { Compare::Equal } else { Compare::NotEqual }
    }
}

/// Attribute types are those of the enumerations named, in `include/uapi/linux/netfilter/nf_tables.h`.
impl Rule {
    /// Compares a register with a value (`enum nft_cmp_attributes`).
    pub fn cmp(&mut self, register: Register, compare: Compare, with: &[u8]) -> &mut Rule {
        self.expression("cmp", |writer| {
            writer.be32(1, register.0);
            writer.be32(2, compare as u32);
            value(writer, 3, with);
        })
    }

    /// Whether a register's value lies between two others, both included, or (`inverted`) not (`enum nft_range_attributes`).
    pub fn range(&mut self, register: Register, from: &[u8], to: &[u8], inverted: bool) -> &mut Rule {
        self.expression("range", |writer| {
            writer.be32(1, register.0);
            writer.be32(2, u32::from(inverted));
            value(writer, 3, from);
            value(writer, 4, to);
        })
    }

    /// An xt match (`enum nft_match_attributes` in `include/uapi/linux/netfilter/nf_tables_compat.h`).
    pub fn xt_match<const N: usize>(&mut self, extension: &Extension<N>) -> &mut Rule {
        self.extension("match", extension.name, extension.revision, &extension.info)
    }

    /// An xt target (`enum nft_target_attributes` in `include/uapi/linux/netfilter/nf_tables_compat.h`).
    pub fn xt_target<const N: usize>(&mut self, extension: &Extension<N>) -> &mut Rule {
        self.extension("target", extension.name, extension.revision, &extension.info)
    }

    /// As [`Rule::xt_match`] (`match`) or [`Rule::xt_target`] (`target`), of any length: a multiple of eight (`XT_ALIGN`).
    pub(crate) fn extension(&mut self, kind: &str, name: &str, revision: u32, info: &[u8]) -> &mut Rule {
        self.expression(kind, |writer| {
            writer.name(1, "xt extension", name);
            writer.be32(2, revision);
            writer.put(3, info);
        })
    }
}
