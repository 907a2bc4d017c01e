//! The answering pods of each step, for `sameAs` and `differsFrom`.

use std::collections::{BTreeMap, BTreeSet};

use serde_saphyr::Spanned;

use super::Step;
use crate::expect::{Mismatch, OutcomeTally};

#[derive(Debug, Default)]
pub(super) struct AnsweredBy(BTreeMap<String, BTreeSet<String>>);

impl AnsweredBy {
    pub(super) fn missing(&self, step: &Step) -> Option<String> {
        let named = [&step.expect.same_as, &step.expect.differs_from].into_iter().flatten();
        let missing = named.map(|name| &name.value).find(|name| !self.0.contains_key(*name))?;
        Some(format!("step {missing:?}, which it is compared with, was not carried out"))
    }

    pub(super) fn compare(&mut self, step: &Step, tally: &OutcomeTally) -> Vec<Mismatch> {
        let now: BTreeSet<String> = tally.servers.keys().cloned().collect();
        let earlier = |name: &Option<Spanned<String>>| {
            let name = &name.as_ref()?.value;
            self.0.get(name).map(|before| (name.clone(), before.clone()))
        };
        let words = |before: &BTreeSet<String>| before.iter().cloned().collect::<Vec<_>>().join(", ");
        let mut wrong = Vec::new();
        if let Some((name, before)) = earlier(&step.expect.same_as).filter(|(_, before)| *before != now) {
            wrong.push(Mismatch::new(format!("the same as in {name:?}: {}", words(&before)), tally.summary()));
        }
        if let Some((name, before)) = earlier(&step.expect.differs_from).filter(|(_, before)| !before.is_disjoint(&now))
        {
            wrong.push(Mismatch::new(format!("others than in {name:?}: {}", words(&before)), tally.summary()));
        }
        self.0.insert(step.name.clone(), now);
        wrong
    }
}
