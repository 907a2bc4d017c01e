//! The part of a snapshot that an audit depends on, without counters, timeouts and connections.

use serde_json::Value;
use svclab_snapshot::Snapshot;
use svclab_snapshot::network::Network;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodeState {
    rules: Vec<Vec<String>>,
    nft: Option<Value>,
    network: Option<Network>,
    objects: Option<svclab_snapshot::Objects>,
    configuration: Option<String>,
}

impl NodeState {
    pub(super) fn of(snapshot: &Snapshot) -> NodeState {
        let texts = [
            &snapshot.nft_v4,
            &snapshot.nft_v6,
            &snapshot.legacy_v4,
            &snapshot.legacy_v6,
            &snapshot.sets,
            &snapshot.servers,
        ];
        let lines =
            |text: &Option<String>| text.iter().flat_map(|text| text.lines()).filter_map(without_counters).collect();
        let mut nft = snapshot.nft.as_ref().and_then(|text| serde_json::from_str(text).ok());
        nft.iter_mut().for_each(remove_counters);
        let network = snapshot.network.clone().map(|network| Network {
            neighbours: Vec::new(),
            forwarding: Vec::new(),
            ..network
        });
        NodeState {
            rules: texts.into_iter().map(lines).collect(),
            nft,
            network,
            objects: snapshot.objects.clone(),
            configuration: snapshot.proxy_config.clone(),
        }
    }
}

/// Returns the line without counters; `None` for a comment, which contains the time.
fn without_counters(line: &str) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let rule = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")).map_or(line, |(_, rule)| rule);
    let chain = rule.strip_prefix(':').and_then(|rest| rest.split_once(" [")).map_or(rule, |(chain, _)| chain);
    Some(chain.split(" timeout ").next().unwrap_or(chain).to_owned())
}

fn remove_counters(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(remove_counters),
        Value::Object(fields) => {
            fields.remove("expires");
            if let Some(Value::Object(counter)) = fields.get_mut("counter") {
                counter.remove("packets");
                counter.remove("bytes");
            }
            fields.values_mut().for_each(remove_counters);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_no_change_and_rules_are() {
        let of = |rules: &str, nft: &str| {
            let snapshot =
                Snapshot { nft_v4: Some(rules.to_owned()), nft: Some(nft.to_owned()), ..Snapshot::default() };
            NodeState::of(&snapshot)
        };
        let nft = r#"{"nftables":[{"rule":{"expr":[{"counter":{"packets":1,"bytes":2}},{"drop":null}]}}]}"#;
        let more = nft.replace('1', "7");
        let rules = "# Generated on Monday\n*nat\n:KUBE-SERVICES - [0:0]\n[1:60] -A KUBE-SERVICES -j RETURN\nCOMMIT\n";
        let later =
            "# Generated on Tuesday\n*nat\n:KUBE-SERVICES - [7:8]\n[9:600] -A KUBE-SERVICES -j RETURN\nCOMMIT\n";
        assert_eq!(of(rules, nft), of(later, &more));
        assert_ne!(of(rules, nft), of(&rules.replace("RETURN", "DROP"), nft));
        assert_ne!(of(rules, nft), of(rules, &nft.replace("drop", "accept")));
    }
}
