//! What of a snapshot an audit depends on, without what changes by itself: counters, time-outs, connections.

use serde_json::Value;
use svclab_snapshot::Snapshot;
use svclab_snapshot::network::Network;

/// Rules, sets, servers, network, settings and objects of a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Standing {
    rules: Vec<Vec<String>>,
    nft: Option<Value>,
    network: Option<Network>,
    objects: Option<svclab_snapshot::Objects>,
    configuration: Option<String>,
}

impl Standing {
    pub(super) fn of(snapshot: &Snapshot) -> Standing {
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
        nft.iter_mut().for_each(forget);
        let network = snapshot.network.clone().map(|network| Network {
            // Whom the node has spoken to of late.
            neighbours: Vec::new(),
            forwarding: Vec::new(),
            ..network
        });
        Standing {
            rules: texts.into_iter().map(lines).collect(),
            nft,
            network,
            objects: snapshot.objects.clone(),
            configuration: snapshot.proxy_config.clone(),
        }
    }
}

/// A line of `iptables-save -c` or `ipset save` as it would be if nobody had sent anything; comments have the time in them.
fn without_counters(line: &str) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let rule = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")).map_or(line, |(_, rule)| rule);
    let chain = rule.strip_prefix(':').and_then(|rest| rest.split_once(" [")).map_or(rule, |(chain, _)| chain);
    Some(chain.split(" timeout ").next().unwrap_or(chain).to_owned())
}

/// Counters and what is left of time-outs, at any depth.
fn forget(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(forget),
        Value::Object(fields) => {
            fields.remove("expires");
            if let Some(Value::Object(counter)) = fields.get_mut("counter") {
                counter.remove("packets");
                counter.remove("bytes");
            }
            fields.values_mut().for_each(forget);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_packets_change_is_no_change() {
        let of = |rules: &str, nft: &str| {
            let snapshot =
                Snapshot { nft_v4: Some(rules.to_owned()), nft: Some(nft.to_owned()), ..Snapshot::default() };
            Standing::of(&snapshot)
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
