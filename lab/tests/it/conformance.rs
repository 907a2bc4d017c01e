use std::path::Path;
use std::process::Output;

use crate::support::command::{ended, err, out, svclab};
use serde_json::Value;

fn card(folder: &Path, name: &str, more: &str, flags: &[&str]) -> Option<(Output, Value)> {
    let program = Path::new(env!("CARGO_BIN_EXE_svclab")).with_file_name("svcproxy");
    let program = program.to_str().unwrap();
    let text = format!(
        "name: {name}\nversion: [echo, 'v1.2.3']\ncommand: [{program}, --config, '{{config}}', '--hostname-override={{node}}']\n{more}"
    );
    std::fs::write(folder.join("proxy.yaml"), text).unwrap();
    let usual = ["conformance", "--proxy", "proxy.yaml", "--mode", "iptables", "--json", "card.json"];
    let output = svclab(folder, &[&usual, flags].concat());
    let unable = output.status.code() == Some(3);
    assert!(!unable || std::env::var_os("CI").is_none(), "{}", err(&output));
    let card = std::fs::read_to_string(folder.join("card.json")).unwrap_or_default();
    (!unable).then(|| (output, serde_json::from_str(&card).unwrap_or_default()))
}

fn cell(card: &Value, number: u64) -> &Value {
    cell_in(card, number, "iptables")
}

fn cell_in<'a>(card: &'a Value, number: u64, mode: &str) -> &'a Value {
    let rows = card["promises"].as_array().unwrap();
    &rows.iter().find(|row| row["number"] == number).unwrap()["cells"][mode]
}

#[test]
fn the_card_of_a_proxy_in_mode_other_has_what_every_proxy_promises() {
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_svclab")).with_file_name("svcproxy");
    let command = [program.to_str().unwrap(), "--config", "{config}", "--hostname-override={node}"];
    let proxy = serde_json::json!({
        "name": "own-way", "command": command, "modes": ["other"], "config": {"mode": "nftables"},
        "tables": ["ip kube-proxy", "ip6 kube-proxy"],
    });
    std::fs::write(folder.path().join("proxy.yaml"), proxy.to_string()).unwrap();
    let usual = ["conformance", "clusterip", "vip-ports", "--proxy", "proxy.yaml", "--clusters", "2", "--no-figures"];
    let output = svclab(folder.path(), &[&usual[..], &["--json", "card.json", "--markdown", "card.md"]].concat());
    let unable = output.status.code() == Some(3);
    assert!(!unable || std::env::var_os("CI").is_none(), "{}", err(&output));
    if unable {
        return;
    }
    ended(&output, 0);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let card: Value = serde_json::from_str(&read("card.json")).unwrap();
    let modes: Vec<&Value> = card["modes"].as_array().unwrap().iter().map(|mode| &mode["mode"]).collect();
    assert_eq!(modes, [&Value::from("other")]);
    assert_eq!(card["modes"][0]["generated"], 2, "{}", card["modes"]);
    let cluster_ip = cell_in(&card, 101, "other");
    assert_eq!(cluster_ip["verdict"], "kept");
    assert!(cluster_ip["calls"].as_u64() > Some(0) && cluster_ip["steps"].as_u64() > Some(0), "{cluster_ip}");
    for number in [112, 117, 402, 604, 803] {
        assert!(cell_in(&card, number, "other").is_null(), "{number}: {}", cell_in(&card, number, "other"));
    }
    // What else is open at a service's addresses is judged by the scenario alone.
    let other_port = cell_in(&card, 116, "other");
    assert!(other_port["steps"].as_u64() > Some(0) && other_port["calls"].as_u64().unwrap_or(0) == 0, "{other_port}");
    assert!(read("card.md").contains("| other |"), "{}", read("card.md"));
}

#[test]
fn a_card_has_kept_and_broken_promises_and_compares_with_another_card() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["clusterip", "hairpin", "--clusters", "1"];
    let Some((output, good)) = card(folder.path(), "good", "excused: {hairpin: it cannot}\n", &flags) else { return };
    ended(&output, 0);
    assert_eq!((&good["proxy"], &good["schemaVersion"]), (&"good 1.2.3".into(), &1.into()));
    let cluster_ip = cell(&good, 101);
    assert_eq!(cluster_ip["verdict"], "kept");
    assert!(cluster_ip["calls"].as_u64() > Some(0) && cluster_ip["steps"].as_u64() > Some(0), "{cluster_ip}");
    assert_eq!(cell(&good, 502)["notJudged"][0]["why"], "it cannot");
    assert_eq!(cell(&good, 801)["verdict"], "notJudged");
    let mode = &good["modes"][0];
    assert_eq!((&mode["scenarios"], &mode["generated"]), (&1.into(), &1.into()));
    assert!(mode["figures"]["peakMemory"].as_u64() > Some(1_000_000), "{mode}");
    std::fs::rename(folder.path().join("card.json"), folder.path().join("before.json")).unwrap();

    // This proxy masquerades everything.
    let flags =
        ["clusterip", "--clusters", "0", "--against", "before.json", "--markdown", "card.md", "--html", "card.html"];
    let wrong = "config: {iptables: {masqueradeAll: true}}\n";
    let Some((output, bad)) = card(folder.path(), "bad", wrong, &flags) else { return };
    ended(&output, 1);
    let breach = &cell(&bad, 101)["breaches"][0];
    assert_eq!((&cell(&bad, 101)["verdict"], &breach["scenario"]), (&"broken".into(), &"clusterip".into()));
    assert!(
        breach["repeat"].as_str().unwrap().contains("svclab run scenarios/clusterip.yaml --mode iptables"),
        "{breach}"
    );
    let said = out(&output);
    assert!(
        said.contains("against the card of good 1.2.3") && said.contains("101 cluster-ip (iptables): kept -> BROKEN"),
        "{said}"
    );
    let markdown = std::fs::read_to_string(folder.path().join("card.md")).unwrap();
    assert!(markdown.contains("### 101 cluster-ip in iptables mode"), "{markdown}");
    assert!(std::fs::read_to_string(folder.path().join("card.html")).unwrap().contains("promises were broken"));
}

#[test]
fn a_generated_cluster_that_breaks_a_promise_is_reduced() {
    let folder = tempfile::tempdir().unwrap();
    // This proxy inverts `masqueradeAll: false`, which only generated clusters set.
    let wrapper =
        "sed '/masqueradeAll/s/false/true/' {config} >{config}.wrong; exec \"$0\" --config {config}.wrong \"$@\"";
    let program = Path::new(env!("CARGO_BIN_EXE_svclab")).with_file_name("svcproxy");
    let command = ["sh", "-c", wrapper, program.to_str().unwrap(), "--hostname-override={node}"];
    let proxy = serde_json::json!({ "name": "wrong", "command": command });
    std::fs::write(folder.path().join("proxy.yaml"), proxy.to_string()).unwrap();
    let flags = ["--mode", "iptables", "--clusters", "1", "--seed", "1", "--no-figures", "--keep-clusters", "."];
    let usual = ["conformance", "masquerade-all", "--proxy", "proxy.yaml", "--shrink-runs", "1", "--json", "card.json"];
    let output = svclab(folder.path(), &[&usual[..], &flags].concat());
    let unable = output.status.code() == Some(3);
    assert!(!unable || std::env::var_os("CI").is_none(), "{}", err(&output));
    if unable {
        return;
    }
    ended(&output, 1);
    let card: Value = serde_json::from_str(&std::fs::read_to_string(folder.path().join("card.json")).unwrap()).unwrap();
    assert_eq!(cell(&card, 504)["verdict"], "kept");
    let breaches = cell(&card, 501)["breaches"].as_array().unwrap();
    let [breach] = &breaches[..] else { panic!("{breaches:?}") };
    assert_eq!(breach["scenario"], "generated-iptables-1-smaller");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let (before, after) = (read("generated-iptables-1.yaml"), read("generated-iptables-1-smaller.yaml"));
    assert_eq!(breach["text"].as_str(), Some(after.as_str()));
    let services = |text: &str| text.matches("\"kind\":\"Service\"").count();
    assert!(services(&before) > 1 && services(&after) == 1, "{before}\n{after}");
}

#[test]
fn mistakes_are_reported_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("no.json"), "{}").unwrap();
    let output = svclab(folder.path(), &["conformance", "--against", "no.json"]);
    ended(&output, 2);
    assert!(err(&output).contains("no.json is no card of `svclab conformance --json`"), "{}", err(&output));
    let output = svclab(folder.path(), &["conformance", "--promises"]);
    ended(&output, 0);
    assert!(out(&output).contains("502  hairpin"), "{}", out(&output));
}
