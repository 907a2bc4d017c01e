//! The source of objects: its answers, this node's Node and the server's clock.

use tokio::runtime::Runtime;
use tracing::warn;

use super::super::render::has_node;
use super::super::run;
use super::super::settings::ObjectOrigin;
use super::report::{CheckReport, Severity};
use crate::config::Config;
use crate::daemon::{missing_node, warn_about_node};
use crate::metrics::Requests;
use crate::model::Batch;
use crate::source::{
    Access, ApiProbe, StateFileSettings, WatchScope, has_usable_file, lacking_pod_cidr, probe_api, read_directory,
};

const SUBJECT: &str = "Kubernetes API";
/// In seconds. `Date` has whole seconds, and an answer takes time.
const CLOCKS_DIFFER: f64 = 5.0;

pub(super) fn check(report: &mut CheckReport, runtime: &Runtime, config: &Config, origin: &ObjectOrigin) {
    match origin {
        ObjectOrigin::Manifests(directory) => {
            let read = || {
                let reading = read_directory(directory)?;
                reading.remarks.iter().chain(&reading.problems).for_each(|problem| warn!("{problem}"));
                Ok(reading.batch)
            };
            let objects = |batch: &Batch| format!("{} objects in {}", batch.changes.len(), directory.display());
            if let Some(batch) = report.step("manifests", read, objects) {
                node(report, config, &batch);
            }
        }
        ObjectOrigin::Kubernetes(access, connection) => {
            let connector = run::connector(access, connection, &Requests::default());
            let scope = run::scope(config);
            let probe = runtime.block_on(probe_api(&connector, &scope));
            answers(report, &probe, &access.describe(), || recalls(config, access, &scope));
            if probe.has_nodes {
                node(report, config, &probe.batch);
            }
            clock(report, probe.clock_ahead);
        }
    }
}

/// `recalls` returns whether a start without the API would have objects.
fn answers(report: &mut CheckReport, probe: &ApiProbe, server: &str, recalls: impl FnOnce() -> bool) {
    let is_excused =
        probe.problems.iter().all(|problem| problem.is_unreachable) && !probe.problems.is_empty() && recalls();
    for problem in &probe.problems {
        let message = format!("{server}: {}", problem.message);
        if is_excused {
            report.add(
                Severity::Warning,
                SUBJECT,
                format!("{message}; a start would program the state file's objects"),
            );
        } else {
            report.add(Severity::Problem, SUBJECT, message);
        }
    }
    if probe.problems.is_empty() {
        let kinds = probe.usable.join(", ");
        report.add(Severity::Ok, SUBJECT, format!("{server}: {kinds} can be listed and watched"));
    }
    for warning in &probe.warnings {
        report.add(Severity::Warning, SUBJECT, format!("{server}: {warning}"));
    }
}

fn recalls(config: &Config, access: &Access, scope: &WatchScope) -> bool {
    let Some(file) = &config.state_file else { return false };
    has_usable_file(&StateFileSettings::new(file.path.clone(), file.max_age), access, scope)
}

fn node(report: &mut CheckReport, config: &Config, batch: &Batch) {
    let name = &config.node_name;
    if !has_node(batch, name) {
        report.add(Severity::Problem, "node", missing_node(name));
    } else if let Some(lacking) = lacking_pod_cidr(batch, config) {
        report.add(Severity::Problem, "node", lacking);
    } else {
        let observe = || {
            warn_about_node(config, batch);
            Ok(())
        };
        report.step("node", observe, |()| format!("there is a Node {name}"));
    }
}

fn clock(report: &mut CheckReport, ahead: Option<f64>) {
    match ahead {
        None => {}
        Some(ahead) if ahead.abs() > CLOCKS_DIFFER => {
            let relation = if ahead > 0.0 { "ahead of" } else { "behind" };
            let text = format!(
                "this node's clock is {:.0} s {relation} the API server's, and one of both may refuse the other's tokens and certificates: \
                 synchronise both (NTP)",
                ahead.abs()
            );
            report.add(Severity::Warning, "clock", text);
        }
        Some(_) => report.add(Severity::Ok, "clock", format!("within {CLOCKS_DIFFER} s of the API server's")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::ApiProblem;

    #[test]
    fn a_state_file_excuses_a_server_that_cannot_be_reached_and_no_refusal() {
        let lines = |unreachable: &[bool], recalls: bool| {
            let problems =
                unreachable.iter().map(|&is_unreachable| ApiProblem { message: "x".to_owned(), is_unreachable });
            let probe = ApiProbe { problems: problems.collect(), ..ApiProbe::default() };
            let mut report = CheckReport::default();
            answers(&mut report, &probe, "server", || recalls);
            report.has_problem()
        };
        assert!(lines(&[true], false) && lines(&[false], true) && lines(&[true, false], true));
        assert!(!lines(&[true], true) && !lines(&[], true));
    }

    #[test]
    fn only_clocks_that_differ_by_seconds_are_a_warning() {
        let text = |ahead| {
            let mut report = CheckReport::default();
            clock(&mut report, ahead);
            report.to_string()
        };
        assert_eq!(text(None), "");
        assert!(text(Some(-4.9)).starts_with("ok ") && text(Some(4.9)).starts_with("ok "));
        assert!(text(Some(61.2)).starts_with("warning  clock: this node's clock is 61 s ahead of the API server's"));
        assert!(text(Some(-61.2)).starts_with("warning  clock: this node's clock is 61 s behind the API server's"));
    }
}
