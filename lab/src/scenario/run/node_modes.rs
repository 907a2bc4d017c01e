//! The mode of each node's proxy, and the nodes that may still drain IPVS connections.

use std::collections::{BTreeMap, BTreeSet};

use crate::mode::Mode;

pub(super) struct NodeModes {
    /// The mode of nodes whose mode no step has changed.
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

    pub(super) fn cleaned(&mut self, node: &str) {
        self.left_ipvs.remove(node);
    }

    /// Returns the nodes that left IPVS mode without a later `--cleanup`: virtual servers and addresses may remain
    /// until connections end.
    pub(super) fn draining(&self) -> &BTreeSet<String> {
        &self.left_ipvs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_drains_after_ipvs_mode_until_a_cleanup() {
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
