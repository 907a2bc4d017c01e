//! Verdicts of rules and map elements.

use crate::netlink::{AttributeWriter, Attributes};

/// `include/uapi/linux/netfilter/nf_tables.h`.
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NFTA_VERDICT_CHAIN: u16 = 2;
/// `NF_DROP` 0, `NF_ACCEPT` 1.
const NFT_CONTINUE: i32 = -1;
const NFT_JUMP: i32 = -3;
const NFT_GOTO: i32 = -4;
const NFT_RETURN: i32 = -5;

/// Chains are of the same table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NfVerdict<'a> {
    /// Passes the packet to the next hook.
    Accept,
    /// Drops the packet.
    Drop,
    /// Continues with the next rule.
    Continue,
    /// Returns to the calling chain, or applies the policy.
    Return,
    /// Calls the chain.
    Jump(&'a str),
    /// Continues in the chain, without return.
    Goto(&'a str),
}

impl<'a> NfVerdict<'a> {
    pub(crate) fn write(self, writer: &mut AttributeWriter) {
        let (code, chain) = match self {
            NfVerdict::Drop => (0, None),
            NfVerdict::Accept => (1, None),
            NfVerdict::Continue => (NFT_CONTINUE, None),
            NfVerdict::Return => (NFT_RETURN, None),
            NfVerdict::Jump(chain) => (NFT_JUMP, Some(chain)),
            NfVerdict::Goto(chain) => (NFT_GOTO, Some(chain)),
        };
        writer.nest(NFTA_DATA_VERDICT, |writer| {
            writer.put(NFTA_VERDICT_CODE, &code.to_be_bytes());
            if let Some(chain) = chain {
                writer.name(NFTA_VERDICT_CHAIN, "chain", chain);
            }
        });
    }

    pub(crate) fn read(data: Attributes<'a>) -> Option<NfVerdict<'a>> {
        let verdict = data.nested(NFTA_DATA_VERDICT);
        let code = verdict.be32(NFTA_VERDICT_CODE)?.cast_signed();
        let chain = verdict.text(NFTA_VERDICT_CHAIN);
        match code {
            0 => Some(NfVerdict::Drop),
            1 => Some(NfVerdict::Accept),
            NFT_CONTINUE => Some(NfVerdict::Continue),
            NFT_RETURN => Some(NfVerdict::Return),
            NFT_JUMP => chain.map(NfVerdict::Jump),
            NFT_GOTO => chain.map(NfVerdict::Goto),
            _ => None,
        }
    }
}
