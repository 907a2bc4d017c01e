//! Connects to an address until it answers as wanted.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, setsockopt, socket, sockopt,
};

/// Between two attempts, and so what a figure may be too large by.
const EVERY: Duration = Duration::from_millis(2);
/// How long an answer is waited for before the next attempt is due.
const SOON: Duration = Duration::from_millis(1);
/// An attempt without an answer by then counts as silence.
const SILENCE: Duration = Duration::from_millis(200);

/// What comes of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The connection is accepted.
    Connected,
    /// A reset, or that the port is unreachable.
    Refused,
    /// Nothing: no rule leads there.
    Silent,
}

/// When `to` began to give this answer, if it does within `limit`; two answers alike count, for a single one may be an old
/// connection's. An attempt that is lost is not waited for before the next: the kernel would send it again only after a second.
pub(super) fn until(to: SocketAddr, wanted: Answer, limit: Duration) -> Result<Option<Instant>> {
    let begin = Instant::now();
    let (mut next, mut first) = (begin, None);
    let mut waiting: Vec<(Instant, OwnedFd)> = Vec::new();
    while begin.elapsed() < limit {
        let mut heard = Vec::new();
        match attempt(to)? {
            Ok(answer) => heard.push(answer),
            Err(socket) => waiting.push((Instant::now(), socket)),
        }
        listen(&mut waiting, &mut heard)?;
        for answer in heard {
            match first {
                _ if answer != wanted => first = None,
                None => first = Some(Instant::now()),
                Some(first) => return Ok(Some(first)),
            }
        }
        next += EVERY;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(None)
}

/// One attempt to connect: an answer, or the socket that waits for it.
fn attempt(to: SocketAddr) -> Result<Result<Answer, OwnedFd>> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None).context("make a socket")?;
    // Closed with a reset: thousands of attempts leave no port behind.
    let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(&socket, sockopt::Linger, &at_once).context("set the linger time")?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(to)) {
        Err(Errno::EINPROGRESS) => Ok(Err(socket)),
        Ok(()) => Ok(Ok(Answer::Connected)),
        Err(error) => judge(error).map(Ok),
    }
}

fn judge(error: Errno) -> Result<Answer> {
    match error {
        Errno::ETIMEDOUT => Ok(Answer::Silent),
        // Which of them a REJECT rule gives depends on its type.
        Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::ENETUNREACH => Ok(Answer::Refused),
        error => bail!("a connection failed: {error}"),
    }
}

/// Waits for a moment, and takes away the sockets that have heard something, or will not.
fn listen(waiting: &mut Vec<(Instant, OwnedFd)>, heard: &mut Vec<Answer>) -> Result<()> {
    let mut sockets: Vec<PollFd> =
        waiting.iter().map(|(_, socket)| PollFd::new(socket.as_fd(), PollFlags::POLLOUT)).collect();
    match poll(&mut sockets, PollTimeout::try_from(SOON).unwrap_or(PollTimeout::ZERO)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => bail!("wait for answers: {error}"),
    }
    let ready: Vec<bool> = sockets.iter().map(|socket| socket.any().unwrap_or(false)).collect();
    let mut left = Vec::new();
    for ((since, socket), ready) in waiting.drain(..).zip(ready) {
        if ready {
            let error = getsockopt(&socket, sockopt::SocketError).context("ask a socket for its error")?;
            heard.push(if error == 0 { Answer::Connected } else { judge(Errno::from_raw(error))? });
        } else if since.elapsed() > SILENCE {
            heard.push(Answer::Silent);
        } else {
            left.push((since, socket));
        }
    }
    *waiting = left;
    Ok(())
}
