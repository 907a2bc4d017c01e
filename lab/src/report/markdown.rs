//! A run as GitHub Markdown, for the summary of a workflow: a table of scenarios by modes, and what failed.

use std::fmt::Write as _;

use super::record::{RunRecord, ScenarioRecord, VerdictWord};

/// The most characters of a reason: a mismatch may contain a whole table.
const LONGEST: usize = 400;

pub fn render(run: &RunRecord) -> String {
    let mut columns: Vec<String> = run.scenarios.iter().map(column).collect();
    columns.extend(run.not_run.iter().flatten().map(|one| one.mode.clone()));
    let mut scenarios: Vec<&str> = run.scenarios.iter().map(|one| one.name.as_str()).collect();
    scenarios.extend(run.not_run.iter().flatten().map(|one| one.scenario.as_str()));
    let (columns, scenarios) = (distinct(columns), distinct(scenarios));
    let mut text = format!("# {}\n\n{}\n", title(run), tally(run));
    if !columns.is_empty() {
        let heads: String = columns.iter().map(|column| format!(" {} |", plain(column))).collect();
        let _ = writeln!(text, "\n| scenario |{heads}\n|---|{}", "---|".repeat(columns.len()));
    }
    for scenario in scenarios {
        let cells: String = columns.iter().map(|column| format!(" {} |", cell(run, scenario, column))).collect();
        let _ = writeln!(text, "| {} |{cells}", plain(scenario));
    }
    let failed: Vec<&ScenarioRecord> = run.scenarios.iter().filter(|one| !one.passed).collect();
    if !failed.is_empty() {
        text.push_str("\n## Failures\n");
    }
    failed.into_iter().for_each(|one| failure(&mut text, one));
    if run.not_run.iter().flatten().next().is_some() {
        text.push_str("\n## Not run\n\n");
    }
    for one in run.not_run.iter().flatten() {
        let _ = writeln!(text, "- {} ({}): {}", plain(&one.scenario), one.mode, plain(&one.why));
    }
    text
}

fn title(run: &RunRecord) -> String {
    let shard = run.shard.as_ref().map(|shard| format!(", shard {}", shard.shard())).unwrap_or_default();
    let proxies =
        distinct(run.scenarios.iter().map(|one| one.proxy.title()).filter(|title| !title.is_empty()).collect());
    let name = if proxies.is_empty() { "svclab".to_owned() } else { proxies.join(", ") };
    format!("{}{shard}", plain(&name))
}

fn tally(run: &RunRecord) -> String {
    let count = |word: &str| run.scenarios.iter().filter(|one| verdict(one) == word).count();
    let not_run = run.not_run.iter().flatten().count();
    let all = [
        (count(PASSED), "passed"),
        (count(FAILED), "failed"),
        (count(UNABLE), "could not be run"),
        (count(NOT_JUDGED), "not judged"),
        (not_run, "not run"),
    ];
    let all = all.into_iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("{number} {what}"));
    let interrupted = run.interrupted.as_ref().map(|signal| format!("ended by {signal}"));
    all.chain(interrupted).collect::<Vec<_>>().join(", ")
}

const PASSED: &str = "✓";
const FAILED: &str = "**failed**";
const UNABLE: &str = "unable";
const NOT_JUDGED: &str = "not judged";

fn verdict(one: &ScenarioRecord) -> &'static str {
    match (one.passed, one.judged) {
        (true, true) => PASSED,
        (true, false) => NOT_JUDGED,
        (false, _) if one.unable => UNABLE,
        (false, _) => FAILED,
    }
}

/// Returns the mode, with the kernel if that is not the host's.
fn column(one: &ScenarioRecord) -> String {
    match one.place().as_str() {
        "host" => one.mode.clone(),
        place => format!("{}, {place}", one.mode),
    }
}

fn cell(run: &RunRecord, scenario: &str, of: &str) -> &'static str {
    let found = run.scenarios.iter().filter(|one| one.name == scenario && column(one) == of).map(verdict);
    // Of several seeds the worst counts.
    let worst = found.max_by_key(|word| [PASSED, NOT_JUDGED, UNABLE, FAILED].iter().position(|other| other == word));
    let is_not_run = || run.not_run.iter().flatten().any(|one| one.scenario == scenario && one.mode == of);
    worst.unwrap_or_else(|| if is_not_run() { "not run" } else { "" })
}

fn failure(text: &mut String, one: &ScenarioRecord) {
    let _ = writeln!(text, "\n### {} ({}, {})\n", plain(&one.name), one.mode, one.place());
    for problem in problems(one) {
        let _ = writeln!(text, "- `{}:{}` {}: {}", one.path, problem.line, plain(problem.step), plain(&problem.what));
    }
    let _ = writeln!(text, "\nRepeat with `{}`", one.repeat);
}

/// Why a scenario failed: a line per broken promise.
pub(super) struct Problem<'a> {
    pub(super) step: &'a str,
    pub(super) line: usize,
    pub(super) what: String,
}

pub(super) fn problems(one: &ScenarioRecord) -> Vec<Problem<'_>> {
    let start = one.not_started.iter().map(|why| Problem { step: "start", line: 1, what: why.clone() });
    let steps = one.steps.iter().flat_map(|step| {
        let of = |what: String| Problem { step: &step.name, line: step.line, what };
        let broken = step.mismatches.iter().map(move |mismatch| match step.verdict {
            VerdictWord::Error => of(format!("the lab failed: {}", mismatch.seen)),
            _ => of(format!("expected: {}; seen: {}", mismatch.expected, mismatch.seen)),
        });
        broken.collect::<Vec<_>>()
    });
    let ended = "a signal ended it before its last step".to_owned();
    let end = one.interrupted.then_some(Problem { step: "end", line: 1, what: ended });
    start.chain(steps).chain(end).collect()
}

fn distinct<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    all.into_iter().for_each(|one| {
        if !kept.contains(&one) {
            kept.push(one);
        }
    });
    kept
}

/// Returns `text` as one line of at most [`LONGEST`] characters, with Markdown escaped.
pub(crate) fn plain(text: &str) -> String {
    let line: Vec<&str> = text.split_whitespace().collect();
    let line = line.join(" ");
    let short: String = line.chars().take(LONGEST).collect();
    let more = if short.len() < line.len() { "…" } else { "" };
    let mut escaped = String::new();
    for character in short.chars() {
        if "\\`*_[]<>|".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped + more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::NotRunRecord;

    #[test]
    fn a_summary_has_a_table_and_the_failed_steps_with_their_lines() {
        let mut run = RunRecord::of(&crate::report::sample());
        let passed = ScenarioRecord { mode: "ipvs".into(), passed: true, ..run.scenarios[0].clone() };
        run.scenarios.push(passed);
        let (scenario, mode, why) = ("sctp".to_owned(), "ipvs".to_owned(), "no <network>".to_owned());
        run.not_run = Some(vec![NotRunRecord { scenario, mode, why, is_failure: false }]);
        let expected = "# svcproxy

1 passed, 1 failed, 1 not run

| scenario | iptables | ipvs |
|---|---|---|
| hairpin | **failed** | ✓ |
| sctp |  | not run |

## Failures

### hairpin (iptables, host)

- `scenarios/hairpin.yaml:7` it is masked: expected: servers see \\<node-a\\>; seen: 10.0.0.9 & \"others\"

Repeat with `svclab run scenarios/hairpin.yaml --mode iptables --seed 3`

## Not run

- sctp (ipvs): no \\<network\\>
";
        assert_eq!(render(&run), expected);
    }

    #[test]
    fn an_empty_run_has_no_table() {
        assert_eq!(render(&RunRecord::default()), "# svclab\n\n\n");
    }
}
