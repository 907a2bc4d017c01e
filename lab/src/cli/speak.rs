//! What the program says. In this module's neighbours `println!` and its kin are those of this file: a reader that has gone away
//! (`svclab list | head -1`) is no reason to panic, and the line of progress makes room.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use super::live;

macro_rules! print {
    ($($part:tt)*) => { $crate::cli::speak::out(format_args!($($part)*)) };
}

macro_rules! println {
    ($($part:tt)*) => { $crate::cli::speak::out(format_args!("{}\n", format_args!($($part)*))) };
}

macro_rules! eprint {
    ($($part:tt)*) => { $crate::cli::speak::err(format_args!($($part)*)) };
}

macro_rules! eprintln {
    ($($part:tt)*) => { $crate::cli::speak::err(format_args!("{}\n", format_args!($($part)*))) };
}

/// Whether something could not be written to standard output, other than for want of a reader.
static LOST: AtomicBool = AtomicBool::new(false);

/// To standard output.
pub(super) fn out(text: Arguments<'_>) {
    let written = live::aside(|| io::stdout().lock().write_fmt(text));
    if let Err(error) = unless_unread(written)
        && !LOST.swap(true, Ordering::Relaxed)
    {
        err(format_args!("svclab: cannot write to standard output: {error}\n"));
    }
}

/// To standard error, as far as anybody reads it.
pub(super) fn err(text: Arguments<'_>) {
    let _ = live::aside(|| io::stderr().lock().write_fmt(text));
}

/// Whether what was said is all there, or nobody wanted it.
pub(super) fn all_was_written() -> bool {
    !LOST.load(Ordering::Relaxed)
}

/// A reader that has gone away wanted no more.
pub(super) fn unless_unread(written: io::Result<()>) -> io::Result<()> {
    written.or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

/// Where a report for people goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// Standard output.
    Out,
    /// Standard error, where a document for programs takes standard output.
    Err,
}

impl Stream {
    /// A line.
    pub(super) fn line(self, text: &str) {
        match self {
            Stream::Out => println!("{text}"),
            Stream::Err => eprintln!("{text}"),
        }
    }

    /// Colour on a terminal only, and not for those who do not want it (no-color.org).
    pub(super) fn colour(self) -> bool {
        use std::io::IsTerminal as _;
        let terminal = match self {
            Stream::Out => io::stdout().is_terminal(),
            Stream::Err => io::stderr().is_terminal(),
        };
        terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
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
