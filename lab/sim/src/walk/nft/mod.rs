//! Base chains of nftables and the chains that they lead to (net/netfilter/nf_tables_core.c, `nft_do_chain`).

mod act;
mod invented;
mod load;
mod sets;

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::Arc;

use super::{HookResult, Leaves, Skb, Walker};
use crate::hook::Hook;
use crate::host::Host;
use crate::program::nft::{BaseChain, Entry, Goes, Program, SetName, Step};
use crate::rules::Policy;
use crate::trace::{Event, Lost, NotModelled, RuleRef};

/// `NFT_JUMP_STACK_SIZE`: chains that may be in call at once.
const DEPTH: usize = 16;
/// No walk of one base chain is longer than this many rules.
const LONGEST: usize = 1_000_000;

/// What packets leave behind in sets, rotations and limits.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// Elements that rules put in, by set.
    elements: BTreeMap<SetName, BTreeMap<Vec<u128>, Entry>>,
    rotations: BTreeMap<usize, u32>,
    /// What each limit has left, in thousandths of a packet's cost, and when that was.
    limits: BTreeMap<usize, (u64, u64)>,
}

impl State {
    /// New rules count from the beginning; sets that are still there keep what was put into them.
    pub(crate) fn rules_changed(&mut self, program: &Program) {
        self.rotations.clear();
        self.limits.clear();
        self.elements.retain(|name, _| program.dynamic().any(|known| known == name));
    }
}

/// Why a rule is not carried on.
pub(super) enum Stop {
    /// It does not match (`NFT_BREAK`).
    Break,
    /// It asks for something that is not modelled.
    NotModelled(Arc<str>),
    /// It asks for the name of an interface that is invented; `alone` if an assumption could answer that.
    Invented {
        /// By which the packet came in, not by which it leaves.
        input: bool,
        alone: bool,
    },
}

/// What a rule came to.
enum Came {
    /// It matched, or not: the next rule.
    Next,
    Goes(Goes),
    /// The base chain is done: a translation was chosen.
    Done,
    Ends(Leaves),
}

/// One rule under way.
pub(super) struct At<'a> {
    table: usize,
    chain: usize,
    rule: usize,
    hook: Hook,
    program: &'a Program,
}

impl At<'_> {
    fn rule(&self) -> RuleRef {
        self.program.rule(self.table, self.chain, Some(self.rule))
    }
}

impl<'a> Walker<'a> {
    /// Filter and route chains at a hook whose priority is within `priorities`.
    pub(super) fn nft_filters(&mut self, hook: Hook, skb: &mut Skb, priorities: impl RangeBounds<i32>) -> HookResult {
        let host: &'a Host = self.host;
        for base in &host.nft.at(skb.packet.family(), hook).filters {
            if priorities.contains(&base.priority)
                && let HookResult::Ends(leaves) = self.nft_base_chain(*base, hook, skb)
            {
                return HookResult::Ends(leaves);
            }
        }
        HookResult::On
    }

    /// Nat chains at a hook whose priority is within `priorities`, until one has chosen.
    pub(super) fn nft_nats(
        &mut self,
        hook: Hook,
        skb: &mut Skb,
        priorities: impl RangeBounds<i32>,
        chosen: impl Fn(&Walker<'_>) -> bool,
    ) -> HookResult {
        let host: &'a Host = self.host;
        for base in &host.nft.at(skb.packet.family(), hook).nats {
            if !priorities.contains(&base.priority) || chosen(self) {
                continue;
            }
            if let HookResult::Ends(leaves) = self.nft_base_chain(*base, hook, skb) {
                return HookResult::Ends(leaves);
            }
        }
        HookResult::On
    }

    /// Chains of a device, as a packet comes in (`incoming`) or goes out.
    pub(super) fn nft_device(&mut self, interface: usize, incoming: bool, skb: &mut Skb) -> HookResult {
        let host: &'a Host = self.host;
        let (all, hook) =
            if incoming { (&host.nft.ingress, Hook::Prerouting) } else { (&host.nft.egress, Hook::Postrouting) };
        for (_, base) in all.iter().filter(|(device, _)| *device == interface) {
            if let HookResult::Ends(leaves) = self.nft_base_chain(*base, hook, skb) {
                return HookResult::Ends(leaves);
            }
        }
        HookResult::On
    }

    /// Frames that cross a bridge are not modelled: what has rules for them is refused.
    pub(super) fn nft_bridge(&mut self) -> HookResult {
        let Some(base) = self.host.nft.on_bridges else { return HookResult::On };
        let rule = self.host.nft.rule(base.table, base.chain, None);
        HookResult::Ends(self.nft_not_modelled(rule, "a table of family bridge".into()))
    }

    fn nft_not_modelled(&mut self, rule: RuleRef, what: Arc<str>) -> Leaves {
        let (host, rule) = (self.host.name.clone(), rule);
        let part = NotModelled { host, rule, name: "".into(), what, why: "is not modelled".into() };
        self.lose(Lost::NotModelled(Box::new(part)))
    }

    fn nft_name_is_invented(&mut self, rule: RuleRef, input: bool, alone: bool) -> Leaves {
        let part = NotModelled {
            host: self.host.name.clone(),
            rule,
            name: if alone { invented::assumption(input) } else { "" }.into(),
            what: if input { "iifname" } else { "oifname" }.into(),
            why: "asks for the name of an interface that is invented".into(),
        };
        self.lose(Lost::NotModelled(Box::new(part)))
    }

    fn nft_base_chain(&mut self, base: BaseChain, hook: Hook, skb: &mut Skb) -> HookResult {
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
                return HookResult::Ends(self.lose(Lost::TooManyRules));
            }
            let at = At { table: base.table, chain, rule, hook, program };
            match self.nft_rule(steps, &at, skb) {
                Came::Next | Came::Goes(Goes::Continue) => rule += 1,
                Came::Done | Came::Goes(Goes::Accept) => return HookResult::On,
                Came::Ends(leaves) => return HookResult::Ends(leaves),
                Came::Goes(Goes::Drop) => return HookResult::Ends(self.lose(Lost::NftRule(at.rule()))),
                Came::Goes(Goes::Return) => match callers.pop() {
                    Some(caller) => (chain, rule) = caller,
                    None => return self.nft_policy(table.chains[base.chain].policy, entered),
                },
                Came::Goes(Goes::Jump(to)) if callers.len() < DEPTH => {
                    callers.push((chain, rule + 1));
                    (chain, rule) = (to, 0);
                }
                Came::Goes(Goes::Jump(_)) => return HookResult::Ends(self.lose(Lost::NftRule(at.rule()))),
                Came::Goes(Goes::Goto(to)) => (chain, rule) = (to, 0),
            }
        }
    }

    fn nft_policy(&mut self, policy: Option<Policy>, entered: RuleRef) -> HookResult {
        if policy != Some(Policy::Drop) {
            return HookResult::On;
        }
        HookResult::Ends(self.lose(Lost::NftPolicy(entered)))
    }

    /// Statements from left to right.
    fn nft_rule(&mut self, steps: &'a [Step], at: &At<'a>, skb: &mut Skb) -> Came {
        let mut matched = false;
        for step in steps {
            match self.nft_step(step, at, skb, &mut matched) {
                Ok(None) => {}
                Ok(Some(came)) => return came,
                Err(Stop::Break) => return Came::Next,
                Err(Stop::Invented { input, alone }) => {
                    return Came::Ends(self.nft_name_is_invented(at.rule(), input, alone));
                }
                Err(Stop::NotModelled(what)) => return Came::Ends(self.nft_not_modelled(at.rule(), what)),
            }
        }
        self.nft_matched(at, &mut matched);
        Came::Next
    }

    /// Notes a rule once, before the first thing that it does.
    fn nft_matched(&mut self, at: &At<'_>, matched: &mut bool) {
        if !*matched {
            self.note(Event::NftMatched(at.rule()));
        }
        *matched = true;
    }
}
