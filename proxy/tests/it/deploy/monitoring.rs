//! Alerts and the dashboard read metrics that the program has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use svcproxy::metrics::Metrics;
use svcproxy::model::Family;

use super::expression::{check, read_by};

/// Returns the metrics of the program and a library, and whether each is a histogram.
fn served() -> BTreeMap<String, bool> {
    let (mut served, mut folders) = (BTreeMap::new(), vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")]);
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            let mut before = "";
            for (position, literal) in code.split('"').enumerate() {
                let is_name = ["kubeproxy_", "svcproxy_", "kubernetes_", "rest_client_"]
                    .iter()
                    .any(|start| literal.starts_with(start));
                if position % 2 == 1 && is_name && literal.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
                {
                    served.insert(literal.to_owned(), before.trim_end().ends_with("histograms("));
                }
                before = literal;
            }
        }
    }
    let text = Metrics::new(&[Family::V4]).unwrap().text().unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE process_")?.split(' ').next());
    served.extend(names.map(|name| (format!("process_{name}"), false)));
    served
}

#[test]
fn metrics_of_an_expression_are_found() {
    let names = |text: &str| read_by(text).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(
        names(r#"sum by (le, node) (rate(a_total{node=~"x", b="c"}[5m])) / b_c > 1 or up == 0"#),
        "a_total b_c up"
    );
    let served = served();
    assert_eq!(served.get("kubeproxy_network_programming_duration_seconds"), Some(&true));
    assert_eq!(served.get("svcproxy_applied_resource_version"), Some(&false));
    assert_eq!(served.get("process_resident_memory_bytes"), Some(&false));
    assert!(served.len() > 40, "{served:?}");
    for wrong in
        ["kubeproxy_network_programming_duration_seconds", "kubeproxy_proxy_healthz_total_bucket", "svcproxy_nothing"]
    {
        assert!(std::panic::catch_unwind(|| check(wrong, &served)).is_err(), "{wrong}");
    }
}

#[test]
fn alerts_read_existing_metrics() {
    let served = served();
    let built = super::kustomize::build(&super::deploy().join("overlays/monitored"));
    let groups = &built.only("PrometheusRule")["spec"]["groups"];
    let rules: Vec<&Value> =
        groups.as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    assert!(rules.len() >= 5);
    for rule in rules {
        check(rule["expr"].as_str().unwrap(), &served);
        assert!(["critical", "warning", "info"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{rule}");
        for annotation in ["summary", "description"] {
            assert!(rule["annotations"][annotation].as_str().is_some_and(|text| text.ends_with('.')), "{rule}");
        }
    }
}

#[test]
fn the_dashboard_reads_existing_metrics() {
    let served = served();
    let built = super::kustomize::build(&super::deploy().join("overlays/monitored"));
    let dashboard: Value = serde_json::from_str(&built.files["svcproxy-dashboard"]["dashboard.json"]).unwrap();
    assert!(
        !built.hashed.contains(&"svcproxy-dashboard".to_owned()),
        "Grafana's sidecar would keep the old one beside the new"
    );
    let panels = dashboard["panels"].as_array().unwrap();
    let mut seen = BTreeSet::new();
    for panel in panels {
        assert!(seen.insert(panel["id"].as_u64().unwrap()), "{panel}");
        for target in panel["targets"].as_array().unwrap() {
            check(target["expr"].as_str().unwrap(), &served);
        }
    }
    assert!(panels.len() > 10);
    let query = dashboard["templating"]["list"][1]["query"]["query"].as_str().unwrap();
    let metric = query.strip_prefix("label_values(").unwrap().split(',').next().unwrap();
    check(metric, &served);
}

#[test]
fn the_monitor_selects_the_pods_and_names_a_port_that_they_have() {
    let built = super::kustomize::build(&super::deploy().join("overlays/monitored"));
    let (monitor, daemonset) = (&built.only("PodMonitor")["spec"], &built.only("DaemonSet")["spec"]);
    assert_eq!(monitor["selector"], daemonset["selector"]);
    let endpoint = &monitor["podMetricsEndpoints"][0];
    let ports = daemonset["template"]["spec"]["containers"][0]["ports"].as_array().unwrap();
    let port = ports.iter().find(|port| port["name"] == endpoint["port"]).unwrap();
    let config: Value = serde_saphyr::from_str(&built.files["svcproxy"]["config.yaml"]).unwrap();
    assert_eq!(config["metricsBindAddress"].as_str().unwrap(), format!("0.0.0.0:{}", port["containerPort"]));
    // The operator makes the job's name from namespace and name.
    let (namespace, name) =
        (&built.only("PodMonitor")["metadata"]["namespace"], &built.only("PodMonitor")["metadata"]["name"]);
    let job = format!("{}/{}", namespace.as_str().unwrap(), name.as_str().unwrap());
    let rules = built.only("PrometheusRule").to_string();
    assert!(rules.contains(&format!(r#"up{{job=\"{job}\"}}"#)), "{job}: {rules}");
    assert!(rules.contains("$labels.node") && endpoint["relabelings"][0]["targetLabel"] == "node");
}
