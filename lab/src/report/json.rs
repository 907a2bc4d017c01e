//! The report as JSON.

use serde_json::{Value, json};

use super::{ScenarioReport, StepReport, Verdict};
use crate::expect::{Answers, Mismatch};

/// Everything that the run found.
pub fn render(reports: &[ScenarioReport]) -> Value {
    json!({ "passed": reports.iter().all(ScenarioReport::passed), "scenarios": reports.iter().map(scenario).collect::<Vec<_>>() })
}

pub(crate) fn scenario(report: &ScenarioReport) -> Value {
    json!({
        "name": report.name,
        "path": report.path,
        "about": report.about,
        "text": report.text,
        "files": report.files,
        "mode": report.mode,
        "iptablesVariant": report.variant,
        "seed": report.seed,
        "machine": report.machine,
        "passed": report.passed(),
        "judged": report.judged(),
        "unable": report.unable,
        "notStarted": report.not_started,
        "seconds": report.took.as_secs_f64(),
        "repeat": report.repeat(),
        "cluster": report.cluster,
        "logs": report.logs,
        "steps": report.steps.iter().map(step).collect::<Vec<_>>(),
    })
}

fn step(step: &StepReport) -> Value {
    let mismatches = match &step.verdict {
        Verdict::Passed | Verdict::Skipped | Verdict::NotSimulated(_) | Verdict::NotJudged(_) => Vec::new(),
        Verdict::Failed(mismatches) => {
            let pair = |mismatch: &Mismatch| json!({ "expected": mismatch.expected, "seen": mismatch.seen });
            mismatches.iter().map(pair).collect()
        }
        Verdict::Error(why) => vec![json!({ "expected": "the lab can do this step", "seen": why })],
    };
    json!({
        "name": step.name,
        "line": step.line,
        "action": step.action,
        "verdict": step.verdict.word(),
        "why": match &step.verdict { Verdict::NotSimulated(why) | Verdict::NotJudged(why) => Some(why), _ => None },
        "mismatches": mismatches,
        "summary": step.summary,
        "answers": step.answers.as_ref().map(answers),
        "explanation": step.evidence.as_ref().map(|evidence| &evidence.explanation),
        "bundle": step.evidence.as_ref().and_then(|evidence| evidence.bundle.as_ref()),
        "seconds": step.took.as_secs_f64(),
    })
}

fn answers(answers: &Answers) -> Value {
    let tally = &answers.tally;
    json!({ "servers": tally.servers, "sources": tally.seen_by, "failures": tally.failures, "bounds": answers.bounds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_its_verdict_and_what_broke() {
        let value = render(&super::super::sample());
        assert_eq!(value["passed"], false);
        let steps = &value["scenarios"][0]["steps"];
        assert_eq!([&steps[0]["verdict"], &steps[1]["verdict"], &steps[2]["verdict"]], ["passed", "failed", "skipped"]);
        assert_eq!(steps[1]["mismatches"][0]["expected"], "servers see <node-a>");
        assert_eq!(value["scenarios"][0]["repeat"], "svclab run scenarios/hairpin.yaml --mode iptables --seed 3");
    }
}
