//! Brings the table to what is wanted: everything against what stands (full), or what changed against what was sent last (partial).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::layout;
use super::ledger::{Difference, Ledger, differing};
use super::objects::{ServiceObjects, Slots, render};
use super::shared::{At, Does, Shared};
use crate::config::NodeAddresses;
use crate::kernel::nft_table::{Look, NftTable, NftTableError, Saved, Standing};
use crate::mode::Mode;
use crate::mode::engine::render::Plans;
use crate::model::{Family, Protocol, ServicePortName};
use crate::nftables::change::TableChange;
use crate::nftables::{Chain, Change, Element, Key, Name, Set, Value};
use crate::plan::flows::Frontend;
use crate::plan::{
    AllowedSources, BackendSet, ClusterIpFrontend, ExternalFrontends, FrontendAction, Masquerade, NoLocalEndpoints,
    NodePlan, ServicePortPlan, Verdict,
};
use crate::ruleset::Report;
use crate::source::ObjectKey;

/// Room for elements in each set and map of a new table, at least.
const ROOM: u32 = 4096;
/// Kernels before 6.2 answer EBUSY to the deletion of a chain within the moment in which the last element that led there goes
/// (kubernetes/kubernetes#122604).
const UNTIL_DELETED: Duration = Duration::from_secs(1);

/// One family's table.
pub struct Syncer<K> {
    table: K,
    sent: Option<Sent>,
    /// Numbers that endpoints had before the table's state was doubted.
    numbers: Ledger,
    previous_frontends: BTreeSet<(Protocol, Frontend)>,
    /// Those that the next partial sync sends.
    service_ranges: Option<Vec<IpNet>>,
}

struct Sent {
    node: NodePlan,
    ledger: Ledger,
    /// The room of each set and map.
    sizes: BTreeMap<&'static str, u32>,
    /// Chains of service ports that stand.
    chains: BTreeSet<Name>,
    /// Sets of service ports that stand.
    sets: BTreeSet<Name>,
    /// Of them, those that nothing leads to any more, and since when.
    unused: BTreeMap<Unused, Instant>,
    /// How often the chains are used that are there whatever the services, where that does not depend on them.
    uses: Vec<(Name, usize)>,
}

/// Chains go before the sets that their rules name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Unused {
    Chain(Name),
    Set(Name),
}

impl<K: NftTable> Syncer<K> {
    /// Knows nothing of the kernel's state yet.
    pub fn new(table: K) -> Syncer<K> {
        Syncer {
            table,
            sent: None,
            numbers: Ledger::default(),
            previous_frontends: BTreeSet::new(),
            service_ranges: None,
        }
    }

    /// The kernel adapter, for tests.
    pub fn table(&mut self) -> &mut K {
        &mut self.table
    }

    fn try_full(&mut self, node: &NodePlan, plans: &dyn Plans) -> Result<Report, NftTableError> {
        let base_chains: Vec<&str> = layout::base_chains().collect();
        let sets = layout::sets(|_| 0);
        let standing = self.table.look(Look { base_chains: &base_chains, elements: &sets })?;
        let found = match &standing {
            Standing::Ours(saved) => numbers(&saved.elements),
            Standing::Nothing | Standing::Other => HashMap::new(),
        };
        if let Standing::Ours(saved) = &standing {
            self.previous_frontends.extend(frontends(&saved.elements));
        }
        let before = std::mem::take(&mut self.numbers);
        let mut ledger = Ledger::default();
        let all = plans.iter().map(|plan| {
            let slots = before.slots(&plan.name).cloned().unwrap_or_else(|| found_slots(&plan, &found));
            let objects = render(&plan, node, &slots);
            (plan.name, Some(objects))
        });
        ledger.replace(all.collect());
        let wanted = Wanted::new(node, &ledger);
        let (change, sizes, unused) = wanted.change(&self.table, standing, &ledger);
        let result = self.table.commit(&change);
        if let Err(error) = result {
            self.numbers = ledger;
            return Err(error);
        }
        let report = Report {
            full: true,
            rules: change.rules(),
            changes: change.add_elements.len() + change.delete_elements.len(),
            ..Report::default()
        };
        let now = Instant::now();
        let unused: BTreeMap<Unused, Instant> = unused.into_iter().map(|unused| (unused, now)).collect();
        let (mut chains, mut sets) = (wanted.own_chains(), wanted.own_sets());
        for unused in unused.keys() {
            match unused {
                Unused::Chain(name) => chains.insert(name.clone()),
                Unused::Set(name) => sets.insert(name.clone()),
            };
        }
        let uses = uses(&wanted.fixed);
        self.sent = Some(Sent { node: node.clone(), ledger, sizes, chains, sets, unused, uses });
        Ok(report)
    }
}

/// A table that has each kind of thing in it that tables of this mode have: what a kernel can make of it, it can make of all.
pub fn probe(family: Family) -> Change {
    let node = layout::probe_node(family);
    let protocol = Protocol::Tcp;
    let mut ledger = Ledger::default();
    let all = [At::Address, At::NodePort].into_iter().flat_map(|at| {
        let does = [Does::External(2), Does::Local { local: 2, all: 3 }];
        does.into_iter().flat_map(move |does| Shared { at, protocol, does }.with_targets())
    });
    let name = ServicePortName {
        service: ObjectKey { namespace: "probe".to_owned(), name: "probe".to_owned() },
        port: String::new(),
        protocol,
    };
    let objects = ServiceObjects { shared: all.collect(), ..render(&probed(&name, family), &node, &Slots::default()) };
    ledger.replace(vec![(name, Some(objects))]);
    let (mut change, ..) = Wanted::new(&node, &ledger).anew(TableChange::Make, &ledger);
    // No packet is to meet it.
    change.add_chains.retain(|_, chain| chain.base.is_none());
    change
}

/// A service port with session affinity, source ranges and a hairpin.
fn probed(name: &ServicePortName, family: Family) -> ServicePortPlan {
    let range = family.loopback_range();
    let other: IpAddr = match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let action = FrontendAction { verdict: Verdict::Deliver(BackendSet::Cluster), masquerade: Masquerade::Always };
    ServicePortPlan {
        name: name.clone(),
        port: 1,
        cluster_backends: vec![SocketAddr::new(range.network(), 1)],
        local_backends: Vec::new(),
        hairpins: vec![range.network()],
        serving: Vec::new(),
        affinity: Some(Duration::from_secs(1)),
        internal: Some(ClusterIpFrontend { address: range.network(), action }),
        external: Some(ExternalFrontends {
            node_port: Some(1),
            external_ips: Vec::new(),
            load_balancer_ips: vec![other],
            allowed_sources: Some(AllowedSources { ranges: vec![range], load_balancer_ips: false }),
            action,
            short_circuit: None,
        }),
        health_check: None,
        no_local_endpoints: NoLocalEndpoints::default(),
        hints_ignored: None,
    }
}

/// Everything that is wanted.
struct Wanted {
    fixed: Vec<(Name, Chain)>,
    chains: BTreeMap<Name, Chain>,
    sets: BTreeMap<Name, Set>,
    elements: Vec<Element>,
}

impl Wanted {
    fn new(node: &NodePlan, ledger: &Ledger) -> Wanted {
        let mut chains: BTreeMap<Name, Chain> =
            ledger.shared().map(|shared| (shared.name(), shared.chain(node))).collect();
        let mut sets = BTreeMap::new();
        for objects in ledger.objects() {
            chains.extend(objects.chains.iter().map(|(name, chain)| (name.clone(), chain.clone())));
            sets.extend(objects.sets.iter().map(|(name, set)| (name.clone(), set.clone())));
        }
        let mut elements: Vec<Element> = ledger.elements().chain(layout::elements(node)).collect();
        elements.sort_unstable();
        Wanted { fixed: layout::chains(node), chains, sets, elements }
    }

    fn own_chains(&self) -> BTreeSet<Name> {
        self.chains.keys().cloned().collect()
    }

    fn own_sets(&self) -> BTreeSet<Name> {
        self.sets.keys().cloned().collect()
    }

    /// From what stands to what is wanted; the room of sets, and what stands and nothing leads to any more.
    fn change<K: NftTable>(
        &self,
        table: &K,
        standing: Standing,
        ledger: &Ledger,
    ) -> (Change, BTreeMap<&'static str, u32>, BTreeSet<Unused>) {
        match standing {
            Standing::Ours(saved) => match self.fitting_sizes(table, &saved, ledger) {
                Some(sizes) => {
                    let (change, unused) = self.difference(table, saved);
                    (change, sizes, unused)
                }
                None => self.anew(TableChange::Replace, ledger),
            },
            Standing::Other => self.anew(TableChange::Replace, ledger),
            Standing::Nothing => self.anew(TableChange::Make, ledger),
        }
    }

    /// The room that the sets which stand have, if they are those that are wanted, with room enough, and base chains are where they should be.
    fn fitting_sizes<K: NftTable>(
        &self,
        table: &K,
        saved: &Saved,
        ledger: &Ledger,
    ) -> Option<BTreeMap<&'static str, u32>> {
        let mut sizes = BTreeMap::new();
        for (name, set) in layout::sets(|_| 0) {
            let there = saved.sets.get(name)?;
            if there.shape != table.shape(&set) || set.size.is_some() != there.size.is_some() {
                return None;
            }
            if let Some(size) = there.size {
                // What goes and what comes in one batch are both counted.
                let most = ledger.count(name) + saved.elements.iter().filter(|element| element.set == name).count();
                if u32::try_from(most).map_or(true, |most| most > size) {
                    return None;
                }
                sizes.insert(name, size);
            }
        }
        for (name, set) in &self.sets {
            if saved.sets.get(&**name).is_some_and(|there| there.shape != table.shape(set)) {
                return None;
            }
        }
        for (name, chain) in &self.fixed {
            if saved.chains.get(&**name).is_some_and(|there| there.base != chain.base) {
                return None;
            }
        }
        Some(sizes)
    }

    fn anew(&self, table: TableChange, ledger: &Ledger) -> (Change, BTreeMap<&'static str, u32>, BTreeSet<Unused>) {
        let room = |name: &str| {
            let twice = u32::try_from(ledger.count(name).saturating_mul(2)).unwrap_or(u32::MAX);
            twice.max(ROOM).checked_next_power_of_two().unwrap_or(u32::MAX)
        };
        let sets = layout::sets(room);
        let sizes = sets.iter().filter_map(|(name, set)| Some((*name, set.size?))).collect();
        let own = self.sets.iter().map(|(name, set)| (name.clone(), set.clone()));
        let change = Change {
            table,
            add_sets: sets.into_iter().map(|(name, set)| (name.into(), set)).chain(own).collect(),
            add_chains: self
                .chains
                .iter()
                .chain(self.fixed.iter().map(|(name, chain)| (name, chain)))
                .map(|(name, chain)| (name.clone(), chain.clone()))
                .collect(),
            add_elements: self.elements.clone(),
            ..Change::default()
        };
        (change, sizes, BTreeSet::new())
    }

    fn difference<K: NftTable>(&self, table: &K, mut saved: Saved) -> (Change, BTreeSet<Unused>) {
        let mut change = Change::default();
        for (name, chain) in self.chains.iter().chain(self.fixed.iter().map(|(name, chain)| (name, chain))) {
            match saved.chains.remove(&**name) {
                None => drop(change.add_chains.insert(name.clone(), chain.clone())),
                Some(there) if there.rules != table.fingerprints(&chain.rules) => {
                    change.write_rules.insert(name.clone(), chain.rules.clone());
                }
                Some(_) => {}
            }
        }
        let shared = layout::sets(|_| 0);
        saved.sets.retain(|name, _| shared.iter().all(|(shared, _)| *shared != &**name));
        for (name, set) in &self.sets {
            if saved.sets.remove(&**name).is_none() {
                change.add_sets.push((name.clone(), set.clone()));
            }
        }
        saved.elements.sort_unstable();
        (change.delete_elements, change.add_elements) = differing(saved.elements, self.elements.clone());
        let chains = saved.chains.into_keys().map(|name| Unused::Chain(name.into()));
        let sets = saved.sets.into_keys().map(|name| Unused::Set(name.into()));
        (change, chains.chain(sets).collect())
    }
}

/// The numbers that endpoints have in the table: by map and frontend.
fn numbers(elements: &[Element]) -> HashMap<(&'static str, Key), Vec<(u32, SocketAddr)>> {
    let mut found: HashMap<(&'static str, Key), Vec<(u32, SocketAddr)>> = HashMap::new();
    for element in elements {
        if let Value::Endpoint(endpoint) = &element.value
            && let (Some((frontend, number)), Some(endpoint)) = (element.key.split_number(), endpoint.as_endpoint())
        {
            found.entry((element.set, frontend)).or_default().push((number, endpoint));
        }
    }
    found.values_mut().for_each(|endpoints| endpoints.sort_unstable());
    found
}

/// The numbers that a service port's endpoints have there, as far as a frontend tells.
fn found_slots(plan: &ServicePortPlan, found: &HashMap<(&'static str, Key), Vec<(u32, SocketAddr)>>) -> Slots {
    if found.is_empty() {
        return Slots::default();
    }
    let objects = render(plan, &layout::probe_node(Family::V4), &Slots::default());
    let of_map = |wanted: &[SocketAddr]| {
        if wanted.is_empty() {
            return Vec::new();
        }
        let mut keys = objects.elements.iter().filter_map(|element| match &element.value {
            Value::Endpoint(endpoint) if endpoint.as_endpoint() == wanted.first().copied() => {
                Some((element.set, element.key.split_number()?.0))
            }
            _ => None,
        });
        let endpoints = keys.find_map(|key| found.get(&key));
        endpoints.map(|endpoints| endpoints.iter().map(|(_, endpoint)| *endpoint).collect()).unwrap_or_default()
    };
    Slots { cluster: of_map(&plan.cluster_backends), local: of_map(&plan.local_backends) }
}

/// The frontends of datagram protocols that packets are led from.
fn frontends(elements: &[Element]) -> impl Iterator<Item = (Protocol, Frontend)> {
    elements.iter().filter_map(|element| {
        let (protocol, frontend) = match element.set {
            layout::SERVICE_IPS | layout::NO_ENDPOINT_SERVICES => {
                let (address, protocol, port) = element.key.as_frontend()?;
                (protocol, Frontend::Address(SocketAddr::new(address, port)))
            }
            layout::SERVICE_NODEPORTS | layout::NO_ENDPOINT_NODEPORTS => {
                let (protocol, port) = element.key.as_node_port()?;
                (protocol, Frontend::NodePort(port))
            }
            _ => return None,
        };
        crate::plan::flows::needs_conntrack_cleanup(protocol).then_some((protocol, frontend))
    })
}

/// How often chains are used by rules, their own and those that lead there; of chains that no element leads to.
fn uses(fixed: &[(Name, Chain)]) -> Vec<(Name, usize)> {
    let jumps = |to: &Name| {
        let statements = fixed.iter().flat_map(|(_, chain)| &chain.rules).flat_map(|rule| &rule.statements);
        let leads = |statement: &crate::nftables::Statement| {
            use crate::nftables::{Statement, Verdict};
            matches!(statement, Statement::Verdict(Verdict::Jump(chain) | Verdict::Goto(chain)) if chain == to)
        };
        statements.filter(|statement| leads(statement)).count()
    };
    let constant = fixed.iter().filter(|(name, _)| !layout::is_led_to_by_elements(name));
    constant.map(|(name, chain)| (name.clone(), chain.rules.len() + jumps(name))).collect()
}

impl Sent {
    /// Takes in the ranges that cluster IPs come from, and adds what that changes.
    fn replace_service_ranges(&mut self, ranges: Vec<IpNet>, difference: &mut Difference) {
        let before = layout::service_cidrs(&self.node.service_ranges);
        let (gone, come) = differing(before, layout::service_cidrs(&ranges));
        self.node.service_ranges = ranges;
        difference.gone.extend(gone);
        difference.come.extend(come);
    }

    /// The change that brings the table from what was sent to the ledger's new state; `None` where there is no room for it.
    fn change(&mut self, difference: Difference, now: Instant) -> Option<Change> {
        let Difference { gone, come, shared_gone, shared_come, chains_gone, chains_come, sets_gone, sets_come } =
            difference;
        for (set, size) in &self.sizes {
            let leaving = gone.iter().filter(|element| element.set == *set).count();
            if u32::try_from(self.ledger.count(set) + leaving).map_or(true, |most| most > *size) {
                return None;
            }
        }
        let mut change = Change { delete_elements: gone, add_elements: come, ..Change::default() };
        let shared_come = shared_come.into_iter().map(|shared: Shared| (shared.name(), shared.chain(&self.node)));
        for (name, chain) in shared_come.chain(chains_come) {
            self.unused.remove(&Unused::Chain(name.clone()));
            if self.chains.insert(name.clone()) {
                change.add_chains.insert(name, chain);
            } else {
                change.write_rules.insert(name, chain.rules);
            }
        }
        for (name, set) in sets_come {
            self.unused.remove(&Unused::Set(name.clone()));
            if self.sets.insert(name.clone()) {
                change.add_sets.push((name, set));
            }
        }
        let chains = shared_gone.into_iter().map(Shared::name).chain(chains_gone).map(Unused::Chain);
        self.unused.extend(chains.chain(sets_gone.into_iter().map(Unused::Set)).map(|unused| (unused, now)));
        Some(change)
    }
}

impl<K: NftTable> Mode for Syncer<K> {
    type Error = NftTableError;

    fn needs_full(&self) -> bool {
        self.sent.is_none()
    }

    fn require_full_sync(&mut self) {
        if let Some(sent) = self.sent.take() {
            self.numbers = sent.ledger;
        }
    }

    fn take_previous_frontends(&mut self) -> BTreeSet<(Protocol, Frontend)> {
        std::mem::take(&mut self.previous_frontends)
    }

    fn refused(&self) -> &BTreeMap<ServicePortName, String> {
        static NONE: BTreeMap<ServicePortName, String> = BTreeMap::new();
        &NONE
    }

    /// A look at the chains that are there whatever the services: what empties or removes the table takes them along.
    fn detect_flush(&mut self) -> Result<Option<String>, NftTableError> {
        let Some(sent) = &self.sent else { return Ok(None) };
        let names: Vec<&str> = sent.uses.iter().map(|(name, _)| &**name).collect();
        let found = self.table.uses(&names)?;
        let lost = sent.uses.iter().zip(found).find(|((_, wanted), found)| Some(*wanted) != *found);
        Ok(lost.map(|((name, _), found)| match found {
            None => format!("the chain {name} of the table {}", layout::TABLE),
            Some(_) => format!("a rule of the chain {name} of the table {}", layout::TABLE),
        }))
    }

    fn full(&mut self, node: NodePlan, _: &NodeAddresses, plans: &dyn Plans) -> Result<Report, NftTableError> {
        self.require_full_sync();
        self.service_ranges = None;
        self.try_full(&node, plans)
    }

    fn set_service_ranges(&mut self, ranges: Vec<IpNet>) {
        self.service_ranges = Some(ranges);
    }

    fn partial(
        &mut self,
        changed: BTreeMap<ServicePortName, Option<ServicePortPlan>>,
    ) -> Result<Report, NftTableError> {
        let Some(mut sent) = self.sent.take() else { return Ok(Report::default()) };
        let render = |(name, plan): (ServicePortName, Option<ServicePortPlan>)| {
            let nothing = Slots::default();
            let before = sent.ledger.slots(&name).unwrap_or(&nothing);
            let objects: Option<ServiceObjects> = plan.map(|plan| render(&plan, &sent.node, before));
            (name, objects)
        };
        let rendered = changed.into_iter().map(render).collect();
        let mut difference = sent.ledger.replace(rendered);
        if let Some(ranges) = self.service_ranges.take() {
            sent.replace_service_ranges(ranges, &mut difference);
        }
        let Some(change) = sent.change(difference, Instant::now()) else {
            // A full sync makes a table with more room; until then the state is not known.
            self.numbers = sent.ledger;
            return Err(NftTableError {
                operation: format!("add elements to the table {}", layout::TABLE),
                reason: "there is no more room in it: it will be replaced by a larger one".to_owned(),
            });
        };
        if let Err(error) = self.table.commit(&change) {
            self.numbers = sent.ledger;
            return Err(error);
        }
        let report = Report {
            rules: change.rules(),
            changes: change.add_elements.len() + change.delete_elements.len(),
            ..Report::default()
        };
        self.sent = Some(sent);
        Ok(report)
    }

    /// Deletes chains and sets that nothing has led to for a while.
    fn follow_up(&mut self, now: Instant) -> Result<Option<Instant>, NftTableError> {
        let Some(sent) = &mut self.sent else { return Ok(None) };
        let due: Vec<Unused> = sent
            .unused
            .iter()
            .filter(|(_, since)| **since + UNTIL_DELETED <= now)
            .map(|(unused, _)| unused.clone())
            .collect();
        let mut change = Change::default();
        for unused in due {
            sent.unused.remove(&unused);
            match unused {
                Unused::Chain(name) => {
                    sent.chains.remove(&name);
                    // Chains that lead to one another can go in any order once they are empty.
                    change.write_rules.insert(name.clone(), Vec::new());
                    change.delete_chains.push(name);
                }
                Unused::Set(name) => {
                    sent.sets.remove(&name);
                    change.delete_sets.push(name);
                }
            }
        }
        let next = sent.unused.values().min().map(|since| *since + UNTIL_DELETED);
        if let Err(error) = self.table.commit(&change) {
            self.require_full_sync();
            return Err(error);
        }
        Ok(next)
    }
}
