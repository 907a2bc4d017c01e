//! Policy routing (net/core/fib_rules.c, ip-rule(8)).

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::Host;
use super::route::{RouteDecision, RouteKind, RouteQuery};
use super::route_table::RouteTable;
use crate::masked::Masked;
use crate::protocol::Family;

/// `RT_TABLE_MAIN`.
pub const MAIN_TABLE: u32 = 254;
/// `RT_TABLE_LOCAL`.
pub const LOCAL_TABLE: u32 = 255;

/// `RT_TABLE_DEFAULT`.
const DEFAULT_TABLE: u32 = 253;

/// The action of a policy routing rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum PolicyAction {
    /// Looks up a table; without a matching route the next rule follows.
    Lookup {
        table: u32,
        /// `suppress_prefixlength`: ignores routes with prefixes up to this length.
        suppress: Option<u8>,
    },
    /// Jumps to the first rule with this number or higher.
    Goto(u32),
    Nop,
    /// Refuses the packet: `unreachable`, `prohibit` or `blackhole`.
    Refuse(RouteKind),
}

/// A policy routing rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct PolicyRule {
    pub family: Family,
    /// The priority; lower numbers come first.
    pub priority: u32,
    pub from: Option<Masked>,
    pub to: Option<Masked>,
    /// Input interface; `lo` matches packets of this machine.
    pub input: Option<String>,
    /// `oif` of a bound socket; matches nothing, as no socket is bound.
    pub output: Option<String>,
    /// Value and mask of the packet's mark.
    pub mark: Option<(u32, u32)>,
    /// Whether to invert all selectors together (`not`).
    pub invert: bool,
    pub action: PolicyAction,
}

impl PolicyRule {
    /// Returns a rule that matches all packets of the family.
    #[must_use]
    pub fn of_all(family: Family, priority: u32, action: PolicyAction) -> PolicyRule {
        PolicyRule {
            family,
            priority,
            from: None,
            to: None,
            input: None,
            output: None,
            mark: None,
            invert: false,
            action,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Selector {
    rule: PolicyRule,
    /// `Some(None)` is a missing interface, which matches nothing.
    input: Option<Option<usize>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct RoutingPolicy {
    v4: Vec<Selector>,
    v6: Vec<Selector>,
    tables: BTreeMap<u32, RouteTable>,
}

impl RoutingPolicy {
    pub(super) fn new(
        rules: &[PolicyRule],
        tables: BTreeMap<u32, RouteTable>,
        place: impl Fn(&str) -> Option<usize>,
    ) -> RoutingPolicy {
        let of = |family| {
            let own = rules.iter().filter(|rule| rule.family == family);
            let own = own.map(|rule| Selector { input: rule.input.as_deref().map(&place), rule: rule.clone() });
            let mut own: Vec<Selector> = own.collect();
            own.sort_by_key(|selector| selector.rule.priority);
            own
        };
        RoutingPolicy { v4: of(Family::V4), v6: of(Family::V6), tables }
    }

    pub(super) fn rules_of(&self, like: IpAddr) -> &[Selector] {
        if like.is_ipv4() { &self.v4 } else { &self.v6 }
    }

    /// Whether the family has no rules but the kernel's: the local, the main and the default table.
    pub(super) fn is_usual(&self, like: IpAddr) -> bool {
        let mut tables = self.rules_of(like).iter().map(|selector| match selector.rule.action {
            PolicyAction::Lookup { table, suppress: None } if selector.holds_always() => table,
            _ => 0,
        });
        let usual = [LOCAL_TABLE, MAIN_TABLE];
        let is_default = |table| table == DEFAULT_TABLE && !self.tables.contains_key(&DEFAULT_TABLE);
        self.rules_of(like).is_empty()
            || usual.into_iter().all(|table| tables.next() == Some(table)) && tables.all(is_default)
    }

    pub(super) fn table(&self, table: u32) -> Option<&RouteTable> {
        self.tables.get(&table)
    }

    pub(crate) fn asks_marks(&self, family: Family) -> bool {
        let rules = if family == Family::V4 { &self.v4 } else { &self.v6 };
        rules.iter().any(|selector| selector.rule.mark.is_some())
    }

    pub(super) fn decide(&self, host: &Host, look: &RouteQuery) -> RouteDecision {
        let rules = self.rules_of(look.to);
        let mut at = 0;
        while let Some(selector) = rules.get(at) {
            at += 1;
            if !selector.holds(look) {
                continue;
            }
            match selector.rule.action {
                PolicyAction::Nop => {}
                PolicyAction::Refuse(kind) => return RouteDecision::Refused(kind),
                // A goto only leads to later rules (`fib_nl_newrule`).
                PolicyAction::Goto(priority) => {
                    let target = rules[at..].iter().position(|other| other.rule.priority >= priority);
                    at = target.map_or(rules.len(), |further| at + further);
                }
                PolicyAction::Lookup { table, suppress } => {
                    if let Some(decision) = self.ask(host, table, suppress, look) {
                        return decision;
                    }
                }
            }
        }
        RouteDecision::NoRoute
    }

    /// Returns what each table decides that a rule names, whatever the rule's other conditions, up to the first rule that
    /// decides for all packets.
    pub(super) fn decisions(&self, host: &Host, to: IpAddr) -> Vec<RouteDecision> {
        let (mut decisions, mut asked) = (Vec::new(), BTreeMap::new());
        for selector in self.rules_of(to).iter().filter(|selector| selector.may_hold(to)) {
            let PolicyAction::Lookup { table, suppress } = selector.rule.action else { continue };
            let decided = *asked.entry((table, suppress)).or_insert_with(|| {
                let decision = self.ask(host, table, suppress, &RouteQuery::out(to));
                decisions.extend(decision);
                decision.is_some()
            });
            if decided && selector.holds_always() {
                break;
            }
        }
        decisions
    }

    fn ask(&self, host: &Host, table: u32, suppress: Option<u8>, look: &RouteQuery) -> Option<RouteDecision> {
        match table {
            LOCAL_TABLE => host.local_table(look.to),
            MAIN_TABLE => host.in_table(&host.routes, look.to, suppress),
            other => host.in_table(self.table(other)?, look.to, suppress),
        }
    }
}

impl Selector {
    fn may_hold(&self, to: IpAddr) -> bool {
        let rule = &self.rule;
        rule.invert || rule.output.is_none() && rule.to.as_ref().is_none_or(|range| range.contains(to))
    }

    fn holds_always(&self) -> bool {
        let PolicyRule { from, to, input, output, mark, invert, .. } = &self.rule;
        let every = |range: &Option<Masked>| range.as_ref().is_none_or(|range| range.prefix() == Some(0));
        every(from) && every(to) && input.is_none() && output.is_none() && mark.is_none() && !invert
    }

    /// Follows `fib_rule_match`, `fib4_rule_match`, `fib6_rule_match`.
    fn holds(&self, look: &RouteQuery) -> bool {
        let rule = &self.rule;
        let within = |range: &Masked, address: IpAddr| range.contains(address);
        let all = self.input.is_none_or(|input| input == Some(look.input))
            && rule.output.is_none()
            && rule.mark.is_none_or(|(value, mask)| (value ^ look.mark) & mask == 0)
            && rule.to.as_ref().is_none_or(|range| within(range, look.to))
            && rule
                .from
                .as_ref()
                .is_none_or(|range| look.from.map_or(range.prefix() == Some(0), |from| within(range, from)));
        all != rule.invert
    }
}
