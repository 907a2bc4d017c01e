//! Two concurrent datagrams from one socket, like a resolver's A and AAAA queries: the kernel may process the second
//! before the first's conntrack entry is confirmed.

use std::io;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use svclab_netns::NetnsError;
use svclab_netns::dscp::set_dscp;
use svclab_netns::sockets;
use tokio::net::UdpSocket;

use super::client::{MAX_DATAGRAM, bound, classify, hold_starts};
use super::drop_check::{ProbeOrigin, answer_within};
use super::echo_protocol::EchoRequest;
use super::probe::{Probe, ProbeAnswer, ProbeOutcome};

const RECORDS: [&str; 2] = ["A?", "AAAA?"];

pub(crate) async fn send(origin: &ProbeOrigin, probe: &Probe) -> Result<[ProbeOutcome; 2], NetnsError> {
    let _starts = hold_starts(probe).await;
    let socket = bound(origin, probe, sockets::bind_udp).await?;
    let failed = || NetnsError::io(format!("two datagrams from {}", origin.namespace.name()));
    set_dscp(&socket, probe.to, probe.dscp).map_err(failed())?;
    // Only a connected socket receives ICMP errors.
    socket.connect(probe.to).map_err(failed())?;
    let client = socket.local_addr().ok();
    let senders = [socket.try_clone().map_err(failed())?, socket.try_clone().map_err(failed())?];
    let socket = UdpSocket::from_std(socket).map_err(failed())?;
    let start = Instant::now();
    let questions = RECORDS.map(|record| EchoRequest::new(record, probe.bytes));
    let lines = [questions[0].line(), questions[1].line()];
    let mut outcomes: [Option<ProbeOutcome>; 2] = [None, None];
    // The outcome applies to datagrams without a reply.
    let exchange = async {
        match tokio::task::spawn_blocking(|| send_concurrently(senders, lines)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return classify(&error),
            Err(error) => return ProbeAnswer::Broken(error.to_string()),
        }
        let mut datagram = Vec::with_capacity(MAX_DATAGRAM);
        loop {
            datagram.clear();
            if let Err(error) = socket.recv_buf(&mut datagram).await {
                return classify(&error);
            }
            for (question, outcome) in questions.iter().zip(&mut outcomes) {
                let answer = question.answer(&datagram).filter(|_| outcome.is_none());
                let answered = answer.map(|answer| ProbeOutcome { answer, client, took: start.elapsed() });
                *outcome = outcome.take().or(answered);
            }
            if let [Some(_), Some(last)] = &outcomes {
                return last.answer.clone();
            }
        }
    };
    let rest = answer_within(origin, probe.timeout, exchange).await?;
    let rest = ProbeOutcome { answer: rest, client, took: start.elapsed() };
    Ok(outcomes.map(|outcome| outcome.unwrap_or_else(|| rest.clone())))
}

fn send_concurrently(senders: [std::net::UdpSocket; 2], lines: [Vec<u8>; 2]) -> io::Result<()> {
    let together = Arc::new(Barrier::new(senders.len()));
    let threads: Vec<_> = senders
        .into_iter()
        .zip(lines)
        .map(|(socket, line)| {
            let together = Arc::clone(&together);
            thread::spawn(move || {
                together.wait();
                socket.send(&line).map(|_| ())
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
    fn both_datagrams_are_sent() {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        send_concurrently([client.try_clone().unwrap(), client], RECORDS.map(|record| record.as_bytes().to_vec()))
            .unwrap();
        let mut heard: Vec<String> = (0..2)
            .map(|_| {
                let mut datagram = [0; 16];
                let length = server.recv(&mut datagram).unwrap();
                String::from_utf8_lossy(&datagram[..length]).into_owned()
            })
            .collect();
        heard.sort();
        assert_eq!(heard, RECORDS);
    }
}
