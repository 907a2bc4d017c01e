//! Backends that report their name and the client's address, clients, and a process that holds a node's network
//! namespace. Uses only the standard library, so that it builds quickly.
#![allow(clippy::print_stdout, reason = "its output is what the test reads")]

use std::io::{BufRead, BufReader, Error, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

const ANSWER: Duration = Duration::from_secs(3);
/// The pause between two rounds of `load`.
const PAUSE: Duration = Duration::from_millis(5);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["serve", name, at] => serve(name, at),
        ["ask", at, times] => ask(at, times),
        ["load", at] => load(at),
        ["wait"] => loop {
            thread::park();
        },
        _ => Err(Error::new(ErrorKind::InvalidInput, "expected serve NAME AT, ask AT TIMES, load AT or wait")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(name: &str, at: &str) -> Result<(), Error> {
    for stream in TcpListener::bind(at)?.incoming() {
        let (stream, name) = (stream?, name.to_owned());
        thread::spawn(move || {
            let Ok(peer) = stream.peer_addr() else { return };
            let Ok(mut writer) = stream.try_clone() else { return };
            for _ in BufReader::new(stream).lines().map_while(Result::ok) {
                if writeln!(writer, "{name} saw {}", peer.ip()).is_err() {
                    return;
                }
            }
        });
    }
    Ok(())
}

struct Conversation {
    reader: BufReader<TcpStream>,
}

impl Conversation {
    fn begin(at: SocketAddr) -> Result<Conversation, Error> {
        let stream = TcpStream::connect_timeout(&at, ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_nodelay(true)?;
        Ok(Conversation { reader: BufReader::new(stream) })
    }

    fn ask(&mut self) -> Result<String, Error> {
        self.reader.get_mut().write_all(b"who\n")?;
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

fn address(text: &str) -> Result<SocketAddr, Error> {
    text.parse().map_err(|error| Error::new(ErrorKind::InvalidInput, format!("{text}: {error}")))
}

fn once(at: SocketAddr) -> String {
    Conversation::begin(at).and_then(|mut new| new.ask()).unwrap_or_else(|error| format!("failed: {error}"))
}

fn ask(at: &str, times: &str) -> Result<(), Error> {
    let at = address(at)?;
    let times: u32 = times.parse().map_err(|_| Error::new(ErrorKind::InvalidInput, times))?;
    (0..times).for_each(|_| println!("{}", once(at)));
    Ok(())
}

/// Prints answers without end, alternately from a new connection and from a persistent one.
fn load(at: &str) -> Result<(), Error> {
    let at = address(at)?;
    let mut lasting = Conversation::begin(at)?;
    loop {
        println!("new {}", once(at));
        println!("lasting {}", lasting.ask().unwrap_or_else(|error| format!("failed: {error}")));
        thread::sleep(PAUSE);
    }
}
