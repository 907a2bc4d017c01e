use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;

use super::log_queue::LogQueue;
use crate::kubeproxy_config::LoggingConfiguration;
use crate::metrics::AtScrape;

/// The queue's limit in bytes: about 5,000 lines.
const LIMIT: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_millis(500);

static QUEUE: OnceLock<(LogQueue, Duration)> = OnceLock::new();

fn queue() -> &'static (LogQueue, Duration) {
    QUEUE.get_or_init(|| (LogQueue::to_stderr(LIMIT), PATIENCE))
}

/// For commands that print a result and exit: waits for the reader instead of dropping lines.
pub fn start_complete(settings: &LoggingConfiguration) {
    let _ = QUEUE.set((LogQueue::to_stderr(usize::MAX), Duration::MAX));
    start(settings);
}

/// Starts logging; `RUST_LOG` overrides the configured level. A second call, as in tests, keeps the first subscriber.
pub fn start(settings: &LoggingConfiguration) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level(settings.verbosity)));
    let quiet: Option<Directive> = "kube_client=off".parse().ok();
    let filter = match quiet.filter(|_| std::env::var_os("RUST_LOG").is_none()) {
        Some(quiet) => filter.add_directive(quiet),
        None => filter,
    };
    let format = tracing_subscriber::fmt()
        .with_writer(|| queue().0.clone())
        // Otherwise tracing prints formatting errors to standard error, which may block and panic.
        .log_internal_errors(false)
        .with_target(false)
        .with_env_filter(filter);
    let _ = match settings.format.as_str() {
        "json" => format.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
        _ => {
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            format.with_ansi(colour).try_init()
        }
    };
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let backtrace = Backtrace::capture();
        let backtrace = match backtrace.status() {
            BacktraceStatus::Captured => format!("\n{backtrace}"),
            _ => String::new(),
        };
        line(&format!("thread '{}' {panic}{backtrace}", thread.name().unwrap_or("<unnamed>")));
        flush();
    }));
}

/// Logs without a timestamp. Never blocks, never fails.
pub fn line(text: &str) {
    queue().0.push(format!("{text}\n").into_bytes());
}

/// Like [`line()`], and drops lines that other threads log afterwards.
pub fn last_line(text: &str) {
    queue().0.push_last(format!("{text}\n").into_bytes());
}

pub fn flush() {
    let (queue, patience) = queue();
    queue.flush(*patience);
}

pub fn dropped_lines() -> Result<AtScrape, prometheus::Error> {
    let help = "Log lines that were dropped because their reader did not take them or writing them failed";
    AtScrape::total("svcproxy_log_lines_dropped_total", help, || queue().0.dropped())
}

/// kube-proxy's levels: 0 to 3 log events, 4 and 5 debug messages, 6 and above traces.
fn level(verbosity: u32) -> &'static str {
    match verbosity {
        0..=3 => "info",
        4..=5 => "debug",
        _ => "trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::Command;

    const INSIDE: &str = "SVCPROXY_TEST_PANICS";

    #[test]
    fn a_panic_does_not_wait_for_the_reader_of_the_log() {
        if std::env::var_os(INSIDE).is_some() {
            start(&LoggingConfiguration::default());
            assert!(std::thread::spawn(|| panic!("a fault")).join().is_err());
            return;
        }
        let (_reader, mut writer) = std::io::pipe().unwrap();
        let size = nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_GETPIPE_SZ).unwrap();
        writer.write_all(&vec![b'x'; size.try_into().unwrap()]).unwrap();
        let name = "cli::logging::tests::a_panic_does_not_wait_for_the_reader_of_the_log";
        let mut inside = Command::new(std::env::current_exe().unwrap());
        inside.args(["--exact", name, "--nocapture"]).env(INSIDE, "1").stderr(writer);
        assert!(inside.status().unwrap().success());
    }
}
