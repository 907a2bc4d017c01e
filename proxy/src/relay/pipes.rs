//! Moves bytes from one connection to another without their leaving the kernel: splice(2), by way of a pipe.

use std::io::{self, PipeReader, PipeWriter};
use std::sync::{Mutex, PoisonError};

use nix::fcntl::{SpliceFFlags, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// A pipe holds so much (16 pages); more is not taken out of a socket at a time.
const PIPE: usize = 65_536;
/// Empty pipes that are kept for the next bytes.
const SPARE: usize = 64;

#[derive(Debug)]
struct Pipe {
    reader: PipeReader,
    writer: PipeWriter,
}

/// Pipes that wait for bytes: a connection has one only while bytes are on their way.
#[derive(Debug, Default)]
pub struct Pipes {
    spare: Mutex<Vec<Pipe>>,
}

impl Pipes {
    fn take(&self) -> io::Result<Pipe> {
        if let Some(pipe) = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(pipe);
        }
        let (reader, writer) = io::pipe()?;
        Ok(Pipe { reader, writer })
    }

    /// Takes an empty pipe back.
    fn give(&self, pipe: Pipe) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE {
            spare.push(pipe);
        }
    }
}

fn flags() -> SpliceFFlags {
    SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK
}

/// Leads everything from one connection to the other until the end of it, which is passed on as the end of that direction
/// alone. `moved` is told of bytes that have arrived.
///
/// # Errors
/// When a connection is reset, or there are no descriptors for a pipe.
pub async fn flow(from: &TcpStream, to: &TcpStream, pipes: &Pipes, moved: impl Fn(u64)) -> io::Result<()> {
    loop {
        from.readable().await?;
        // A pipe only now: connections are silent most of the time.
        let pipe = pipes.take()?;
        if drain(from, to, &pipe, &moved).await? == End::Finished {
            pipes.give(pipe);
            break;
        }
        pipes.give(pipe);
    }
    end(to)
}

#[derive(PartialEq, Eq)]
enum End {
    /// Nothing more for now.
    Paused,
    /// Nothing more ever.
    Finished,
}

/// Moves what there is; the pipe is empty afterwards.
async fn drain(from: &TcpStream, to: &TcpStream, pipe: &Pipe, moved: impl Fn(u64)) -> io::Result<End> {
    loop {
        let take = || Ok(splice(from, None, &pipe.writer, None, PIPE, flags())?);
        let mut left = match from.try_io(Interest::READABLE, take) {
            Ok(0) => return Ok(End::Finished),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(End::Paused),
            Err(error) => return Err(error),
        };
        while left > 0 {
            let put = || Ok(splice(&pipe.reader, None, to, None, left, flags())?);
            let bytes = to.async_io(Interest::WRITABLE, put).await?;
            left -= bytes.min(left);
            moved(u64::try_from(bytes).unwrap_or_default());
        }
    }
}

/// Ends one direction.
fn end(to: &TcpStream) -> io::Result<()> {
    use nix::sys::socket::{Shutdown, shutdown};
    use std::os::fd::AsRawFd;
    match shutdown(to.as_raw_fd(), Shutdown::Write) {
        // The other side has ended everything already.
        Ok(()) | Err(nix::errno::Errno::ENOTCONN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
