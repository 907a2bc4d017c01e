//! Rules with unknown parts. Known checks after an unknown part run before it: if one fails, the unknown part does not
//! matter. Checks that draw or count (`statistic`, `recent`, `limit`) keep their place.

use std::sync::Arc;

use super::check::ChanceDraw;
use super::unknown_fact::{self, CheckAnswer, FactScope, UnknownFact, by_name};
use super::{Skb, Walker};
use crate::packet::{Packet, PacketBody, TcpFlags};
use crate::program::iptables::{Action, Check, CompiledRule, OpenCheck};
use crate::trace::{Event, NotModelled, RuleRef};

pub(super) struct AskingRule<'s> {
    pub(super) step: &'s CompiledRule,
    pub(super) rule: RuleRef,
}

impl AskingRule<'_> {
    fn text(&self, check: usize) -> String {
        let at = self.step.undecided.as_ref().and_then(|undecided| undecided.sources.get(check));
        let one = at.and_then(|at| self.rule.iptables_rule()?.matches.get(*at));
        one.map(|one| one.to_string().trim_start().to_owned()).unwrap_or_default()
    }

    fn marks(&self, next: usize) -> bool {
        let check = next.checked_sub(1).and_then(|at| self.step.checks.get(at));
        matches!(check, Some(Check::Open(OpenCheck::Socket(socket))) if socket.restore_mark)
    }

    fn is_idle(&self, from: usize) -> bool {
        let rest = self.step.checks.get(from..).unwrap_or_default();
        matches!(self.step.action, Action::Continue) && !rest.iter().any(Check::has_effect)
    }
}

impl Walker<'_> {
    pub(super) fn matches_undecided(
        &mut self,
        asking: &AskingRule<'_>,
        skb: &Skb,
        drawn: &mut ChanceDraw,
    ) -> Result<bool, Box<NotModelled>> {
        let step = asking.step;
        let mut unknown = Vec::new();
        let ends = step.ends.iter().flat_map(|ends| {
            [("input-interface", &ends.input, skb.input), ("output-interface", &ends.output, skb.output)]
        });
        for (name, test, interface) in ends {
            let Some(test) = test else { continue };
            match by_name(test, interface, name) {
                CheckAnswer::Known(true) => {}
                CheckAnswer::Known(false) => return Ok(false),
                CheckAnswer::Unknown(fact) => unknown.push(fact),
            }
        }
        for fact in unknown {
            let option = if &*fact.name == "input-interface" { "-i" } else { "-o" };
            let text = unknown_fact::interface_text(option, &fact);
            if self.rest_fails(step, 0, skb) || !self.ask(fact, asking, text, 0, skb)? {
                return Ok(false);
            }
        }
        for (at, check) in step.checks.iter().enumerate() {
            let holds = match self.answer(check, skb, drawn) {
                CheckAnswer::Known(holds) => holds,
                CheckAnswer::Unknown(_) if self.rest_fails(step, at + 1, skb) => false,
                CheckAnswer::Unknown(fact) => self.ask(fact, asking, asking.text(at), at + 1, skb)?,
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn rest_fails(&mut self, step: &CompiledRule, from: usize, skb: &Skb) -> bool {
        let rest = step.checks.get(from..).unwrap_or_default();
        let early = rest.iter().filter(|check| !check.has_effect());
        early.into_iter().any(|check| matches!(self.answer(check, skb, &mut None), CheckAnswer::Known(false)))
    }

    fn answer(&mut self, check: &Check, skb: &Skb, drawn: &mut ChanceDraw) -> CheckAnswer {
        match check {
            Check::Open(open) => self.open(open, skb),
            Check::Set { not, set, sides, return_nomatch, open: true } => {
                match self.in_set(*set, sides, *return_nomatch, skb) {
                    Ok(within) => CheckAnswer::Known(within != *not),
                    Err(why) => CheckAnswer::Unknown(UnknownFact::new("set", why)),
                }
            }
            known => CheckAnswer::Known(self.check(known, skb, drawn)),
        }
    }

    fn open(&self, check: &OpenCheck, skb: &Skb) -> CheckAnswer {
        let packet = &skb.packet;
        let why = |name, why| CheckAnswer::Unknown(UnknownFact::new(name, why));
        let of = |name, why, what: &dyn std::fmt::Display, not| {
            CheckAnswer::Unknown(UnknownFact::new(name, why).about(what, not))
        };
        match check {
            OpenCheck::Unknown { name, why } => {
                let same = if unknown_fact::of_packet(name) { FactScope::Packet(None) } else { FactScope::Nothing };
                CheckAnswer::Unknown(UnknownFact { name: name.clone(), why: why.clone(), same })
            }
            OpenCheck::Owner(asked) => unknown_fact::owner(asked, skb.origin),
            OpenCheck::Socket(_) if unknown_fact::has_socket(packet) => why("socket", "matches unknown open sockets"),
            OpenCheck::Mac(test) if skb.input.is_some_and(|input| !self.is_loopback(input)) => {
                of("mac", "matches the sender's unknown Ethernet address", &test.is, test.not)
            }
            OpenCheck::Socket(_) | OpenCheck::Mac(_) => CheckAnswer::Known(false),
            OpenCheck::Length(test) => match test.is.contains_all(unknown_fact::lengths(packet)) {
                Some(within) => CheckAnswer::Known(test.judge(within)),
                None => of("length", "matches the unknown length of the packet", &test.is, test.not),
            },
            OpenCheck::TcpMss(test) => match packet.body {
                PacketBody::Tcp { flags, .. } if flags.has(TcpFlags::SYN) => {
                    of("tcpmss", "matches the unknown segment size of TCP", &test.is, test.not)
                }
                PacketBody::Tcp { .. } => CheckAnswer::Known(test.not),
                _ => CheckAnswer::Known(false),
            },
            OpenCheck::HopLimit(test) => match &skb.hop_limit {
                Some(known) => CheckAnswer::Known(test.holds(known.value)),
                None => why(test.name(), "matches the unknown hop limit"),
            },
            OpenCheck::Port { input: true, test } => by_name(test, skb.port_in, "input-interface"),
            OpenCheck::Port { input: false, test } => by_name(test, skb.port_out, "output-interface"),
        }
    }

    /// Asks for the match before `next`.
    fn ask(
        &mut self,
        fact: UnknownFact,
        asking: &AskingRule<'_>,
        what: String,
        next: usize,
        skb: &Skb,
    ) -> Result<bool, Box<NotModelled>> {
        let marked = asking.marks(next).then(|| {
            let why = "copies the unknown mark of the socket";
            self.unknown_part(asking.rule.clone(), fact.name.clone(), &what, why)
        });
        let holds = self.decide(fact, asking.rule.clone(), what, asking.is_idle(next), &skb.packet)?;
        match marked {
            Some(part) if holds => Err(part),
            _ => Ok(holds),
        }
    }

    fn unknown_part(&self, rule: RuleRef, name: Arc<str>, what: &str, why: &str) -> Box<NotModelled> {
        let (host, rule) = (self.host.name.clone(), Some(rule));
        Box::new(NotModelled { host, rule, name, what: what.into(), why: why.into() })
    }

    /// Answers a fact by an assumption or an earlier answer, else tries both answers. `idle`: the answer changes
    /// nothing.
    pub(super) fn decide(
        &mut self,
        fact: UnknownFact,
        rule: RuleRef,
        what: String,
        idle: bool,
        packet: &Packet,
    ) -> Result<bool, Box<NotModelled>> {
        let UnknownFact { name, why, same } = fact;
        if let Some(holds) = self.host.assumptions.answer(&name) {
            self.note(Event::Assumed { name, holds });
            return Ok(holds);
        }
        if let Some(holds) = self.state.assumed_facts.of(&same, &what, packet) {
            return Ok(holds);
        }
        let asked = self.unknown_part(rule, name, &what, &why);
        if idle {
            self.chance.note_unknown();
            self.note(Event::Undecided { asked, holds: false });
            return Ok(false);
        }
        let Some(holds) = self.chance.unknown() else {
            return Err(asked);
        };
        self.state.assumed_facts.take(same, what, packet, holds);
        self.note(Event::Undecided { asked, holds });
        Ok(holds)
    }
}
