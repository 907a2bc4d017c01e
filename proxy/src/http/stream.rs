//! A TCP stream that fails when the client does not read its answers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// The time for a client to read pending output, from the first byte that the socket buffer refused, however slowly.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct TimedStream {
    stream: TcpStream,
    /// The timeout, which runs while output waits for space.
    late: Option<Pin<Box<Sleep>>>,
}

impl TimedStream {
    pub(super) fn new(stream: TcpStream) -> TimedStream {
        TimedStream { stream, late: None }
    }

    fn no_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(WRITE_TIMEOUT)));
        ready!(late.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let timed = self.get_mut();
        match Pin::new(&mut timed.stream).poll_write(context, bytes) {
            Poll::Pending => timed.no_room(context),
            done => done,
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let timed = self.get_mut();
        match Pin::new(&mut timed.stream).poll_write_vectored(context, bytes) {
            Poll::Pending => timed.no_room(context),
            done => done,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let timed = self.get_mut();
        ready!(Pin::new(&mut timed.stream).poll_flush(context))?;
        timed.late = None;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
