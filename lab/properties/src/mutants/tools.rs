//! Edits of rules; each returns whether it changed anything.

use svclab_sim::cluster::NodeState;
use svclab_sim::masked::Masked;
use svclab_sim::rules::matches::{NumberRange, Statistic};
use svclab_sim::rules::{Match, Rule, RuleTarget, Rules, TableName};

use super::{Expectation, Mutant, Mutation};

pub(super) const fn rules(name: &'static str, apply: fn(&mut Rules) -> bool) -> Mutant {
    Mutant { name, change: Mutation::Rules(apply), expectation: Expectation::Broken }
}

pub(super) const fn state(name: &'static str, apply: fn(&mut NodeState) -> bool) -> Mutant {
    Mutant { name, change: Mutation::State(apply), expectation: Expectation::Broken }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ChainsOf(pub(super) TableName, pub(super) &'static str);

impl ChainsOf {
    fn chains(self, rules: &mut Rules) -> impl Iterator<Item = &mut Vec<Rule>> {
        let tables = rules.tables.iter_mut().filter(move |table| table.name == self.0);
        let chains = tables.flat_map(|table| &mut table.chains);
        chains.filter(move |chain| chain.name.starts_with(self.1)).map(|chain| &mut chain.rules)
    }

    pub(super) fn edit(self, rules: &mut Rules, which: impl Fn(&Rule) -> bool, how: impl Fn(&mut Rule)) -> bool {
        let mut changed = false;
        for rule in self.chains(rules).flatten().filter(|rule| which(rule)) {
            let before = rule.clone();
            how(rule);
            changed |= *rule != before;
        }
        changed
    }

    pub(super) fn remove(self, rules: &mut Rules, which: impl Fn(&Rule) -> bool) -> bool {
        let mut changed = false;
        for chain in self.chains(rules) {
            let before = chain.len();
            chain.retain(|rule| !which(rule));
            changed |= chain.len() != before;
        }
        changed
    }

    pub(super) fn reorder(self, rules: &mut Rules, how: impl Fn(&mut Vec<Rule>)) -> bool {
        let mut changed = false;
        for chain in self.chains(rules) {
            let before = chain.clone();
            how(chain);
            changed |= *chain != before;
        }
        changed
    }

    /// Edits every second chain.
    pub(super) fn edit_every_second(self, rules: &mut Rules, how: impl Fn(&mut Vec<Rule>)) -> bool {
        let mut changed = false;
        for chain in self.chains(rules).skip(1).step_by(2) {
            let before = chain.clone();
            how(chain);
            changed |= *chain != before;
        }
        changed
    }

    /// Moves each selected target to the previous selected rule.
    pub(super) fn rotate_targets(self, rules: &mut Rules, which: impl Fn(&RuleTarget) -> bool) -> bool {
        let mut targets: Vec<RuleTarget> =
            self.chains(rules).flatten().map(|rule| rule.target.clone()).filter(&which).collect();
        if targets.len() < 2 {
            return false;
        }
        targets.rotate_left(1);
        let mut next = targets.into_iter();
        let mut changed = false;
        for rule in self.chains(rules).flatten().filter(|rule| which(&rule.target)) {
            if let Some(target) = next.next() {
                changed |= rule.target != target;
                rule.target = target;
            }
        }
        changed
    }
}

pub(super) fn any(_: &Rule) -> bool {
    true
}

pub(super) fn jumps(rule: &Rule, prefix: &str) -> bool {
    matches!(&rule.target, RuleTarget::Jump(chain) if chain.starts_with(prefix))
}

pub(super) fn says(rule: &Rule, words: &str) -> bool {
    rule.matches.iter().any(|one| matches!(one, Match::Comment(comment) if comment.contains(words)))
}

pub(super) fn strip(rule: &mut Rule, which: impl Fn(&Match) -> bool) {
    rule.matches.retain(|one| !which(one));
}

pub(super) fn shift_port(rule: &mut Rule) {
    for one in &mut rule.matches {
        if let Match::Ports(ports) = one
            && let Some(test) = &mut ports.destination
        {
            test.is = NumberRange { first: test.is.first.wrapping_add(1), last: test.is.last.wrapping_add(1) };
        }
    }
}

pub(super) fn threshold(rule: &mut Rule, how: impl Fn(u32) -> u32) {
    for one in &mut rule.matches {
        if let Match::Statistic(Statistic::Random { threshold, .. }) = one {
            *threshold = how(*threshold);
        }
    }
}

pub(super) fn wider(masked: Masked, bits: u8) -> Masked {
    let length = masked.prefix().unwrap_or(0).saturating_sub(bits);
    Masked::network(masked.address(), length).unwrap_or(masked)
}

pub(super) fn narrower(masked: Masked, bits: u8) -> Masked {
    let length = masked.prefix().unwrap_or(0).saturating_add(bits).min(masked.family.bits());
    Masked::network(masked.address(), length).unwrap_or(masked)
}

pub(super) fn single(masked: Masked) -> Masked {
    Masked::network(masked.address(), masked.family.bits()).unwrap_or(masked)
}

pub(super) fn is_drop(rule: &Rule) -> bool {
    rule.target == RuleTarget::Drop
}

pub(super) fn without_jump(rules: &mut Rules, place: ChainsOf, to: &str) -> bool {
    place.remove(rules, |rule| jumps(rule, to))
}
