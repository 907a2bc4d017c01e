//! Walking a table's chains from a built-in one (net/ipv4/netfilter/ip_tables.c, ipt_do_table).

use super::program::{Action, CompiledTable};
use super::{Fate, Leaves, Skb, Walker};
use crate::host::Host;
use crate::rules::{Policy, TableName};
use crate::trace::{Event, Hook, Lost};

/// How deep chains may call each other; more than the kernel's stack takes, and circles are refused beforehand.
const DEPTH: usize = 4096;

impl<'a> Walker<'a> {
    /// Lets the table have its say about the packet.
    pub(super) fn table(&mut self, name: TableName, hook: Hook, skb: &mut Skb) -> Fate {
        let host: &'a Host = self.host;
        let Some(table) = host.program(skb.packet.family()).table(name) else {
            return Fate::On;
        };
        let Some(entry) = table.entry(hook.chain()) else {
            return Fate::On;
        };
        if !table.chains[entry].steps.is_empty() {
            self.note(Event::Table(name));
        }
        self.chains(table, name, entry, hook, skb)
    }

    fn chains(&mut self, table: &'a CompiledTable, name: TableName, entry: usize, hook: Hook, skb: &mut Skb) -> Fate {
        let program = self.host.program(skb.packet.family());
        // Where to go on after a chain ends: chain and rule.
        let mut callers: Vec<(usize, usize)> = Vec::new();
        let (mut chain, mut at) = (entry, 0);
        loop {
            let Some(step) = table.chains[chain].steps.get(at) else {
                match callers.pop() {
                    Some(caller) => (chain, at) = caller,
                    None => return self.policy(table, name, chain, hook),
                }
                continue;
            };
            let mut drawn = None;
            let matched = self.matches(step, skb, &mut drawn);
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
                Action::Accept => return Fate::On,
                Action::Drop => return Fate::Ends(self.lose(Lost::Rule(rule))),
                Action::Return => match callers.pop() {
                    Some(caller) => (chain, at) = caller,
                    None => return self.policy(table, name, chain, hook),
                },
                Action::Jump(to) if callers.len() < DEPTH => {
                    callers.push((chain, at + 1));
                    (chain, at) = (*to, 0);
                }
                Action::Jump(_) => return Fate::Ends(self.lose(Lost::Rule(rule))),
                Action::Goto(to) => (chain, at) = (*to, 0),
                action => match self.act(action, hook, skb) {
                    super::act::Done::Continue => at += 1,
                    super::act::Done::Accept => return Fate::On,
                    super::act::Done::Ends(leaves) => return Fate::Ends(leaves),
                },
            }
        }
    }

    fn policy(&mut self, table: &CompiledTable, name: TableName, chain: usize, hook: Hook) -> Fate {
        // A goto may end in a user's chain; the policy is then the built-in chain's that the walk began in.
        let begun = || table.entry(hook.chain()).and_then(|entry| table.chains[entry].policy);
        match table.chains[chain].policy.or_else(begun) {
            Some(Policy::Drop) => {
                self.note(Event::Policy(name, hook, Policy::Drop));
                Fate::Ends(Leaves::Lost(Lost::Policy(name, hook)))
            }
            Some(Policy::Accept) | None => Fate::On,
        }
    }
}
