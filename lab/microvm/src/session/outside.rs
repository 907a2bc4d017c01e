//! This machine's end: its terminal or its standard streams, as long as the guest's command runs.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use nix::sys::termios::{self, SetArg, Termios};

use super::{Decoder, Frame, LONGEST, Size, WINDOW};

/// What ends the session when it is typed: ctrl-], as in telnet.
const ESCAPE: u8 = 0x1d;

/// A session that may have begun.
pub struct Session {
    shared: Arc<Shared>,
    size: Option<Size>,
    reader: Option<JoinHandle<()>>,
}

/// What the threads have in common.
struct Shared {
    /// Frames to the guest are written whole.
    line: Mutex<UnixStream>,
    /// Bytes of input that the guest has not taken.
    untaken: Mutex<usize>,
    taken: Condvar,
    terminal: Terminal,
    is_terminal: bool,
    started: AtomicBool,
    left: AtomicBool,
}

impl Session {
    /// A session over a new line, and the end of it that is QEMU's. `size` is that of the terminal; without one the guest's command
    /// gets standard streams.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn new(size: Option<Size>) -> io::Result<(Session, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        let from = ours.try_clone()?;
        let shared = Arc::new(Shared {
            line: Mutex::new(ours),
            untaken: Mutex::new(0),
            taken: Condvar::new(),
            terminal: Terminal::default(),
            is_terminal: size.is_some(),
            started: AtomicBool::new(false),
            left: AtomicBool::new(false),
        });
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.read(from))
        };
        Ok((Session { shared, size, reader: Some(reader) }, theirs.into()))
    }

    /// Whether standard input and output are both a terminal.
    #[must_use]
    pub fn is_on_terminal() -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Whether the guest's command runs, or has run.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.shared.started.load(Ordering::Acquire)
    }

    /// Whether the user has typed the way out.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.shared.left.load(Ordering::Acquire)
    }

    /// Tells the guest how large the terminal is now, if that is new.
    pub fn resize(&mut self, size: Option<Size>) {
        if let Some(size) = size.filter(|size| self.has_started() && self.size.is_some_and(|known| known != *size)) {
            self.size = Some(size);
            self.shared.send(&Frame::Size(size));
        }
    }

    /// A line on standard error, whatever state the terminal is in.
    pub fn complain(&self, text: &str) {
        let end = if self.shared.terminal.is_raw() { "\r\n" } else { "\n" };
        let _ = write!(io::stderr().lock(), "{text}{end}");
    }

    /// Call this when QEMU is gone: writes what has come until then, and gives the terminal back as it was.
    pub fn end(mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.terminal.restore();
    }
}

impl Shared {
    fn send(&self, frame: &Frame) {
        // QEMU that has gone away is noticed by who waits for it.
        let _ = self.line.lock().unwrap_or_else(PoisonError::into_inner).write_all(&frame.encode());
    }

    /// Writes what comes from the guest, until QEMU is gone.
    fn read(self: &Arc<Shared>, mut from: UnixStream) {
        let (mut decoder, mut piece) = (Decoder::default(), [0; LONGEST]);
        while let Ok(length @ 1..) = from.read(&mut piece) {
            let frames = match decoder.feed(&piece[..length]) {
                Ok(frames) => frames,
                Err(error) => {
                    let _ = write!(io::stderr().lock(), "svclab: {error}\r\n");
                    self.left.store(true, Ordering::Release);
                    return;
                }
            };
            for frame in frames {
                match frame {
                    Frame::Output(bytes) => put(&mut io::stdout().lock(), &bytes),
                    Frame::Errors(bytes) => put(&mut io::stderr().lock(), &bytes),
                    Frame::Taken(bytes) => {
                        let mut untaken = self.untaken.lock().unwrap_or_else(PoisonError::into_inner);
                        *untaken = untaken.saturating_sub(usize::from(bytes));
                        self.taken.notify_all();
                    }
                    Frame::Started => self.start(),
                    Frame::Input(_) | Frame::EndOfInput | Frame::Size(_) => {}
                }
            }
        }
    }

    fn start(self: &Arc<Shared>) {
        if self.is_terminal {
            self.terminal.make_raw();
        }
        self.started.store(true, Ordering::Release);
        let shared = Arc::clone(self);
        // It is never waited for: nobody knows when somebody types next.
        thread::spawn(move || shared.type_in());
    }

    /// Sends what is typed, or piped in.
    fn type_in(&self) {
        let Ok(input) = io::stdin().as_fd().try_clone_to_owned() else { return };
        let (mut input, mut piece) = (File::from(input), [0; LONGEST]);
        while let Ok(length @ 1..) = input.read(&mut piece) {
            let typed = &piece[..length];
            let escape = typed.iter().position(|byte| self.is_terminal && *byte == ESCAPE);
            let typed = &typed[..escape.unwrap_or(length)];
            let mut untaken = self.untaken.lock().unwrap_or_else(PoisonError::into_inner);
            while *untaken + typed.len() > WINDOW && escape.is_none() {
                untaken = self.taken.wait(untaken).unwrap_or_else(PoisonError::into_inner);
            }
            *untaken += typed.len();
            drop(untaken);
            self.send(&Frame::Input(typed.to_vec()));
            if escape.is_some() {
                self.left.store(true, Ordering::Release);
                return;
            }
        }
        self.send(&Frame::EndOfInput);
    }
}

/// A reader that has gone away wanted no more.
fn put(to: &mut impl Write, bytes: &[u8]) {
    let _ = to.write_all(bytes).and_then(|()| to.flush());
}

/// This process's terminal: as it was, while it is raw.
#[derive(Default)]
struct Terminal(Mutex<Option<Termios>>);

impl Terminal {
    /// Whatever is typed goes to the guest from now on, whose terminal knows what a line is and what ctrl-c means.
    fn make_raw(&self) {
        let Ok(before) = termios::tcgetattr(io::stdin()) else { return };
        let mut raw = before.clone();
        termios::cfmakeraw(&mut raw);
        if termios::tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw).is_ok() {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        }
    }

    fn is_raw(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn restore(&self) {
        if let Some(before) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = termios::tcsetattr(io::stdin(), SetArg::TCSADRAIN, &before);
        }
    }
}
