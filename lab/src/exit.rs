//! Exit statuses.

use std::process::ExitStatus;

/// A promise failed, an audit has findings, or two proxies differ.
pub(crate) const FAILED: u8 = 1;
/// Wrong usage, or a file with mistakes.
pub(crate) const USAGE: u8 = 2;
/// This machine cannot run the command, or nothing was judged.
pub(crate) const UNABLE: u8 = 3;

/// An unsuccessful end. An empty message is not printed.
#[derive(Debug)]
pub(crate) struct Exit {
    pub(crate) status: u8,
    pub(crate) message: String,
}

impl Exit {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Exit { status: USAGE, message: message.into() }
    }

    pub(crate) fn unable(message: impl Into<String>) -> Self {
        Exit { status: UNABLE, message: message.into() }
    }
}

pub(crate) fn status_of(child: ExitStatus) -> u8 {
    child.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(UNABLE)
}
