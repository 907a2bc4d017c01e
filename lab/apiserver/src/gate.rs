//! A gate for one listener. While it is shut no byte passes, as if the network dropped every packet; delayed bytes
//! arrive later.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Default)]
pub(super) struct Gate(Mutex<GateState>);

#[derive(Default)]
struct GateState {
    shut: bool,
    waiting: Vec<Waker>,
}

impl Gate {
    pub(super) fn set_shut(&self, shut: bool) {
        let mut state = self.lock();
        state.shut = shut;
        let waiting = if shut { Vec::new() } else { std::mem::take(&mut state.waiting) };
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(super) fn is_shut(&self) -> bool {
        self.lock().shut
    }

    pub(super) async fn open(&self) {
        poll_fn(|context| self.poll_open(context)).await
    }

    fn poll_open(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if !state.shut {
            return Poll::Ready(());
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            state.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct GatedStream<S> {
    stream: S,
    gate: Arc<Gate>,
}

impl<S> GatedStream<S> {
    pub(super) fn new(stream: S, gate: Arc<Gate>) -> Self {
        GatedStream { stream, gate }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GatedStream<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.gate.poll_open(context));
        Pin::new(&mut this.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GatedStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.gate.poll_open(context));
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.gate.poll_open(context));
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}
