//! Moves few bytes by read(2) and write(2), many in the kernel by splice(2) and a pipe. A message that fits the buffer
//! takes two calls; splicing takes a third, which shows that no more bytes follow.

use std::cell::RefCell;
use std::io::{self, ErrorKind, PipeReader, PipeWriter};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};

use nix::fcntl::{SpliceFFlags, splice};
use nix::sys::socket::{MsgFlags, recv};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// A pipe's capacity (16 pages), and the most bytes per read.
const PIPE: usize = 65_536;
/// The buffer's size. After a full buffer, the rest is spliced.
const MANY: usize = 16_384;
const SPARE: usize = 64;

#[derive(Debug)]
struct Pipe {
    reader: PipeReader,
    writer: PipeWriter,
}

/// Pipes for reuse. Only connections with bytes in transit have one.
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

thread_local! {
    /// Used between a read and its immediate write.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; MANY]);
}

/// Moves all bytes, and then ends that direction of `to`. Calls `moved` with each number of written bytes.
pub async fn flow(from: &TcpStream, to: &TcpStream, pipes: &Pipes, moved: impl Fn(u64)) -> io::Result<()> {
    let mut many = false;
    loop {
        from.readable().await?;
        if !many {
            match copy(from, to)? {
                CopyResult::Nothing => continue,
                CopyResult::End => break,
                CopyResult::Bytes { read, rest } => {
                    moved(as_count(read - rest.len()));
                    write_all(to, &rest, &moved).await?;
                    many = read == MANY;
                    continue;
                }
            }
        }
        let pipe = pipes.take()?;
        let (bytes, ended) = drain(from, to, &pipe, &moved).await?;
        pipes.give(pipe);
        if ended {
            break;
        }
        many = bytes >= MANY;
    }
    end(to)
}

fn as_count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or_default()
}

enum CopyResult {
    Nothing,
    End,
    /// Bytes that were read and not yet written.
    Bytes {
        read: usize,
        rest: Vec<u8>,
    },
}

fn copy(from: &TcpStream, to: &TcpStream) -> io::Result<CopyResult> {
    BUFFER.with_borrow_mut(|buffer| {
        let mut result = Err(ErrorKind::WouldBlock.into());
        // This result is only for the runtime: a read that did not fill the buffer has emptied the socket (epoll(7),
        // edge-triggered).
        let _ = from.try_io(Interest::READABLE, || {
            result = recv(from.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT).map_err(io::Error::from);
            match &result {
                Ok(0 | MANY) => Ok(()),
                Ok(_) => Err(ErrorKind::WouldBlock.into()),
                Err(error) => Err(error.kind().into()),
            }
        });
        let read = match result {
            Ok(0) => return Ok(CopyResult::End),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(CopyResult::Nothing),
            Err(error) => return Err(error),
        };
        let bytes = buffer.get(..read).unwrap_or_default();
        let written = match to.try_write(bytes) {
            Ok(written) => written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        Ok(CopyResult::Bytes { read, rest: bytes.get(written..).unwrap_or_default().to_vec() })
    })
}

async fn write_all(to: &TcpStream, mut bytes: &[u8], moved: impl Fn(u64)) -> io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(written) => {
                moved(as_count(written));
                bytes = bytes.get(written..).unwrap_or_default();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Splices all available bytes, and empties the pipe. Returns their number, and whether the stream has ended.
async fn drain(from: &TcpStream, to: &TcpStream, pipe: &Pipe, moved: impl Fn(u64)) -> io::Result<(usize, bool)> {
    let mut all = 0;
    loop {
        let take = || Ok(splice(from, None, &pipe.writer, None, PIPE, flags())?);
        let mut left = match from.try_io(Interest::READABLE, take) {
            Ok(0) => return Ok((all, true)),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok((all, false)),
            Err(error) => return Err(error),
        };
        all += left;
        while left > 0 {
            let put = || Ok(splice(&pipe.reader, None, to, None, left, flags())?);
            let bytes = to.async_io(Interest::WRITABLE, put).await?;
            left -= bytes.min(left);
            moved(as_count(bytes));
        }
    }
}

fn end(to: &TcpStream) -> io::Result<()> {
    use nix::sys::socket::{Shutdown, shutdown};
    match shutdown(to.as_raw_fd(), Shutdown::Write) {
        // The peer has closed the connection.
        Ok(()) | Err(nix::errno::Errno::ENOTCONN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::Poll;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    /// Whether the runtime considers the stream readable, without waiting.
    async fn is_readable(stream: &TcpStream) -> bool {
        let mut readable = pin!(stream.readable());
        poll_fn(|context| Poll::Ready(readable.as_mut().poll(context).is_ready())).await
    }

    #[tokio::test]
    async fn a_small_message_is_one_read_and_one_write() {
        let ((mut client, from), (to, mut backend)) = (connection().await, connection().await);
        for round in 0..100u8 {
            client.write_all(&[round; 64]).await.unwrap();
            from.readable().await.unwrap();
            let copied = copy(&from, &to).unwrap();
            assert!(matches!(copied, CopyResult::Bytes { read: 64, rest } if rest.is_empty()));
            assert!(!is_readable(&from).await, "a second read would be made to learn that there is no more");
            let mut heard = [0; 64];
            backend.read_exact(&mut heard).await.unwrap();
            assert_eq!(heard, [round; 64]);
        }
        // The stream's end arrives with the last bytes.
        client.write_all(&[1; 64]).await.unwrap();
        client.shutdown().await.unwrap();
        let mut heard = Vec::new();
        flow(&from, &to, &Pipes::default(), |_| {}).await.unwrap();
        backend.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, [1; 64]);
    }

    #[tokio::test]
    async fn only_large_amounts_use_a_pipe_and_arrive_complete() {
        for (size, pipes_made) in [(64, 0), (MANY - 1, 0), (8 << 20, 1)] {
            let ((mut client, from), (to, mut backend)) = (connection().await, connection().await);
            let (pipes, moved) = (Pipes::default(), AtomicU64::new(0));
            let bytes: Vec<u8> = (0..size).map(|at: usize| at.to_le_bytes()[at % 3]).collect();
            let send = async {
                client.write_all(&bytes).await.unwrap();
                client.shutdown().await.unwrap();
            };
            let relay = async {
                let count = |bytes| {
                    moved.fetch_add(bytes, Ordering::Relaxed);
                };
                flow(&from, &to, &pipes, count).await.unwrap();
            };
            let mut heard = Vec::new();
            let (.., read) = tokio::join!(send, relay, backend.read_to_end(&mut heard));
            read.unwrap();
            assert!(heard == bytes, "{size} bytes");
            assert_eq!(moved.into_inner(), as_count(size));
            assert_eq!(pipes.spare.into_inner().unwrap().len(), pipes_made, "{size} bytes");
        }
    }
}
