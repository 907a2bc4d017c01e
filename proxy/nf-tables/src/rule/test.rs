//! Expressions that compare registers.

use super::load::Register;
use super::{Rule, value};
use crate::xt::XtExtension;

/// `enum nft_cmp_ops`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum CmpOp {
    /// Equal.
    Equal = 0,
    /// Not equal.
    NotEqual = 1,
    /// Less.
    Less = 2,
    /// Less or equal.
    LessOrEqual = 3,
    /// Greater.
    Greater = 4,
    /// Greater or equal.
    GreaterOrEqual = 5,
}

impl CmpOp {
    /// `Equal` or `NotEqual`.
    pub fn equal(equal: bool) -> CmpOp {
        if equal { CmpOp::Equal } else { CmpOp::NotEqual }
    }
}

/// Attribute types: `include/uapi/linux/netfilter/nf_tables.h`.
impl Rule {
    /// Compares with a constant (`enum nft_cmp_attributes`).
    pub fn cmp(&mut self, register: Register, compare: CmpOp, with: &[u8]) -> &mut Rule {
        self.expression("cmp", |writer| {
            writer.be32(1, register.0);
            writer.be32(2, compare as u32);
            value(writer, 3, with);
        })
    }

    /// Matches inside an inclusive range; `inverted`: outside (`enum nft_range_attributes`).
    pub fn range(&mut self, register: Register, from: &[u8], to: &[u8], inverted: bool) -> &mut Rule {
        self.expression("range", |writer| {
            writer.be32(1, register.0);
            writer.be32(2, u32::from(inverted));
            value(writer, 3, from);
            value(writer, 4, to);
        })
    }

    /// `enum nft_match_attributes` (`include/uapi/linux/netfilter/nf_tables_compat.h`).
    pub fn xt_match<const N: usize>(&mut self, extension: &XtExtension<N>) -> &mut Rule {
        self.extension("match", extension.name, extension.revision, &extension.info)
    }

    /// `enum nft_target_attributes` (`include/uapi/linux/netfilter/nf_tables_compat.h`).
    pub fn xt_target<const N: usize>(&mut self, extension: &XtExtension<N>) -> &mut Rule {
        self.extension("target", extension.name, extension.revision, &extension.info)
    }

    /// Appends an extension; `info` has a multiple of eight bytes (`XT_ALIGN`).
    pub(crate) fn extension(&mut self, kind: &str, name: &str, revision: u32, info: &[u8]) -> &mut Rule {
        self.expression(kind, |writer| {
            writer.name(1, "xt extension", name);
            writer.be32(2, revision);
            writer.put(3, info);
        })
    }
}
