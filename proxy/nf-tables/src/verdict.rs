//! What a rule, or an element of a verdict map, decides.

use crate::attributes::Attributes;
use crate::writer::Writer;

/// `NFTA_DATA_VERDICT`, `NFTA_VERDICT_CODE`, `NFTA_VERDICT_CHAIN` (`include/uapi/linux/netfilter/nf_tables.h`).
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;
/// `NFT_CONTINUE`, `NFT_JUMP`, `NFT_GOTO`, `NFT_RETURN`; `NF_DROP` is 0 and `NF_ACCEPT` is 1.
const CONTINUE: i32 = -1;
const JUMP: i32 = -3;
const GOTO: i32 = -4;
const RETURN: i32 = -5;

/// A decision. The name of a chain is that of one in the same table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict<'a> {
    /// The packet goes on to the next hook.
    Accept,
    /// The packet is dropped.
    Drop,
    /// The next rule is looked at.
    Continue,
    /// Back to the chain that jumped here; in a base chain, its policy.
    Return,
    /// To the chain, and back to the next rule from there.
    Jump(&'a str),
    /// To the chain; a return from there goes to where this chain was jumped to from.
    Goto(&'a str),
}

impl<'a> Verdict<'a> {
    /// As `NFTA_DATA_VERDICT`, into an open attribute of data.
    pub(crate) fn write(self, writer: &mut Writer) {
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

    /// From an attribute of data; `None` where it holds no verdict that this crate knows.
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
