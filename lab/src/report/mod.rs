//! What a run found, and how it is shown: on a terminal while it works, as JSON, as JUnit XML and as a page at the end.

mod cluster;
mod figures;
pub mod html;
pub mod json;
pub mod junit;
pub mod terminal;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use svclab_audit::audit::RuleTallies;
use svclab_control_plane::Programs;

use crate::expect::{Mismatch, StepAnswers};

pub use cluster::ClusterLayout;
pub use figures::{Figures, Idle};

/// What a report says in the place of a variant of iptables, if a scenario was run in the simulator.
pub const SIMULATED: &str = "simulated";

/// What became of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepVerdict {
    /// Every promise held.
    Passed,
    /// These did not.
    Failed(Vec<Mismatch>),
    /// The lab could not do what the step asks.
    Error(String),
    /// An earlier step failed and the run does not keep going.
    Skipped,
    /// The simulator has no model of what the step does; why.
    NotSimulated(String),
    /// What the step promises could not be looked at in this run; why.
    NotJudged(String),
}

impl StepVerdict {
    /// Whether no promise failed: it passed, or nothing was looked at.
    pub fn is_green(&self) -> bool {
        matches!(self, StepVerdict::Passed | StepVerdict::NotSimulated(_) | StepVerdict::NotJudged(_))
    }

    /// Whether the step was carried out and judged.
    pub fn is_judged(&self) -> bool {
        matches!(self, StepVerdict::Passed | StepVerdict::Failed(_) | StepVerdict::Error(_))
    }

    /// In a word.
    pub fn word(&self) -> &'static str {
        match self {
            StepVerdict::Passed => "passed",
            StepVerdict::Failed(_) => "failed",
            StepVerdict::Error(_) => "error",
            StepVerdict::Skipped => "skipped",
            StepVerdict::NotSimulated(_) => "not simulated",
            StepVerdict::NotJudged(_) => "not judged",
        }
    }
}

/// One step's result.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// The step's name.
    pub name: String,
    /// Its line in the file.
    pub line: usize,
    /// The promise that it is about, by its short name, if not the scenario's.
    pub promise: Option<&'static str>,
    /// What it did, as the file's key.
    pub action: &'static str,
    /// What became of it.
    pub verdict: StepVerdict,
    /// What was seen, in a line.
    pub summary: String,
    /// Who answered, of a step that sends requests.
    pub answers: Option<StepAnswers>,
    /// The rules that the calls of audits rest on, if it is one.
    pub audited: Option<Audited>,
    /// What was kept of it, if it failed.
    pub evidence: Option<Evidence>,
    /// How long it took.
    pub took: Duration,
}

/// What audits of the nodes have judged.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Audited {
    /// Of each rule of Kubernetes, by its short name.
    pub rules: RuleTallies,
    /// What broke them: one call for each rule.
    pub broken: Vec<BrokenRule>,
}

/// A call that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BrokenRule {
    /// The rule's short name.
    pub rule: &'static str,
    /// The node that was audited.
    pub node: String,
    /// Who calls, and whom.
    pub call: String,
    /// What Kubernetes promises.
    pub promised: String,
    /// What would happen.
    pub found: String,
    /// The likely cause.
    pub cause: String,
    /// Why it counts for known, if the proxy does so everywhere.
    pub known: Option<Cow<'static, str>>,
    /// The packet's way through the rules.
    pub way: String,
}

/// What a failed step has left behind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evidence {
    /// Why the request went where it went: what can become of it, and the rule that decided.
    pub explanation: Vec<String>,
    /// The directory of its bundle.
    pub bundle: Option<PathBuf>,
    /// What could not be kept, and why.
    pub not_kept: Vec<String>,
}

/// One scenario's result in one mode.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioReport {
    /// The scenario's name.
    pub name: String,
    /// Its file.
    pub path: String,
    /// What it shows.
    pub about: String,
    /// The promise that it is about, by its short name.
    pub promise: Option<&'static str>,
    /// The file as it was read.
    pub text: String,
    /// The files of manifests that it names, by path.
    pub files: BTreeMap<String, String>,
    /// The proxy's mode.
    pub mode: String,
    /// The variant of iptables.
    pub variant: String,
    /// The seed.
    pub seed: u64,
    /// The kernel, where it is not the host's.
    pub machine: Option<MicroVm>,
    /// What served the objects, where it was not the lab's own API.
    pub control_plane: Option<ControlPlane>,
    /// The release of the kernel; `None`: there was none.
    pub kernel: Option<String>,
    /// When it began (RFC 3339), by the clock that the run had: in a deterministic microVM a virtual one. The simulator has none.
    pub started: Option<String>,
    /// Its machines before the first step.
    pub cluster: ClusterLayout,
    /// Whether the nodes were audited after steps.
    pub audited: bool,
    /// Every step, in order.
    pub steps: Vec<StepReport>,
    /// Why the cluster or the proxies did not come up, if they did not.
    pub not_started: Option<String>,
    /// Whether that was this machine's fault.
    pub unable: bool,
    /// Whether a signal ended it before its last step.
    pub interrupted: bool,
    /// What it cost the proxies, where that was measured.
    pub figures: Option<Figures>,
    /// How long all of it took.
    pub took: Duration,
    /// The end of the proxies' logs, if something broke.
    pub logs: String,
}

/// The real control plane that served a scenario's objects.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlane {
    /// The version of kube-apiserver.
    pub version: String,
    /// Whether kube-controller-manager made the EndpointSlices; else they were the lab's.
    pub controllers: bool,
    /// Where the programs were.
    pub directory: PathBuf,
}

impl ControlPlane {
    /// That of these programs.
    pub fn of(programs: &Programs) -> Self {
        ControlPlane {
            version: programs.version().to_string(),
            controllers: programs.has_controllers(),
            directory: programs.directory().to_owned(),
        }
    }
}

/// The microVM that a scenario ran in.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MicroVm {
    /// What `--kernel` calls its kernel.
    pub kernel: String,
    /// Whether everything in it is a function of image, scenario and seed.
    pub deterministic: bool,
    /// The hash of its image.
    pub image: String,
    /// The version of QEMU.
    #[serde(default)]
    pub qemu: String,
}

impl MicroVm {
    /// The flags that ask for it.
    pub fn flags(&self) -> String {
        let deterministic = if self.deterministic { " --deterministic" } else { "" };
        format!("--kernel {}{deterministic}", self.kernel)
    }
}

impl ScenarioReport {
    /// Whether every promise was kept.
    pub fn passed(&self) -> bool {
        !self.interrupted && self.not_started.is_none() && self.steps.iter().all(|step| step.verdict.is_green())
    }

    /// Whether anything was judged at all: a step that was carried out, or a start that failed.
    pub fn judged(&self) -> bool {
        self.not_started.is_some() || self.steps.iter().any(|step| step.verdict.is_judged())
    }

    /// Whether a failed step is explained; the proxies' logs say less then.
    pub fn is_explained(&self) -> bool {
        self.steps.iter().filter_map(|step| step.evidence.as_ref()).any(|evidence| !evidence.explanation.is_empty())
    }

    /// Where it was run, and with which iptables, so that two runs of a scenario in a mode are told apart.
    pub fn place(&self) -> String {
        let variant = if ["auto", SIMULATED].contains(&self.variant.as_str()) {
            String::new()
        } else {
            format!("{} iptables, ", self.variant)
        };
        let kernel = match &self.machine {
            None if self.variant == SIMULATED => "simulated".to_owned(),
            None => "host".to_owned(),
            Some(machine) if machine.deterministic => format!("{}, seed {}", machine.kernel, self.seed),
            Some(machine) => machine.kernel.clone(),
        };
        let plane = self.control_plane.as_ref().map(|plane| format!(", Kubernetes {}", plane.version));
        variant + &kernel + &plane.unwrap_or_default()
    }

    /// The command that repeats the run.
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
        format!("svclab run {} --mode {}{variant}{audit}{machine}{plane} --seed {}", self.path, self.mode, self.seed)
    }
}

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
        interrupted: false,
        unable: false,
        figures: None,
        took: Duration::from_millis(1234),
        logs: "node-a: 2026-01-01T00:00:00Z  INFO started\nnode-a: 2026-01-01T00:00:01Z  WARN a sync failed\n".into(),
    }]
}
