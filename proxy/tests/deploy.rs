//! What `deploy/` holds is what the API, the program's command line and its configuration take.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Container, PodSpec, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use svcproxy::cli::Cli;
use svcproxy::kubeproxy_config;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn documents(file: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&std::fs::read_to_string(deploy().join(file)).unwrap()).unwrap()
}

/// Reads a document as its type. What the type has no field for would be lost on the way back.
fn typed<T: DeserializeOwned + Serialize>(document: &Value) -> T {
    let object: T = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&object).unwrap(), document);
    object
}

fn daemonset() -> DaemonSet {
    let [document] = &documents("daemonset.yaml")[..] else { panic!("one document") };
    typed(document)
}

fn pod() -> PodSpec {
    daemonset().spec.template.spec.unwrap()
}

fn configuration() -> BTreeMap<String, String> {
    let [document] = &documents("configmap.yaml")[..] else { panic!("one document") };
    let map: ConfigMap = typed(document);
    assert_eq!(pod().volumes.unwrap()[0].config_map.as_ref().unwrap().name, map.metadata.name.unwrap());
    map.data.unwrap()
}

fn containers(pod: &PodSpec) -> impl Iterator<Item = &Container> {
    pod.init_containers.iter().flatten().chain(&pod.containers)
}

/// The command line is one that the program takes.
fn taken(arguments: &[String]) {
    let line = std::iter::once("svcproxy".to_owned()).chain(arguments.iter().cloned());
    let parsed = Cli::command().try_get_matches_from(line);
    assert!(parsed.is_ok(), "{arguments:?}: {}", parsed.unwrap_err());
}

#[test]
fn the_daemonset_selects_its_own_pods_and_mounts_what_it_names() {
    let spec = daemonset().spec;
    assert_eq!(spec.selector.match_labels, spec.template.metadata.unwrap().labels);
    let pod = pod();
    let volumes: BTreeSet<&str> = pod.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
    for container in containers(&pod) {
        for mount in container.volume_mounts.iter().flatten() {
            assert!(volumes.contains(mount.name.as_str()), "{}", mount.name);
        }
        let arguments = container.args.clone().unwrap();
        taken(&arguments);
        assert!(arguments.contains(&"--config=/etc/svcproxy/config.yaml".to_owned()), "{arguments:?}");
    }
}

#[test]
fn the_configuration_is_read_without_a_warning() {
    let data = configuration();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    std::fs::write(&file, &data["config.yaml"]).unwrap();
    let configuration = kubeproxy_config::read(&file).unwrap().configuration;
    assert_eq!(kubeproxy_config::without_effect(&configuration), Vec::<String>::new());
    let config = kubeproxy_config::config(&configuration, "n1".to_owned()).unwrap();
    let port = pod().containers[0].ports.as_ref().unwrap()[0].container_port;
    assert_eq!(config.healthz_bind_address.unwrap().port(), u16::try_from(port).unwrap());

    let kubeconfig: kube::config::Kubeconfig = serde_saphyr::from_str(&data["kubeconfig"]).unwrap();
    let context = kubeconfig.contexts[0].context.as_ref().unwrap();
    assert_eq!(kubeconfig.current_context.as_ref(), Some(&kubeconfig.contexts[0].name));
    assert_eq!(
        (&context.cluster, context.user.as_ref()),
        (&kubeconfig.clusters[0].name, Some(&kubeconfig.auth_infos[0].name))
    );
    let path = Path::new(&configuration.client_connection.kubeconfig).to_owned();
    let mounted = pod().containers[0].volume_mounts.as_ref().unwrap()[0].mount_path.clone();
    assert_eq!(path, Path::new(&mounted).join("kubeconfig"));
}

/// What the source asks for, see `source/kubernetes`.
#[test]
fn the_role_allows_what_the_proxy_asks_and_nothing_else() {
    let [account, role, binding] = &documents("rbac.yaml")[..] else { panic!("three documents") };
    let (account, role): (ServiceAccount, ClusterRole) = (typed(account), typed(role));
    let binding: ClusterRoleBinding = typed(binding);
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
    assert_eq!(pod().service_account_name, account.metadata.name);
    assert_eq!(daemonset().metadata.namespace, account.metadata.namespace);
}

#[test]
fn the_containers_rights_are_those_that_the_program_keeps() {
    let pod = pod();
    let rights = pod.containers[0].security_context.as_ref().unwrap().capabilities.as_ref().unwrap();
    assert_eq!(rights.drop.as_deref(), Some(&["ALL".to_owned()][..]));
    assert_eq!(rights.add.as_deref(), Some(&["NET_ADMIN".to_owned(), "NET_RAW".to_owned()][..]));
}

#[test]
fn the_units_command_line_is_one_that_the_program_takes() {
    let unit = std::fs::read_to_string(deploy().join("svcproxy.service")).unwrap();
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
    assert_eq!(words[0], "/usr/local/bin/svcproxy");
    taken(&words[1..]);
    let descriptors = unit.lines().find_map(|line| line.strip_prefix("LimitNOFILE=")).unwrap();
    assert!(descriptors.parse::<u64>().unwrap() >= 65_536, "systemd's soft limit of 1,024 is none to count on");
    let sections: Vec<&str> = unit.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(sections, ["[Unit]", "[Service]", "[Install]"]);
    let settings = unit.lines().filter(|line| !line.is_empty() && !line.starts_with(['[', '#']));
    assert!(settings.into_iter().all(|line| line.split_once('=').is_some_and(|(_, value)| !value.is_empty())));
}
