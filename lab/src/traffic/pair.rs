//! Two datagrams at once from one socket, as resolvers ask for A and AAAA: the kernel may see the second before it has made
//! up its mind about the flow of the first.

use std::io;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::client::{classify, parse_with_question, source};
use super::probe::{Answer, Outcome, Probe};
use crate::netns::NetnsError;
use crate::netns::namespace::Namespace;
use crate::netns::sockets;

/// The two questions; each answer says which it is to.
const QUESTIONS: [&str; 2] = ["A?", "AAAA?"];

/// Sends the two from `namespace`, each by a thread of its own, and waits for both answers: an outcome for each question.
pub(crate) async fn send(namespace: &Namespace, probe: &Probe) -> Result<[Outcome; 2], NetnsError> {
    let bind = source(probe);
    let failed = || NetnsError::io(format!("two datagrams from {bind} in {}", namespace.name()));
    let socket = namespace.run(move || sockets::bind_udp(bind)).await?.map_err(failed())?;
    // A connected socket hears ICMP errors.
    socket.connect(probe.to).map_err(failed())?;
    let client = socket.local_addr().ok();
    let senders = [socket.try_clone().map_err(failed())?, socket.try_clone().map_err(failed())?];
    let socket = UdpSocket::from_std(socket).map_err(failed())?;
    let start = Instant::now();
    let mut outcomes = QUESTIONS.map(|_| Outcome { answer: Answer::TimedOut, client, took: probe.timeout });
    let exchange = async {
        match tokio::task::spawn_blocking(|| both(senders)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Some(classify(&error)),
            Err(error) => return Some(Answer::Broken(error.to_string())),
        }
        let mut open: Vec<usize> = vec![0, 1];
        let mut datagram = [0; 2048];
        while !open.is_empty() {
            let (answer, question) = match socket.recv(&mut datagram).await {
                Ok(length) => parse_with_question(&String::from_utf8_lossy(&datagram[..length])),
                Err(error) => return Some(classify(&error)),
            };
            // Anything else is an answer for the second time.
            if let Some(at) = open.iter().position(|index| QUESTIONS[*index] == question) {
                outcomes[open.remove(at)] = Outcome { answer, client, took: start.elapsed() };
            }
        }
        None
    };
    if let Ok(Some(error)) = timeout(probe.timeout, exchange).await {
        for open in outcomes.iter_mut().filter(|outcome| outcome.answer == Answer::TimedOut) {
            *open = Outcome { answer: error.clone(), client, took: start.elapsed() };
        }
    }
    Ok(outcomes)
}

/// Sends both at the same moment, as far as the processors allow.
fn both(senders: [std::net::UdpSocket; 2]) -> io::Result<()> {
    let together = Arc::new(Barrier::new(senders.len()));
    let threads: Vec<_> = senders
        .into_iter()
        .zip(QUESTIONS)
        .map(|(socket, question)| {
            let together = Arc::clone(&together);
            thread::spawn(move || {
                together.wait();
                socket.send(question.as_bytes()).map(|_| ())
            })
        })
        .collect();
    threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn both_are_sent() {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        both([client.try_clone().unwrap(), client]).unwrap();
        let mut heard: Vec<String> = (0..2)
            .map(|_| {
                let mut datagram = [0; 16];
                let length = server.recv(&mut datagram).unwrap();
                String::from_utf8_lossy(&datagram[..length]).into_owned()
            })
            .collect();
        heard.sort();
        assert_eq!(heard, QUESTIONS);
    }
}
