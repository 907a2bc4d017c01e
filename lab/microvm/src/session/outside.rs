//! The host's end.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use nix::sys::termios::{self, SetArg, Termios};

use super::{Decoder, Frame, LONGEST, TerminalSize, WINDOW};

/// ctrl-], as in telnet, ends the session.
const ESCAPE: u8 = 0x1d;

/// The host's end.
pub struct Session {
    shared: Arc<SessionState>,
    size: Option<TerminalSize>,
    reader: Option<JoinHandle<()>>,
}

struct SessionState {
    /// Locked for whole frames.
    line: Mutex<UnixStream>,
    /// Unacknowledged input bytes.
    untaken: Mutex<usize>,
    taken: Condvar,
    terminal: Terminal,
    is_terminal: bool,
    started: AtomicBool,
    left: AtomicBool,
}

impl Session {
    /// Returns a session and QEMU's end of its line. Without `size` the command gets pipes.
    pub fn new(size: Option<TerminalSize>) -> io::Result<(Session, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        let from = ours.try_clone()?;
        let shared = Arc::new(SessionState {
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

    /// Whether standard input and output are terminals.
    #[must_use]
    pub fn is_on_terminal() -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Whether the guest's command runs.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.shared.started.load(Ordering::Acquire)
    }

    /// Whether the user typed the escape.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.shared.left.load(Ordering::Acquire)
    }

    /// Sends the terminal's new size.
    pub fn resize(&mut self, size: Option<TerminalSize>) {
        if let Some(size) = size.filter(|size| self.has_started() && self.size.is_some_and(|known| known != *size)) {
            self.size = Some(size);
            self.shared.send(&Frame::Size(size));
        }
    }

    /// Writes to standard error, also on a raw terminal.
    pub fn complain(&self, text: &str) {
        let end = if self.shared.terminal.is_raw() { "\r\n" } else { "\n" };
        let _ = write!(io::stderr().lock(), "{text}{end}");
    }

    /// Writes remaining output and restores the terminal, after QEMU ended.
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

impl SessionState {
    fn send(&self, frame: &Frame) {
        let _ = self.line.lock().unwrap_or_else(PoisonError::into_inner).write_all(&frame.encode());
    }

    fn read(self: &Arc<SessionState>, mut from: UnixStream) {
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
                    Frame::Output(bytes) => write_and_flush(&mut io::stdout().lock(), &bytes),
                    Frame::Errors(bytes) => write_and_flush(&mut io::stderr().lock(), &bytes),
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

    fn start(self: &Arc<SessionState>) {
        if self.is_terminal {
            self.terminal.make_raw();
        }
        self.started.store(true, Ordering::Release);
        let shared = Arc::clone(self);
        // Not joined, because reading standard input may never end.
        thread::spawn(move || shared.forward_input());
    }

    fn forward_input(&self) {
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

fn write_and_flush(to: &mut impl Write, bytes: &[u8]) {
    let _ = to.write_all(bytes).and_then(|()| to.flush());
}

/// The terminal's settings before raw mode.
#[derive(Default)]
struct Terminal(Mutex<Option<Termios>>);

impl Terminal {
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
