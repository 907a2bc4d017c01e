//! Comparisons with interfaces whose names are placeholders.

use super::RuleAbort;
use crate::nft::name_bits;
use crate::nft::selector::PacketField;
use crate::program::nft::{CompiledComparison, CompiledExpr};
use crate::trace::Event;
use crate::walk::{Skb, Walker};

pub(super) fn assumption(input: bool) -> &'static str {
    if input { "input-interface" } else { "output-interface" }
}

impl Walker<'_> {
    pub(super) fn nft_invented(&self, input: bool, skb: &Skb) -> Option<usize> {
        let interface = if input { skb.input } else { skb.output };
        interface.filter(|at| self.host.interfaces[*at].invented)
    }

    /// Compares a placeholder interface: unequal to real ones, otherwise as assumed. `None` for other comparisons.
    pub(super) fn nft_compare_invented(
        &mut self,
        left: &[CompiledExpr],
        compare: &CompiledComparison,
        skb: &Skb,
    ) -> Result<Option<bool>, RuleAbort> {
        let (input, by_name) = match left {
            [CompiledExpr::Field(PacketField::InterfaceName { input })] => (*input, true),
            [CompiledExpr::Field(PacketField::Interface { input })] => (*input, false),
            _ => return Ok(None),
        };
        if self.nft_invented(input, skb).is_none() {
            return Ok(None);
        }
        if let CompiledComparison::Within { not, ranges } = compare
            && let [(first, last)] = ranges[..]
            && first == last
            && self.nft_is_real(first, by_name)
        {
            return Ok(Some(*not));
        }
        match self.host.assumptions.answer(assumption(input)) {
            Some(holds) => {
                self.note(Event::Assumed { name: assumption(input).into(), holds });
                Ok(Some(holds))
            }
            None => Err(RuleAbort::Invented { input, alone: true }),
        }
    }

    fn nft_is_real(&self, value: u128, by_name: bool) -> bool {
        let mut all = self.host.interfaces.iter().zip(1..);
        all.any(|(one, number)| !one.invented && value == if by_name { name_bits(&one.name) } else { number })
    }
}
