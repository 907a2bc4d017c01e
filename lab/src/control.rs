//! The protocol of a lab's control socket: one line of JSON as request, lines of JSON as answer. Only the user who
//! started the lab can connect.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use svclab_netns::labs;

pub const SOCKET: &str = "control";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlRequest {
    Probe(ProbeRequest),
    Logs {
        /// The node's name; `None`: all nodes.
        node: Option<String>,
        follow: bool,
    },
}

/// Requests, in the notation of a `probe` step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeRequest {
    pub from: String,
    pub to: String,
    pub count: usize,
    /// The node that a client sends to.
    pub via: Option<String>,
    /// Whether to use UDP, for targets without a protocol.
    pub udp: bool,
    /// In milliseconds.
    pub patience: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlReply {
    Line(String),
    ProbeResult(ProbeResult),
    Error(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResult {
    pub to: String,
    pub answered: Vec<ServerAnswers>,
    pub failures: BTreeMap<String, usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerAnswers {
    /// `namespace/pod`.
    pub server: String,
    pub node: String,
    pub count: usize,
    pub saw: BTreeMap<IpAddr, usize>,
}

/// Sends a request to the lab, and calls `take` with each line of the answer.
pub fn ask<E: From<io::Error>>(
    pid: i32,
    request: &ControlRequest,
    mut take: impl FnMut(ControlReply) -> Result<(), E>,
) -> Result<(), E> {
    let mut stream = labs::connect(pid, SOCKET)?;
    writeln!(stream, "{}", serde_json::to_string(request).map_err(io::Error::from)?)?;
    for line in BufReader::new(stream).lines() {
        take(serde_json::from_str(&line?).map_err(io::Error::from)?)?;
    }
    Ok(())
}
