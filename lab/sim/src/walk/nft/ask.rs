//! Statements whose result is unknown: both answers are tried.

use super::{RuleAbort, RuleContext};
use crate::program::nft::{ComparisonText, CompiledComparison, CompiledExpr, CompiledStatement};
use crate::trace::NotModelled;
use crate::walk::unknown_fact::{FactScope, UnknownFact};
use crate::walk::{Skb, Walker};

impl<'a> Walker<'a> {
    /// Whether the rule goes on behind `step`, which has no known result. As in iptables, known comparisons behind it
    /// are evaluated first.
    pub(super) fn nft_ask(
        &mut self,
        abort: RuleAbort,
        step: &CompiledStatement,
        rest: &'a [CompiledStatement],
        at: &RuleContext<'a>,
        skb: &Skb,
    ) -> Result<bool, Box<NotModelled>> {
        let (fact, what) = match abort {
            RuleAbort::NotModelled(what) => {
                let fact = UnknownFact { name: "".into(), why: "is not modelled".into(), same: FactScope::Nothing };
                (fact, what)
            }
            RuleAbort::Unknown(fact) => {
                let what = fact_text(step, &fact);
                (fact, what)
            }
            RuleAbort::Break | RuleAbort::Invented { .. } => return Ok(false),
        };
        let matches_only = matches!(
            step,
            CompiledStatement::Compare { .. }
                | CompiledStatement::UnknownMatch { .. }
                | CompiledStatement::Element { .. }
        );
        if !matches_only {
            let host = self.host.name.clone();
            return Err(Box::new(NotModelled { host, rule: Some(at.rule()), name: fact.name, what, why: fact.why }));
        }
        if self.nft_rest_fails(rest, at, skb) {
            return Ok(false);
        }
        let is_idle = rest.iter().all(CompiledStatement::is_pure);
        self.decide(fact, at.rule(), what.to_string(), is_idle, &skb.packet)
    }

    fn nft_rest_fails(&mut self, rest: &'a [CompiledStatement], at: &RuleContext<'a>, skb: &Skb) -> bool {
        rest.iter().take_while(|step| step.is_pure()).any(|step| {
            let CompiledStatement::Compare { left, compare, .. } = step else { return false };
            matches!(self.nft_holds(left, compare, at, skb), Ok(false) | Err(RuleAbort::Break))
        })
    }

    /// Evaluates a comparison that draws nothing, without the checks of elements.
    fn nft_holds(
        &mut self,
        left: &'a [CompiledExpr],
        compare: &CompiledComparison,
        at: &RuleContext<'a>,
        skb: &Skb,
    ) -> Result<bool, RuleAbort> {
        let values = self.nft_values(left, at, skb)?;
        match compare {
            CompiledComparison::In { not, set } => Ok(self.nft_find(at, *set, &values)?.is_some() != *not),
            other => self.nft_compare(&values, other, at),
        }
    }
}

fn fact_text(step: &CompiledStatement, fact: &UnknownFact) -> std::sync::Arc<str> {
    match step {
        CompiledStatement::Compare { text: Some(comparison), .. } => comparison.text.clone(),
        CompiledStatement::UnknownMatch { text, .. } => text.clone(),
        _ => fact.name.clone(),
    }
}

/// Says that the result of a comparison is unknown, if the abort says so about a part of it.
pub(super) fn about_comparison(abort: RuleAbort, comparison: Option<&ComparisonText>) -> RuleAbort {
    match (abort, comparison) {
        (RuleAbort::Unknown(fact), Some(ComparisonText { fact: key, not, .. })) => {
            RuleAbort::Unknown(UnknownFact { same: FactScope::Packet(Some((key.to_string(), *not))), ..fact })
        }
        (RuleAbort::NotModelled(_), Some(comparison)) => RuleAbort::NotModelled(comparison.text.clone()),
        (abort, _) => abort,
    }
}
