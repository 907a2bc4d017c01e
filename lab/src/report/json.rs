//! The report as JSON.

use serde_json::{Value, json};

use super::{Figures, ScenarioReport, StepReport, StepVerdict};
use crate::expect::{Mismatch, StepAnswers};

/// The version of the report's form: another number where a key has gone, or means something else.
pub const SCHEMA_VERSION: u64 = 1;

/// Everything that the run found.
pub fn render(reports: &[ScenarioReport]) -> Value {
    document(reports.iter().all(ScenarioReport::passed), reports.iter().map(scenario).collect())
}

/// A report of scenarios, each as [`render`] writes it.
pub fn document(passed: bool, scenarios: Vec<Value>) -> Value {
    json!({
        "schemaVersion": SCHEMA_VERSION,
        "program": { "name": "svclab", "version": env!("CARGO_PKG_VERSION"), "commit": option_env!("SVCLAB_COMMIT") },
        "passed": passed,
        "scenarios": scenarios,
    })
}

/// Says in a report that a signal ended the run.
pub fn interrupted(report: &mut Value, signal: &str) {
    report["passed"] = false.into();
    report["interrupted"] = signal.into();
}

pub(crate) fn scenario(report: &ScenarioReport) -> Value {
    json!({
        "name": report.name,
        "path": report.path,
        "about": report.about,
        "promise": report.promise,
        "text": report.text,
        "files": report.files,
        "mode": report.mode,
        "iptablesVariant": report.variant,
        "seed": report.seed,
        "machine": report.machine,
        "controlPlane": report.control_plane,
        "audited": report.audited,
        "kernel": report.kernel,
        "started": report.started,
        "passed": report.passed(),
        "judged": report.judged(),
        "unable": report.unable,
        "notStarted": report.not_started,
        "interrupted": report.interrupted,
        "seconds": report.took.as_secs_f64(),
        "repeat": report.repeat(),
        "cluster": report.cluster,
        "figures": report.figures.as_ref().map(Figures::json),
        "logs": report.logs,
        "steps": report.steps.iter().map(step).collect::<Vec<_>>(),
    })
}

fn step(step: &StepReport) -> Value {
    let mismatches = match &step.verdict {
        StepVerdict::Passed | StepVerdict::Skipped | StepVerdict::NotSimulated(_) | StepVerdict::NotJudged(_) => {
            Vec::new()
        }
        StepVerdict::Failed(mismatches) => {
            let pair = |mismatch: &Mismatch| json!({ "expected": mismatch.expected, "seen": mismatch.seen });
            mismatches.iter().map(pair).collect()
        }
        StepVerdict::Error(why) => vec![json!({ "expected": "the lab can do this step", "seen": why })],
    };
    json!({
        "name": step.name,
        "line": step.line,
        "action": step.action,
        "promise": step.promise,
        "verdict": step.verdict.word(),
        "why": match &step.verdict { StepVerdict::NotSimulated(why) | StepVerdict::NotJudged(why) => Some(why), _ => None },
        "mismatches": mismatches,
        "summary": step.summary,
        "answers": step.answers.as_ref().map(answers),
        "audited": step.audited,
        "explanation": step.evidence.as_ref().map(|evidence| &evidence.explanation),
        "bundle": step.evidence.as_ref().and_then(|evidence| evidence.bundle.as_ref()),
        "seconds": step.took.as_secs_f64(),
    })
}

fn answers(answers: &StepAnswers) -> Value {
    let tally = &answers.tally;
    json!({ "servers": tally.servers, "sources": tally.seen_by, "failures": tally.failures, "bounds": answers.bounds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_its_verdict_and_what_broke() {
        let value = render(&super::super::sample());
        assert_eq!((&value["passed"], &value["schemaVersion"]), (&false.into(), &1.into()));
        assert_eq!(value["program"]["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(value["scenarios"][0]["kernel"], "6.1.0");
        let steps = &value["scenarios"][0]["steps"];
        assert_eq!([&steps[0]["verdict"], &steps[1]["verdict"], &steps[2]["verdict"]], ["passed", "failed", "skipped"]);
        assert_eq!(steps[1]["mismatches"][0]["expected"], "servers see <node-a>");
        assert_eq!(value["scenarios"][0]["repeat"], "svclab run scenarios/hairpin.yaml --mode iptables --seed 3");
    }
}
