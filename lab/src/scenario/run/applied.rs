//! Waits until a proxy is healthy, or has applied a version of the objects.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use svclab_cluster::Cluster;
use svclab_cluster::process::ProcessHandle;
use svclab_cluster::traffic::probe::ClusterHost;

use super::feed::{Feed, ObjectsVersion};
use super::patience::Patience;
use super::proxy::HEALTH;
use crate::expect::Mismatch;

pub(super) const PAUSE: Duration = Duration::from_millis(10);
/// After [`SOON`] questions are rarer: they are work for the proxy, too.
const LATER: Duration = Duration::from_millis(200);
const SOON: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(2);
/// The longest part of an answer in a message.
const SHOWN: usize = 200;

pub(super) enum ReadinessQuestion {
    /// svcproxy only: whether it has applied this version of the objects, except in those parts.
    Version(ObjectsVersion, BTreeSet<ProxyPart>),
    Url(SocketAddr, String),
    Command(Vec<String>),
    Running,
}

/// What may fail while the rest of a proxy works.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProxyPart {
    Health,
    /// An address family, as Kubernetes writes it.
    Family(String),
}

/// A proxy that was waited for in vain.
#[derive(Debug)]
pub(super) struct LateProxy {
    pub(super) node: String,
    /// The late parts, if another one is not late; empty: the whole proxy.
    pub(super) parts: Vec<ProxyPart>,
    pub(super) mismatch: Mismatch,
}

impl LateProxy {
    pub(super) fn wholly(node: &str, mismatch: Mismatch) -> Self {
        LateProxy { node: node.to_owned(), parts: Vec::new(), mismatch }
    }
}

/// Why the answer to a question is not yes.
#[derive(Default)]
struct NotYet {
    words: String,
    parts: Vec<ProxyPart>,
}

impl NotYet {
    fn because(words: impl Into<String>) -> Self {
        NotYet { words: words.into(), parts: Vec::new() }
    }
}

impl ReadinessQuestion {
    /// Asks the proxy once.
    async fn ask(&self, cluster: &Cluster, feed: &Feed, node: &str, place: &ClusterHost) -> Result<(), NotYet> {
        let (address, path) = match self {
            ReadinessQuestion::Version(..) => (HEALTH, "/healthz"),
            ReadinessQuestion::Url(address, path) => (*address, path.as_str()),
            ReadinessQuestion::Command(argv) => {
                let output = cluster.exec(place, argv, ANSWER).await;
                return match output {
                    Ok(output) if output.success() => Ok(()),
                    Ok(output) => {
                        Err(NotYet::because(format!("it ends with {:?}: {}", output.ended, output.stderr.trim())))
                    }
                    Err(error) => Err(NotYet::because(error.to_string())),
                };
            }
            ReadinessQuestion::Running => return Ok(()),
        };
        let answer = cluster.http_get(place, address, path, ANSWER).await;
        let answer = answer.map_err(|error| NotYet::because(error.to_string()))?;
        match self {
            ReadinessQuestion::Version(version, ignored) => {
                let health: Value = serde_json::from_str(&answer.body).unwrap_or_default();
                version_applied(feed, node, &health, version, ignored)
            }
            _ if answer.status == 200 => Ok(()),
            _ => {
                let body = answer.body.trim();
                let shown: String = body.chars().take(SHOWN).collect();
                let rest = if shown.len() < body.len() { "…" } else { "" };
                Err(NotYet::because(format!("it answers {} {shown}{rest}", answer.status)))
            }
        }
    }

    pub(super) fn expected(&self, node: &str) -> String {
        match self {
            ReadinessQuestion::Version(version, _) => format!("the proxy on {node} applies {version} of the objects"),
            ReadinessQuestion::Url(address, path) => {
                format!("the proxy on {node} becomes healthy: http://{address}{path} answers 200")
            }
            ReadinessQuestion::Command(argv) => format!("the proxy on {node} becomes healthy: {}", argv.join(" ")),
            ReadinessQuestion::Running => format!("the proxy on {node} is running"),
        }
    }
}

/// Compares svcproxy's health with `version`. Families in `ignored` do not count if the health names each family.
fn version_applied(
    feed: &Feed,
    node: &str,
    health: &Value,
    version: &ObjectsVersion,
    ignored: &BTreeSet<ProxyPart>,
) -> Result<(), NotYet> {
    let Some(words) = feed.behind(node, health, version) else { return Ok(()) };
    let by_family: Vec<(&String, Option<String>)> = health["ipFamilies"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(family, _)| !ignored.contains(&ProxyPart::Family((*family).clone())))
        .map(|(family, one)| (family, feed.behind(node, one, version)))
        .collect();
    let late: Vec<(&String, &String)> =
        by_family.iter().filter_map(|(family, words)| Some((*family, words.as_ref()?))).collect();
    match (late.len(), by_family.len()) {
        (0, 1..) => Ok(()),
        (late, all) if late == all => Err(NotYet::because(words)),
        _ => Err(NotYet {
            words: late.iter().map(|(family, words)| format!("for {family} {words}")).collect::<Vec<_>>().join("; "),
            parts: late.iter().map(|(family, _)| ProxyPart::Family((*family).clone())).collect(),
        }),
    }
}

pub(super) fn ended(expected: String, handle: &ProcessHandle) -> Mismatch {
    Mismatch::new(expected, format!("it has ended: {}", handle.log_tail(3).trim()))
}

/// Asks until the answer is yes, the proxy ends, or the patience is over.
pub(super) async fn wait(
    cluster: &Cluster,
    feed: &Feed,
    node: &str,
    handle: &ProcessHandle,
    (question, patience): (&ReadinessQuestion, Patience<'_>),
) -> Option<LateProxy> {
    let (place, begun) = (ClusterHost::Node(node.to_owned()), Instant::now());
    let mut last = NotYet::default();
    let asks = async {
        loop {
            if !handle.is_alive() {
                return Some(LateProxy::wholly(node, ended(question.expected(node), handle)));
            }
            match question.ask(cluster, feed, node, &place).await {
                Ok(()) => return None,
                Err(not_yet) => last = not_yet,
            }
            tokio::time::sleep(if begun.elapsed() < SOON { PAUSE } else { LATER }).await;
        }
    };
    let over = tokio::select! {
        answered = asks => return answered,
        over = patience.over() => over,
    };
    let NotYet { words, parts } = last;
    let mismatch = Mismatch::new(question.expected(node), format!("{words}; {over}"));
    Some(LateProxy { node: node.to_owned(), parts, mismatch })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_late_family_is_late() {
        let feed = Feed::Manifests(PathBuf::new());
        let asked = |ipv4: &str, ipv6: &str, ignored: &[&str]| {
            let ignored = ignored.iter().map(|family| ProxyPart::Family((*family).to_owned())).collect();
            let family = |version: &str| json!({ "appliedResourceVersion": version });
            let health = json!({
                "appliedResourceVersion": ipv4.min(ipv6),
                "ipFamilies": { "IPv4": family(ipv4), "IPv6": family(ipv6) },
            });
            let not_yet = version_applied(&feed, "a", &health, &ObjectsVersion::Lab(7), &ignored).err()?;
            Some((not_yet.words, not_yet.parts))
        };
        let part = |family: &str| ProxyPart::Family(family.to_owned());
        assert_eq!(asked("7", "8", &[]), None);
        let late = ("for IPv6 it has applied 6".to_owned(), vec![part("IPv6")]);
        assert_eq!(asked("7", "6", &[]), Some(late));
        assert_eq!(asked("7", "6", &["IPv6"]), None);
        assert_eq!(
            asked("6", "7", &["IPv6"]),
            Some(("it has applied 6".to_owned(), vec![])),
            "no other family is left"
        );
        assert_eq!(asked("5", "6", &[]), Some(("it has applied 5".to_owned(), vec![])));
    }
}
