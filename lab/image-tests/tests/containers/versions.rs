//! A Docker daemon refuses API paths of a newer version, and `testcontainers` asks for the newest, although its
//! requests exist in Docker 20.10 (1.41). This socket replaces the requested version by the daemon's.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;

pub fn less(one: &str, other: &str) -> bool {
    let numbers = |text: &str| text.split('.').filter_map(|part| part.parse().ok()).collect::<Vec<u32>>();
    numbers(one) < numbers(other)
}

/// Forwards connections to the daemon at `to` until this process ends.
///
/// # Errors
/// Cannot listen at `from`.
pub fn translate(from: &Path, to: &Path, version: &str) -> io::Result<()> {
    let listener = UnixListener::bind(from)?;
    let (to, version) = (to.to_owned(), version.to_owned());
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            // Ignores errors, which the client reports.
            let _ = connect(client, &to, &version);
        }
    });
    Ok(())
}

fn connect(client: UnixStream, to: &PathBuf, version: &str) -> io::Result<()> {
    let daemon = UnixStream::connect(to)?;
    let (mut from_daemon, mut to_client) = (daemon.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from_daemon, &mut to_client);
        let _ = to_client.shutdown(Shutdown::Write);
    });
    let (mut from_client, mut to_daemon, version) = (client, daemon, version.to_owned());
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from_client.read(&mut buffer) {
            if to_daemon.write_all(&with_version(&buffer[..read], &version)).is_err() {
                return;
            }
        }
        let _ = to_daemon.shutdown(Shutdown::Write);
    });
    Ok(())
}

/// Replaces the version. Clients wait for each answer, so each read begins with a request.
fn with_version(bytes: &[u8], version: &str) -> Vec<u8> {
    let line = &bytes[..bytes.iter().position(|byte| *byte == b'\n').unwrap_or(0)];
    let parts = std::str::from_utf8(line).ok().and_then(|line| {
        let (method, rest) = line.split_once(" /v")?;
        let (number, _) = rest.split_once('/')?;
        let is_request = ["DELETE", "GET", "HEAD", "POST", "PUT"].contains(&method) && line.contains(" HTTP/1.1");
        is_request.then_some((method.len() + 3, number.len()))
    });
    let Some((at, length)) = parts else { return bytes.to_vec() };
    [&bytes[..at], version.as_bytes(), &bytes[at + length..]].concat()
}

pub fn check() -> Result<(), libtest_mimic::Failed> {
    let translated = |text: &str| String::from_utf8(with_version(text.as_bytes(), "1.41"));
    for (given, expected) in [
        ("GET /v1.53/info?x=1 HTTP/1.1\r\nHost: x\r\n\r\n", "GET /v1.41/info?x=1 HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("POST /v1.9/a/v1.53/b HTTP/1.1\r\n", "POST /v1.41/a/v1.53/b HTTP/1.1\r\n"),
        ("{\"path\": \" /v1.53/info HTTP/1.1\"}\n", "{\"path\": \" /v1.53/info HTTP/1.1\"}\n"),
        ("GET /_ping HTTP/1.1\r\n", "GET /_ping HTTP/1.1\r\n"),
    ] {
        let seen = translated(given)?;
        if seen != expected {
            return Err(format!("{given:?} became {seen:?}").into());
        }
    }
    match (less("1.41", "1.53"), less("1.9", "1.10"), less("1.53", "1.53")) {
        (true, true, false) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}
