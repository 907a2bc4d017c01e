//! Verdicts of rules and of elements in verdict maps.

use crate::netlink::{AttributeWriter, Attributes};

/// `NFTA_DATA_VERDICT`, `NFTA_VERDICT_CODE`, `NFTA_VERDICT_CHAIN` (`include/uapi/linux/netfilter/nf_tables.h`).
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;
/// `NFT_CONTINUE`, `NFT_JUMP`, `NFT_GOTO`, `NFT_RETURN`; `NF_DROP` is 0 and `NF_ACCEPT` is 1.
const CONTINUE: i32 = -1;
const JUMP: i32 = -3;
const GOTO: i32 = -4;
const RETURN: i32 = -5;

/// A verdict. Chains are those of the same table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict<'a> {
    /// The packet continues to the next hook.
    Accept,
    /// Drops the packet.
    Drop,
    /// Continues with the next rule.
    Continue,
    /// Returns to the calling chain; in a base chain, applies its policy.
    Return,
    /// Calls the chain, which returns to the next rule.
    Jump(&'a str),
    /// Continues in the chain, which returns to the caller of this chain.
    Goto(&'a str),
}

impl<'a> Verdict<'a> {
    /// Writes `NFTA_DATA_VERDICT` into an open data attribute.
    pub(crate) fn write(self, writer: &mut AttributeWriter) {
        let (code, chain) = match self {
            Verdict::Drop => (0, None),
            Verdict::Accept => (1, None),
            Verdict::Continue => (CONTINUE, None),
            Verdict::Return => (RETURN, None),
            Verdict::Jump(chain) => (JUMP, Some(chain)),
            Verdict::Goto(chain) => (GOTO, Some(chain)),
        };
        writer.nest(DATA_VERDICT, |writer| {
            writer.put(VERDICT_CODE, &code.to_be_bytes());
            if let Some(chain) = chain {
                writer.name(VERDICT_CHAIN, "chain", chain);
            }
        });
    }

    /// Reads a data attribute; `None` for anything but a known verdict.
    pub(crate) fn read(data: Attributes<'a>) -> Option<Verdict<'a>> {
        let verdict = data.nested(DATA_VERDICT);
        let code = verdict.be32(VERDICT_CODE)?.cast_signed();
        let chain = verdict.text(VERDICT_CHAIN);
        match code {
            0 => Some(Verdict::Drop),
            1 => Some(Verdict::Accept),
            CONTINUE => Some(Verdict::Continue),
            RETURN => Some(Verdict::Return),
            JUMP => chain.map(Verdict::Jump),
            GOTO => chain.map(Verdict::Goto),
            _ => None,
        }
    }
}
