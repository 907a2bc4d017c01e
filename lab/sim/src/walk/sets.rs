//! Matches on IP sets (`ip_set_test` in net/netfilter/ipset/ip_set_core.c).

use super::{Skb, Walker};
use crate::rules::matches::Side;
use crate::set::{Membership, SetQuery};

impl Walker<'_> {
    /// Whether a match on the set holds; `Err`: why it is unknown. A list holds if a match on one of its members does.
    pub(super) fn in_set(
        &self,
        set: usize,
        sides: &[Side],
        return_nomatch: bool,
        skb: &Skb,
    ) -> Result<bool, &'static str> {
        let set_is = |at: usize| self.is_member(at, sides, return_nomatch, skb);
        let Some(members) = &self.host.sets[set].members else { return set_is(set) };
        let mut unknown = self.changed(set).map(|()| false);
        let now = self.now / 1000;
        for (member, _) in members.iter().filter(|(_, ends)| ends.is_none_or(|ends| ends > now)) {
            match set_is(*member) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(why) => unknown = Err(why),
            }
        }
        unknown
    }

    fn changed(&self, set: usize) -> Result<(), &'static str> {
        let changed = self.state.changed.contains(&*self.host.sets[set].name);
        if changed { Err("matches a set that a rule has changed") } else { Ok(()) }
    }

    fn is_member(&self, set: usize, sides: &[Side], return_nomatch: bool, skb: &Skb) -> Result<bool, &'static str> {
        self.changed(set)?;
        let set = &self.host.sets[set];
        let interface = |at: usize| (&*self.host.names[at], self.host.interfaces[at].invented);
        let query = SetQuery {
            packet: &skb.packet,
            mark: skb.mark,
            input: skb.input.map(interface),
            output: skb.output.map(interface),
            ethernet: skb.input.is_some_and(|input| !self.is_loopback(input)),
            now: self.now / 1000,
        };
        let wanted = if return_nomatch && set.has_nomatch() { Membership::NoMatch } else { Membership::Yes };
        match set.test(&query, sides) {
            Membership::Unknown(why) => Err(why),
            found => Ok(found == wanted),
        }
    }
}
