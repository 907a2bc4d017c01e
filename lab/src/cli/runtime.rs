//! The asynchronous runtime of commands that build a lab.

use super::Exit;
use super::stop::Stop;

/// The runtime of everything inside the sandbox.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Exit> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    built.map_err(|error| Exit::unable(format!("cannot start the runtime: {error}")))
}

/// Returns at a signal that ends a run, and which it was.
pub(super) async fn stopped() -> Stop {
    use tokio::signal::unix::{SignalKind, signal};
    let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    // The terminal was closed. Without a handler the sandbox's first process would not hear of it, and be killed.
    let hangup = signal(SignalKind::hangup());
    if let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) = (interrupt, terminate, hangup) {
        tokio::select! {
            _ = interrupt.recv() => Stop::Interrupt,
            _ = terminate.recv() => Stop::Terminate,
            _ = hangup.recv() => Stop::Hangup,
        }
    } else {
        std::future::pending().await
    }
}
