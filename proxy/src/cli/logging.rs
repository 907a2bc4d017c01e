//! Where log lines go, in which format, and which of them.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;

use crate::kubeproxy_config::Logging;

/// Log lines go to standard error; `RUST_LOG` goes before the level of the settings. A second call, in tests, finds the
/// first one's subscriber in place.
pub fn start(settings: &Logging) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level(settings.verbosity)));
    // The Kubernetes client logs each failed request; the source says the same, once.
    let quiet: Option<Directive> = "kube_client=off".parse().ok();
    let filter = match quiet.filter(|_| std::env::var_os("RUST_LOG").is_none()) {
        Some(quiet) => filter.add_directive(quiet),
        None => filter,
    };
    let format = tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).with_env_filter(filter);
    let _ = match settings.format.as_str() {
        "json" => format.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
        _ => {
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            format.with_ansi(colour).try_init()
        }
    };
}

/// Upstream's levels: 0 to 3 is what happened, 4 and 5 is for debugging, from 6 on traces.
fn level(verbosity: u32) -> &'static str {
    match verbosity {
        0..=3 => "info",
        4..=5 => "debug",
        _ => "trace",
    }
}
