//! Sets' lookups and changes (net/netfilter/nft_lookup.c, nft_dynset.c).

use super::{RuleAbort, RuleContext};
use crate::nft::SetOperation;
use crate::program::nft::{EntryContent, SetEntry};
use crate::walk::Walker;

/// The default size of sets (`nft_dynset_init`).
const ROOM: usize = 0xffff;

impl<'a> Walker<'a> {
    pub(super) fn nft_find(
        &self,
        at: &RuleContext<'a>,
        set: usize,
        key: &[u128],
    ) -> Result<Option<EntryContent>, RuleAbort> {
        let set = &at.program.tables[at.table].sets[set];
        let stays = |entry: &&SetEntry| entry.expires.is_none_or(|end| end > self.now);
        let put_in = set.dynamic.as_ref().and_then(|name| self.state.nft.elements.get(name));
        if let Some(entry) = put_in.and_then(|elements| elements.get(key)).filter(stays) {
            return Ok(Some(entry.content.clone()));
        }
        if let Some(entry) = set.exact.get(key).filter(stays) {
            return Ok(Some(entry.content.clone()));
        }
        let within = |ranges: &[(u128, u128)]| {
            ranges.len() == key.len()
                && ranges.iter().zip(key).all(|((first, last), part)| (first..=last).contains(&part))
        };
        if let Some((_, entry)) = set.ranges.iter().find(|(ranges, entry)| within(ranges) && stays(&entry)) {
            return Ok(Some(entry.content.clone()));
        }
        match (&set.any, &set.not_modelled) {
            // Elements that are not modelled may match.
            (_, Some(what)) => Err(RuleAbort::NotModelled(what.clone())),
            (Some(content), None) => Ok(Some(content.clone())),
            (None, None) => Ok(None),
        }
    }

    /// Adds or updates an element; a full set ends the rule.
    pub(super) fn nft_element(
        &mut self,
        at: &RuleContext<'a>,
        operation: SetOperation,
        set: usize,
        key: Vec<u128>,
        content: EntryContent,
        timeout: Option<u64>,
    ) -> Result<(), RuleAbort> {
        let is_there = self.nft_find(at, set, &key)?.is_some();
        let set = &at.program.tables[at.table].sets[set];
        let Some(name) = &set.dynamic else {
            return Err(RuleAbort::NotModelled("a set without the flag dynamic".into()));
        };
        let now = self.now;
        let elements = self.state.nft.elements.entry(name.clone()).or_default();
        elements.retain(|_, entry| entry.expires.is_none_or(|end| end > now));
        let expires = timeout.or(set.timeout).map(|time| now.saturating_add(time));
        match operation {
            SetOperation::Delete => {
                if elements.remove(&key).is_none() && is_there {
                    return Err(RuleAbort::NotModelled("deleting an element that no rule has added".into()));
                }
            }
            SetOperation::Add if is_there => {}
            SetOperation::Add | SetOperation::Update => {
                let count = elements.len() + set.exact.len() + set.ranges.len();
                if !is_there && count >= set.size.unwrap_or(ROOM) {
                    return Err(RuleAbort::Break);
                }
                elements.insert(key, SetEntry { content, expires });
            }
        }
        Ok(())
    }
}
