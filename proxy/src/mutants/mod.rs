//! Wrong proxies: this proxy with one decision turned. The scenarios of svclab must notice each of them.
//!
//! Only debug builds have the catalogue: `svcproxy --mutant ID`. The functions of this module are the seams at which the
//! active mutant acts; in a release build they do nothing.

#[cfg(debug_assertions)]
mod catalogue;
#[cfg(debug_assertions)]
mod hook;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;

use crate::config::Config;
use crate::habits::{self, Habit};
use crate::kernel::conntrack::FlowFilter;
use crate::model::{Batch, Change, Flow, ServicePortName};
use crate::nftables;
use crate::plan::stale_flows::StaleFlowFilter;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::ruleset;
use crate::state::State;
use crate::state::endpoints::Endpoint;
use crate::state::service::ServicePort;

#[cfg(debug_assertions)]
pub use self::catalogue::{all, find};
#[cfg(debug_assertions)]
pub use self::hook::{Hook, Mutant, PlanInput, SeenBy, activate, activate_for_thread};

/// Work beside the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// `--cleanup`.
    Cleanup,
    /// To remove the objects of the mode that ran before.
    CleanupAfterOtherMode,
    /// To restore what another program deletes.
    Repair,
    /// To sync one family while the other one waits for the kernel or a command.
    IndependentFamilies,
    /// Not to wait for the reader of the log.
    LogQueue,
}

/// Calls the function of the active mutant's hook, if it is of this kind.
macro_rules! seam {
    ($kind:ident($($argument:expr),*)) => {
        #[cfg(debug_assertions)]
        if let Some(hook::Hook::$kind(turn)) = hook::active() {
            turn($($argument),*);
        }
        #[cfg(not(debug_assertions))]
        let _ = ($($argument),*,);
    };
}

pub fn config(config: &mut Config) {
    seam!(Config(config));
}

/// Changes as a source delivers them to the daemon.
pub fn batch(batch: &mut Batch) {
    seam!(Batch(batch));
}

/// A change before it enters the state of a family. `None` if no mutant alters changes.
pub fn change(change: &Change) -> Option<Change> {
    #[cfg(debug_assertions)]
    if let Some(hook::Hook::Change(turn)) = hook::active() {
        let mut change = change.clone();
        turn(&mut change);
        return Some(change);
    }
    #[cfg(debug_assertions)]
    if let Some(hook::Hook::IgnoredLabel(label)) = hook::active() {
        return Some(hook::without_label(change.clone(), label));
    }
    let _ = change;
    None
}

/// The label that requests for Services and EndpointSlices do not leave out, though they should.
pub fn ignored_label() -> Option<&'static str> {
    #[cfg(debug_assertions)]
    if let Some(hook::Hook::IgnoredLabel(label)) = hook::active() {
        return Some(label);
    }
    None
}

/// What a plan is made from.
pub fn inputs(state: &State, port: &mut Cow<'_, ServicePort>, endpoints: &mut Vec<Endpoint>) {
    #[cfg(debug_assertions)]
    match hook::active() {
        Some(hook::Hook::ServicePort(turn)) => turn(state, port.to_mut()),
        Some(hook::Hook::Endpoints(turn)) => turn(state, port, endpoints),
        _ => {}
    }
    #[cfg(not(debug_assertions))]
    let _ = (state, port, endpoints);
}

pub fn plan(state: &State, port: &ServicePort, endpoints: &[Endpoint], plan: &mut ServicePortPlan) {
    #[cfg(debug_assertions)]
    if let Some(hook::Hook::Plan(turn)) = hook::active() {
        turn(&PlanInput { state, port, endpoints }, plan);
    }
    #[cfg(not(debug_assertions))]
    let _ = (state, port, endpoints, plan);
}

pub fn node_plan(plan: &mut NodePlan) {
    seam!(NodePlan(plan));
}

/// The rules of a chain of the iptables tables, or the rules that one service port adds to a shared chain.
pub fn rules(chain: &str, rules: &mut Vec<ruleset::Rule>) {
    seam!(Rules(chain, rules));
}

/// Whether [`rules`] may change anything: a rule by itself must become a list for it, which costs an allocation.
pub fn alter_rules() -> bool {
    #[cfg(debug_assertions)]
    if let Some(hook::Hook::Rules(_)) = hook::active() {
        return true;
    }
    false
}

pub fn nft_rules(chain: &str, rules: &mut Vec<nftables::Rule>) {
    seam!(NftRules(chain, rules));
}

/// The service ports of a partial sync.
pub fn pending(state: &State, service_ports: &mut BTreeSet<ServicePortName>) {
    seam!(Pending(state, service_ports));
}

/// The dumps of conntrack entries; all entries if a mutant judges flows, so that it may judge live ones.
pub fn dumps(filters: Vec<FlowFilter>) -> Vec<FlowFilter> {
    #[cfg(debug_assertions)]
    if let Some(hook::Hook::Stale(_)) = hook::active() {
        return crate::model::Protocol::ALL.map(FlowFilter::Protocol).into();
    }
    filters
}

/// How long a sync waits before it begins. `full`: the sync compares all rules.
pub fn delay(full: bool) -> Duration {
    #[cfg(debug_assertions)]
    if let Some(hook::Hook::Delay(turn)) = hook::active() {
        return turn(full);
    }
    let _ = full;
    if habits::has(Habit::ReportsAhead) { Duration::from_secs(1) } else { Duration::ZERO }
}

pub fn is_stale(filter: &StaleFlowFilter, flow: &Flow) -> bool {
    #[cfg(debug_assertions)]
    if let Some(hook::Hook::Stale(turn)) = hook::active() {
        return turn(filter, flow);
    }
    filter.is_stale(flow)
}

/// What an answer of a health port is made from.
#[derive(Debug, Clone, Copy)]
pub struct HealthFacts {
    pub alive: bool,
    pub synced: bool,
    pub node_eligible: bool,
}

/// Whether load balancers may send to a node, as a mutant sees it.
pub fn is_eligible(node: &Node) -> Option<bool> {
    #[cfg(debug_assertions)]
    if let Some(hook::Hook::Eligible(turn)) = hook::active() {
        return Some(turn(node));
    }
    let _ = node;
    None
}

/// `path`: empty for a `healthCheckNodePort`.
pub fn health(path: &str, facts: &mut HealthFacts) {
    seam!(Health(path, facts));
}

/// Rules beside those of this proxy, as `nft -f` reads them; empty without such a mutant.
pub fn tables_beside() -> &'static str {
    #[cfg(debug_assertions)]
    if let Some(hook::Hook::TablesBeside(text)) = hook::active() {
        return text;
    }
    ""
}

pub fn skips(duty: Duty) -> bool {
    #[cfg(debug_assertions)]
    if let Some(hook::Hook::Skips(skipped)) = hook::active() {
        return *skipped == duty;
    }
    let _ = duty;
    false
}

/// Holds the other family's sync until it is dropped, in a proxy that syncs the families one after the other.
pub fn hold_other_family() -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    skips(Duty::IndependentFamilies).then(|| ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// How many endpoints a relay asks before it gives up.
pub fn most_endpoints() -> usize {
    #[cfg(debug_assertions)]
    if let Some(hook::Hook::MostEndpoints(most)) = hook::active() {
        return *most;
    }
    usize::MAX
}
