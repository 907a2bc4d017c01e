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

/// The interval of attempts: the error of a measured time.
const EVERY: Duration = Duration::from_millis(2);
const SOON: Duration = Duration::from_millis(1);
/// An attempt without an answer for so long is silent.
const SILENCE: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectAnswer {
    Connected,
    /// A reset, or an ICMP error.
    Refused,
    /// No answer: no rule forwards the packets.
    Silent,
}

/// Returns the time of the first of two wanted answers in a row: a single one may belong to an old connection.
pub(super) fn until(to: SocketAddr, wanted: ConnectAnswer, limit: Duration) -> Result<Option<Instant>> {
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

fn attempt(to: SocketAddr) -> Result<Result<ConnectAnswer, OwnedFd>> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None).context("make a socket")?;
    // Closes with a reset, so that no port stays in TIME_WAIT.
    let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(&socket, sockopt::Linger, &at_once).context("set the linger time")?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(to)) {
        Err(Errno::EINPROGRESS) => Ok(Err(socket)),
        Ok(()) => Ok(Ok(ConnectAnswer::Connected)),
        Err(error) => judge(error).map(Ok),
    }
}

fn judge(error: Errno) -> Result<ConnectAnswer> {
    match error {
        Errno::ETIMEDOUT => Ok(ConnectAnswer::Silent),
        // The error of a REJECT rule depends on its type.
        Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::ENETUNREACH => Ok(ConnectAnswer::Refused),
        error => bail!("a connection failed: {error}"),
    }
}

/// Removes the sockets with an answer and those that are silent.
fn listen(waiting: &mut Vec<(Instant, OwnedFd)>, heard: &mut Vec<ConnectAnswer>) -> Result<()> {
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
            heard.push(if error == 0 { ConnectAnswer::Connected } else { judge(Errno::from_raw(error))? });
        } else if since.elapsed() > SILENCE {
            heard.push(ConnectAnswer::Silent);
        } else {
            left.push((since, socket));
        }
    }
    *waiting = left;
    Ok(())
}
