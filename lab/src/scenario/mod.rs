//! Scenarios: a cluster, Kubernetes manifests and steps in one YAML file.
//!
//! [`mod@file`] has the types of the file, [`values`] its notations. [`load()`] checks the whole file (names, steps,
//! statistical claims) before anything touches the kernel. `resolve` turns a step's references into addresses and
//! promises. `execute` carries out and judges steps on the kernel ([`run`]) or in the simulator ([`simulated`]). A new
//! key begins in `file/step.rs`.

mod answered;
mod audited;
mod configuration;
mod copies;
mod dry_run;
mod error;
mod execute;
mod explain;
pub mod fault;
pub mod file;
mod load;
mod manifests;
mod mistakes;
mod modes;
#[cfg(test)]
mod reference;
mod refused;
mod relayed;
mod resolve;
mod rule_checks;
pub mod run;
mod schema;
pub mod simulated;
mod tags;
mod topology;
pub mod values;
mod variant;
mod warnings;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

pub use configuration::ProxySettings;
pub use error::{FileError, LoadError};
pub use explain::explain;
pub use load::{load, load_from};
pub(crate) use mistakes::alike;
pub use resolve::PATIENCE;
pub use schema::schema;
pub(crate) use svclab_apiserver::objects::plain_message;
pub use variant::IptablesVariant;
pub use warnings::warnings;

use crate::mode::{Mode, Need};
use file::{Action, Effect, ExpectFile, KernelOnly, ProxyFile, ProxyOverride, StepKey};
use svclab_apiserver::objects::{Document, Store, StoreOptions, field_position};
use svclab_spec::ClusterSpec;

use crate::promises::Promise;
use crate::report::{StepReport, StepVerdict};

#[derive(Debug)]
pub struct Scenario {
    pub path: PathBuf,
    pub text: String,
    pub files: BTreeMap<String, String>,
    pub name: String,
    pub about: String,
    pub promise: Option<&'static Promise>,
    pub modes: Vec<Mode>,
    /// Whether the scenario names no modes: `modes` has kube-proxy's.
    pub is_for_every_mode: bool,
    /// The iptables variant, which overrides `--iptables-variant`.
    pub variant: Option<IptablesVariant>,
    pub needs: BTreeSet<Need>,
    /// The cluster without pods; the manifests add those.
    pub cluster: ClusterSpec,
    pub options: StoreOptions,
    /// The client whose address the Kubernetes API listens on; `None`: the nodes' loopback addresses.
    pub api_server: Option<String>,
    pub proxy: ProxySettings,
    pub manifests: Vec<PlacedDocument>,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone)]
pub struct PlacedDocument {
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    pub document: Document,
}

impl PlacedDocument {
    /// Returns line and column of a field, or of the nearest field around it.
    pub(crate) fn field_position(&self, field: Option<&str>) -> (usize, usize) {
        let found = field.and_then(|field| field_position(&self.document.text, field));
        found.map_or((self.line, 1), |(line, column)| (self.line + line - 1, self.column + column - 1))
    }
}

#[derive(Debug)]
pub struct Step {
    /// The line, from 1.
    pub line: usize,
    pub name: String,
    pub promise: Option<&'static Promise>,
    pub modes: Vec<Mode>,
    pub key: &'static StepKey,
    pub action: Action,
    pub nodes: Vec<String>,
    /// The objects of an `apply` step.
    pub documents: Vec<PlacedDocument>,
    pub expect: ExpectFile,
    pub eventually: Option<Duration>,
    pub every: Option<Duration>,
}

impl Step {
    pub(crate) fn report(&self, verdict: StepVerdict) -> StepReport {
        StepReport {
            name: self.name.clone(),
            line: self.line,
            promise: self.promise.map(|promise| promise.id),
            action: self.key.key,
            verdict,
            summary: String::new(),
            answers: None,
            audited: None,
            evidence: None,
            took: Duration::ZERO,
        }
    }

    fn node(&self) -> &str {
        self.nodes.first().map_or("", String::as_str)
    }

    /// Whether a proxy can fail the step.
    pub(crate) fn judges(&self) -> bool {
        match self.key.effect {
            Effect::Reads | Effect::ReadsOnce => true,
            Effect::State => !self.key.expects.is_empty(),
            // The lab waits for a change; the step is about time only if it bounds it.
            Effect::Objects | Effect::Rules => self.expect.took.is_some(),
        }
    }

    pub(crate) fn kernel_only(&self) -> Option<KernelOnly> {
        self.action.kernel_only().or(self.key.kernel_only)
    }

    fn changes_rules(&self) -> bool {
        matches!(self.key.effect, Effect::Objects | Effect::Rules) && self.action.kill_in_restore().is_none()
    }
}

impl Scenario {
    /// Whether the scenario runs in `mode`. In [`Mode::Other`]: if it names that mode, or none, and starts no proxy in one
    /// of kube-proxy's.
    pub fn is_for(&self, mode: Mode) -> bool {
        let starts_a_mode = |step: &Step| match &step.action {
            Action::StartProxy(start) => start.different != ProxyOverride::default(),
            _ => false,
        };
        let is_general = || self.is_for_every_mode && !self.steps.iter().any(starts_a_mode);
        self.modes.contains(&mode) || mode == Mode::Other && is_general()
    }

    /// Overrides smaller `sensitivity` values of all steps that check shares.
    pub fn set_sensitivity(&mut self, skew: f64) {
        self.steps.iter_mut().for_each(|step| step.expect.sensitivity_of_run = Some(skew));
    }

    /// Whether the start asks nothing unusual of a proxy, beside objects: IPv4, and no settings.
    pub(crate) fn starts_as_usual(&self) -> bool {
        let usual = configuration::of(&ProxyFile::default(), &self.cluster, &mut Vec::new());
        let is_ipv4 = self.cluster.service_cidrs.iter().all(|range| range.addr().is_ipv4());
        is_ipv4 && self.proxy == usual && self.api_server.is_none() && self.variant.is_none()
    }

    pub(crate) fn starts_like(&self, other: &Scenario) -> bool {
        let start = |one: &Scenario| (one.proxy.clone(), one.api_server.clone(), one.variant);
        start(self) == start(other)
    }

    pub fn initial_objects(&self) -> Result<Store, LoadError> {
        let mut store = Store::new(self.cluster.clone(), self.options.clone());
        let mut errors = Vec::new();
        dry_run::apply_all(&mut store, &self.manifests, &mut errors);
        if errors.is_empty() { Ok(store) } else { Err(LoadError { errors }) }
    }
}

#[cfg(test)]
mod tests;
