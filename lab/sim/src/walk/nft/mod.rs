//! Base chains of nftables (net/netfilter/nf_tables_core.c, `nft_do_chain`).

mod act;
pub(crate) mod arp;
mod ask;
mod hooks;
mod invented;
mod load;
mod sets;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::unknown_fact::UnknownFact;
use super::{HookResult, PacketExit, Skb, Walker};
use crate::hook::Hook;
use crate::host::Host;
use crate::program::nft::{BaseChainRef, CompiledStatement, CompiledVerdict, NftProgram, SetEntry, SetName};
use crate::rules::ChainPolicy;
use crate::trace::{DropReason, Event, NotModelled, RuleRef};

/// `NFT_JUMP_STACK_SIZE`: maximum call depth.
const DEPTH: usize = 16;
const LONGEST: usize = 1_000_000;

#[derive(Debug, Clone, Default)]
pub(crate) struct NftState {
    /// Elements that rules added.
    elements: BTreeMap<SetName, BTreeMap<Vec<u128>, SetEntry>>,
    rotations: BTreeMap<usize, u32>,
    /// Credit of `limit` in thousandths of packets, and the last update's time; by counter and, in sets, element.
    limits: BTreeMap<(usize, Vec<u128>), (u64, u64)>,
}

impl NftState {
    pub(crate) fn rules_changed(&mut self, program: &NftProgram) {
        self.rotations.clear();
        self.limits.clear();
        self.elements.retain(|name, _| program.named_sets().any(|known| known == name));
    }
}

pub(super) enum RuleAbort {
    /// The rule does not match (`NFT_BREAK`).
    Break,
    NotModelled(Arc<str>),
    Unknown(UnknownFact),
    /// The result depends on an interface's unknown name; with `alone` an assumption can decide.
    Invented {
        input: bool,
        alone: bool,
    },
}

enum RuleResult {
    Next,
    Goes(CompiledVerdict),
    /// A translation ends the chain.
    Done,
    Ends(PacketExit),
}

pub(super) struct RuleContext<'a> {
    table: usize,
    chain: usize,
    rule: usize,
    hook: Hook,
    program: &'a NftProgram,
}

impl RuleContext<'_> {
    fn rule(&self) -> RuleRef {
        self.program.rule(self.table, self.chain, Some(self.rule))
    }
}

impl<'a> Walker<'a> {
    fn nft_name_is_invented(&mut self, rule: RuleRef, input: bool, alone: bool) -> PacketExit {
        let part = NotModelled {
            host: self.host.name.clone(),
            rule: Some(rule),
            name: if alone { invented::assumption(input) } else { "" }.into(),
            what: if input { "iifname" } else { "oifname" }.into(),
            why: "matches the unknown name of an interface".into(),
        };
        self.lose(DropReason::NotModelled(Box::new(part)))
    }

    fn nft_base_chain(&mut self, base: BaseChainRef, hook: Hook, skb: &mut Skb) -> HookResult {
        let host: &'a Host = self.host;
        let program = &host.nft;
        let table = &program.tables[base.table];
        let entered = program.rule(base.table, base.chain, None);
        if !table.chains[base.chain].rules.is_empty() {
            self.note(Event::NftChain(entered.clone()));
        }
        let mut callers: Vec<(usize, usize)> = Vec::new();
        let (mut chain, mut rule, mut met) = (base.chain, 0, 0usize);
        loop {
            let Some(steps) = table.chains[chain].rules.get(rule) else {
                match callers.pop() {
                    Some(caller) => (chain, rule) = caller,
                    None => return self.nft_policy(table.chains[base.chain].policy, entered),
                }
                continue;
            };
            met += 1;
            if met > LONGEST {
                return HookResult::Ends(self.lose(DropReason::TooManyRules));
            }
            let at = RuleContext { table: base.table, chain, rule, hook, program };
            match self.nft_rule(steps, &at, skb) {
                RuleResult::Next | RuleResult::Goes(CompiledVerdict::Continue) => rule += 1,
                RuleResult::Done | RuleResult::Goes(CompiledVerdict::Accept) => return HookResult::On,
                RuleResult::Ends(leaves) => return HookResult::Ends(leaves),
                RuleResult::Goes(CompiledVerdict::Drop) => {
                    return HookResult::Ends(self.lose(DropReason::NftRule(at.rule())));
                }
                RuleResult::Goes(CompiledVerdict::Return) => match callers.pop() {
                    Some(caller) => (chain, rule) = caller,
                    None => return self.nft_policy(table.chains[base.chain].policy, entered),
                },
                RuleResult::Goes(CompiledVerdict::Jump(to)) if callers.len() < DEPTH => {
                    callers.push((chain, rule + 1));
                    (chain, rule) = (to, 0);
                }
                RuleResult::Goes(CompiledVerdict::Jump(_)) => {
                    return HookResult::Ends(self.lose(DropReason::NftRule(at.rule())));
                }
                RuleResult::Goes(CompiledVerdict::Goto(to)) => (chain, rule) = (to, 0),
            }
        }
    }

    fn nft_policy(&mut self, policy: Option<ChainPolicy>, entered: RuleRef) -> HookResult {
        if policy != Some(ChainPolicy::Drop) {
            return HookResult::On;
        }
        HookResult::Ends(self.lose(DropReason::NftPolicy(entered)))
    }

    fn nft_rule(&mut self, steps: &'a [CompiledStatement], at: &RuleContext<'a>, skb: &mut Skb) -> RuleResult {
        let mut matched = false;
        for (index, step) in steps.iter().enumerate() {
            match self.nft_step(step, at, skb, &mut matched) {
                Ok(None) => {}
                Ok(Some(came)) => return came,
                Err(RuleAbort::Break) => return RuleResult::Next,
                Err(RuleAbort::Invented { input, alone }) => {
                    return RuleResult::Ends(self.nft_name_is_invented(at.rule(), input, alone));
                }
                Err(abort) => match self.nft_ask(abort, step, &steps[index + 1..], at, skb) {
                    Ok(true) => {}
                    Ok(false) => return RuleResult::Next,
                    Err(part) => return RuleResult::Ends(self.lose(DropReason::NotModelled(part))),
                },
            }
        }
        self.nft_matched(at, &mut matched);
        RuleResult::Next
    }

    fn nft_matched(&mut self, at: &RuleContext<'_>, matched: &mut bool) {
        if !*matched {
            self.note(Event::NftMatched(at.rule()));
        }
        *matched = true;
    }
}
