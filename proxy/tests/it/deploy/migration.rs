//! The documented commands on kubeadm's ConfigMap, and the patches that keep kube-proxy away.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::{Value, json};
use svcproxy::kubeproxy_config;

/// The non-empty fields of kubeadm's ConfigMap `kube-proxy`.
const CONFIG: &str = r#"apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: 0.0.0.0
clientConnection:
  acceptContentTypes: ""
  burst: 0
  contentType: ""
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
  qps: 0
clusterCIDR: 10.32.0.0/12
hostnameOverride: ""
kind: KubeProxyConfiguration
mode: ""
"#;
const KUBECONFIG: &str = "apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
    server: https://control-plane.example:6443
  name: default
contexts:
- context:
    cluster: default
    namespace: default
    user: default
  name: default
current-context: default
users:
- name: default
  user:
    tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
";

pub fn kubeconfig_fits(text: &str, configured: &str, mounted: &str) {
    let kubeconfig: kube::config::Kubeconfig = serde_saphyr::from_str(text).unwrap();
    let context = kubeconfig.contexts[0].context.as_ref().unwrap();
    assert_eq!(kubeconfig.current_context.as_ref(), Some(&kubeconfig.contexts[0].name));
    assert_eq!(
        (&context.cluster, context.user.as_ref()),
        (&kubeconfig.clusters[0].name, Some(&kubeconfig.auth_infos[0].name))
    );
    assert_eq!(Path::new(configured), Path::new(mounted).join("kubeconfig"));
}

#[test]
fn the_documented_commands_convert_kubeadms_config_map() {
    let readme = std::fs::read_to_string(super::deploy().join("README.md")).unwrap();
    let lines: Vec<&str> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.contains("get configmap kube-proxy"))
        .collect();
    assert_eq!(lines.len(), 2);

    let directory = tempfile::tempdir().unwrap();
    let (here, bin) = (directory.path(), directory.path().join("bin"));
    for file in ["config.yaml", "kubeconfig", "kustomization.yaml"] {
        std::fs::copy(super::deploy().join("overlays/kubeadm").join(file), here.join(file)).unwrap();
    }
    // A fake kubectl answers by the requested key.
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("config"), CONFIG).unwrap();
    std::fs::write(bin.join("kubeconfig"), KUBECONFIG).unwrap();
    let kubectl = r#"#!/bin/sh
[ "$1 $2 $3 $4 $5 $6" = '-n kube-system get configmap kube-proxy -o' ] || exit 1
case $7 in
    'jsonpath={.data.config\.conf}') exec cat "${0%/*}/config" ;;
    'jsonpath={.data.kubeconfig\.conf}') exec cat "${0%/*}/kubeconfig" ;;
    *) exit 1 ;;
esac
"#;
    std::fs::write(bin.join("kubectl"), kubectl).unwrap();
    std::fs::set_permissions(bin.join("kubectl"), PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for line in lines {
        let status = Command::new("sh").args(["-ec", line]).current_dir(here).env("PATH", &path).status().unwrap();
        assert!(status.success(), "{line}");
    }

    let configuration = kubeproxy_config::read(&here.join("config.yaml")).unwrap().configuration;
    assert_eq!(kubeproxy_config::without_effect(&configuration), Vec::<String>::new());
    let kubeconfig = std::fs::read_to_string(here.join("kubeconfig")).unwrap();
    assert!(kubeconfig.contains("https://control-plane.example:6443"));
    kubeconfig_fits(&kubeconfig, &configuration.client_connection.kubeconfig, "/etc/svcproxy");
}

/// Strategic merge equals merge here: the fields are maps, or lists that kubeadm's DaemonSet lacks.
#[test]
fn the_patches_keep_kube_proxy_off_svcproxys_nodes() {
    let patched = |file: &str| {
        let patch: Value =
            serde_saphyr::from_str(&std::fs::read_to_string(super::deploy().join(file)).unwrap()).unwrap();
        let mut daemonset = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "kube-proxy"},
            "spec": {"selector": {"matchLabels": {"k8s-app": "kube-proxy"}}, "template": {
                "metadata": {"labels": {"k8s-app": "kube-proxy"}},
                "spec": {"containers": [{"name": "kube-proxy"}], "nodeSelector": {"kubernetes.io/os": "linux"}},
            }},
        });
        json_patch::merge(&mut daemonset, &patch);
        super::typed::<DaemonSet>(&daemonset).spec.template.spec.unwrap()
    };
    let canary = patched("overlays/canary/kube-proxy.yaml").affinity.unwrap().node_affinity.unwrap();
    let terms = canary.required_during_scheduling_ignored_during_execution.unwrap().node_selector_terms;
    let [term] = &terms[..] else { panic!("one term") };
    let [expression] = &term.match_expressions.as_ref().unwrap()[..] else { panic!("one expression") };
    let built = super::build(&super::deploy().join("overlays/canary"));
    let selected = super::pod(&built).node_selector.unwrap();
    assert_eq!(expression.operator, "NotIn");
    assert_eq!(selected.get(&expression.key).map(std::slice::from_ref), expression.values.as_deref());

    // The second label is on no node.
    let replaced = patched("overlays/kubeadm/kube-proxy.yaml").node_selector.unwrap();
    assert_eq!(replaced.len(), 2, "{replaced:?}");
}
