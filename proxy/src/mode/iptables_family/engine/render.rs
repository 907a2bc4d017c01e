use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::config::NodeAddresses;
use crate::kernel::iptables::IptablesError;
use crate::mode::Plans;
use crate::mode::iptables_family::rules::jumps::Jump;
use crate::model::{Protocol, ServicePortName};
use crate::mutants;
use crate::plan::stale_flows::Frontend;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::ruleset::{Chains, Rule, SavedTables, Table, Tables};

pub type ChainId = (Table, &'static str);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRules {
    pub chains: Chains,
    pub lines: Vec<SharedRule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedRule {
    pub id: ChainId,
    pub rule: Rule,
}

impl ServiceRules {
    pub fn add(&mut self, id: ChainId, rules: impl IntoIterator<Item = Rule>) {
        self.lines.extend(rules.into_iter().map(|rule| SharedRule { id, rule }));
    }
}

/// A chain that exists even without services. The rules of service ports are between `head` and `tail`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedChain {
    pub id: ChainId,
    pub head: Vec<Rule>,
    pub tail: Vec<Rule>,
}

impl FixedChain {
    pub fn new(table: Table, name: &'static str, head: Vec<Rule>) -> FixedChain {
        FixedChain { id: (table, name), head, tail: Vec::new() }
    }

    pub fn shared(id: ChainId) -> FixedChain {
        FixedChain { id, head: Vec::new(), tail: Vec::new() }
    }

    pub fn rules<'a>(&'a self, lines: impl Iterator<Item = &'a SharedRule>) -> impl Iterator<Item = &'a Rule> {
        let id = self.id;
        let lines = lines.filter(move |line| line.id == id).map(|line| &line.rule);
        self.head.iter().chain(lines).chain(&self.tail)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FollowUp {
    pub next: Option<Instant>,
    pub full: bool,
}

/// A mode: the rules of plans, and the kernel objects besides rules.
///
/// A sync calls [`Renderer::begin`] (full syncs only), [`Renderer::render`] per service port,
/// [`Renderer::before_rules`], writes the rules, and calls [`Renderer::after_rules`]. Service ports' own chains may be
/// written earlier: no shared chain jumps to them yet.
pub trait Renderer<K> {
    type Error: std::error::Error + From<IptablesError> + Send + Sync + 'static;
    /// Settings on which all rules depend. Only full syncs replace them.
    type Node;

    /// The chains whose rules a full sync passes to [`Renderer::begin`].
    const READ: &'static [ChainId] = &[];

    fn node(&mut self, plan: NodePlan, addresses: &NodeAddresses, plans: &dyn Plans) -> Self::Node;

    fn depends_on(&self, _node: &NodePlan, _before: &NodeAddresses, _after: &NodeAddresses) -> bool {
        false
    }

    /// Returns the jumps in insertion order, each at the beginning of its built-in chain.
    fn jumps(node: &Self::Node) -> Vec<&'static Jump>;

    fn fixed(&self, node: &Self::Node, random_fully: bool) -> Vec<FixedChain>;

    /// Returns a service port's rules. `plan` is `None` if it was deleted.
    fn render(&mut self, node: &Self::Node, name: &ServicePortName, plan: Option<&ServicePortPlan>) -> ServiceRules;

    /// Starts a full sync, which renders every service port again.
    fn begin(&mut self, _saved: &SavedTables) {}

    /// Returns deleted service ports that still have rules, after a full sync has rendered the others.
    fn take_unrendered(&mut self) -> BTreeSet<ServicePortName> {
        BTreeSet::new()
    }

    /// Creates the objects to which rules refer. `saved`: the tables before a full sync.
    ///
    /// After an error the next sync is full.
    fn before_rules(
        &mut self,
        _kernel: &mut K,
        _node: &Self::Node,
        _saved: Option<&SavedTables>,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Removes objects without references. Returns the number of changed objects without rules.
    fn after_rules(&mut self, _kernel: &mut K, _node: &Self::Node) -> Result<usize, Self::Error> {
        Ok(0)
    }

    fn detect_flush(&mut self, _kernel: &mut K, _node: &Self::Node) -> Result<Option<String>, Self::Error> {
        Ok(None)
    }

    fn follow_up(&mut self, _kernel: &mut K, _now: Instant) -> Result<FollowUp, Self::Error> {
        Ok(FollowUp::default())
    }

    /// Returns UDP and SCTP frontends in kernel objects other than rules, found before the last full sync.
    fn take_previous_frontends(&mut self) -> BTreeSet<(Protocol, Frontend)> {
        BTreeSet::new()
    }

    fn relay_ports(&self, _name: &ServicePortName) -> Vec<u16> {
        Vec::new()
    }
}

/// Returns the chains of [`Renderer::fixed`].
pub fn fixed_chains<R: Renderer<K>, K>(renderer: &R, node: &R::Node, random_fully: bool) -> Vec<FixedChain> {
    let mut chains = renderer.fixed(node, random_fully);
    chains.iter_mut().for_each(|chain| mutants::rules(chain.id.1, &mut chain.head));
    chains
}

/// Returns the rules of [`Renderer::render`].
pub fn service_rules<R: Renderer<K>, K>(
    renderer: &mut R,
    node: &R::Node,
    name: &ServicePortName,
    plan: Option<&ServicePortPlan>,
) -> ServiceRules {
    let mut rules = renderer.render(node, name, plan);
    rules.chains.iter_mut().for_each(|(chain, rules)| mutants::rules(chain, rules));
    if mutants::alter_rules() {
        rules.lines = rules.lines.into_iter().flat_map(altered_line).collect();
    }
    rules
}

fn altered_line(SharedRule { id, rule }: SharedRule) -> impl Iterator<Item = SharedRule> {
    let mut rules = vec![rule];
    mutants::rules(id.1, &mut rules);
    rules.into_iter().map(move |rule| SharedRule { id, rule })
}

pub fn tables<R: Renderer<K>, K>(
    renderer: &mut R,
    node: &R::Node,
    plans: impl IntoIterator<Item = ServicePortPlan>,
    random_fully: bool,
) -> Tables {
    let (mut tables, mut lines) = (Tables::new(), BTreeMap::new());
    for plan in plans {
        let rules = service_rules(renderer, node, &plan.name, Some(&plan));
        lines.insert(plan.name, rules.lines);
        tables.entry(Table::Nat).or_default().extend(rules.chains);
    }
    for fixed in fixed_chains(renderer, node, random_fully) {
        let (table, chain) = fixed.id;
        tables
            .entry(table)
            .or_default()
            .insert(chain.to_owned(), fixed.rules(lines.values().flatten()).cloned().collect());
    }
    tables
}
