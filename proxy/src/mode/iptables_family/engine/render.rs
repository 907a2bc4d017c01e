//! What a mode says of itself: the engine does the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::config::NodeAddresses;
use crate::kernel::iptables::IptablesError;
use crate::mode::Plans;
use crate::mode::iptables_family::rules::jumps::Jump;
use crate::model::{Protocol, ServicePortName};
use crate::plan::flows::Frontend;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::ruleset::{Chains, Rule, Saved, Table, Tables};

/// A chain: its table and name.
pub type Place = (Table, &'static str);

/// What one service port contributes to the tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRules {
    /// Chains of its own, in nat.
    pub chains: Chains,
    /// Rules in chains that service ports share.
    pub lines: Vec<Line>,
}

/// A rule in a chain that service ports share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The chain.
    pub place: Place,
    /// The rule.
    pub rule: Rule,
}

impl ServiceRules {
    /// Adds rules to a chain that service ports share.
    pub fn add(&mut self, place: Place, rules: impl IntoIterator<Item = Rule>) {
        self.lines.extend(rules.into_iter().map(|rule| Line { place, rule }));
    }
}

/// A chain that is there whatever the services: the rules of service ports stand between its head and its tail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedChain {
    /// Its table and name.
    pub place: Place,
    /// Its first rules.
    pub head: Vec<Rule>,
    /// Its last rules.
    pub tail: Vec<Rule>,
}

impl FixedChain {
    /// A chain that begins with these rules.
    pub fn new(table: Table, name: &'static str, head: Vec<Rule>) -> FixedChain {
        FixedChain { place: (table, name), head, tail: Vec::new() }
    }

    /// A chain that service ports alone fill.
    pub fn shared(place: Place) -> FixedChain {
        FixedChain { place, head: Vec::new(), tail: Vec::new() }
    }

    /// All its rules.
    pub fn rules<'a>(&'a self, lines: impl Iterator<Item = &'a Line>) -> impl Iterator<Item = &'a Rule> {
        let place = self.place;
        let lines = lines.filter(move |line| line.place == place).map(|line| &line.rule);
        self.head.iter().chain(lines).chain(&self.tail)
    }
}

/// What goes on after a sync.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FollowUp {
    /// When to come again.
    pub next: Option<Instant>,
    /// The next sync must be a full one.
    pub full: bool,
}

/// A mode: how plans are written down, and what it has in the kernel besides rules.
///
/// A sync calls, in this order: [`Renderer::begin`] (a full one), [`Renderer::render`] for each service port,
/// [`Renderer::before_rules`], then the rules are written, [`Renderer::after_rules`]. Chains of service ports' own may be written
/// before [`Renderer::before_rules`]: no packet meets them until a shared chain leads to them.
pub trait Renderer<K> {
    /// What the kernel may answer.
    type Error: std::error::Error + From<IptablesError> + Send + Sync + 'static;
    /// What rules depend on besides plans. It changes with full syncs only.
    type Node;

    /// Chains of which a full sync is to report the rules to [`Renderer::begin`].
    const READ: &'static [Place] = &[];

    /// What rules of service ports depend on besides their plans.
    fn node(&mut self, plan: NodePlan, addresses: &NodeAddresses, plans: &dyn Plans) -> Self::Node;

    /// Whether what this mode makes of the node's addresses differs, where the plan of the node does not.
    fn depends_on(&self, _node: &NodePlan, _before: &NodeAddresses, _after: &NodeAddresses) -> bool {
        false
    }

    /// The jumps into this mode's chains, in the order in which they are put before what stands in the kernel's.
    fn jumps(node: &Self::Node) -> Vec<&'static Jump>;

    /// The chains that are there whatever the services.
    fn fixed(&self, node: &Self::Node, random_fully: bool) -> Vec<FixedChain>;

    /// Writes down one service port, or notes that it is gone.
    fn render(&mut self, node: &Self::Node, name: &ServicePortName, plan: Option<&ServicePortPlan>) -> ServiceRules;

    /// A full sync begins: every service port will be rendered, and what was rendered before does not count.
    fn begin(&mut self, _saved: &Saved) {}

    /// Makes what rules lead to. `saved`: what the tables held at the beginning of a full sync.
    ///
    /// # Errors
    /// When the kernel refuses; the next sync is a full one.
    fn before_rules(&mut self, _kernel: &mut K, _node: &Self::Node, _saved: Option<&Saved>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Removes what rules no longer lead to. How many objects other than rules the sync has changed.
    ///
    /// # Errors
    /// As [`Renderer::before_rules`].
    fn after_rules(&mut self, _kernel: &mut K, _node: &Self::Node) -> Result<usize, Self::Error> {
        Ok(0)
    }

    /// What of the objects other than rules another program has taken away, in words.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn lost(&mut self, _kernel: &mut K, _node: &Self::Node) -> Result<Option<String>, Self::Error> {
        Ok(None)
    }

    /// Looks after what goes on after a sync, such as backends that drain.
    ///
    /// # Errors
    /// When the kernel refuses something.
    fn follow_up(&mut self, _kernel: &mut K, _now: Instant) -> Result<FollowUp, Self::Error> {
        Ok(FollowUp::default())
    }

    /// The frontends of UDP and SCTP that stood in the kernel besides rules when the last full sync began.
    fn take_previous_frontends(&mut self) -> BTreeSet<(Protocol, Frontend)> {
        BTreeSet::new()
    }

    /// The ports of this node on which the program itself answers for a service port.
    fn relay_ports(&self, _name: &ServicePortName) -> Vec<u16> {
        Vec::new()
    }
}

/// Everything that the tables are to hold, as one value.
pub fn tables<R: Renderer<K>, K>(
    renderer: &mut R,
    node: &R::Node,
    plans: impl IntoIterator<Item = ServicePortPlan>,
    random_fully: bool,
) -> Tables {
    let (mut tables, mut lines) = (Tables::new(), BTreeMap::new());
    for plan in plans {
        let rules = renderer.render(node, &plan.name, Some(&plan));
        lines.insert(plan.name, rules.lines);
        tables.entry(Table::Nat).or_default().extend(rules.chains);
    }
    for fixed in renderer.fixed(node, random_fully) {
        let (table, chain) = fixed.place;
        tables
            .entry(table)
            .or_default()
            .insert(chain.to_owned(), fixed.rules(lines.values().flatten()).cloned().collect());
    }
    tables
}
