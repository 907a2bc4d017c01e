//! Which base chains run at a hook, and in which order.

use std::ops::RangeBounds;

use crate::hook::Hook;
use crate::host::Host;
use crate::program::nft::{BaseChainRef, BesideIptables, DeviceChain};
use crate::rules::{ChainPolicy, TableName};
use crate::trace::{DropReason, NotModelled};
use crate::walk::unknown_fact::{FactScope, UnknownFact};
use crate::walk::{HookResult, PacketExit, Skb, Walker};

impl<'a> Walker<'a> {
    pub(in crate::walk) fn nft_filters(
        &mut self,
        hook: Hook,
        skb: &mut Skb,
        priorities: impl RangeBounds<i32>,
    ) -> HookResult {
        let host: &'a Host = self.host;
        let all = host.nft.at(skb.packet.family(), hook).filters.iter();
        self.nft_run(all.filter(|base| priorities.contains(&base.priority)), hook, skb)
    }

    pub(in crate::walk) fn nft_nats(
        &mut self,
        hook: Hook,
        skb: &mut Skb,
        priorities: impl RangeBounds<i32>,
        chosen: impl Fn(&Walker<'_>) -> bool,
    ) -> HookResult {
        let host: &'a Host = self.host;
        let all = host.nft.at(skb.packet.family(), hook).nats.iter();
        self.nft_run_until(all.filter(|base| priorities.contains(&base.priority)), hook, skb, chosen)
    }

    pub(in crate::walk) fn nft_run<'b>(
        &mut self,
        chains: impl IntoIterator<Item = &'b BaseChainRef>,
        hook: Hook,
        skb: &mut Skb,
    ) -> HookResult {
        self.nft_run_until(chains, hook, skb, |_| false)
    }

    /// Skips the remaining chains once `chosen` returns true.
    pub(in crate::walk) fn nft_run_until<'b>(
        &mut self,
        chains: impl IntoIterator<Item = &'b BaseChainRef>,
        hook: Hook,
        skb: &mut Skb,
        chosen: impl Fn(&Walker<'_>) -> bool,
    ) -> HookResult {
        for base in chains {
            if chosen(self) {
                break;
            }
            if let HookResult::Ends(leaves) = self.nft_base_chain(*base, hook, skb) {
                return HookResult::Ends(leaves);
            }
        }
        HookResult::On
    }

    /// Runs the iptables table `name` and the chains of its priority.
    pub(in crate::walk) fn table_at(
        &mut self,
        name: TableName,
        priority: i32,
        hook: Hook,
        skb: &mut Skb,
    ) -> HookResult {
        let host: &'a Host = self.host;
        let (before, after) =
            match self.nft_beside(&host.nft.at(skb.packet.family(), hook).filters, priority, name, hook, skb) {
                Ok(split) => split,
                Err(leaves) => return HookResult::Ends(leaves),
            };
        for (chains, is_first) in [(before, true), (after, false)] {
            if let HookResult::Ends(leaves) = self.nft_run(chains, hook, skb) {
                return HookResult::Ends(leaves);
            }
            if is_first && let HookResult::Ends(leaves) = self.table(name, hook, skb) {
                return HookResult::Ends(leaves);
            }
        }
        HookResult::On
    }

    /// Splits the chains of one priority into those that run before and after the iptables table `name`.
    pub(in crate::walk) fn nft_beside(
        &mut self,
        chains: &'a [BaseChainRef],
        priority: i32,
        name: TableName,
        hook: Hook,
        skb: &Skb,
    ) -> Result<(&'a [BaseChainRef], &'a [BaseChainRef]), PacketExit> {
        let start = chains.partition_point(|base| base.priority < priority);
        let end = chains.partition_point(|base| base.priority <= priority);
        let chains = &chains[start..end];
        // The latest chain is first, so all chains behind the first older one are older, too.
        for (at, base) in chains.iter().enumerate() {
            if !self.nft_is_before(*base, name, hook, skb)? {
                return Ok(chains.split_at(at));
            }
        }
        Ok((chains, &[]))
    }

    fn nft_is_before(
        &mut self,
        base: BaseChainRef,
        name: TableName,
        hook: Hook,
        skb: &Skb,
    ) -> Result<bool, PacketExit> {
        match base.beside {
            BesideIptables::Before => return Ok(true),
            BesideIptables::After => return Ok(false),
            BesideIptables::Unknown => {}
        }
        let host: &'a Host = self.host;
        let has_rules = host.programs(skb.packet.family()).filter_map(|program| program.table(name)).any(|table| {
            let entry = table.entry(hook.chain()).map(|entry| &table.chains[entry]);
            entry.is_some_and(|chain| !chain.steps.is_empty() || chain.policy == Some(ChainPolicy::Drop))
        });
        if !has_rules || host.nft.is_idle(base) {
            return Ok(true);
        }
        let table = &host.nft.ruleset.tables[base.table];
        let key = format!("{} {} before {name}", table.family, table.name);
        let what = format!("the order of this chain and chain {} of table {name} of iptables", hook.chain());
        let why = "is not known: their priorities are equal, and no listing shows which is younger";
        self.nft_machine_fact(base, key, what, why, skb)
    }

    fn nft_machine_fact(
        &mut self,
        base: BaseChainRef,
        key: String,
        what: String,
        why: &str,
        skb: &Skb,
    ) -> Result<bool, PacketExit> {
        let fact = UnknownFact { name: "".into(), why: why.into(), same: FactScope::Machine(key) };
        let rule = self.host.nft.rule(base.table, base.chain, None);
        let is_idle = self.host.nft.is_idle(base);
        self.decide(fact, rule, what, is_idle, &skb.packet)
            .map_err(|part: Box<NotModelled>| self.lose(DropReason::NotModelled(part)))
    }

    /// Runs the ingress or egress chains of an interface.
    pub(in crate::walk) fn nft_device(&mut self, interface: usize, incoming: bool, skb: &mut Skb) -> HookResult {
        let host: &'a Host = self.host;
        let (all, hook) =
            if incoming { (&host.nft.ingress, Hook::Prerouting) } else { (&host.nft.egress, Hook::Postrouting) };
        for DeviceChain { device, base } in all {
            let runs = match device {
                Some(device) => Ok(*device == interface),
                None => {
                    let table = &host.nft.ruleset.tables[base.table];
                    let chain = &table.chains[base.chain].name;
                    let name = &host.names[interface];
                    let key = format!("{} {} {chain} on {name}", table.family, table.name);
                    let what = format!("whether this chain is on {name}");
                    self.nft_machine_fact(*base, key, what, "is not known: the listing does not have its devices", skb)
                }
            };
            match runs {
                Ok(false) => {}
                Ok(true) => {
                    if let HookResult::Ends(leaves) = self.nft_base_chain(*base, hook, skb) {
                        return HookResult::Ends(leaves);
                    }
                }
                Err(leaves) => return HookResult::Ends(leaves),
            }
        }
        HookResult::On
    }

    /// Runs chains of family bridge, which see the bridge's ports as interfaces (net/bridge/br_forward.c, br_input.c).
    pub(in crate::walk) fn nft_bridge(
        &mut self,
        hook: Hook,
        skb: &mut Skb,
        priorities: impl RangeBounds<i32>,
    ) -> HookResult {
        let host: &'a Host = self.host;
        let chains = &host.nft.bridge[hook as usize];
        if chains.is_empty() {
            return HookResult::On;
        }
        let outer = (skb.input, skb.output);
        let has_input = matches!(hook, Hook::Prerouting | Hook::Input | Hook::Forward);
        let has_output = matches!(hook, Hook::Forward | Hook::Output | Hook::Postrouting);
        skb.input = skb.port_in.filter(|_| has_input);
        skb.output = skb.port_out.filter(|_| has_output);
        let result = self.nft_run(chains.iter().filter(|base| priorities.contains(&base.priority)), hook, skb);
        (skb.input, skb.output) = outer;
        result
    }
}
