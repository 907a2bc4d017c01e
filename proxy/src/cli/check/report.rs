use std::fmt;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::subscriber::with_default;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};

use super::super::error_sentence;

/// The exit status if there are warnings and no problem.
const WARNINGS: u8 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    Ok,
    Warning,
    Problem,
}

#[derive(Debug, Default)]
pub(super) struct CheckReport(Vec<Finding>);

#[derive(Debug)]
struct Finding {
    severity: Severity,
    subject: &'static str,
    text: String,
}

impl CheckReport {
    pub(super) fn add(&mut self, severity: Severity, subject: &'static str, text: impl Into<String>) {
        self.0.push(Finding { severity, subject, text: text.into() });
    }

    /// Runs code of the start. What it logs as a warning is a warning, its failure is a problem; `success` is printed if there is
    /// neither.
    pub(super) fn step<T>(
        &mut self,
        subject: &'static str,
        step: impl FnOnce() -> anyhow::Result<T>,
        success: impl FnOnce(&T) -> String,
    ) -> Option<T> {
        let (result, warnings) = with_warnings(step);
        if let (Ok(value), []) = (&result, &warnings[..]) {
            self.add(Severity::Ok, subject, success(value));
        }
        warnings.into_iter().for_each(|warning| self.add(Severity::Warning, subject, warning));
        result.inspect_err(|error| self.add(Severity::Problem, subject, error_sentence(error))).ok()
    }

    pub(super) fn has_problem(&self) -> bool {
        self.worst() == Severity::Problem
    }

    pub(super) fn status(&self) -> ExitCode {
        match self.worst() {
            Severity::Ok => ExitCode::SUCCESS,
            Severity::Warning => ExitCode::from(WARNINGS),
            Severity::Problem => ExitCode::FAILURE,
        }
    }

    fn worst(&self) -> Severity {
        self.0.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { severity, subject, text } in &self.0 {
            let severity = match severity {
                Severity::Ok => "ok",
                Severity::Warning => "warning",
                Severity::Problem => "problem",
            };
            writeln!(f, "{severity:<8} {subject}: {text}")?;
        }
        Ok(())
    }
}

/// Returns the lines that would be logged as warnings or errors by this thread.
fn with_warnings<T>(run: impl FnOnce() -> T) -> (T, Vec<String>) {
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let subscriber = tracing_subscriber::registry().with(LevelFilter::WARN).with(WarningLayer(Arc::clone(&lines)));
    let result = with_default(subscriber, run);
    let lines = std::mem::take(&mut *lines.lock().unwrap_or_else(PoisonError::into_inner));
    (result, lines)
}

struct WarningLayer(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for WarningLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = LogLine::default();
        event.record(&mut line);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.message + &line.fields);
    }
}

/// The message and then the fields, as in the log.
#[derive(Default)]
struct LogLine {
    message: String,
    fields: String,
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.fields.push_str(&format!(" {}={value:?}", field.name()));
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use tracing::{info, warn};

    use super::*;

    #[test]
    fn warnings_and_failures_of_a_step_are_findings() {
        let mut report = CheckReport::default();
        let fine = report.step(
            "a",
            || {
                info!("not shown");
                Ok(1)
            },
            |one| format!("{one} is fine"),
        );
        assert_eq!(
            (fine, report.worst(), report.to_string().as_str()),
            (Some(1), Severity::Ok, "ok       a: 1 is fine\n")
        );
        let error = "x".parse::<u8>().unwrap_err();
        report.step(
            "b",
            || {
                warn!(family = 4, %error, "cannot read");
                Ok(())
            },
            |()| "not shown".to_owned(),
        );
        assert_eq!(report.worst(), Severity::Warning);
        let failed: Option<()> = report.step("c", || Err(error.clone()).context("cannot start"), |()| String::new());
        assert!(failed.is_none() && report.has_problem());
        let text = report.to_string();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let expected = [
            "warning  b: cannot read family=4 error=invalid digit found in string",
            "problem  c: cannot start: invalid digit found in string",
        ];
        assert_eq!(lines, expected);
    }
}
