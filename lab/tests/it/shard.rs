//! Shards of small runs, and `svclab merge`.

use std::path::Path;

use serde_json::Value;

use crate::support::command::{ended, err, out, svclab};

fn json(folder: &Path, name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder.join(name)).unwrap()).unwrap()
}

/// Runs the command as a whole and as two shards, merges them, and returns both reports; `None` if this machine cannot.
fn whole_and_merged(folder: &Path, command: &[&str], flags: &[&str]) -> Option<[Value; 2]> {
    for (name, shard) in [("whole.json", None), ("1.json", Some("1/2")), ("2.json", Some("2/2"))] {
        let shard: Vec<&str> = shard.into_iter().flat_map(|shard| ["--shard", shard]).collect();
        let output = svclab(folder, &[command, &["--json", name], &shard].concat());
        if output.status.code() == Some(3) {
            assert!(std::env::var_os("CI").is_none(), "{}", err(&output));
            return None;
        }
        ended(&output, 0);
    }
    ended(&svclab(folder, &[&["merge", "1.json", "2.json", "--json", "merged.json"], flags].concat()), 0);
    Some([json(folder, "whole.json"), json(folder, "merged.json")])
}

/// Removes keys at any depth.
fn without(mut value: Value, keys: &[&str]) -> Value {
    match &mut value {
        Value::Object(object) => {
            object.retain(|key, _| !keys.contains(&key.as_str()));
            object.values_mut().for_each(|inner| *inner = without(inner.take(), keys));
        }
        Value::Array(all) => all.iter_mut().for_each(|inner| *inner = without(inner.take(), keys)),
        _ => {}
    }
    value
}

#[test]
fn merged_shards_of_simulated_runs_are_the_whole_apart_from_times() {
    let folder = tempfile::tempdir().unwrap();
    let command = ["run", "hairpin", "udp", "clusterip", "dual-stack", "--simulate", "--keep-going"];
    let flags = ["--junit", "merged.xml", "--html", "merged.html", "--markdown", "merged.md"];
    let [whole, merged] = whole_and_merged(folder.path(), &command, &flags).unwrap();
    assert!(whole["scenarios"].as_array().unwrap().len() >= 12);
    let own = |name: &str| json(folder.path(), name)["scenarios"].as_array().unwrap().len();
    assert!(own("1.json") > 0 && own("2.json") > 0);
    assert_eq!(json(folder.path(), "1.json")["shard"]["number"], 1);
    let times = ["seconds"];
    assert_eq!(without(merged, &times), without(whole, &times));
    for name in ["merged.xml", "merged.html", "merged.md"] {
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(text.contains("hairpin") && text.contains("dual-stack") && !text.contains("shard"), "{name}");
    }
    let output = svclab(folder.path(), &["merge", "2.json", "--json", "half.json"]);
    ended(&output, 3);
    let half = json(folder.path(), "half.json");
    let missing = half["notRun"].as_array().unwrap();
    assert!(half["passed"] == false && missing.len() == own("1.json"));
    for one in missing {
        assert_eq!(one["why"], "shard 1/2 is missing");
        let item =
            format!("{} ({}, simulated, seed 0)", one["scenario"].as_str().unwrap(), one["mode"].as_str().unwrap());
        assert!(err(&output).contains(&item), "{}", err(&output));
    }
    let again = svclab(folder.path(), &["merge", "1.json", "1.json"]);
    ended(&again, 2);
    assert!(err(&again).contains("1.json and 1.json are both shard 1/2"), "{}", err(&again));
}

#[test]
fn merged_shards_of_runs_on_the_kernel_have_the_verdicts_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let command = ["run", "hairpin", "clusterip", "--mode", "iptables,nftables", "--keep-going", "--no-bundle"];
    let Some([whole, merged]) = whole_and_merged(folder.path(), &command, &[]) else { return };
    let random = ["seconds", "started", "logs", "summary", "answers", "notRun"];
    assert_eq!(without(merged, &random), without(whole, &random));
    // Balanced by its own times each shard has work.
    let balanced = svclab(
        folder.path(),
        &[&command[..], &["--shard", "4/4", "--balance", "whole.json", "--json", "4.json"]].concat(),
    );
    ended(&balanced, 0);
    assert_eq!(json(folder.path(), "4.json")["scenarios"].as_array().unwrap().len(), 1);
}

#[test]
fn merged_cards_of_shards_are_the_card_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let command =
        ["conformance", "clusterip", "hairpin", "udp", "--clusters", "2", "--mode", "iptables", "--no-figures"];
    let Some([whole, merged]) = whole_and_merged(folder.path(), &command, &["--markdown", "card.md"]) else { return };
    // The number of audited calls differs between runs of the whole, too.
    let random = ["times", "calls"];
    assert_eq!(without(merged, &random), without(whole, &random));
    let half = svclab(folder.path(), &["merge", "1.json"]);
    ended(&half, 3);
    assert!(err(&half).contains("shard 2/2 is missing: "), "{}", err(&half));
    assert!(out(&half).contains("not run"), "{}", out(&half));
}

#[test]
fn a_folder_is_all_scenarios_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    std::fs::create_dir_all(folder.path().join("own/inner")).unwrap();
    for (name, to) in
        [("udp", "own/udp.yaml"), ("hairpin", "own/hairpin.yaml"), ("affinity", "own/inner/affinity.yaml")]
    {
        std::fs::copy(root.join(name).with_extension("yaml"), folder.path().join(to)).unwrap();
    }
    let ran = |flags: &[&str]| {
        let usual = ["run", "own", "--simulate", "--mode", "iptables", "--json", "report.json"];
        ended(&svclab(folder.path(), &[&usual[..], flags].concat()), 0);
        let report = json(folder.path(), "report.json");
        let paths = report["scenarios"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap().to_owned());
        paths.collect::<Vec<_>>()
    };
    assert_eq!(ran(&[]), ["own/hairpin.yaml", "own/udp.yaml"]);
    assert_eq!(ran(&["--tag", "udp"]), ["own/udp.yaml"]);
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let empty = svclab(folder.path(), &["run", "empty", "--simulate"]);
    ended(&empty, 2);
    assert!(err(&empty).contains("empty has no scenario"), "{}", err(&empty));
    ended(&svclab(folder.path(), &["objects", "own"]), 2);
}

#[test]
fn a_shard_without_work_ends_well_and_its_report_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let command = ["run", "hairpin", "--simulate", "--mode", "iptables", "--json", "report.json"];
    let mut own = Vec::new();
    for shard in ["1/2", "2/2"] {
        ended(&svclab(folder.path(), &[&command[..], &["--shard", shard]].concat()), 0);
        own.push(json(folder.path(), "report.json")["scenarios"].as_array().unwrap().len());
    }
    own.sort_unstable();
    assert_eq!(own, [0, 1]);
}

#[test]
fn the_seeds_of_soaks_are_divided_evenly() {
    let folder = tempfile::tempdir().unwrap();
    let seeds = |shard: &str| {
        // Without a proxy each soak ends before it begins.
        let output = svclab(
            folder.path(),
            &["soak", "--seed", "3..8", "--shard", shard, "--proxy", "nothing-of-this-name", "--kernel", "host"],
        );
        ended(&output, 3);
        out(&output).lines().next().unwrap().to_owned()
    };
    let lines = ["1/2", "2/2"].map(seeds);
    assert_eq!(lines, ["shard 1/2: 3 of 5 seeds: 3, 5, 7", "shard 2/2: 2 of 5 seeds: 4, 6"]);
}
