//! Output of `cli` and `schedule`. Ignores closed pipes (`svclab list | head -1`), and erases the progress line first.

pub(crate) mod progress;

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

macro_rules! print {
    ($($part:tt)*) => { $crate::console::out(format_args!($($part)*)) };
}

macro_rules! println {
    ($($part:tt)*) => { $crate::console::out(format_args!("{}\n", format_args!($($part)*))) };
}

macro_rules! eprint {
    ($($part:tt)*) => { $crate::console::err(format_args!($($part)*)) };
}

macro_rules! eprintln {
    ($($part:tt)*) => { $crate::console::err(format_args!("{}\n", format_args!($($part)*))) };
}

/// The variable that asks for colours without a terminal (bixense.com/clicolors).
pub(crate) const FORCE_COLOUR: &str = "CLICOLOR_FORCE";

/// Whether a write to standard output failed, other than on a closed pipe.
static LOST: AtomicBool = AtomicBool::new(false);

pub(crate) fn out(text: Arguments<'_>) {
    let written = progress::without(|| io::stdout().lock().write_fmt(text));
    if let Err(error) = unless_unread(written)
        && !LOST.swap(true, Ordering::Relaxed)
    {
        err(format_args!("svclab: cannot write to standard output: {error}\n"));
    }
}

pub(crate) fn err(text: Arguments<'_>) {
    let _ = progress::without(|| io::stderr().lock().write_fmt(text));
}

pub(crate) fn all_was_written() -> bool {
    !LOST.load(Ordering::Relaxed)
}

pub(crate) fn unless_unread(written: io::Result<()>) -> io::Result<()> {
    written.or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

/// The stream that gets the report for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    /// Used when standard output carries a document.
    Err,
}

impl Stream {
    pub(crate) fn line(self, text: &str) {
        match self {
            Stream::Out => println!("{text}"),
            Stream::Err => eprintln!("{text}"),
        }
    }

    /// Whether to write colours: only to a terminal or with [`FORCE_COLOUR`], and not if `NO_COLOR` is set (no-color.org).
    pub(crate) fn colour(self) -> bool {
        use std::io::IsTerminal as _;
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let terminal = match self {
            Stream::Out => io::stdout().is_terminal(),
            Stream::Err => io::stderr().is_terminal(),
        };
        (terminal || is_set(FORCE_COLOUR)) && !is_set("NO_COLOR")
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        match self {
            Stream::Out => print!("{text}"),
            Stream::Err => eprint!("{text}"),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stdout().flush();
        Ok(())
    }
}
