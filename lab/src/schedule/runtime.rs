//! The async runtime of commands that build a lab.

use super::signals::Stop;
use crate::exit::Exit;

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Exit> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    built.map_err(|error| Exit::unable(format!("cannot start the runtime: {error}")))
}

pub(crate) async fn stopped() -> Stop {
    use tokio::signal::unix::{SignalKind, signal};
    let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    // SIGHUP comes from a closed terminal. PID 1 of the sandbox ignores signals without a handler.
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
