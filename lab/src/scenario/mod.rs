//! Scenarios: a cluster, plain Kubernetes manifests, and steps, in a file that needs no manual.
//!
//! [`mod@file`] is what an author may type, [`values`] the small notations in it. [`load()`] checks all of it – every name,
//! every step, every statistical claim – before anything touches the kernel. `resolve` turns a step's words into
//! addresses and promises, `execute` carries steps out and judges them, on the kernel ([`run`]) or in the simulator
//! ([`simulated`]).

mod answered;
mod audited;
mod configuration;
mod dry_run;
mod error;
mod execute;
mod explain;
pub mod fault;
pub mod file;
mod keys;
mod load;
mod look;
mod manifests;
mod mistakes;
mod modes;
mod relayed;
mod resolve;
pub mod run;
mod schema;
pub mod simulated;
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
pub use resolve::PATIENCE;
pub use schema::schema;
pub(crate) use svclab_apiserver::objects::plain_message;
pub use variant::Variant;
pub use warnings::warnings;

use crate::mode::{Mode, Need};
use fault::{Fault, FaultKind};
use file::{
    ConnectFile, ExecFile, ExpectFile, HealthPath, OneFamily, ProbeFile, ProxyOverride, RuleFile, ScanFile, TrafficFile,
};
use serde_saphyr::Spanned;
use svclab_apiserver::objects::{Document, ObjectKey, Store, StoreOptions, field_position};
use svclab_netns::netem::Impairment;
use svclab_spec::ClusterSpec;
use values::ObjectRef;

use crate::promises::Promise;
use crate::report::{StepReport, StepVerdict};

/// A checked scenario.
#[derive(Debug)]
pub struct Scenario {
    /// The file it came from.
    pub path: PathBuf,
    /// That file as it was read.
    pub text: String,
    /// The files of manifests that it names, by path.
    pub files: BTreeMap<String, String>,
    /// Its name.
    pub name: String,
    /// What it shows, in a sentence or two.
    pub about: String,
    /// The promise that it is about.
    pub promise: Option<&'static Promise>,
    /// Modes that it is for.
    pub modes: Vec<Mode>,
    /// The variant of iptables that it is about, whichever a run asks for.
    pub variant: Option<Variant>,
    /// What it needs of the kernel.
    pub needs: BTreeSet<Need>,
    /// The cluster without pods; those come with the manifests.
    pub cluster: ClusterSpec,
    /// Seed, slice size and load-balancer ranges.
    pub options: StoreOptions,
    /// Settings of the proxies.
    pub proxy: ProxySettings,
    /// Manifests that are there from the start.
    pub manifests: Vec<Placed>,
    /// What happens then.
    pub steps: Vec<Step>,
}

/// A document with the place it was written at.
#[derive(Debug, Clone)]
pub struct Placed {
    /// File it is in.
    pub file: String,
    /// Line it starts at.
    pub line: usize,
    /// Column it starts at.
    pub column: usize,
    /// What it says.
    pub document: Document,
}

impl Placed {
    /// Line and column of a field, or of what is nearest around it.
    pub(crate) fn place_of(&self, field: Option<&str>) -> (usize, usize) {
        let found = field.and_then(|field| field_position(&self.document.text, field));
        found.map_or((self.line, 1), |(line, column)| (self.line + line - 1, self.column + column - 1))
    }
}

/// One step.
#[derive(Debug)]
pub struct Step {
    /// Its line in the file.
    pub line: usize,
    /// Its name, unique within the scenario.
    pub name: String,
    /// The promise that it is about, if not the scenario's.
    pub promise: Option<&'static Promise>,
    /// Modes that it is for; the others leave it out.
    pub modes: Vec<Mode>,
    /// What it does.
    pub action: Action,
    /// What is promised.
    pub expect: ExpectFile,
    /// Promises may take that long to come true.
    pub eventually: Option<Duration>,
    /// Pause between two looks.
    pub every: Option<Duration>,
}

impl Step {
    /// A report on this step of which nothing but the verdict is known.
    pub(crate) fn report(&self, verdict: StepVerdict) -> StepReport {
        StepReport {
            name: self.name.clone(),
            line: self.line,
            promise: self.promise.map(|promise| promise.id),
            action: self.action.key(),
            verdict,
            summary: String::new(),
            answers: None,
            audited: None,
            evidence: None,
            took: Duration::ZERO,
        }
    }
}

/// What a step does.
#[derive(Debug)]
pub enum Action {
    /// Creates or replaces objects.
    Apply(Vec<Placed>),
    /// Deletes objects.
    Delete(Vec<ObjectRef>),
    /// Sets pods' readiness.
    Ready(Vec<ObjectKey>, bool),
    /// Gives pods a deletion timestamp.
    Terminate(Vec<ObjectKey>),
    /// Sends requests.
    Probe(ProbeFile),
    /// Opens a TCP connection that stays open.
    Connect(ConnectFile),
    /// Asks over the connection of that name.
    Send(String),
    /// Has the pod at its other end send a segment that belongs nowhere, and asks after it.
    SendStray(String),
    /// Knocks at every TCP port of an address.
    Scan(ScanFile),
    /// Looks at chains and rules.
    Rules(Vec<RuleFile>),
    /// Runs a command.
    Exec(ExecFile),
    /// Ends, starts or cleans up the proxies of these nodes.
    Proxy(ProxyAction, Vec<String>),
    /// Kills the proxies of these nodes during the next step: in the middle of a restore, so long after its begin.
    KillLater(Vec<String>, Duration),
    /// Asks a node's health check for a service, over a family.
    HealthCheck(String, ObjectKey, Option<Spanned<OneFamily>>),
    /// Asks the proxy of a node for its own health.
    OwnHealth(String, HealthPath),
    /// Looks at a metric of a node's proxy.
    Metric(String, String),
    /// Looks at the nodes that the load balancer uses for a service.
    LoadBalancer(ObjectKey),
    /// Sends requests in the background from now on.
    Traffic(TrafficFile),
    /// Ends the background traffic of that name and judges it.
    EndTraffic(String),
    /// Makes so many pods out of one.
    Scale(ObjectKey, usize),
    /// Makes the Kubernetes API misbehave, or behave again.
    Api(svclab_apiserver::ServerFault),
    /// Cuts these nodes off from each other, from everybody else and from the API.
    Partition(Vec<String>),
    /// Lets them in again.
    Heal(Vec<String>),
    /// Has what is sent to these nodes delayed, lost and so on.
    Impair(Vec<String>, Impairment),
    /// Has it no longer so.
    Repair(Vec<String>),
    /// Begins a fault on these nodes.
    Fault(Fault, Vec<String>),
    /// Ends the faults of a kind on these nodes.
    EndFault(FaultKind, Vec<String>),
    /// Lets so much of the guest's time pass: in a deterministic microVM, where idle time is skipped.
    Advance(Duration),
    /// Lets so much time pass in which nothing happens, and judges what the proxies do in it.
    Idle(Duration),
    /// Collects these nodes and judges their rules.
    Audit(Vec<String>),
}

/// What happens to a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyAction {
    /// SIGKILL.
    Kill,
    /// SIGTERM.
    Stop,
    /// Start, and wait until it has applied everything; one that runs is stopped before.
    Start(ProxyOverride),
    /// `--cleanup` after SIGTERM.
    Cleanup,
}

impl Scenario {
    /// Has every step that judges shares see a skew as small as this part of a share, in so many probes as that takes.
    pub fn set_sensitivity(&mut self, skew: f64) {
        self.steps.iter_mut().for_each(|step| step.expect.sensitivity_of_run = Some(skew));
    }

    /// The objects before the first step.
    ///
    /// # Errors
    /// When a manifest does not fit the cluster; a loaded scenario has shown that they do.
    pub fn initial_objects(&self) -> Result<Store, LoadError> {
        let mut store = Store::new(self.cluster.clone(), self.options.clone());
        let mut errors = Vec::new();
        dry_run::apply_all(&mut store, &self.manifests, &mut errors);
        if errors.is_empty() { Ok(store) } else { Err(LoadError { errors }) }
    }
}

#[cfg(test)]
mod tests;
