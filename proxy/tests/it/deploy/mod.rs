//! `deploy/` is valid for the API, the command line and the configuration.

mod alerts;
mod expression;
mod kustomize;
mod migration;
mod monitoring;
mod repository;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, PodSpec, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use svcproxy::cli::Cli;
use svcproxy::kubeproxy_config;

use kustomize::{BuiltFolder, build};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn folders() -> Vec<(String, PathBuf)> {
    let overlays = deploy().join("overlays").read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = overlays.chain([deploy().join("base")]).collect();
    folders.sort();
    folders.into_iter().map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path)).collect()
}

/// Deserializes the document, and checks that no unknown field was dropped.
fn typed<T: DeserializeOwned + Serialize>(document: &Value) -> T {
    let object: T = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&object).unwrap(), document);
    object
}

fn daemonset(built: &BuiltFolder) -> DaemonSet {
    typed(built.only("DaemonSet"))
}

fn pod(built: &BuiltFolder) -> PodSpec {
    daemonset(built).spec.template.spec.unwrap()
}

fn containers(pod: &PodSpec) -> impl Iterator<Item = &Container> {
    pod.init_containers.iter().flatten().chain(&pod.containers)
}

fn taken(arguments: &[String]) {
    let line = std::iter::once("svcproxy".to_owned()).chain(arguments.iter().cloned());
    let parsed = Cli::command().try_get_matches_from(line);
    assert!(parsed.is_ok(), "{arguments:?}: {}", parsed.unwrap_err());
}

#[test]
fn kubectl_builds_every_folder_equally() {
    for (name, folder) in folders() {
        let Some(documents) = kustomize::by_kubectl(&folder) else { return };
        let own = build(&folder);
        let (maps, mut objects): (Vec<Value>, Vec<Value>) =
            documents.into_iter().partition(|one| one["kind"] == "ConfigMap");
        for map in maps {
            let full = map["metadata"]["name"].as_str().unwrap().to_owned();
            let (short, files) = own
                .files
                .iter()
                .find(|(short, _)| full.starts_with(short.as_str()) && map["data"].get(files_of(short)).is_some())
                .unwrap();
            assert_eq!(
                &serde_json::from_value::<std::collections::BTreeMap<String, String>>(map["data"].clone()).unwrap(),
                files,
                "{name}"
            );
            assert_eq!(full != *short, own.hashed.contains(short), "{name}: {full}");
            // The reference has the hash, so a change of the configuration rolls out.
            for object in &mut objects {
                let volumes = object.pointer_mut("/spec/template/spec/volumes");
                for volume in volumes.into_iter().flat_map(|volumes| volumes.as_array_mut().unwrap()) {
                    if volume["configMap"]["name"] == full.as_str() {
                        volume["configMap"]["name"] = short.as_str().into();
                    }
                }
            }
        }
        let sorted = |documents: &[Value]| {
            let texts: BTreeSet<String> = documents.iter().map(Value::to_string).collect();
            texts
        };
        assert_eq!(sorted(&objects), sorted(&own.documents), "{name}");
    }
}

/// Returns a file that identifies a generated ConfigMap.
fn files_of(name: &str) -> &'static str {
    if name == "svcproxy" { "config.yaml" } else { "dashboard.json" }
}

#[test]
fn every_daemonset_selects_its_own_pods_and_mounts_what_it_names() {
    for (name, folder) in folders() {
        let built = build(&folder);
        let spec = daemonset(&built).spec;
        assert_eq!(spec.selector.match_labels, spec.template.metadata.unwrap().labels);
        let pod = pod(&built);
        let volumes: BTreeSet<&str> = pod.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
        let config = pod.volumes.iter().flatten().find_map(|volume| volume.config_map.as_ref()).unwrap();
        assert!(built.files.contains_key(&config.name) && built.hashed.contains(&config.name), "{name}");
        for container in containers(&pod) {
            let mounts: Vec<&str> = container.volume_mounts.iter().flatten().map(|mount| mount.name.as_str()).collect();
            assert!(mounts.iter().all(|mount| volumes.contains(mount)), "{name}: {mounts:?}");
            let arguments = container.args.clone().unwrap();
            taken(&arguments);
            assert!(arguments.contains(&"--config=/etc/svcproxy/config.yaml".to_owned()), "{arguments:?}");
            let image = container.image.clone().unwrap();
            let legacy = if name == "iptables-legacy" { "-legacy" } else { "" };
            assert_eq!(image, kustomize::published(&format!("svcproxy{legacy}")), "{name}");
        }
        let init: Vec<&str> = pod.init_containers.iter().flatten().map(|container| container.name.as_str()).collect();
        // The check comes before anything is written.
        assert_eq!(init, if name == "kubeadm" { &["check", "prepare"][..] } else { &["prepare"] }, "{name}");
        // Only the tables of legacy iptables need the lock.
        assert_eq!(volumes.contains("xtables-lock"), name == "iptables-legacy", "{name}");
    }
}

#[test]
fn every_configuration_is_read_without_a_warning() {
    for (name, folder) in folders() {
        let (built, directory) = (build(&folder), tempfile::tempdir().unwrap());
        let data = &built.files["svcproxy"];
        let file = directory.path().join("config.yaml");
        std::fs::write(&file, &data["config.yaml"]).unwrap();
        let read = kubeproxy_config::read(&file).unwrap();
        assert!(read.ignored.is_empty(), "{name}: {:?}", read.ignored);
        let configuration = read.configuration;
        assert_eq!(kubeproxy_config::without_effect(&configuration), Vec::<String>::new(), "{name}");
        let config = kubeproxy_config::config(&configuration, "n1".to_owned()).unwrap();
        let mode = match name.as_str() {
            "k3s" | "nftables" => "nftables",
            "ipvs" | "userspace" => &name,
            _ => "iptables",
        };
        assert_eq!(config.mode.to_string(), mode, "{name}");
        let pod = pod(&built);
        let ports = pod.containers[0].ports.as_ref().unwrap();
        let port = |name: &str| ports.iter().find(|port| port.name.as_deref() == Some(name)).unwrap().container_port;
        assert_eq!(i32::from(config.healthz_bind_address.unwrap().port()), port("healthz"));
        assert_eq!(i32::from(config.metrics_bind_address.unwrap().port()), port("metrics"));
        let mounted = pod.containers[0].volume_mounts.as_ref().unwrap()[0].mount_path.clone();
        migration::kubeconfig_fits(&data["kubeconfig"], &configuration.client_connection.kubeconfig, &mounted);
    }
}

#[test]
fn the_role_allows_exactly_the_proxys_requests() {
    let built = build(&deploy().join("base"));
    let (account, role): (ServiceAccount, ClusterRole) =
        (typed(built.only("ServiceAccount")), typed(built.only("ClusterRole")));
    let binding: ClusterRoleBinding = typed(built.only("ClusterRoleBinding"));
    let mut allowed: Vec<String> = Vec::new();
    for rule in role.rules.unwrap() {
        for resource in rule.resources.unwrap() {
            allowed.push(format!(
                "{}/{resource} {}",
                rule.api_groups.as_ref().unwrap().join(","),
                rule.verbs.join(",")
            ));
        }
    }
    assert_eq!(
        allowed,
        [
            "/nodes list,watch",
            "/services list,watch",
            "discovery.k8s.io/endpointslices list,watch",
            "networking.k8s.io/servicecidrs list,watch",
            "events.k8s.io/events create"
        ]
    );
    let subject = &binding.subjects.unwrap()[0];
    assert_eq!(Some(&binding.role_ref.name), role.metadata.name.as_ref());
    assert_eq!(
        (Some(&subject.name), &subject.namespace),
        (account.metadata.name.as_ref(), &account.metadata.namespace)
    );
    assert_eq!(pod(&built).service_account_name, account.metadata.name);
    assert_eq!(daemonset(&built).metadata.namespace, account.metadata.namespace);
}

#[test]
fn the_container_has_the_capabilities_that_the_program_keeps() {
    for (name, folder) in folders() {
        let pod = pod(&build(&folder));
        let [container] = &pod.containers[..] else { panic!("{name}: one container") };
        for any in containers(&pod) {
            let requests = any.resources.as_ref().unwrap().requests.as_ref().unwrap();
            assert!(requests.contains_key("cpu") && requests.contains_key("memory"), "{name}: {}", any.name);
            assert_eq!(
                any.security_context.as_ref().unwrap().read_only_root_filesystem,
                Some(true),
                "{name}: {}",
                any.name
            );
        }
        let context = container.security_context.as_ref().unwrap();
        let rights = context.capabilities.as_ref().unwrap();
        assert_eq!(rights.drop.as_deref(), Some(&["ALL".to_owned()][..]), "{name}");
        let needed: &[&str] = if name == "iptables-legacy" { &["NET_ADMIN", "NET_RAW"] } else { &["NET_ADMIN"] };
        assert_eq!(rights.add.as_deref().unwrap(), needed, "{name}");
        let profile = pod.security_context.as_ref().unwrap().seccomp_profile.as_ref().unwrap();
        assert_eq!(profile.type_, "RuntimeDefault", "{name}");
        assert_eq!((context.privileged, context.read_only_root_filesystem), (None, Some(true)), "{name}");
    }
}

#[test]
fn the_program_accepts_the_units_command_line() {
    let unit = std::fs::read_to_string(deploy().join("svcproxy.service")).unwrap();
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
    assert_eq!(words[0], "svcproxy");
    taken(&words[1..]);
    let descriptors = unit.lines().find_map(|line| line.strip_prefix("LimitNOFILE=")).unwrap();
    assert!(descriptors.parse::<u64>().unwrap() >= 65_536, "systemd's soft limit of 1,024 is none to count on");
    for restarts in ["Restart=always", "StartLimitIntervalSec=0"] {
        assert!(unit.lines().any(|line| line == restarts), "systemd gives up without {restarts}");
    }
    let sections: Vec<&str> = unit.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(sections, ["[Unit]", "[Service]", "[Install]"]);
    let settings = unit.lines().filter(|line| !line.is_empty() && !line.starts_with(['[', '#']));
    assert!(settings.into_iter().all(|line| line.split_once('=').is_some_and(|(_, value)| !value.is_empty())));
}

#[test]
fn the_state_files_directory_is_the_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let [base, component] = ["base", "components/state-file"].map(|name| deploy().join(name).canonicalize().unwrap());
    let text = serde_json::json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": "kube-system",
        "resources": [base], "components": [component]});
    std::fs::write(folder.path().join("kustomization.yaml"), text.to_string()).unwrap();
    let pod = pod(&build(folder.path()));
    let volume = pod.volumes.iter().flatten().find(|volume| volume.host_path.is_some()).unwrap();
    let mounts = pod.containers[0].volume_mounts.as_ref().unwrap();
    let mount = mounts.iter().find(|mount| mount.name == volume.name).unwrap();
    assert_eq!((volume.host_path.as_ref().unwrap().path.as_str(), mount.read_only), (&mount.mount_path[..], None));
    let said = std::fs::read_to_string(component.join("kustomization.yaml")).unwrap();
    let path = said.lines().find_map(|line| line.strip_prefix("#       path: ")).unwrap();
    assert_eq!(Path::new(path).parent(), Some(Path::new(&mount.mount_path)));
}

/// By systemd's own measure, from 0 to 10; `--threshold` takes tenths. Outside CI the test skips without systemd-analyze.
#[test]
fn the_unit_leaves_little_exposed() {
    let unit = deploy().join("svcproxy.service");
    let mut command = std::process::Command::new("systemd-analyze");
    let output = match command.args(["security", "--offline=yes", "--no-pager", "--threshold=30"]).arg(unit).output() {
        Ok(output) => output,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "systemd-analyze: {error}");
            eprintln!("NOT RUN: systemd-analyze: {error}");
            return;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("Overall exposure level"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
