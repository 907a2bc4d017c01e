use super::ask::about_comparison;
use super::{RuleAbort, RuleContext, RuleResult};
use crate::conntrack::nat::Manip;
use crate::masked::from_bits;
use crate::nft::NatKind;
use crate::program::nft::{CompiledComparison, CompiledStatement, EntryContent, Nat, NatOperand, SetEntry};
use crate::protocol::Family;
use crate::trace::{DropReason, Event};
use crate::walk::act::{TargetResult, UNKNOWN_REDIRECT};
use crate::walk::unknown_fact::{FactScope, UnknownFact};
use crate::walk::{Skb, Walker};

impl<'a> Walker<'a> {
    /// Performs a statement. `None` continues with the next one.
    pub(super) fn nft_step(
        &mut self,
        step: &'a CompiledStatement,
        at: &RuleContext<'a>,
        skb: &mut Skb,
        matched: &mut bool,
    ) -> Result<Option<RuleResult>, RuleAbort> {
        match step {
            CompiledStatement::Compare { left, compare, text } => {
                let known = match self.nft_compare_drawn(left, compare, at) {
                    Some(holds) => Some(holds),
                    None => self.nft_compare_invented(left, compare, skb)?,
                };
                let holds = match known {
                    Some(holds) => holds,
                    None => {
                        let values = self.nft_values(left, at, skb);
                        let holds = values.and_then(|values| self.nft_compare(&values, compare, at));
                        holds.map_err(|abort| about_comparison(abort, text.as_deref()))?
                    }
                };
                if holds { Ok(None) } else { Err(RuleAbort::Break) }
            }
            CompiledStatement::Limit { .. }
            | CompiledStatement::Constant(_)
            | CompiledStatement::UnknownMatch { .. } => self.nft_check(step, &[]).map(|()| None),
            CompiledStatement::NotModelled(what) => Err(RuleAbort::NotModelled(what.clone())),
            CompiledStatement::VerdictMap { key, set } => {
                let key = self.nft_values(key, at, skb)?;
                let Some(EntryContent::Verdict(goes)) = self.nft_look_up(at, *set, &key)? else {
                    return Err(RuleAbort::Break);
                };
                self.nft_matched(at, matched);
                Ok(Some(RuleResult::Goes(goes)))
            }
            CompiledStatement::Verdict(goes) => {
                self.nft_matched(at, matched);
                Ok(Some(RuleResult::Goes(*goes)))
            }
            CompiledStatement::SetMark(load) => {
                let mark = u32::try_from(self.nft_one(load, at, skb)?).unwrap_or(u32::MAX);
                self.nft_matched(at, matched);
                if mark != skb.mark {
                    self.note(Event::Mark { from: skb.mark, to: mark });
                }
                skb.mark = mark;
                Ok(None)
            }
            CompiledStatement::SetConnectionMark(load) => {
                let mark = u32::try_from(self.nft_one(load, at, skb)?).unwrap_or(u32::MAX);
                self.nft_matched(at, matched);
                let id = skb.attached.map(|attached| attached.id);
                if let Some(connection) = id.and_then(|id| self.state.connections.get_mut(id)) {
                    connection.mark = mark;
                }
                Ok(None)
            }
            CompiledStatement::Element { operation, key, data, set, timeout, checks } => {
                let key = self.nft_values(key, at, skb)?;
                let content = match data {
                    Some(data) => EntryContent::Data(self.nft_load(data, at, skb)?),
                    None => EntryContent::Nothing,
                };
                let own = at.program.tables[at.table].sets[*set].checks.as_ref();
                let checks = checks.as_ref().or(own).cloned();
                self.nft_element(
                    at,
                    *operation,
                    *set,
                    &key,
                    SetEntry { at: None, content, expires: *timeout, checks },
                )?;
                self.nft_matched(at, matched);
                Ok(None)
            }
            CompiledStatement::Nat(nat) => self.nft_nat(nat, at, skb, matched).map(Some),
            CompiledStatement::Reject { v4, v6 } => {
                self.nft_matched(at, matched);
                let with = if skb.packet.family() == Family::V4 { *v4 } else { *v6 };
                match self.reject(with, skb) {
                    TargetResult::Ends(leaves) => Ok(Some(RuleResult::Ends(leaves))),
                    TargetResult::Continue | TargetResult::Accept => Ok(Some(RuleResult::Done)),
                }
            }
            CompiledStatement::Notrack => {
                self.nft_matched(at, matched);
                skb.untracked = skb.attached.is_none();
                Ok(None)
            }
        }
    }

    pub(super) fn nft_compare(
        &mut self,
        values: &[u128],
        compare: &CompiledComparison,
        at: &RuleContext<'a>,
    ) -> Result<bool, RuleAbort> {
        Ok(match compare {
            CompiledComparison::Within { not, ranges } => {
                let within = |((first, last), value): (&(u128, u128), &u128)| (first..=last).contains(&value);
                (values.len() == ranges.len() && ranges.iter().zip(values).all(within)) != *not
            }
            CompiledComparison::Any { not, bits } => values.first().is_some_and(|value| value & bits != 0) != *not,
            CompiledComparison::In { not: true, set } => self.nft_found(at, *set, values)?.is_none(),
            CompiledComparison::In { not: false, set } => self.nft_look_up(at, *set, values)?.is_some(),
            CompiledComparison::NotModelled => return Err(RuleAbort::NotModelled("".into())),
        })
    }

    /// Evaluates a statement that only matches, of a rule or of an element with this key.
    pub(super) fn nft_check(&mut self, check: &CompiledStatement, key: &[u128]) -> Result<(), RuleAbort> {
        let holds = match check {
            CompiledStatement::Limit { rate, per, burst, over, counter } => {
                self.nft_limit(*rate, *per, *burst, (*counter, key.to_vec())) != *over
            }
            CompiledStatement::Constant(holds) => *holds,
            CompiledStatement::UnknownMatch { name, .. } => {
                let why = "matches an unknown amount of traffic".into();
                let fact = UnknownFact { name: name.clone(), why, same: FactScope::Nothing };
                return Err(RuleAbort::Unknown(fact));
            }
            other => return Err(RuleAbort::NotModelled(format!("{other:?}").into())),
        };
        if holds { Ok(()) } else { Err(RuleAbort::Break) }
    }

    /// `nft_limit_eval`: credit grows with time up to the burst.
    fn nft_limit(&mut self, rate: u64, per: u64, burst: u64, counter: (usize, Vec<u128>)) -> bool {
        let full = burst.saturating_mul(1000).max(1000);
        let (credit, since) = self.state.nft.limits.entry(counter).or_insert((full, self.now));
        let grown = (self.now - *since).saturating_mul(rate).saturating_mul(1000) / per;
        *credit = credit.saturating_add(grown).min(full);
        *since = self.now;
        let enough = *credit >= 1000;
        if enough {
            *credit -= 1000;
        }
        enough
    }

    /// Follows net/netfilter/nft_nat.c, nft_masq.c, nft_redir.c.
    fn nft_nat(
        &mut self,
        nat: &Nat,
        at: &RuleContext<'a>,
        skb: &Skb,
        matched: &mut bool,
    ) -> Result<RuleResult, RuleAbort> {
        let family = skb.packet.family();
        if nat.family.is_some_and(|only| only != family) {
            return Err(RuleAbort::Break);
        }
        let mut range = nat.range;
        let mut ports = match &nat.port {
            NatOperand::Nothing => None,
            NatOperand::Range(first, last) => Some((*first, *last)),
            NatOperand::Load(load) => Some(self.nft_one(load, at, skb)?).map(|port| (port, port)),
        };
        let mut addresses = match &nat.address {
            NatOperand::Nothing => None,
            NatOperand::Range(first, last) => Some((from_bits(family, *first), from_bits(family, *last))),
            NatOperand::Load(load) => {
                let values = self.nft_load(load, at, skb)?;
                ports = values.get(1).map(|port| (*port, *port)).or(ports);
                values.first().map(|address| (from_bits(family, *address), from_bits(family, *address)))
            }
        };
        self.nft_matched(at, matched);
        let manip = match nat.kind {
            NatKind::Dnat | NatKind::Redirect => Manip::Destination,
            NatKind::Snat | NatKind::Masquerade => Manip::Source,
        };
        let chosen = match nat.kind {
            NatKind::Dnat | NatKind::Snat => Some(addresses),
            NatKind::Masquerade => self.masquerade_address(skb).map(|own| Some((own, own))),
            NatKind::Redirect => self.redirect_address(at.hook, skb).map(|own| Some((own, own))),
        };
        match chosen {
            Some(chosen) => addresses = chosen,
            None if nat.kind == NatKind::Redirect && self.redirects_to_unknown(at.hook, skb) => {
                return Err(RuleAbort::NotModelled(format!("redirect {UNKNOWN_REDIRECT}").into()));
            }
            None => return Ok(RuleResult::Ends(self.lose(DropReason::NoAddress))),
        }
        let port = |port: u128| u16::try_from(port).unwrap_or(u16::MAX);
        range.addresses = addresses;
        range.ports = ports.map(|(first, last)| (port(first), port(last)));
        self.set_up(&range, manip, skb);
        Ok(RuleResult::Done)
    }
}
