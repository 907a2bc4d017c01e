//! Sets' lookups and changes (net/netfilter/nft_lookup.c, nft_dynset.c).

use super::{RuleAbort, RuleContext};
use crate::nft::SetOperation;
use crate::program::nft::{EntryContent, SetEntry};
use crate::walk::Walker;

/// The default size of sets (`nft_dynset_init`).
const ROOM: usize = 0xffff;

impl<'a> Walker<'a> {
    /// Finds an element and evaluates its checks (`nft_set_elem_update_expr`).
    pub(super) fn nft_look_up(
        &mut self,
        at: &RuleContext<'a>,
        set: usize,
        key: &[u128],
    ) -> Result<Option<EntryContent>, RuleAbort> {
        let Some(SetEntry { content, checks, .. }) = self.nft_found(at, set, key)? else { return Ok(None) };
        checks.iter().flat_map(|checks| checks.iter()).try_for_each(|check| self.nft_check(check, key))?;
        Ok(Some(content))
    }

    /// Finds an element without its checks, and records it in the journey.
    pub(super) fn nft_found(
        &mut self,
        at: &RuleContext<'a>,
        set: usize,
        key: &[u128],
    ) -> Result<Option<SetEntry>, RuleAbort> {
        let found = self.nft_find(at, set, key)?;
        if let Some(element) = found.as_ref().and_then(|entry| at.program.element(at.table, set, entry)) {
            self.elements.push(element);
        }
        Ok(found)
    }

    pub(super) fn nft_find(
        &self,
        at: &RuleContext<'a>,
        set: usize,
        key: &[u128],
    ) -> Result<Option<SetEntry>, RuleAbort> {
        let set = &at.program.tables[at.table].sets[set];
        let stays = |entry: &&SetEntry| entry.expires.is_none_or(|end| end > self.now);
        let put_in = set.name.as_ref().and_then(|name| self.state.nft.elements.get(name));
        if let Some(entry) = put_in.and_then(|elements| elements.get(key)).filter(stays) {
            return Ok(Some(entry.clone()));
        }
        if let Some(entry) = set.exact.get(key).filter(stays) {
            return Ok(Some(entry.clone()));
        }
        let within = |ranges: &[(u128, u128)]| {
            ranges.len() == key.len()
                && ranges.iter().zip(key).all(|((first, last), part)| (first..=last).contains(&part))
        };
        if let Some((_, entry)) = set.ranges.iter().find(|(ranges, entry)| within(ranges) && stays(&entry)) {
            return Ok(Some(entry.clone()));
        }
        match (&set.any, &set.not_modelled) {
            // Elements that are not modelled may match.
            (_, Some(what)) => Err(RuleAbort::NotModelled(what.clone())),
            (Some(entry), None) => Ok(Some(entry.clone())),
            (None, None) => Ok(None),
        }
    }

    /// Adds or updates an element, whose expiry is a timeout, and evaluates its checks; a full set ends the rule
    /// (`nft_dynset_eval`).
    pub(super) fn nft_element(
        &mut self,
        at: &RuleContext<'a>,
        operation: SetOperation,
        set: usize,
        key: &[u128],
        mut entry: SetEntry,
    ) -> Result<(), RuleAbort> {
        let known = self.nft_find(at, set, key)?;
        let set = &at.program.tables[at.table].sets[set];
        let Some(name) = &set.name else {
            return Err(RuleAbort::NotModelled("a change of an anonymous set".into()));
        };
        let now = self.now;
        let elements = self.state.nft.elements.entry(name.clone()).or_default();
        elements.retain(|_, entry| entry.expires.is_none_or(|end| end > now));
        entry.expires = entry.expires.or(set.timeout).map(|time| now.saturating_add(time));
        if operation == SetOperation::Delete {
            if elements.remove(key).is_none() && known.is_some() {
                return Err(RuleAbort::NotModelled("deleting an element that no rule has added".into()));
            }
            return Ok(());
        }
        let count = elements.len() + set.exact.len() + set.ranges.len();
        if known.is_none() && count >= set.size.unwrap_or(ROOM) {
            return Err(RuleAbort::Break);
        }
        let checks = match known {
            Some(known) => {
                if operation == SetOperation::Update {
                    let entry = SetEntry { checks: known.checks.clone(), ..entry };
                    elements.insert(key.to_vec(), entry);
                }
                known.checks
            }
            None => {
                let checks = entry.checks.clone();
                elements.insert(key.to_vec(), entry);
                checks
            }
        };
        checks.iter().flat_map(|checks| checks.iter()).try_for_each(|check| self.nft_check(check, key))
    }
}
