//! The client's traffic. Functions return the time taken.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use super::MANY;
use anyhow::{Context, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};

pub const CHUNK: usize = 16 << 20;
pub const REQUEST: usize = 64;
pub const DATAGRAM: usize = 64;
/// Datagrams in flight.
pub const WINDOW: usize = 32;
pub const CONNECTIONS: usize = 50;
const CLIENTS: u64 = 16;
const PATIENCE: Duration = Duration::from_secs(5);

fn connect(to: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE).with_context(|| format!("connect to {to}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Closes with a reset, so that no port stays in TIME_WAIT.
fn reset(stream: &TcpStream) -> Result<()> {
    let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(stream, sockopt::Linger, &at_once).context("set the linger time")
}

/// Returns the time of `connect` alone.
pub fn connects(to: SocketAddr, times: u64) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for _ in 0..times {
        let start = Instant::now();
        let stream = TcpStream::connect_timeout(&to, PATIENCE).with_context(|| format!("connect to {to}"))?;
        sum += start.elapsed();
        reset(&stream)?;
    }
    Ok(sum)
}

/// Sends [`CHUNK`] bytes `times` times over one connection.
pub fn stream(to: SocketAddr, times: u64) -> Result<Duration> {
    let mut stream = connect(to)?;
    stream.write_all(b"s")?;
    let data = vec![0; 256 << 10];
    let start = Instant::now();
    for _ in 0..times {
        for _ in 0..CHUNK / data.len() {
            stream.write_all(&data)?;
        }
        stream.read_exact(&mut [0]).context("read the acknowledgement of a chunk")?;
    }
    Ok(start.elapsed())
}

fn ask(stream: &mut TcpStream) -> Result<()> {
    stream.write_all(&[b'r'; REQUEST])?;
    hear(stream)
}

fn hear(stream: &mut TcpStream) -> Result<()> {
    let mut answer = [0; REQUEST];
    stream.read_exact(&mut answer).context("read an answer")?;
    ensure!(answer == [b'r'; REQUEST], "an answer that is none to the request");
    Ok(())
}

/// Opens [`MANY`] connections `times` times, each with a request and its answer, by [`CLIENTS`] threads.
pub fn new_connections(to: SocketAddr, times: u64) -> Result<Duration> {
    let start = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            thread::spawn(move || {
                for _ in (client..times * MANY).step_by(CLIENTS as usize) {
                    let mut stream = connect(to)?;
                    ask(&mut stream)?;
                    reset(&stream)?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for client in clients {
        client.join().map_err(|_| anyhow::anyhow!("a client has ended"))??;
    }
    Ok(start.elapsed())
}

/// Sends a request on each of [`CONNECTIONS`] connections at once and reads the answers, `times` times.
pub fn requests(to: SocketAddr, times: u64) -> Result<Duration> {
    let mut streams = (0..CONNECTIONS).map(|_| connect(to)).collect::<Result<Vec<_>>>()?;
    streams.iter_mut().try_for_each(ask)?;
    let start = Instant::now();
    for _ in 0..times {
        streams.iter_mut().try_for_each(|stream| stream.write_all(&[b'r'; REQUEST]))?;
        streams.iter_mut().try_for_each(hear)?;
    }
    Ok(start.elapsed())
}

/// Sends [`WINDOW`] datagrams over one flow and receives them back, `times` times.
pub fn datagrams(to: SocketAddr, times: u64) -> Result<Duration> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut datagram = [0; DATAGRAM];
    let mut exchange = |window: usize| -> Result<()> {
        for _ in 0..window {
            socket.send(&[b'u'; DATAGRAM])?;
        }
        for _ in 0..window {
            let length = socket.recv(&mut datagram).with_context(|| format!("an answer of UDP from {to}"))?;
            ensure!(length == DATAGRAM, "a datagram that is none of ours");
        }
        Ok(())
    };
    exchange(1)?;
    let start = Instant::now();
    for _ in 0..times {
        exchange(WINDOW)?;
    }
    Ok(start.elapsed())
}
