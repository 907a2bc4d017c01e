use svclab_sim::cluster::{NodeReadError, NodeState};
use svclab_sim::protocol::Family;
use svclab_snapshot::Snapshot;

use crate::error::NodeError;

/// Reads rules, sets and virtual servers.
///
/// # Errors
/// A text is malformed; the error names the line.
pub fn state(snapshot: &Snapshot) -> Result<NodeState, NodeError> {
    let mut state = NodeState::default();
    let read = |result: Result<(), NodeReadError>| result.map_err(NodeError::from);
    for (family, name, nft, legacy) in [
        (Family::V4, "iptables", &snapshot.nft_v4, &snapshot.legacy_v4),
        (Family::V6, "ip6tables", &snapshot.nft_v6, &snapshot.legacy_v6),
    ] {
        let with_rules = |text: &&String| text.lines().any(has_effect);
        match (nft.as_ref().filter(with_rules), legacy.as_ref().filter(with_rules)) {
            (Some(nft), Some(legacy)) => {
                read(state.read_any_rules(&format!("{name}-nft-save"), family, nft))?;
                read(state.read_second_rules(&format!("{name}-legacy-save"), family, legacy))?;
            }
            (Some(text), None) => read(state.read_any_rules(&format!("{name}-nft-save"), family, text))?,
            (None, Some(text)) => read(state.read_any_rules(&format!("{name}-legacy-save"), family, text))?,
            (None, None) => {}
        }
    }
    if let Some(text) = &snapshot.nft {
        read(state.read_nft("nft list ruleset", text))?;
    }
    if let Some(text) = &snapshot.sets {
        read(state.read_sets("ipset save", text))?;
    }
    if let Some(text) = &snapshot.servers {
        read(state.read_servers("ipvsadm -Sn", text))?;
    }
    Ok(state)
}

fn has_effect(line: &str) -> bool {
    let counted = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")).map_or(line, |(_, rule)| rule);
    counted.starts_with("-A ") || line.starts_with(':') && line.contains(" DROP ")
}
