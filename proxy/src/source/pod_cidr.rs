//! `detectLocalMode: NodeCIDR` delays the first state until the Node has a pod range: else traffic from pods would be
//! masqueraded, or dropped under policy Local.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::{Batch, Change, ObjectSource, SkippedObjects, SourceError};
use crate::config::{Config, DetectLocal};
use crate::model::{Family, parse_ip};

/// The longest wait once only the range is missing, as in kube-proxy's `NewNodeManager` (pkg/proxy/node.go).
const PATIENCE: Duration = Duration::from_secs(300);

/// Batches are partial until the Node has a pod range. Later changes of the range pass through.
#[derive(Debug)]
pub struct AwaitPodCidr<S> {
    source: S,
    /// The range to wait for; `None` once it is known or not needed.
    wanted: Option<PodCidrWait>,
}

#[derive(Debug)]
struct PodCidrWait {
    node: String,
    bind_address: Option<IpAddr>,
    seen: PodCidrState,
    /// Set once all but the range is complete.
    deadline: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PodCidrState {
    Nothing,
    NoRange,
    /// The Node has ranges, but none of its primary family.
    NoneOf(Family),
    Range,
}

impl<S: ObjectSource> AwaitPodCidr<S> {
    pub fn new(source: S, config: &Config) -> AwaitPodCidr<S> {
        AwaitPodCidr { source, wanted: PodCidrWait::of(config) }
    }
}

impl<S: ObjectSource + Send> ObjectSource for AwaitPodCidr<S> {
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
            () = late => return Err(wanted.timed_out()),
            batch = self.source.next() => batch?,
        };
        if let Some(batch) = &mut batch {
            wanted.take(batch);
            match wanted.seen {
                _ if batch.partial => {}
                PodCidrState::Range => self.wanted = None,
                // The API may know the range by now.
                _ if batch.recalled.is_some() => batch.partial = true,
                PodCidrState::NoneOf(family) => {
                    return Err(SourceError::PodCidrFamily { node: wanted.node.clone(), family });
                }
                PodCidrState::Nothing | PodCidrState::NoRange => {
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

impl PodCidrWait {
    /// Returns `None` if the configuration needs no pod range of the Node.
    fn of(config: &Config) -> Option<PodCidrWait> {
        (config.detect_local == DetectLocal::NodeCidr).then(|| PodCidrWait {
            node: config.node_name.clone(),
            bind_address: config.bind_address,
            seen: PodCidrState::Nothing,
            deadline: None,
        })
    }

    fn take(&mut self, batch: &Batch) {
        for change in &batch.changes {
            if let Change::Node(name, node) = change
                && *name == self.node
            {
                self.seen = node.as_deref().map_or(PodCidrState::Nothing, |node| range_state(node, self.bind_address));
            }
        }
    }

    fn begin(&mut self, now: Instant) {
        if self.deadline.is_none() {
            self.deadline = Some(now + PATIENCE);
            info!("{} yet: waiting for it, up to {PATIENCE:?}, before any rule is written", self.missing());
        }
    }

    /// Returns the missing object as the beginning of a sentence.
    fn missing(&self) -> String {
        let node = &self.node;
        match self.seen {
            PodCidrState::Nothing => format!("there is no Node {node}"),
            _ => format!("Node {node} has no podCIDR"),
        }
    }

    fn timed_out(&self) -> SourceError {
        SourceError::PodCidr { what: self.missing(), patience: PATIENCE }
    }
}

/// Returns what keeps rules from being written with this complete state.
pub fn lacking_pod_cidr(batch: &Batch, config: &Config) -> Option<String> {
    let mut wait = PodCidrWait::of(config)?;
    wait.take(batch);
    match wait.seen {
        PodCidrState::Range => None,
        PodCidrState::NoneOf(family) => Some(SourceError::PodCidrFamily { node: wait.node, family }.to_string()),
        PodCidrState::Nothing | PodCidrState::NoRange => Some(format!(
            "{}, and by it detectLocalMode NodeCIDR (--detect-local-mode) tells pods from others: no rule is written before there is one",
            wait.missing()
        )),
    }
}

fn range_state(node: &Node, bind_address: Option<IpAddr>) -> PodCidrState {
    let spec = node.spec.iter();
    let ranges = spec.flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr));
    let mut families =
        ranges.filter_map(|range| range.parse::<IpNet>().ok()).map(|range| Family::of_net(&range)).peekable();
    match primary_family(Some(node), bind_address) {
        _ if families.peek().is_none() => PodCidrState::NoRange,
        Some(family) if !families.any(|of_range| of_range == family) => PodCidrState::NoneOf(family),
        _ => PodCidrState::Range,
    }
}

/// Returns the family of `bindAddress`, else of the Node's first internal or external address (kube-proxy's
/// `detectNodeIPs` in cmd/kube-proxy/app/server.go).
pub fn primary_family(node: Option<&Node>, bind_address: Option<IpAddr>) -> Option<Family> {
    let addresses =
        || node.and_then(|node| node.status.as_ref()).into_iter().flat_map(|s| s.addresses.iter().flatten());
    let first = |wanted: &str| addresses().filter(|a| a.type_ == wanted).find_map(|a| parse_ip(&a.address));
    let primary = bind_address.or_else(|| first("InternalIP")).or_else(|| first("ExternalIP"));
    primary.map(|address| Family::of(&address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;
    use tokio::sync::mpsc;

    struct Scripted(mpsc::UnboundedReceiver<Batch>);

    impl ObjectSource for Scripted {
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
    async fn other_detection_modes_do_not_wait() {
        let (sender, mut source) = source(&Config::for_node("n1"));
        sender.send(Batch::default()).unwrap();
        assert!(!partial(&mut source).await);
    }

    #[tokio::test(start_paused = true)]
    async fn batches_are_partial_until_the_node_has_a_range() {
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
    async fn an_early_range_does_not_complete_the_state() {
        let (sender, mut source) = source(&node_cidr());
        sender.send(Batch { partial: true, ..node("n1", &["10.1.0.0/24"]) }).unwrap();
        assert!(partial(&mut source).await);
        tokio::time::advance(2 * PATIENCE).await;
        sender.send(Batch::default()).unwrap();
        assert!(!partial(&mut source).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_without_a_range_is_an_error_after_five_minutes() {
        for (batch, what) in [
            (Batch::default(), "there is no Node n1 after 300s of waiting,"),
            (node("n1", &[]), "Node n1 has no podCIDR after 300s of waiting,"),
        ] {
            let (sender, mut source) = source(&node_cidr());
            sender.send(batch).unwrap();
            assert!(partial(&mut source).await);
            let begun = Instant::now();
            sender.send(Batch::default()).unwrap();
            assert!(partial(&mut source).await);
            let error = source.next().await.unwrap_err().to_string();
            assert!(error.starts_with(what), "{error}");
            assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
        }
    }

    fn with_address(address: &str, ranges: &[&str]) -> Batch {
        let node = serde_json::from_value(json!({ "metadata": { "name": "n1" }, "spec": { "podCIDRs": ranges },
            "status": { "addresses": [{ "type": "InternalIP", "address": address }] } }))
        .unwrap();
        Batch { changes: vec![Change::Node("n1".to_owned(), Some(Arc::new(node)))], ..Batch::default() }
    }

    #[tokio::test]
    async fn ranges_of_the_other_family_alone_are_an_error() {
        for (batch, bind_address, family) in [
            (with_address("192.168.0.2", &["fd00:1::/64"]), None, "IPv4"),
            (with_address("fd00::2", &["10.1.0.0/24"]), None, "IPv6"),
            (with_address("192.168.0.2", &["10.1.0.0/24"]), Some("fd00::1"), "IPv6"),
            (node("n1", &["10.1.0.0/24"]), Some("fd00::1"), "IPv6"),
        ] {
            let bind_address = bind_address.map(|address| address.parse().unwrap());
            let (sender, mut source) = source(&Config { bind_address, ..node_cidr() });
            sender.send(Batch { partial: true, ..batch }).unwrap();
            assert!(partial(&mut source).await, "there may be more");
            sender.send(Batch::default()).unwrap();
            let error = source.next().await.unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("Node n1 has no podCIDR of {family}, the family of its primary")),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn one_range_of_the_primary_family_is_enough() {
        for batch in [
            with_address("192.168.0.2", &["fd00:1::/64", "10.1.0.0/24"]),
            with_address("fd00::2", &["fd00:1::/64"]),
            // A Node without an address has no primary family.
            node("n1", &["fd00:1::/64"]),
        ] {
            let (sender, mut source) = source(&node_cidr());
            sender.send(batch).unwrap();
            assert!(!partial(&mut source).await);
        }
    }
}
