//! A proxy that runs under a name which no Node has: endpoints on its node are recognised by that name.

use tracing::{info, warn};

use crate::source::{Batch, Change};

/// Whether the Node of this proxy's own name has been seen.
#[derive(Debug)]
pub(super) struct OwnNode {
    name: String,
    known: Known,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Nothing is complete yet.
    NotYet,
    Missing,
    Present,
}

impl OwnNode {
    pub(super) fn new(name: String) -> OwnNode {
        OwnNode { name, known: Known::NotYet }
    }

    /// Logs, once each, that there is no such Node, and that it has come.
    pub(super) fn look(&mut self, batch: &Batch) {
        let before = self.known;
        self.take(batch);
        let name = &self.name;
        match (before, self.known) {
            (Known::NotYet, Known::Missing) => warn!(
                "there is no Node {name}: endpoints count as this node's own if they name it. If this machine has another name in \
                 Kubernetes, give it by --hostname-override (in the file: hostnameOverride)"
            ),
            (Known::Missing, Known::Present) => info!("there is a Node {name} now"),
            _ => {}
        }
    }

    fn take(&mut self, batch: &Batch) {
        for change in &batch.changes {
            match change {
                Change::Node(name, Some(_)) if *name == self.name => self.known = Known::Present,
                // Deleted, as when the machine leaves the cluster: that is no mistake of a name.
                _ => {}
            }
        }
        if self.known == Known::NotYet && !batch.partial {
            self.known = Known::Missing;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn batch(partial: bool, nodes: &[&str]) -> Batch {
        let changes = nodes.iter().map(|name| Change::Node((*name).to_owned(), Some(Arc::default()))).collect();
        Batch { changes, partial, ..Batch::default() }
    }

    #[test]
    fn a_node_is_missing_once_everything_is_known() {
        let mut own = OwnNode::new("node-a".to_owned());
        own.take(&batch(true, &[]));
        assert_eq!(own.known, Known::NotYet, "its list may still come");
        own.take(&batch(false, &["node-b"]));
        assert_eq!(own.known, Known::Missing);
        own.take(&batch(false, &["node-a"]));
        assert_eq!(own.known, Known::Present);
        own.take(&batch(false, &[]));
        assert_eq!(own.known, Known::Present);
    }

    #[test]
    fn one_that_comes_with_the_first_lists_is_present() {
        let mut own = OwnNode::new("node-a".to_owned());
        own.take(&batch(true, &["node-a"]));
        own.take(&batch(false, &[]));
        assert_eq!(own.known, Known::Present);
    }
}
