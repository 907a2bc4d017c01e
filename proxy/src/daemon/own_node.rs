//! Warnings about this proxy's Node object, whose name identifies local endpoints.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use tracing::{debug, info, warn};

use crate::config::Config;
use crate::kernel::uplink;
use crate::model::{Batch, Change, Family};
use crate::plan::advice::complaints;
use crate::source::primary_family;
use crate::state::NodeInfo;

#[derive(Debug)]
pub(super) struct OwnNode {
    config: Arc<Config>,
    known: NodePresence,
    node: Option<Arc<Node>>,
    primary: Vec<IpAddr>,
    is_complete: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodePresence {
    NotYet,
    Missing,
    Present,
}

pub fn missing_node(name: &str) -> String {
    format!(
        "there is no Node {name}: endpoints count as this node's own if they name it. If this machine has another name in \
         Kubernetes, give it by --hostname-override (in the file: hostnameOverride)"
    )
}

/// Warns as a start does once this complete state is known.
pub fn warn_about_node(config: &Config, batch: &Batch) {
    OwnNode::new(Arc::new(config.clone())).observe(batch);
}

impl OwnNode {
    pub(super) fn new(config: Arc<Config>) -> OwnNode {
        OwnNode { config, known: NodePresence::NotYet, node: None, primary: Vec::new(), is_complete: false }
    }

    pub(super) fn observe(&mut self, batch: &Batch) {
        let (before, was_complete) = (self.known, self.is_complete);
        for complaint in self.update(batch) {
            warn!("{complaint}");
        }
        if self.is_complete && !was_complete {
            self.warn_about_uplink();
        }
        let name = &self.config.node_name;
        match (before, self.known) {
            (NodePresence::NotYet, NodePresence::Missing) => warn!("{}", missing_node(name)),
            (NodePresence::Missing, NodePresence::Present) => info!("there is a Node {name} now"),
            _ => {}
        }
    }

    /// Warns if traffic from the node to services is masqueraded to another address than the node's
    /// (kubernetes#133024).
    fn warn_about_uplink(&self) {
        if self.config.masquerade_source.is_chosen(Family::V4) {
            return;
        }
        match uplink::borrowed() {
            Ok(Some(borrowed)) if self.primary.iter().any(|ip| ip.is_ipv4() && *ip != borrowed.source) => warn!(
                "the uplink {} has no IPv4 address: what is masqueraded there, such as this node's own calls to services, gets the source \
                 {} of another link, which other machines may not answer; give the uplink the node's address, or set masqueradeSource: primary",
                borrowed.link, borrowed.source
            ),
            Ok(_) => {}
            Err(error) => debug!(%error, "cannot tell which source address is given to what is masqueraded"),
        }
    }

    fn update(&mut self, batch: &Batch) -> Vec<String> {
        for change in &batch.changes {
            match change {
                Change::Node(name, Some(node)) if *name == self.config.node_name => {
                    self.known = NodePresence::Present;
                    self.node = (!self.is_complete).then(|| Arc::clone(node));
                }
                // The Node was deleted: the machine leaves the cluster.
                _ => {}
            }
        }
        if batch.partial || self.is_complete {
            return Vec::new();
        }
        self.is_complete = true;
        if self.known == NodePresence::NotYet {
            self.known = NodePresence::Missing;
        }
        let node = self.node.take();
        let primary = primary_family(node.as_deref(), self.config.bind_address).unwrap_or(self.config.primary_family);
        let node = node.map(|node| NodeInfo::read(&node)).unwrap_or_default();
        self.primary = node.primary;
        complaints(&self.config, primary, &node.pod_cidrs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(partial: bool, nodes: &[&str]) -> Batch {
        let changes = nodes.iter().map(|name| Change::Node((*name).to_owned(), Some(Arc::default()))).collect();
        Batch { changes, partial, ..Batch::default() }
    }

    #[test]
    fn a_node_is_missing_once_the_state_is_complete() {
        let mut own = OwnNode::new(Arc::new(Config::for_node("node-a")));
        own.update(&batch(true, &[]));
        assert_eq!(own.known, NodePresence::NotYet, "its list may still come");
        own.update(&batch(false, &["node-b"]));
        assert_eq!(own.known, NodePresence::Missing);
        own.update(&batch(false, &["node-a"]));
        assert_eq!(own.known, NodePresence::Present);
        own.update(&batch(false, &[]));
        assert_eq!(own.known, NodePresence::Present);
    }

    #[test]
    fn complaints_are_returned_once_when_the_state_is_complete() {
        let node = serde_json::json!({"metadata": {"name": "node-a"}, "status": {"addresses": [
            {"type": "Hostname", "address": "node-a"}, {"type": "InternalIP", "address": "fd00:18::2"}]}});
        let node = Change::Node("node-a".to_owned(), Some(Arc::new(serde_json::from_value(node).unwrap())));
        let mut own = OwnNode::new(Arc::new(Config::for_node("node-a")));
        assert_eq!(own.update(&Batch { changes: vec![node], partial: true, ..Batch::default() }), [""; 0]);
        let told = own.update(&batch(false, &[]));
        assert!(told.len() == 1 && told[0].contains("traffic of IPv6 from pods"), "{told:?}");
        assert_eq!(own.update(&batch(false, &["node-a"])), [""; 0]);
    }

    #[test]
    fn a_node_in_the_first_lists_is_present() {
        let mut own = OwnNode::new(Arc::new(Config::for_node("node-a")));
        own.update(&batch(true, &["node-a"]));
        own.update(&batch(false, &[]));
        assert_eq!(own.known, NodePresence::Present);
    }
}
