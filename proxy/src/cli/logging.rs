use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

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
    let written = std::env::var("RUST_LOG").ok().filter(|written| !written.trim().is_empty());
    let filter = written.and_then(|written| written.parse::<Targets>().ok()).unwrap_or_else(|| {
        let silent = ["h2", "kube_client"].map(|library| (library, LevelFilter::OFF));
        Targets::new().with_default(level(settings.verbosity)).with_targets(silent)
    });
    let format = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(|| queue().0.clone())
        // Otherwise tracing prints formatting errors to standard error, which may block and panic.
        .log_internal_errors(false)
        .with_target(false);
    let _ = match settings.format.as_str() {
        "json" => {
            let format = format.json().flatten_event(true).with_current_span(false).with_span_list(false);
            format.finish().with(filter).try_init()
        }
        _ => {
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            format.with_ansi(colour).finish().with(filter).try_init()
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
fn level(verbosity: u32) -> LevelFilter {
    match verbosity {
        0..=3 => LevelFilter::INFO,
        4..=5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
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
