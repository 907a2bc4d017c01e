//! Reports: on a terminal during the run; as JSON, JUnit XML and HTML at its end.

pub mod annotations;
mod cluster;
mod figures;
pub mod html;
pub mod junit;
pub mod markdown;
mod record;
pub mod terminal;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use svclab_audit::audit::RuleTally;
use svclab_control_plane::Programs;

use crate::expect::{Mismatch, StepAnswers};
use crate::input::STANDARD_INPUT;

pub use cluster::ClusterLayout;
pub use figures::{Figures, Idle};
pub use record::{
    AnswersRecord, NotRunRecord, ProgramRecord, RunRecord, SCHEMA_VERSION, ScenarioRecord, StepRecord, VerdictWord,
};

/// The iptables variant in simulator reports.
pub const SIMULATED: &str = "simulated";
/// The action of a step that the run adds: its wait for an address family was in vain. The run goes on after it.
pub const WAITS: &str = "wait";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepVerdict {
    Passed,
    Failed(Vec<Mismatch>),
    /// The lab could not carry out the step.
    Error(String),
    /// The step follows a failed one, and the run does not keep going.
    Skipped,
    NotSimulated(String),
    NotJudged(String),
}

impl StepVerdict {
    pub fn is_green(&self) -> bool {
        matches!(self, StepVerdict::Passed | StepVerdict::NotSimulated(_) | StepVerdict::NotJudged(_))
    }

    pub fn is_judged(&self) -> bool {
        matches!(self, StepVerdict::Passed | StepVerdict::Failed(_) | StepVerdict::Error(_))
    }

    pub fn word(&self) -> &'static str {
        VerdictWord::of(self).word()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    pub name: String,
    pub line: usize,
    /// The short name of the step's promise, if it differs from the scenario's.
    pub promise: Option<&'static str>,
    /// The key in the scenario file, such as `probe`.
    pub action: &'static str,
    pub verdict: StepVerdict,
    pub summary: String,
    pub answers: Option<StepAnswers>,
    pub audited: Option<Audited>,
    pub evidence: Option<Evidence>,
    pub took: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Audited {
    /// The number of calls by the short name of their Kubernetes rule.
    pub rules: BTreeMap<String, RuleTally>,
    pub broken: Vec<BrokenRule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BrokenRule {
    pub rule: String,
    pub node: String,
    pub call: String,
    pub promised: String,
    /// The outcome of the node's rules.
    pub found: String,
    pub cause: String,
    /// Why the breach is known: kube-proxy breaks the rule everywhere.
    pub known: Option<Cow<'static, str>>,
    pub way: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evidence {
    /// Possible outcomes of the request, and the deciding rule.
    pub explanation: Vec<String>,
    pub bundle: Option<PathBuf>,
    pub not_kept: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioReport {
    pub name: String,
    pub path: String,
    pub about: String,
    pub promise: Option<&'static str>,
    pub text: String,
    /// The scenario's manifest files, by path.
    pub files: BTreeMap<String, String>,
    pub mode: String,
    pub variant: String,
    pub seed: u64,
    /// `None`: the host's kernel.
    pub machine: Option<MicroVm>,
    /// `None`: the lab's own API.
    pub control_plane: Option<ControlPlane>,
    pub proxy: TestedProxy,
    /// The kernel's release; `None` in the simulator.
    pub kernel: Option<String>,
    /// The start in RFC 3339, by the run's clock, which is virtual in a deterministic microVM; `None` in the simulator.
    pub started: Option<String>,
    pub cluster: ClusterLayout,
    pub audited: bool,
    pub steps: Vec<StepReport>,
    pub not_started: Option<String>,
    /// Whether the lab waited to its limit for running proxies to get ready.
    pub never_ready: bool,
    /// What a failed start left.
    pub start_evidence: Option<Evidence>,
    /// Whether this machine prevented the start.
    pub unable: bool,
    pub interrupted: bool,
    pub figures: Option<Figures>,
    pub took: Duration,
    pub logs: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TestedProxy {
    /// Empty in reports of older versions of svclab.
    pub name: String,
    pub version: Option<String>,
    /// The value of `--proxy`, or of $SVCPROXY; `None`: the svcproxy beside svclab.
    pub given: Option<String>,
}

impl TestedProxy {
    pub fn title(&self) -> String {
        self.version.as_ref().map_or_else(|| self.name.clone(), |version| format!("{} {version}", self.name))
    }

    /// Returns ` --proxy …` for a shell, or nothing.
    pub fn flag(&self) -> String {
        let quoted = |given: &String| match shlex::try_quote(given) {
            Ok(quoted) => format!(" --proxy {quoted}"),
            Err(_) => format!(" --proxy {given}"),
        };
        self.given.as_ref().map(quoted).unwrap_or_default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlane {
    pub version: String,
    /// Whether kube-controller-manager, and not the lab, made the EndpointSlices.
    pub controllers: bool,
    pub directory: PathBuf,
}

impl ControlPlane {
    pub fn of(programs: &Programs) -> Self {
        ControlPlane {
            version: programs.version().to_string(),
            controllers: programs.has_controllers(),
            directory: programs.directory().to_owned(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MicroVm {
    /// The kernel, as `--kernel` takes it.
    pub kernel: String,
    /// Whether image, scenario and seed determine everything that happens.
    pub deterministic: bool,
    pub image: String,
    #[serde(default)]
    pub qemu: String,
}

impl MicroVm {
    pub fn flags(&self) -> String {
        let deterministic = if self.deterministic { " --deterministic" } else { "" };
        format!("--kernel {}{deterministic}", self.kernel)
    }
}

impl ScenarioReport {
    pub fn passed(&self) -> bool {
        !self.interrupted && self.not_started.is_none() && self.steps.iter().all(|step| step.verdict.is_green())
    }

    pub fn judged(&self) -> bool {
        self.not_started.is_some() || self.steps.iter().any(|step| step.verdict.is_judged())
    }

    /// Whether a failed step has an explanation. The terminal omits the proxies' logs then.
    pub fn is_explained(&self) -> bool {
        self.steps.iter().filter_map(|step| step.evidence.as_ref()).any(|evidence| !evidence.explanation.is_empty())
    }

    /// Returns the command that repeats the run.
    pub fn repeat(&self) -> String {
        let variant = match self.variant.as_str() {
            "auto" => String::new(),
            SIMULATED => " --simulate".to_owned(),
            variant => format!(" --iptables-variant {variant}"),
        };
        let audit = if self.audited { " --audit" } else { "" };
        let machine = self.machine.as_ref().map(|machine| format!(" {}", machine.flags())).unwrap_or_default();
        let plane = self.control_plane.as_ref().map(|plane| format!(" --control-plane {}", plane.directory.display()));
        let plane = plane.unwrap_or_default();
        let path = if self.path == STANDARD_INPUT { "-" } else { &self.path };
        let (mode, proxy, seed) = (&self.mode, self.proxy.flag(), self.seed);
        format!("svclab run {path} --mode {mode}{proxy}{variant}{audit}{machine}{plane} --seed {seed}")
    }
}

/// Returns a report with a passed, a failed and a skipped step.
#[cfg(test)]
pub(crate) fn sample() -> Vec<ScenarioReport> {
    let step = |name: &str, verdict, summary: &str| StepReport {
        name: name.into(),
        line: 7,
        promise: None,
        action: "probe",
        verdict,
        summary: summary.into(),
        answers: None,
        audited: None,
        evidence: None,
        took: Duration::from_millis(12),
    };
    let broken = StepVerdict::Failed(vec![Mismatch::new("servers see <node-a>", "10.0.0.9 & \"others\"")]);
    vec![ScenarioReport {
        name: "hairpin".into(),
        path: "scenarios/hairpin.yaml".into(),
        about: "a pod that calls itself".into(),
        promise: Some("hairpin"),
        text: "name: hairpin\n".into(),
        files: BTreeMap::new(),
        mode: "iptables".into(),
        variant: "auto".into(),
        seed: 3,
        machine: None,
        control_plane: None,
        proxy: TestedProxy { name: "svcproxy".into(), version: None, given: None },
        kernel: Some("6.1.0".into()),
        started: Some("2026-01-01T00:00:01Z".into()),
        cluster: ClusterLayout::default(),
        audited: false,
        steps: vec![
            step("it answers", StepVerdict::Passed, "default/web ×1"),
            step("it is masked", broken, "default/web ×1"),
            step("and again", StepVerdict::Skipped, ""),
        ],
        not_started: None,
        never_ready: false,
        start_evidence: None,
        interrupted: false,
        unable: false,
        figures: None,
        took: Duration::from_millis(1234),
        logs: "node-a: 2026-01-01T00:00:00Z  INFO started\nnode-a: 2026-01-01T00:00:01Z  WARN a sync failed\n".into(),
    }]
}
