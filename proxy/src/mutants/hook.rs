use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;

use super::HealthFacts;
use crate::config::{Config, Mode};
use crate::habits::{self, Habit};
use crate::model::{Batch, Change, Flow, ServicePortName};
use crate::mutants::Duty;
use crate::nftables;
use crate::plan::stale_flows::StaleFlowFilter;
use crate::plan::{NodePlan, ServicePortPlan};
use crate::ruleset;
use crate::state::State;
use crate::state::endpoints::Endpoint;
use crate::state::service::ServicePort;

/// A wrong proxy.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// Kebab case, unique, and permanent: reports of different versions compare by it.
    pub id: &'static str,
    /// What this proxy does wrong, as a sentence without a subject: "ignores the protocol of …".
    pub does: &'static str,
    /// The modes in which it is wrong.
    pub modes: &'static [Mode],
    pub seen_by: SeenBy,
    /// Whether it remembers earlier calls: several nodes in one process would share what it remembers.
    pub remembers: bool,
    pub hook: Hook,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenBy {
    /// The scenario that is about this mistake; it is asked first.
    Scenario(&'static str),
    /// No packet, file or report differs. The proof.
    Equivalent(&'static str),
}

/// Where a mutant acts, and how.
#[derive(Debug, Clone, Copy)]
pub enum Hook {
    Config(fn(&mut Config)),
    Batch(fn(&mut Batch)),
    Change(fn(&mut Change)),
    /// Does not leave out objects with this label, neither in requests nor in what it reads.
    IgnoredLabel(&'static str),
    ServicePort(fn(&State, &mut ServicePort)),
    Endpoints(fn(&State, &ServicePort, &mut Vec<Endpoint>)),
    Plan(fn(&PlanInput<'_>, &mut ServicePortPlan)),
    NodePlan(fn(&mut NodePlan)),
    Rules(fn(&str, &mut Vec<ruleset::Rule>)),
    NftRules(fn(&str, &mut Vec<nftables::Rule>)),
    Pending(fn(&State, &mut BTreeSet<ServicePortName>)),
    Delay(fn(bool) -> Duration),
    Stale(fn(&StaleFlowFilter, &Flow) -> bool),
    Eligible(fn(&Node) -> bool),
    /// The path is `/healthz`, `/livez`, or empty for a `healthCheckNodePort`.
    Health(fn(&str, &mut HealthFacts)),
    TablesBeside(&'static str),
    Skips(Duty),
    /// How many endpoints a relay asks.
    MostEndpoints(usize),
    Habit(Habit),
}

/// What a [`ServicePortPlan`] was made from.
#[derive(Debug, Clone, Copy)]
pub struct PlanInput<'a> {
    pub state: &'a State,
    pub port: &'a ServicePort,
    pub endpoints: &'a [Endpoint],
}

impl Mutant {
    /// A mutant of every mode, for which `scenario` is written.
    pub const fn new(id: &'static str, does: &'static str, scenario: &'static str, hook: Hook) -> Mutant {
        const ALL: &[Mode] = &[Mode::Iptables, Mode::Nftables, Mode::Ipvs, Mode::Userspace];
        Mutant { id, does, modes: ALL, seen_by: SeenBy::Scenario(scenario), remembers: false, hook }
    }

    #[must_use]
    pub const fn only(self, modes: &'static [Mode]) -> Mutant {
        Mutant { modes, ..self }
    }

    #[must_use]
    pub const fn remembering(self) -> Mutant {
        Mutant { remembers: true, ..self }
    }

    /// Whether the simulator can judge it: `svcproxy render` shows rules for the present objects, and no order or time.
    pub fn is_rendered(&self) -> bool {
        let is_of_daemon = matches!(
            self.hook,
            Hook::Batch(_)
                | Hook::Pending(..)
                | Hook::Delay(_)
                | Hook::Stale(..)
                | Hook::Health(..)
                | Hook::Skips(_)
                | Hook::MostEndpoints(_)
                | Hook::Habit(_)
        );
        !self.remembers && !is_of_daemon
    }

    /// `proof`: why nothing can notice it.
    #[must_use]
    pub const fn equivalent(self, proof: &'static str) -> Mutant {
        Mutant { seen_by: SeenBy::Equivalent(proof), ..self }
    }
}

static OF_PROCESS: OnceLock<&'static Mutant> = OnceLock::new();

thread_local! {
    static OF_THREAD: Cell<Option<&'static Mutant>> = const { Cell::new(None) };
}

/// Makes this process the mutant, for good.
pub fn activate(mutant: &'static Mutant) {
    OF_PROCESS.get_or_init(|| mutant);
    if let Hook::Habit(habit) = mutant.hook {
        habits::adopt(habit);
    }
}

/// Ends the mutant of [`activate_for_thread`] when dropped.
#[derive(Debug)]
pub struct ThreadMutant(Option<&'static Mutant>);

/// Makes this thread the mutant until the result is dropped.
pub fn activate_for_thread(mutant: &'static Mutant) -> ThreadMutant {
    ThreadMutant(OF_THREAD.replace(Some(mutant)))
}

impl Drop for ThreadMutant {
    fn drop(&mut self) {
        OF_THREAD.set(self.0);
    }
}

pub(super) fn active() -> Option<&'static Hook> {
    OF_THREAD.get().or_else(|| OF_PROCESS.get().copied()).map(|mutant| &mutant.hook)
}

pub(super) fn without_label(mut change: Change, label: &str) -> Change {
    let labels = match &mut change {
        Change::Service(_, Some(service)) => Arc::make_mut(service).metadata.labels.as_mut(),
        Change::EndpointSlice(_, Some(slice)) => Arc::make_mut(slice).metadata.labels.as_mut(),
        _ => None,
    };
    if let Some(labels) = labels {
        labels.remove(label);
    }
    change
}
