//! `deploy/auditor/`, `deploy/lab-job/` and the kubectl plugin fit the program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, Namespace, PodSpec};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::support::{finish, said};
use kustomize::{BuiltFolder, build};

#[path = "../../../proxy/tests/it/deploy/expression.rs"]
mod expression;
#[path = "../../../proxy/tests/it/deploy/kustomize.rs"]
mod kustomize;

const PORT: i32 = 10289;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn folder(name: &str) -> PathBuf {
    root().join("deploy/auditor").join(name)
}

/// Deserializes the document, and checks that no unknown field was dropped.
fn typed<T: DeserializeOwned + Serialize>(document: &Value) -> T {
    let object: T = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&object).unwrap(), document);
    object
}

fn pod(built: &BuiltFolder) -> PodSpec {
    typed::<DaemonSet>(built.only("DaemonSet")).spec.template.spec.unwrap()
}

fn container(built: &BuiltFolder) -> Container {
    let [container] = &pod(built).containers[..] else { panic!("one container") };
    container.clone()
}

#[test]
fn kubectl_builds_the_auditor_equally() {
    for name in ["base", "monitored"] {
        let Some(documents) = kustomize::by_kubectl(&folder(name)) else { return };
        let own = build(&folder(name));
        let (maps, objects): (Vec<Value>, Vec<Value>) =
            documents.into_iter().partition(|one| one["kind"] == "ConfigMap");
        let sorted = |all: &[Value]| all.iter().map(Value::to_string).collect::<BTreeSet<_>>();
        assert_eq!(sorted(&objects), sorted(&own.documents), "{name}");
        assert_eq!(maps.len(), own.files.len());
        for map in maps {
            let files: BTreeMap<String, String> = serde_json::from_value(map["data"].clone()).unwrap();
            assert_eq!(own.files[map["metadata"]["name"].as_str().unwrap()], files);
        }
    }
}

#[test]
fn the_auditor_has_the_least_rights_that_reading_rules_needs() {
    let built = build(&folder("base"));
    let pod = pod(&built);
    assert_eq!((pod.host_network, pod.host_pid, pod.host_ipc), (Some(true), None, None));
    assert!(pod.volumes.is_none() && pod.init_containers.is_none());
    let context = container(&built).security_context.unwrap();
    let rights = context.capabilities.unwrap();
    assert_eq!(rights.drop.as_deref(), Some(&["ALL".to_owned()][..]));
    assert_eq!(rights.add.as_deref(), Some(&["BPF", "NET_ADMIN", "NET_RAW"].map(str::to_owned)[..]));
    let flags = (context.privileged, context.read_only_root_filesystem, context.allow_privilege_escalation);
    assert_eq!(flags, (None, Some(true), Some(false)));
}

#[test]
fn the_program_accepts_the_containers_arguments() {
    for (name, address) in [("base", "127.0.0.1"), ("monitored", "0.0.0.0")] {
        let built = build(&folder(name));
        let container = container(&built);
        assert_eq!(container.image.unwrap(), kustomize::published("svclab"));
        let arguments = container.args.unwrap();
        assert!(arguments.contains(&format!("--listen={address}:{PORT}")), "{arguments:?}");
        // Help is printed only after the arguments before it are accepted.
        let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
        command.args(&arguments).arg("--help");
        let output = finish(command, Duration::from_secs(60));
        assert!(output.status.success(), "{}", said(&output));
        let port = container.ports.unwrap().into_iter().find(|port| port.name.as_deref() == Some("metrics")).unwrap();
        assert_eq!(port.container_port, PORT);
        // With the host's network the kubelet would ask the node's address.
        let probe = container.readiness_probe.unwrap().http_get.unwrap();
        assert_eq!((probe.host.as_deref(), probe.path.as_deref()), (Some("127.0.0.1"), Some("/healthz")));
    }
}

#[test]
fn the_roles_allow_exactly_the_auditors_requests() {
    let built = build(&folder("base"));
    let lines = |rules: Vec<PolicyRule>| {
        let line = |rule: PolicyRule| {
            let names = rule.resource_names.unwrap_or_default().join(",");
            let resources = rule.resources.unwrap().join(",");
            format!("{}/{resources} {names} {}", rule.api_groups.unwrap().join(","), rule.verbs.join(","))
        };
        rules.into_iter().map(line).collect::<Vec<_>>()
    };
    let role: ClusterRole = typed(built.only("ClusterRole"));
    let expected = [
        "/nodes,services  list,watch",
        "discovery.k8s.io/endpointslices  list,watch",
        "networking.k8s.io/servicecidrs  list,watch",
        "events.k8s.io/events  create",
    ];
    assert_eq!(lines(role.rules.unwrap()), expected);
    let role: Role = typed(built.only("Role"));
    assert_eq!(lines(role.rules.unwrap()), ["/configmaps kube-proxy get"]);
    for binding in ["ClusterRoleBinding", "RoleBinding"] {
        let subject = &built.only(binding)["subjects"][0];
        assert_eq!(subject["name"], pod(&built).service_account_name.unwrap(), "{binding}");
        assert_eq!(subject["namespace"], built.only("ServiceAccount")["metadata"]["namespace"]);
    }
}

/// The names of metrics in the program's source.
fn served() -> BTreeMap<String, bool> {
    let text = std::fs::read_to_string(root().join("lab/src/cli/audit/status.rs")).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap();
    let literals = code.split('"').skip(1).step_by(2);
    let is_name = |text: &&str| {
        ["svclab_audit", "process_"].iter().any(|start| text.starts_with(start))
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    literals.filter(is_name).map(|name| (name.to_owned(), false)).collect()
}

#[test]
fn alerts_and_dashboard_of_the_auditor_read_existing_metrics() {
    let (served, built) = (served(), build(&folder("monitored")));
    assert!(served.len() >= 14, "{served:?}");
    let groups = built.only("PrometheusRule")["spec"]["groups"].as_array().unwrap();
    let rules: Vec<&Value> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    assert!(rules.len() >= 5);
    for rule in rules {
        expression::check(rule["expr"].as_str().unwrap(), &served);
        assert!(["critical", "warning", "info"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{rule}");
        for annotation in ["summary", "description"] {
            assert!(rule["annotations"][annotation].as_str().is_some_and(|text| text.ends_with('.')), "{rule}");
        }
    }
    let dashboard: Value = serde_json::from_str(&built.files["svclab-auditor-dashboard"]["dashboard.json"]).unwrap();
    assert!(built.hashed.is_empty(), "Grafana's sidecar would keep the old dashboard beside the new");
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        for target in panel["targets"].as_array().unwrap() {
            expression::check(target["expr"].as_str().unwrap(), &served);
        }
    }
    let query = dashboard["templating"]["list"][1]["query"]["query"].as_str().unwrap();
    let metric = query.strip_prefix("label_values(").unwrap().split(',').next().unwrap();
    expression::check(metric, &served);
}

#[test]
fn the_monitor_selects_the_auditors() {
    let built = build(&folder("monitored"));
    let (monitor, daemonset) = (built.only("PodMonitor"), &built.only("DaemonSet")["spec"]);
    assert_eq!(monitor["spec"]["selector"], daemonset["selector"]);
    assert_eq!(daemonset["selector"]["matchLabels"], daemonset["template"]["metadata"]["labels"]);
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!((&endpoint["port"], &endpoint["relabelings"][0]["targetLabel"]), (&"metrics".into(), &"node".into()));
    let [namespace, name] = ["namespace", "name"].map(|key| monitor["metadata"][key].as_str().unwrap());
    let job = format!("job=\\\"{namespace}/{name}\\\"");
    assert!(built.only("PrometheusRule").to_string().contains(&job), "{job}");
    let dashboard = &built.files["svclab-auditor-dashboard"]["dashboard.json"];
    assert!(dashboard.contains(&job), "{job}");
}

/// `deploy/lab-job`: a pod's command, with the index of a pod, runs its shard and has a status that the Job takes for success.
#[test]
fn each_pod_of_the_job_runs_its_shard() {
    let folder = root().join("deploy/lab-job");
    let built = build(&folder);
    if let Some(documents) = kustomize::by_kubectl(&folder) {
        let sorted = |all: &[Value]| all.iter().map(Value::to_string).collect::<BTreeSet<_>>();
        assert_eq!(sorted(&documents), sorted(&built.documents));
    }
    let namespace: Namespace = typed(built.only("Namespace"));
    let job: Job = typed(built.only("Job"));
    assert_eq!(job.metadata.namespace, namespace.metadata.name);
    let spec = job.spec.unwrap();
    assert_eq!(spec.completion_mode.as_deref(), Some("Indexed"));
    let [container] = &spec.template.spec.unwrap().containers[..] else { panic!("one container") };
    assert_eq!(container.image.as_deref(), Some(kustomize::published("svclab-lab").as_str()));
    let value =
        |name: &str| container.env.iter().flatten().find(|one| one.name == name).unwrap().value.clone().unwrap();
    let shards = value("SHARDS");
    assert_eq!(spec.completions.map(|number| number.to_string()), Some(shards.clone()));
    assert_eq!(container.command.as_deref(), Some(&["/bin/sh", "-c"].map(str::to_owned)[..]));
    let [script] = container.args.as_deref().unwrap() else { panic!("one argument") };

    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    assert!(script.contains("2>/dev/termination-log"));
    let script = script.replace("/dev/termination-log", log.to_str().unwrap());
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_svclab"), directory.path().join("svclab")).unwrap();
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let run = |index: &str, scenarios: &str| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script]).env("PATH", &path).env("JOB_COMPLETION_INDEX", index);
        command.env("SHARDS", &shards).env("SCENARIOS", scenarios);
        finish(command, Duration::from_secs(100))
    };
    let mut ran = 0;
    for index in ["0", "7"] {
        // Simulated, because the program and not the kernel is tested here.
        let output = run(index, "hairpin udp --simulate");
        assert!(output.status.success(), "{}", std::fs::read_to_string(&log).unwrap());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["shard"]["number"], index.parse::<u64>().unwrap() + 1);
        ran += report["scenarios"].as_array().unwrap().len();
    }
    assert!(ran < 8, "a shard is a part of both scenarios in four modes");
    assert!(!run("0", "no-such-scenario").status.success());
    assert!(std::fs::read_to_string(&log).unwrap().contains("no-such-scenario"));
}

#[test]
fn kubectl_runs_svclab_as_a_plugin() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = directory.path().join("kubectl-svclab");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_svclab"), &plugin).unwrap();
    let mut command = Command::new(&plugin);
    command.args(["audit", "--help"]);
    let output = finish(command, Duration::from_secs(60));
    assert!(said(&output).contains("Usage: kubectl svclab audit"), "{}", said(&output));
    let mut kubectl = Command::new("kubectl");
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    kubectl.env("PATH", path).args(["svclab", "audit", "no-such.tar"]);
    if kubectl.output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "there is no kubectl here");
        return;
    }
    let output = finish(kubectl, Duration::from_secs(60));
    assert!(said(&output).contains("svclab: no-such.tar: cannot be read"), "{}", said(&output));
}

#[test]
fn the_krew_manifest_has_the_archives_of_a_release() {
    let directory = tempfile::tempdir().unwrap();
    let krew = || {
        let mut command = Command::new(root().join(".ci/krew"));
        command.arg(directory.path()).arg("https://github.com/owner/repository/releases/download/v0.1.0");
        finish(command, Duration::from_secs(60))
    };
    assert!(!krew().status.success(), "there are no archives");
    let version = env!("CARGO_PKG_VERSION");
    for architecture in ["amd64", "arm64"] {
        std::fs::write(directory.path().join(format!("svcproxy_{version}_linux_{architecture}.tar.gz")), "x").unwrap();
    }
    let output = krew();
    assert!(output.status.success(), "{}", said(&output));
    let manifest: Value = serde_saphyr::from_str(&String::from_utf8(output.stdout).unwrap()).unwrap();
    assert_eq!(manifest["metadata"]["name"], "svclab", "krew links it as kubectl-svclab");
    assert_eq!(manifest["spec"]["version"], format!("v{version}"));
    assert_eq!(manifest["spec"]["homepage"], "https://github.com/owner/repository");
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    let architectures: Vec<&Value> = platforms.iter().map(|one| &one["selector"]["matchLabels"]["arch"]).collect();
    assert_eq!(architectures, ["amd64", "arm64"]);
    for platform in platforms {
        // The checksum of "x".
        assert_eq!(platform["sha256"], "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881");
        let uri = platform["uri"].as_str().unwrap();
        assert!(uri.starts_with("https://github.com/owner/repository/releases/download/v0.1.0/svcproxy_"), "{uri}");
        assert_eq!(platform["bin"], "svclab");
    }
}
