//! `detectLocalMode: NodeCIDR`: until the Node has a range for its pods, nothing is whole. Rules without it would take pods for
//! strangers, whose traffic is masqueraded, or dropped under policy Local.

use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::{Batch, Change, SkippedObjects, Source, SourceError};
use crate::config::{Config, DetectLocal};
use crate::model::Family;

/// How long allocators may take (upstream: `NewNodeManager` in pkg/proxy/node.go). It counts from when everything else is known.
const PATIENCE: Duration = Duration::from_secs(300);

/// A source whose batches are partial until this node's Node has a range for its pods. A range that changes later is a change
/// like any other.
#[derive(Debug)]
pub struct AwaitPodCidr<S> {
    source: S,
    /// What is waited for; `None`: nothing any more.
    wanted: Option<Wanted>,
}

#[derive(Debug)]
struct Wanted {
    node: String,
    /// `None`: a range of any family. Without a `bindAddress` the primary family is whatever the Node's is.
    family: Option<Family>,
    seen: Seen,
    /// When to give up, once the source has reported everything that there is.
    deadline: Option<Instant>,
}

/// What is known of the Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    NoRange,
    RangeOfOtherFamily,
    Range,
}

impl<S: Source> AwaitPodCidr<S> {
    /// Waits for this node's range, where the configuration asks for one.
    pub fn new(source: S, config: &Config) -> AwaitPodCidr<S> {
        let wanted = (config.detect_local == DetectLocal::NodeCidr).then(|| Wanted {
            node: config.node_name.clone(),
            family: config.bind_address.map(|address| Family::of(&address)),
            seen: Seen::Nothing,
            deadline: None,
        });
        AwaitPodCidr { source, wanted }
    }
}

impl<S: Source + Send> Source for AwaitPodCidr<S> {
    async fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        let Some(wanted) = &mut self.wanted else { return self.source.next().await };
        let deadline = wanted.deadline;
        let late = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let mut batch = tokio::select! {
            biased;
            () = late => return Err(wanted.given_up()),
            batch = self.source.next() => batch?,
        };
        if let Some(batch) = &mut batch {
            wanted.take(batch);
            match wanted.seen {
                _ if batch.partial => {}
                Seen::Range => self.wanted = None,
                Seen::Nothing | Seen::NoRange | Seen::RangeOfOtherFamily => {
                    batch.partial = true;
                    wanted.begin(Instant::now());
                }
            }
        }
        Ok(batch)
    }

    fn skipped(&self) -> SkippedObjects {
        self.source.skipped()
    }
}

impl Wanted {
    fn take(&mut self, batch: &Batch) {
        for change in &batch.changes {
            if let Change::Node(name, node) = change
                && *name == self.node
            {
                self.seen = node.as_deref().map_or(Seen::Nothing, |node| look(node, self.family));
            }
        }
    }

    fn begin(&mut self, now: Instant) {
        if self.deadline.is_none() {
            self.deadline = Some(now + PATIENCE);
            info!("{} yet: waiting for it, up to {PATIENCE:?}, before any rule is written", self.lack());
        }
    }

    /// What there is not, as the beginning of a sentence.
    fn lack(&self) -> String {
        let node = &self.node;
        match (self.seen, self.family) {
            (Seen::Nothing, _) => format!("there is no Node {node}"),
            (Seen::RangeOfOtherFamily, Some(family)) => {
                format!("Node {node} has no podCIDR of {family}, as bindAddress asks for,")
            }
            _ => format!("Node {node} has no podCIDR"),
        }
    }

    fn given_up(&self) -> SourceError {
        SourceError::PodCidr { what: self.lack(), patience: PATIENCE }
    }
}

fn look(node: &Node, family: Option<Family>) -> Seen {
    let spec = node.spec.iter();
    let ranges = spec.flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr));
    let mut families =
        ranges.filter_map(|range| range.parse::<IpNet>().ok()).map(|range| Family::of_net(&range)).peekable();
    match family {
        _ if families.peek().is_none() => Seen::NoRange,
        Some(family) if !families.any(|of_range| of_range == family) => Seen::RangeOfOtherFamily,
        _ => Seen::Range,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;
    use tokio::sync::mpsc;

    struct Scripted(mpsc::UnboundedReceiver<Batch>);

    impl Source for Scripted {
        async fn next(&mut self) -> Result<Option<Batch>, SourceError> {
            Ok(self.0.recv().await)
        }

        fn skipped(&self) -> SkippedObjects {
            SkippedObjects::default()
        }
    }

    fn source(config: &Config) -> (mpsc::UnboundedSender<Batch>, AwaitPodCidr<Scripted>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (sender, AwaitPodCidr::new(Scripted(receiver), config))
    }

    fn node_cidr() -> Config {
        Config { detect_local: DetectLocal::NodeCidr, ..Config::for_node("n1") }
    }

    fn node(name: &str, ranges: &[&str]) -> Batch {
        let node =
            serde_json::from_value(json!({ "metadata": { "name": name }, "spec": { "podCIDRs": ranges } })).unwrap();
        Batch { changes: vec![Change::Node(name.to_owned(), Some(Arc::new(node)))], ..Batch::default() }
    }

    fn gone(name: &str) -> Batch {
        Batch { changes: vec![Change::Node(name.to_owned(), None)], ..Batch::default() }
    }

    async fn partial(source: &mut AwaitPodCidr<Scripted>) -> bool {
        source.next().await.unwrap().unwrap().partial
    }

    #[tokio::test]
    async fn other_modes_wait_for_nothing() {
        let (sender, mut source) = source(&Config::for_node("n1"));
        sender.send(Batch::default()).unwrap();
        assert!(!partial(&mut source).await);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_whole_before_the_node_has_a_range() {
        let (sender, mut source) = source(&node_cidr());
        let first = Batch { partial: true, ..Batch::default() };
        for batch in
            [first, Batch::default(), node("n2", &["10.1.0.0/24"]), node("n1", &[]), gone("n1"), node("n1", &["x"])]
        {
            sender.send(batch).unwrap();
            assert!(partial(&mut source).await);
        }
        tokio::time::advance(PATIENCE - Duration::from_secs(1)).await;
        sender.send(node("n1", &["10.1.0.0/24"])).unwrap();
        assert!(!partial(&mut source).await);
        tokio::time::advance(PATIENCE).await;
        sender.send(gone("n1")).unwrap();
        assert!(!partial(&mut source).await, "later changes are changes like any other");
    }

    #[tokio::test(start_paused = true)]
    async fn a_range_that_comes_before_the_rest_is_no_reason_to_begin() {
        let (sender, mut source) = source(&node_cidr());
        sender.send(Batch { partial: true, ..node("n1", &["10.1.0.0/24"]) }).unwrap();
        assert!(partial(&mut source).await);
        // However long the API server takes.
        tokio::time::advance(2 * PATIENCE).await;
        sender.send(Batch::default()).unwrap();
        assert!(!partial(&mut source).await);
    }

    #[tokio::test(start_paused = true)]
    async fn after_five_minutes_it_is_given_up_with_a_sentence() {
        for (batch, family, what) in [
            (Batch::default(), None, "there is no Node n1 after 300s of waiting,"),
            (node("n1", &[]), None, "Node n1 has no podCIDR after 300s of waiting,"),
            (
                node("n1", &["10.1.0.0/24"]),
                Some("fd00::1"),
                "Node n1 has no podCIDR of IPv6, as bindAddress asks for, after 300s of waiting,",
            ),
        ] {
            let bind_address = family.map(|address| address.parse().unwrap());
            let (sender, mut source) = source(&Config { bind_address, ..node_cidr() });
            sender.send(batch).unwrap();
            assert!(partial(&mut source).await);
            let begun = Instant::now();
            // What comes in meanwhile does not put it off.
            sender.send(Batch::default()).unwrap();
            assert!(partial(&mut source).await);
            let error = source.next().await.unwrap_err().to_string();
            assert!(error.starts_with(what), "{error}");
            assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
        }
    }

    #[tokio::test]
    async fn without_a_bind_address_any_family_will_do() {
        let (sender, mut source) = source(&node_cidr());
        sender.send(node("n1", &["fd00:1::/64"])).unwrap();
        assert!(!partial(&mut source).await);
    }
}
