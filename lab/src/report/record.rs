//! The JSON form of a report (`svclab run --json`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    Audited, ClusterLayout, ControlPlane, Figures, MicroVm, SIMULATED, ScenarioReport, StepReport, StepVerdict,
    TestedProxy,
};
use crate::expect::{Bounds, Mismatch, StepAnswers};
use crate::shard::{ItemTime, ShardRecord, WorkItem};

/// Changes when a key is removed or changes its meaning.
pub const SCHEMA_VERSION: u64 = 1;

/// The promise of a step that the lab could not carry out.
const LAB_WORKS: &str = "the lab can do this step";

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    #[serde(default)]
    pub schema_version: u64,
    #[serde(default)]
    pub program: ProgramRecord,
    #[serde(default)]
    pub passed: bool,
    pub scenarios: Vec<ScenarioRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<String>,
    /// Scenarios that could not run in a mode. Only runs in several modes have the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_run: Option<Vec<NotRunRecord>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<ShardRecord>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRecord {
    pub name: String,
    pub version: String,
    pub commit: Option<String>,
}

impl ProgramRecord {
    pub fn own() -> ProgramRecord {
        ProgramRecord {
            name: "svclab".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("SVCLAB_COMMIT").map(str::to_owned),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRunRecord {
    pub scenario: String,
    pub mode: String,
    pub why: String,
    /// Whether JUnit XML shows an error, and not a skipped case.
    #[serde(default, rename = "failure", skip_serializing_if = "std::ops::Not::not")]
    pub is_failure: bool,
}

/// See [`ScenarioReport`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScenarioRecord {
    pub name: String,
    pub path: String,
    pub about: String,
    pub promise: Option<String>,
    pub text: String,
    pub files: BTreeMap<String, String>,
    pub mode: String,
    pub iptables_variant: String,
    pub seed: u64,
    pub machine: Option<MicroVm>,
    pub control_plane: Option<ControlPlane>,
    pub proxy: TestedProxy,
    pub audited: bool,
    pub kernel: Option<String>,
    pub started: Option<String>,
    pub passed: bool,
    pub judged: bool,
    pub unable: bool,
    pub not_started: Option<String>,
    /// The bundle of a failed start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<PathBuf>,
    pub interrupted: bool,
    pub seconds: f64,
    pub repeat: String,
    pub cluster: Option<ClusterLayout>,
    pub figures: Option<Figures>,
    pub logs: String,
    pub steps: Vec<StepRecord>,
}

/// See [`StepReport`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepRecord {
    pub name: String,
    pub line: usize,
    pub action: String,
    pub promise: Option<String>,
    pub verdict: VerdictWord,
    /// The reason why the step was not simulated or not judged.
    pub why: Option<String>,
    pub mismatches: Vec<Mismatch>,
    pub summary: String,
    pub answers: Option<AnswersRecord>,
    pub audited: Option<Audited>,
    pub explanation: Option<Vec<String>>,
    pub bundle: Option<PathBuf>,
    pub seconds: f64,
}

/// [`StepVerdict`] without reasons.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum VerdictWord {
    #[serde(rename = "passed")]
    Passed,
    #[serde(rename = "failed")]
    Failed,
    #[serde(rename = "error")]
    Error,
    #[default]
    #[serde(rename = "skipped")]
    Skipped,
    #[serde(rename = "not simulated")]
    NotSimulated,
    #[serde(rename = "not judged")]
    NotJudged,
}

impl VerdictWord {
    pub fn of(verdict: &StepVerdict) -> VerdictWord {
        match verdict {
            StepVerdict::Passed => VerdictWord::Passed,
            StepVerdict::Failed(_) => VerdictWord::Failed,
            StepVerdict::Error(_) => VerdictWord::Error,
            StepVerdict::Skipped => VerdictWord::Skipped,
            StepVerdict::NotSimulated(_) => VerdictWord::NotSimulated,
            StepVerdict::NotJudged(_) => VerdictWord::NotJudged,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            VerdictWord::Passed => "passed",
            VerdictWord::Failed => "failed",
            VerdictWord::Error => "error",
            VerdictWord::Skipped => "skipped",
            VerdictWord::NotSimulated => "not simulated",
            VerdictWord::NotJudged => "not judged",
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AnswersRecord {
    /// The number of answers by server (`namespace/pod`).
    pub servers: BTreeMap<String, usize>,
    /// The client addresses that each server saw, with their numbers.
    pub sources: BTreeMap<String, BTreeMap<IpAddr, usize>>,
    pub failures: BTreeMap<String, usize>,
    pub bounds: BTreeMap<String, Bounds>,
}

impl RunRecord {
    pub fn of(reports: &[ScenarioReport]) -> RunRecord {
        let passed = reports.iter().all(ScenarioReport::passed);
        RunRecord::new(passed, reports.iter().map(ScenarioRecord::from).collect())
    }

    pub fn new(passed: bool, scenarios: Vec<ScenarioRecord>) -> RunRecord {
        let (schema_version, program) = (SCHEMA_VERSION, ProgramRecord::own());
        RunRecord { schema_version, program, passed, scenarios, interrupted: None, not_run: None, shard: None }
    }

    /// Reads `svclab run --json`. The error names the file.
    pub fn read(path: &Path) -> Result<RunRecord, String> {
        let wrong = |problem: String| format!("{}: {problem}", path.display());
        let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        serde_json::from_slice(&text).map_err(|error| wrong(format!("not a report: {error}")))
    }

    pub fn interrupt(&mut self, signal: &str) {
        self.passed = false;
        self.interrupted = Some(signal.to_owned());
    }
}

impl From<&ScenarioReport> for ScenarioRecord {
    fn from(report: &ScenarioReport) -> ScenarioRecord {
        ScenarioRecord {
            name: report.name.clone(),
            path: report.path.clone(),
            about: report.about.clone(),
            promise: report.promise.map(str::to_owned),
            text: report.text.clone(),
            files: report.files.clone(),
            mode: report.mode.clone(),
            iptables_variant: report.variant.clone(),
            seed: report.seed,
            machine: report.machine.clone(),
            control_plane: report.control_plane.clone(),
            proxy: report.proxy.clone(),
            audited: report.audited,
            kernel: report.kernel.clone(),
            started: report.started.clone(),
            passed: report.passed(),
            judged: report.judged(),
            unable: report.unable,
            not_started: report.not_started.clone(),
            bundle: report.start_evidence.as_ref().and_then(|evidence| evidence.bundle.clone()),
            interrupted: report.interrupted,
            seconds: report.took.as_secs_f64(),
            repeat: report.repeat(),
            cluster: Some(report.cluster.clone()),
            figures: report.figures.clone(),
            logs: report.logs.clone(),
            steps: report.steps.iter().map(StepRecord::from).collect(),
        }
    }
}

impl ScenarioRecord {
    pub fn item(&self) -> WorkItem {
        let place = match &self.machine {
            None if self.iptables_variant == SIMULATED => SIMULATED,
            None => "host",
            Some(machine) => &machine.kernel,
        };
        WorkItem { scenario: self.name.clone(), mode: self.mode.clone(), place: place.to_owned(), seed: self.seed }
    }

    pub fn time(&self) -> ItemTime {
        ItemTime { item: self.item(), seconds: self.seconds }
    }

    /// Returns kernel, iptables variant and control plane, which distinguish runs of a scenario in one mode.
    pub fn place(&self) -> String {
        let variant = match self.iptables_variant.as_str() {
            "auto" | SIMULATED => String::new(),
            variant => format!("{variant} iptables, "),
        };
        let kernel = match &self.machine {
            None if self.iptables_variant == SIMULATED => "simulated".to_owned(),
            None => "host".to_owned(),
            Some(machine) if machine.deterministic => format!("{}, seed {}", machine.kernel, self.seed),
            Some(machine) => machine.kernel.clone(),
        };
        let plane = self.control_plane.as_ref().map(|plane| format!(", Kubernetes {}", plane.version));
        variant + &kernel + &plane.unwrap_or_default()
    }
}

impl From<&StepReport> for StepRecord {
    fn from(step: &StepReport) -> StepRecord {
        let mismatches = match &step.verdict {
            StepVerdict::Failed(mismatches) => mismatches.clone(),
            StepVerdict::Error(why) => vec![Mismatch::new(LAB_WORKS, why)],
            _ => Vec::new(),
        };
        let why = match &step.verdict {
            StepVerdict::NotSimulated(why) | StepVerdict::NotJudged(why) => Some(why.clone()),
            _ => None,
        };
        StepRecord {
            name: step.name.clone(),
            line: step.line,
            action: step.action.to_owned(),
            promise: step.promise.map(str::to_owned),
            verdict: VerdictWord::of(&step.verdict),
            why,
            mismatches,
            summary: step.summary.clone(),
            answers: step.answers.as_ref().map(AnswersRecord::from),
            audited: step.audited.clone(),
            explanation: step.evidence.as_ref().map(|evidence| evidence.explanation.clone()),
            bundle: step.evidence.as_ref().and_then(|evidence| evidence.bundle.clone()),
            seconds: step.took.as_secs_f64(),
        }
    }
}

impl StepRecord {
    pub fn step_verdict(&self) -> StepVerdict {
        let why = || self.why.clone().unwrap_or_default();
        match self.verdict {
            VerdictWord::Passed => StepVerdict::Passed,
            VerdictWord::Failed => StepVerdict::Failed(self.mismatches.clone()),
            VerdictWord::Error => StepVerdict::Error(self.lab_error().to_owned()),
            VerdictWord::Skipped => StepVerdict::Skipped,
            VerdictWord::NotSimulated => StepVerdict::NotSimulated(why()),
            VerdictWord::NotJudged => StepVerdict::NotJudged(why()),
        }
    }

    pub fn lab_error(&self) -> &str {
        self.mismatches.first().map_or("", |mismatch| &mismatch.seen)
    }
}

impl From<&StepAnswers> for AnswersRecord {
    fn from(answers: &StepAnswers) -> AnswersRecord {
        let tally = &answers.tally;
        AnswersRecord {
            servers: tally.servers.clone(),
            sources: tally.seen_by.clone(),
            failures: tally.failures.clone(),
            bounds: answers.bounds.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_every_verdict_and_reads_back() {
        let record = RunRecord::of(&super::super::sample());
        let value = serde_json::to_value(&record).unwrap();
        assert_eq!((&value["passed"], &value["schemaVersion"]), (&false.into(), &1.into()));
        assert_eq!(value["program"]["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(value["scenarios"][0]["kernel"], "6.1.0");
        assert_eq!(value["scenarios"][0]["proxy"]["name"], "svcproxy");
        let steps = &value["scenarios"][0]["steps"];
        assert_eq!([&steps[0]["verdict"], &steps[1]["verdict"], &steps[2]["verdict"]], ["passed", "failed", "skipped"]);
        assert_eq!(steps[1]["mismatches"][0]["expected"], "servers see <node-a>");
        assert_eq!(value["scenarios"][0]["repeat"], "svclab run scenarios/hairpin.yaml --mode iptables --seed 3");
        assert_eq!(serde_json::from_value::<RunRecord>(value).unwrap(), record);
        for verdict in [StepVerdict::Error("no route".into()), StepVerdict::NotJudged("no root".into())] {
            let step = StepReport { verdict, ..super::super::sample().remove(0).steps.remove(0) };
            assert_eq!(StepRecord::from(&step).step_verdict(), step.verdict);
        }
    }
}
