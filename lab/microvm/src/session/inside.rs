//! The guest's end: runs a command on a terminal or pipes.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{self, ControlFlags, SetArg};

use super::{Decoder, Frame, LONGEST, TerminalSize};

/// The second serial line, which has no kernel messages.
const LINE: &str = "/dev/ttyS1";
const LOOK: u8 = 50;

/// The guest's end.
pub struct Session {
    line: File,
    out: FrameWriter,
    terminal: Option<TerminalSize>,
}

#[derive(Clone)]
struct FrameWriter(Arc<Mutex<File>>);

impl FrameWriter {
    fn send(&self, frame: &Frame) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&frame.encode())
    }
}

impl Session {
    /// With `terminal` the command gets a terminal of that size, else pipes.
    pub fn open(terminal: Option<TerminalSize>) -> io::Result<Session> {
        let mut options = File::options();
        let line = options.read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits()).open(LINE)?;
        let mut settings = termios::tcgetattr(&line)?;
        termios::cfmakeraw(&mut settings);
        settings.control_flags.remove(ControlFlags::CBAUD);
        settings.control_flags.insert(ControlFlags::from_bits_retain(nix::libc::B115200));
        termios::tcsetattr(&line, SetArg::TCSANOW, &settings)?;
        let out = FrameWriter(Arc::new(Mutex::new(line.try_clone()?)));
        Ok(Session { line, out, terminal })
    }

    /// Writes `text` to the command's output.
    pub fn say(&self, text: &str) -> io::Result<()> {
        let text = if self.terminal.is_some() { text.replace('\n', "\r\n") } else { text.to_owned() };
        text.as_bytes().chunks(LONGEST).try_for_each(|piece| self.out.send(&Frame::Output(piece.to_vec())))
    }

    /// Returns another handle, for a thread.
    pub fn another(&self) -> io::Result<Session> {
        Ok(Session { line: self.line.try_clone()?, out: self.out.clone(), terminal: self.terminal })
    }

    /// Runs the command; returns after all output has been sent.
    pub fn run(self, command: &mut Command) -> io::Result<ExitStatus> {
        let (mut child, input, outputs) = match self.terminal {
            Some(size) => on_terminal(command, size)?,
            None => on_pipes(command)?,
        };
        let over = Arc::new(AtomicBool::new(false));
        let relays: Vec<_> = outputs
            .into_iter()
            .map(|(from, frame)| {
                let (out, over) = (self.out.clone(), Arc::clone(&over));
                thread::spawn(move || relay(File::from(from), frame, &out, &over))
            })
            .collect();
        let (line, out, terminal) = (self.line.try_clone()?, self.out.clone(), self.terminal.is_some());
        // Not joined, because reading the line never ends.
        thread::spawn(move || handle_frames(line, input, terminal, &out));
        self.out.send(&Frame::Started)?;
        let status = child.wait()?;
        over.store(true, Ordering::Release);
        relays.into_iter().for_each(|relay| drop(relay.join()));
        termios::tcdrain(&self.line)?;
        Ok(status)
    }
}

type StartedCommand = (Child, OwnedFd, Vec<(OwnedFd, fn(Vec<u8>) -> Frame)>);

fn on_pipes(command: &mut Command) -> io::Result<StartedCommand> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let missing = || io::Error::other("a pipe of the command is missing");
    let input = child.stdin.take().ok_or_else(missing)?.into();
    let output = child.stdout.take().ok_or_else(missing)?.into();
    let errors = child.stderr.take().ok_or_else(missing)?.into();
    Ok((child, input, vec![(output, Frame::Output), (errors, Frame::Errors)]))
}

/// Starts the command on a terminal; `setsid -c` must make it the controlling one.
fn on_terminal(command: &mut Command, size: TerminalSize) -> io::Result<StartedCommand> {
    fs::create_dir_all("/dev/pts")?;
    mount(Some("devpts"), "/dev/pts", Some("devpts"), MsFlags::empty(), Some("ptmxmode=666"))?;
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None)?;
    let slave = || pty.slave.try_clone();
    let child = command.stdin(slave()?).stdout(slave()?).stderr(slave()?).spawn()?;
    let input = pty.master.try_clone()?;
    Ok((child, input, vec![(pty.master, Frame::Output)]))
}

/// Sends output until the stream ends, or the command has finished: its children may keep the stream open.
fn relay(mut from: File, frame: fn(Vec<u8>) -> Frame, out: &FrameWriter, over: &AtomicBool) {
    let mut piece = [0; LONGEST];
    loop {
        let is_over = over.load(Ordering::Acquire);
        let mut ready = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::from(LOOK)) {
            Ok(0) if is_over => return,
            Ok(0) => continue,
            Ok(_) => {}
            Err(_) => return,
        }
        let Ok(length) = from.read(&mut piece) else { return };
        if length == 0 || out.send(&frame(piece[..length].to_vec())).is_err() {
            return;
        }
    }
}

fn handle_frames(mut line: File, input: OwnedFd, terminal: bool, out: &FrameWriter) {
    let (mut decoder, mut piece) = (Decoder::default(), [0; LONGEST]);
    let mut input = Some(File::from(input));
    while let Ok(length @ 1..) = line.read(&mut piece) {
        let Ok(frames) = decoder.feed(&piece[..length]) else { return };
        for frame in frames {
            match frame {
                Frame::Input(bytes) => {
                    let _ = input.as_mut().map(|input| input.write_all(&bytes));
                    let _ = out.send(&Frame::Taken(u16::try_from(bytes.len()).unwrap_or(u16::MAX)));
                }
                Frame::EndOfInput if !terminal => input = None,
                Frame::Size(size) => resize(input.as_ref(), size),
                _ => {}
            }
        }
    }
}

/// Resizes the terminal, for which the kernel sends SIGWINCH.
fn resize(terminal: Option<&File>, TerminalSize { rows, columns }: TerminalSize) {
    let Some(Ok(terminal)) = terminal.map(File::try_clone) else { return };
    let mut stty = Command::new("stty");
    stty.args(["rows", &rows.to_string(), "cols", &columns.to_string()]);
    let _ = stty.stdin(terminal).stdout(Stdio::null()).stderr(Stdio::null()).status();
}
