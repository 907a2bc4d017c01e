//! Waits until a proxy says that it is well, or that it has applied a version of the objects.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use svclab_cluster::Cluster;
use svclab_cluster::process::ProcessHandle;
use svclab_cluster::traffic::probe::ClusterHost;

use super::feed::{Feed, Version};
use super::proxy::HEALTH;
use crate::expect::Mismatch;

/// A full sync of a scenario's few services takes well under a second; the rest is for loaded machines, and for emulated ones
/// on loaded machines: there three proxies that start at once were seen to take 20 s.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);
/// Between two questions.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
/// How long one question may take.
const ANSWER: Duration = Duration::from_secs(2);

/// What a proxy is asked.
pub(super) enum Question {
    /// This project's: whether it has applied this version of the objects.
    Version(Version),
    /// Whether a GET is answered with 200.
    Url(SocketAddr, String),
    /// Whether a command on its node ends with status 0.
    Command(Vec<String>),
    /// Whether it is running.
    Running,
}

impl Question {
    /// Whether the answer is yes; if not, what it is. `None`: there is none yet.
    async fn ask(&self, cluster: &Cluster, feed: &Feed, node: &str, place: &ClusterHost) -> Option<Result<(), String>> {
        let (address, path) = match self {
            Question::Version(_) => (HEALTH, "/healthz"),
            Question::Url(address, path) => (*address, path.as_str()),
            Question::Command(argv) => {
                let output = cluster.exec(place, argv, ANSWER).await;
                return Some(match output {
                    Ok(output) if output.success() => Ok(()),
                    Ok(output) => {
                        Err(format!("{} ends with {:?}: {}", argv.join(" "), output.ended, output.stderr.trim()))
                    }
                    Err(error) => Err(error.to_string()),
                });
            }
            Question::Running => return Some(Ok(())),
        };
        let answer = cluster.http_get(place, address, path, ANSWER).await.ok()?;
        let yes = match self {
            Question::Version(version) => {
                feed.has_applied(node, &serde_json::from_str(&answer.body).unwrap_or_default(), version)
            }
            _ => answer.status == 200,
        };
        Some(if yes { Ok(()) } else { Err(format!("its health says {}: {}", answer.status, answer.body.trim())) })
    }

    /// What a yes means for the proxy of `node`.
    pub(super) fn expected(&self, node: &str) -> String {
        match self {
            Question::Version(version) => format!("the proxy on {node} applies {version} of the objects"),
            Question::Url(..) | Question::Command(_) => format!("the proxy on {node} is well"),
            Question::Running => format!("the proxy on {node} is running"),
        }
    }
}

/// What was expected of a proxy that has ended.
pub(super) fn ended(expected: String, handle: &ProcessHandle) -> Mismatch {
    Mismatch::new(expected, format!("it has ended: {}", handle.log_tail(3).trim()))
}

/// Asks until the answer is yes, the proxy has ended, or [`PATIENCE`] is over.
pub(super) async fn wait(
    cluster: &Cluster,
    feed: &Feed,
    node: &str,
    handle: &ProcessHandle,
    question: &Question,
) -> Option<Mismatch> {
    let (place, deadline) = (ClusterHost::Node(node.to_owned()), Instant::now() + PATIENCE);
    let mut last = "it never answered".to_owned();
    loop {
        if !handle.is_alive() {
            return Some(ended(question.expected(node), handle));
        }
        match question.ask(cluster, feed, node, &place).await {
            Some(Ok(())) => return None,
            Some(Err(problem)) => last = problem,
            None => {}
        }
        if Instant::now() > deadline {
            return Some(Mismatch::new(question.expected(node), format!("{last}, {} s on", PATIENCE.as_secs())));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
