//! Lists nftables. JSON of nft 1.0.6 lacks the devices of ingress and egress chains, which the text has.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::tool::{Limits, ToolError, run};

const SOURCE: &str = "nft -j list ruleset, devices from nft list chains";

/// Family, table and chain.
type ChainId = (String, String, String);

/// Returns the JSON listing, and its source if it is not the JSON listing alone.
pub(super) async fn read(limits: Limits) -> Result<(String, Option<String>), ToolError> {
    let text = run(&["nft", "-j", "list", "ruleset"], limits).await?;
    let has_hook = text.contains("\"ingress\"") || text.contains("\"egress\"");
    let ruleset = Some(&text).filter(|_| has_hook).and_then(|text| serde_json::from_str(text).ok());
    let Some(mut ruleset) = ruleset.filter(|ruleset| objects(ruleset).iter().any(lacks_devices)) else {
        return Ok((text, None));
    };
    // Readers name a chain without devices.
    let Ok(chains) = run(&["nft", "list", "chains"], limits).await else { return Ok((text, None)) };
    add(&mut ruleset, &devices(&chains));
    Ok((format!("{ruleset}\n"), Some(SOURCE.to_owned())))
}

fn objects(ruleset: &Value) -> &[Value] {
    ruleset.get("nftables").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn lacks_devices(object: &Value) -> bool {
    let chain = &object["chain"];
    matches!(chain["hook"].as_str(), Some("ingress" | "egress")) && chain.get("dev").is_none()
}

fn add(ruleset: &mut Value, devices: &BTreeMap<ChainId, Vec<String>>) {
    let objects = ruleset.get_mut("nftables").and_then(Value::as_array_mut).into_iter().flatten();
    for object in objects.filter(|object| lacks_devices(object)) {
        let chain = &mut object["chain"];
        let text = |field: &str| chain[field].as_str().unwrap_or_default().to_owned();
        if let Some(devices) = devices.get(&(text("family"), text("table"), text("name"))) {
            chain["dev"] = json!(devices);
        }
    }
}

/// Reads `nft list chains`, with lines such as `type filter hook ingress devices = { a, b } priority filter;`.
fn devices(listing: &str) -> BTreeMap<ChainId, Vec<String>> {
    let mut found = BTreeMap::new();
    let (mut family, mut table, mut chain) = ("", "", "");
    for line in listing.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            ["table", of, name, "{"] => (family, table) = (of, name),
            ["chain", name, "{"] => chain = name,
            ["type", _, "hook", _, rest @ ..] => {
                let names = rest.iter().take_while(|word| **word != "priority");
                let names = names.filter(|word| !matches!(**word, "device" | "devices" | "=" | "{" | "}"));
                let names = names.map(|name| name.trim_matches(['"', ',']).to_owned()).collect();
                found.insert((family.to_owned(), table.to_owned(), chain.to_owned()), names);
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(family: &str, name: &str, hook: &str) -> Value {
        json!({"chain": {"family": family, "table": "t", "name": name, "type": "filter", "hook": hook, "prio": 0}})
    }

    #[test]
    fn devices_come_from_the_text() {
        let text = "table netdev t {\n\tchain one {\n\t\ttype filter hook ingress device \"eth0\" priority filter; policy drop;\n\t}\n\
            \tchain two {\n\t\ttype filter hook egress devices = { cni0, eth0 } priority filter + 5; policy accept;\n\t}\n}\n\
            table inet t {\n\tchain none {\n\t\ttype filter hook ingress priority filter; policy accept;\n\t}\n\
            \tchain input {\n\t\ttype filter hook input priority filter; policy accept;\n\t}\n}\n";
        let mut ruleset = json!({"nftables": [
            {"metainfo": {}}, {"table": {"family": "netdev", "name": "t"}},
            chain("netdev", "one", "ingress"), chain("netdev", "two", "egress"), chain("netdev", "new", "ingress"),
            chain("inet", "none", "ingress"), chain("inet", "input", "input"),
        ]});
        add(&mut ruleset, &devices(text));
        let found: Vec<_> = (2..7).map(|at| ruleset["nftables"][at]["chain"].get("dev").cloned()).collect();
        let expected = [Some(json!(["eth0"])), Some(json!(["cni0", "eth0"])), None, Some(json!([])), None];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_listing_with_devices_stays_as_it_is() {
        let mut with = chain("netdev", "one", "ingress");
        with["chain"]["dev"] = json!("eth0");
        for (object, lacks) in [
            (chain("netdev", "one", "ingress"), true),
            (with, false),
            (chain("ip", "input", "input"), false),
            (json!({"table": {}}), false),
        ] {
            assert_eq!(lacks_devices(&object), lacks, "{object}");
        }
    }
}
