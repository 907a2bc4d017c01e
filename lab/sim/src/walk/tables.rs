//! Walks a table's chains (net/ipv4/netfilter/ip_tables.c, ipt_do_table).

use std::collections::HashMap;
use std::sync::Arc;

use super::act::UNKNOWN_REDIRECT;
use super::check::head_holds;
use super::undecided::AskingRule;
use super::{HookResult, KnownHopLimit, PacketExit, Skb, Walker};
use crate::hook::Hook;
use crate::host::Host;
use crate::program::iptables::{Action, Check, CompiledRule, CompiledTable, IptablesProgram};
use crate::rules::{ChainPolicy, TableName};
use crate::trace::{DropReason, Event, NotModelled, RuleRef};

const DEPTH: usize = 4096;
/// After this many rules a walk skips chains that returned without effect in the same state: n chains with two jumps
/// each are 2ⁿ rules.
const PATIENCE: usize = 10_000;
const LONGEST: usize = 1_000_000;

struct CallFrame {
    chain: usize,
    at: usize,
    called: usize,
    happened: u64,
}

impl<'a> Walker<'a> {
    pub(super) fn table(&mut self, name: TableName, hook: Hook, skb: &mut Skb) -> HookResult {
        self.table_until(name, hook, skb, |_| false)
    }

    /// Like `table`; skips the second iptables variant once `decided` returns true.
    pub(super) fn table_until(
        &mut self,
        name: TableName,
        hook: Hook,
        skb: &mut Skb,
        decided: impl Fn(&Walker<'_>) -> bool,
    ) -> HookResult {
        let host: &'a Host = self.host;
        for program in host.programs(skb.packet.family()) {
            let Some(table) = program.table(name).filter(|_| !decided(self)) else { continue };
            let Some(entry) = table.entry(hook.chain()) else { continue };
            if !table.chains[entry].steps.is_empty() {
                self.note(Event::Table(name));
            }
            if let HookResult::Ends(leaves) = self.chains(program, table, name, entry, hook, skb) {
                return HookResult::Ends(leaves);
            }
        }
        HookResult::On
    }

    #[allow(clippy::too_many_arguments, reason = "the state of one walk of a table")]
    fn chains(
        &mut self,
        program: &'a IptablesProgram,
        table: &'a CompiledTable,
        name: TableName,
        entry: usize,
        hook: Hook,
        skb: &mut Skb,
    ) -> HookResult {
        let mut callers: Vec<CallFrame> = Vec::new();
        // Chains without effect, with the number of state changes at that time.
        let mut idle: HashMap<usize, u64> = HashMap::new();
        let (mut chain, mut at, mut met, mut happened) = (entry, 0, 0usize, 0u64);
        loop {
            let Some(step) = table.chains[chain].steps.get(at) else {
                match callers.pop() {
                    Some(caller) => (chain, at) = back(caller, happened, &mut idle),
                    None => return self.policy(table, name, chain, hook),
                }
                continue;
            };
            met += 1;
            if met > LONGEST {
                return HookResult::Ends(self.lose(DropReason::TooManyRules));
            }
            if !head_holds(step, skb) {
                at += 1;
                continue;
            }
            let mut drawn = None;
            let matched = match step.undecided {
                None => self.matches(step, skb, &mut drawn),
                Some(_) => {
                    let asking = AskingRule { step, rule: program.rule(table, chain, at) };
                    match self.matches_undecided(&asking, skb, &mut drawn) {
                        Ok(matched) => matched,
                        Err(part) => return HookResult::Ends(self.lose(DropReason::NotModelled(part))),
                    }
                }
            };
            happened += u64::from(drawn.is_some() || has_memory(step));
            if let Some((held, share, of)) = drawn {
                self.note(Event::Chance { rule: program.rule(table, chain, at), held, share: (share, of) });
            }
            if !matched {
                at += 1;
                continue;
            }
            let rule = program.rule(table, chain, at);
            self.note(Event::Matched(rule.clone()));
            match &step.action {
                Action::Accept => return HookResult::On,
                Action::Drop => return HookResult::Ends(self.lose(DropReason::Rule(rule))),
                Action::Return => match callers.pop() {
                    Some(caller) => (chain, at) = back(caller, happened, &mut idle),
                    None => return self.policy(table, name, chain, hook),
                },
                Action::Jump(to) if met > PATIENCE && idle.get(to) == Some(&happened) => at += 1,
                Action::Jump(to) if callers.len() < DEPTH => {
                    callers.push(CallFrame { chain, at: at + 1, called: *to, happened });
                    (chain, at) = (*to, 0);
                }
                Action::Jump(_) => return HookResult::Ends(self.lose(DropReason::Rule(rule))),
                Action::Goto(to) => (chain, at) = (*to, 0),
                Action::Unknown { name, why } => return self.unknown_target(rule, name.as_ref(), why),
                Action::HopLimit(change) => {
                    let value = change.apply(skb.hop_limit.as_ref().map(|known| known.value));
                    skb.hop_limit = value.map(|value| KnownHopLimit { value, rule: Some(rule) });
                    happened += 1;
                    at += 1;
                }
                Action::Redirect(_) if self.redirects_to_unknown(hook, skb) => {
                    return self.unknown_target(rule, None, &UNKNOWN_REDIRECT.into());
                }
                action => {
                    let mark = skb.mark;
                    match self.act(action, hook, skb) {
                        super::act::TargetResult::Continue => at += 1,
                        super::act::TargetResult::Accept => return HookResult::On,
                        super::act::TargetResult::Ends(leaves) => return HookResult::Ends(leaves),
                    }
                    let changed = match action {
                        Action::Continue => false,
                        Action::Mark { .. } => skb.mark != mark,
                        _ => true,
                    };
                    happened += u64::from(changed);
                }
            }
        }
    }

    fn unknown_target(&mut self, rule: RuleRef, name: Option<&Arc<str>>, why: &Arc<str>) -> HookResult {
        if let Some((name, holds)) = name.and_then(|name| Some((name, self.host.assumptions.answer(name)?))) {
            self.note(Event::Assumed { name: name.clone(), holds });
            return if holds { HookResult::On } else { HookResult::Ends(self.lose(DropReason::Rule(rule))) };
        }
        let what = rule.iptables_rule().map(|rule| rule.target.to_string()).unwrap_or_default();
        let part = NotModelled {
            host: self.host.name.clone(),
            rule: Some(rule),
            name: name.cloned().unwrap_or_else(|| "".into()),
            what: what.trim_start().into(),
            why: why.clone(),
        };
        HookResult::Ends(self.lose(DropReason::NotModelled(Box::new(part))))
    }

    fn policy(&mut self, table: &CompiledTable, name: TableName, chain: usize, hook: Hook) -> HookResult {
        // After a goto the built-in chain's policy applies.
        let begun = || table.entry(hook.chain()).and_then(|entry| table.chains[entry].policy);
        match table.chains[chain].policy.or_else(begun) {
            Some(ChainPolicy::Drop) => {
                self.note(Event::Policy(name, hook, ChainPolicy::Drop));
                HookResult::Ends(PacketExit::Lost(DropReason::Policy(name, hook)))
            }
            Some(ChainPolicy::Accept) | None => HookResult::On,
        }
    }
}

fn back(caller: CallFrame, happened: u64, idle: &mut HashMap<usize, u64>) -> (usize, usize) {
    if caller.happened == happened {
        idle.insert(caller.called, happened);
    }
    (caller.chain, caller.at)
}

fn has_memory(step: &CompiledRule) -> bool {
    step.checks.iter().any(|check| matches!(check, Check::Recent(_) | Check::Limit { .. }))
}
