//! What a lab that is up can be asked from another terminal: a request in a line of JSON, answered with lines of JSON, on a socket
//! that only its user reaches.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use svclab_netns::labs;

/// The socket's name in the lab's work directory.
pub const SOCKET: &str = "control";

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Send requests.
    Probe(ProbeRequest),
    /// Tell what proxies have written.
    Logs {
        /// The proxy's node; none: every one.
        node: Option<String>,
        /// Go on with what they write from now on.
        follow: bool,
    },
}

/// Requests to send, in the words of a scenario's `probe` step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeRequest {
    /// `pod/NAME`, `node/NAME`, `client/NAME`.
    pub from: String,
    /// `service/NAME[:PORT]` and its like.
    pub to: String,
    /// How many.
    pub count: usize,
    /// The node that a client's packets go to first.
    pub via: Option<String>,
    /// Whether over UDP where the target does not say.
    pub udp: bool,
    /// Milliseconds that an answer may take.
    pub patience: u64,
}

/// A line of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// A line of a log.
    Line(String),
    /// What came of requests.
    Probed(Probed),
    /// Why there is no (more of an) answer.
    Error(String),
}

/// What came of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// Where they were sent, with the protocol.
    pub to: String,
    /// Who answered.
    pub answered: Vec<Answered>,
    /// What was no answer, in words, and how often.
    pub failures: BTreeMap<String, usize>,
}

/// A server that answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// `namespace/pod`.
    pub server: String,
    /// Its node.
    pub node: String,
    /// How often.
    pub count: usize,
    /// Whom it saw how often.
    pub saw: BTreeMap<IpAddr, usize>,
}

/// Asks lab `pid`; `take` gets each line of the answer.
///
/// # Errors
/// When the lab cannot be asked, and what `take` says.
pub fn ask<E: From<io::Error>>(
    pid: i32,
    request: &Request,
    mut take: impl FnMut(Reply) -> Result<(), E>,
) -> Result<(), E> {
    let mut stream = labs::connect(pid, SOCKET)?;
    writeln!(stream, "{}", serde_json::to_string(request).map_err(io::Error::from)?)?;
    for line in BufReader::new(stream).lines() {
        take(serde_json::from_str(&line?).map_err(io::Error::from)?)?;
    }
    Ok(())
}
