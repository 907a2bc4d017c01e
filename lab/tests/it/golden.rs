//! The proxy's rules for every scenario's initial objects on the first node, as readable files to review;
//! `INSTA_UPDATE=always` accepts changes.

use std::fs;
use std::path::{Path, PathBuf};

use svclab::mode::Mode;
use svclab::scenario::load;
use svclab_apiserver::objects::publish::publish;
use svcproxy::cli::render::render_to_string;

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    found.sort();
    found
}

/// The slots of a table of consistent hashing that a file shows. A table has a thousand, which a unit test of the proxy
/// pins.
const SHOWN: u32 = 16;

fn without_most_slots(text: &str) -> String {
    let is_left_out = |line: &&str| {
        let (key, endpoint) = line.split_once(" : ")?;
        let slot: u32 = key.rsplit(" . ").next()?.parse().ok()?;
        Some(slot >= SHOWN && endpoint.contains(" . ") && !endpoint.ends_with('}'))
    };
    text.lines().filter(|line| is_left_out(line) != Some(true)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn every_scenario_renders_its_golden_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let scenarios = files(&root);
    assert!(scenarios.len() > 20, "found only {scenarios:?}");
    for path in scenarios {
        let scenario = load(&path, 0).unwrap();
        let objects = tempfile::tempdir().unwrap();
        publish(objects.path(), &scenario.initial_objects().unwrap().list()).unwrap();
        let manifests = objects.path().to_str().unwrap().to_owned();
        let node = scenario.cluster.nodes[0].name.clone();
        let mode = if scenario.modes.contains(&Mode::Iptables) { Mode::Iptables } else { scenario.modes[0] };
        let configuration = tempfile::NamedTempFile::new().unwrap();
        fs::write(configuration.path(), scenario.proxy.configuration(mode, Default::default()).to_string()).unwrap();
        let mut flags = vec!["--manifests".to_owned(), manifests, "--hostname-override".to_owned(), node];
        flags.push(format!("--config={}", configuration.path().display()));
        flags.extend(scenario.proxy.flags());
        let v4 = scenario.cluster.node_network.iter().any(|range| range.addr().is_ipv4());
        let v6 = scenario.cluster.node_network.iter().any(|range| range.addr().is_ipv6());
        if v4 != v6 {
            flags.extend(["--ip-family".to_owned(), if v4 { "ipv4" } else { "ipv6" }.to_owned()]);
        }
        let text = render_to_string(flags).unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
        let name = path.strip_prefix(&root).unwrap().with_extension("").to_string_lossy().replace('/', "-");
        insta::with_settings!({ snapshot_path => "../golden", prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name, without_most_slots(&text));
        });
    }
}
