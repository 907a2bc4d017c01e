//! The mode of each node's proxy, and where IPVS may still be at work though the proxy has left it.

use std::collections::{BTreeMap, BTreeSet};

use crate::mode::Mode;

/// Modes by node.
pub(super) struct NodeModes {
    /// Of all that no step has said another of.
    first: Mode,
    changed: BTreeMap<String, Mode>,
    left_ipvs: BTreeSet<String>,
}

impl NodeModes {
    pub(super) fn new(first: Mode) -> Self {
        NodeModes { first, changed: BTreeMap::new(), left_ipvs: BTreeSet::new() }
    }

    pub(super) fn of(&self, node: &str) -> Mode {
        self.changed.get(node).copied().unwrap_or(self.first)
    }

    pub(super) fn set(&mut self, node: &str, mode: Mode) {
        match (self.of(node), mode) {
            (_, Mode::Ipvs) => drop(self.left_ipvs.remove(node)),
            (Mode::Ipvs, _) => drop(self.left_ipvs.insert(node.to_owned())),
            _ => {}
        }
        self.changed.insert(node.to_owned(), mode);
    }

    /// `--cleanup` has been run on the node.
    pub(super) fn cleaned(&mut self, node: &str) {
        self.left_ipvs.remove(node);
    }

    /// Nodes whose proxy has left IPVS mode, and that have not been cleaned since: virtual servers and addresses may stay there until
    /// connections are over.
    pub(super) fn draining(&self) -> &BTreeSet<String> {
        &self.left_ipvs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_drains_from_the_end_of_ipvs_mode_to_a_clean_up_or_to_ipvs_mode() {
        let mut modes = NodeModes::new(Mode::Ipvs);
        modes.set("a", Mode::Nftables);
        modes.set("a", Mode::Iptables);
        modes.set("b", Mode::Userspace);
        assert_eq!((modes.of("a"), modes.of("b"), modes.of("c")), (Mode::Iptables, Mode::Userspace, Mode::Ipvs));
        assert_eq!(modes.draining().iter().collect::<Vec<_>>(), ["a", "b"]);
        modes.cleaned("a");
        modes.set("b", Mode::Ipvs);
        assert!(modes.draining().is_empty());
    }
}
