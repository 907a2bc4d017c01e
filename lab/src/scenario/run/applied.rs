//! Waits until a proxy is healthy, or has applied a version of the objects.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use svclab_cluster::Cluster;
use svclab_cluster::process::ProcessHandle;
use svclab_cluster::traffic::probe::ClusterHost;

use super::feed::{Feed, ObjectsVersion};
use super::proxy::HEALTH;
use crate::expect::Mismatch;

/// The limit of a wait. A full sync takes far less than a second, but three proxies starting together on a loaded or
/// emulated machine took 20 s.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);
pub(super) const PAUSE: Duration = Duration::from_millis(10);
const ANSWER: Duration = Duration::from_secs(2);

pub(super) enum ReadinessQuestion {
    /// svcproxy only: whether it has applied this version of the objects.
    Version(ObjectsVersion),
    Url(SocketAddr, String),
    Command(Vec<String>),
    Running,
}

impl ReadinessQuestion {
    /// Asks the proxy once. `Err`: not yet, with the reason. `None`: no answer.
    async fn ask(&self, cluster: &Cluster, feed: &Feed, node: &str, place: &ClusterHost) -> Option<Result<(), String>> {
        let (address, path) = match self {
            ReadinessQuestion::Version(_) => (HEALTH, "/healthz"),
            ReadinessQuestion::Url(address, path) => (*address, path.as_str()),
            ReadinessQuestion::Command(argv) => {
                let output = cluster.exec(place, argv, ANSWER).await;
                return Some(match output {
                    Ok(output) if output.success() => Ok(()),
                    Ok(output) => {
                        Err(format!("{} ends with {:?}: {}", argv.join(" "), output.ended, output.stderr.trim()))
                    }
                    Err(error) => Err(error.to_string()),
                });
            }
            ReadinessQuestion::Running => return Some(Ok(())),
        };
        let answer = cluster.http_get(place, address, path, ANSWER).await.ok()?;
        let yes = match self {
            ReadinessQuestion::Version(version) => {
                feed.has_applied(node, &serde_json::from_str(&answer.body).unwrap_or_default(), version)
            }
            _ => answer.status == 200,
        };
        Some(if yes { Ok(()) } else { Err(format!("its health says {}: {}", answer.status, answer.body.trim())) })
    }

    pub(super) fn expected(&self, node: &str) -> String {
        match self {
            ReadinessQuestion::Version(version) => format!("the proxy on {node} applies {version} of the objects"),
            ReadinessQuestion::Url(..) | ReadinessQuestion::Command(_) => format!("the proxy on {node} is well"),
            ReadinessQuestion::Running => format!("the proxy on {node} is running"),
        }
    }
}

pub(super) fn ended(expected: String, handle: &ProcessHandle) -> Mismatch {
    Mismatch::new(expected, format!("it has ended: {}", handle.log_tail(3).trim()))
}

/// Asks until the answer is yes, the proxy ends, or [`PATIENCE`] is over.
pub(super) async fn wait(
    cluster: &Cluster,
    feed: &Feed,
    node: &str,
    handle: &ProcessHandle,
    question: &ReadinessQuestion,
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
