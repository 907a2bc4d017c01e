//! Tests with `kubectl` 1.20 or newer; skipped without it, except in CI.
//!
//! The document `/openapi/v2` of this API has no schemas, so `kubectl` before 1.25 validates nothing.

use std::path::Path;
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::support::ServedCluster;

const SERVICE: &str = "apiVersion: v1
kind: Service
metadata: {name: app, labels: {tier: front}}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}]
";

const POLICY: &str = "apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: nobody}
spec: {podSelector: {}}
";

/// `None` if `kubectl` is missing.
async fn kubectl(kubeconfig: &Path, arguments: &str, input: &str) -> Option<(bool, String)> {
    let cache = kubeconfig.with_extension("cache");
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(kubeconfig).arg("--cache-dir").arg(cache).args(arguments.split(' '));
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().ok()?;
    child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8(text).unwrap()))
}

#[tokio::test]
async fn kubectl_commands_succeed() {
    let served = ServedCluster::start(true);
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    served.kubeconfig().write(&kubeconfig).unwrap();
    let changed = SERVICE.replace("port: 80", "port: 81");
    for (arguments, input, expected) in [
        ("get svc,endpointslices,nodes -o name", "", "endpointslice.discovery.k8s.io/web-ipv4-0"),
        ("get svc web --no-headers", "", "ClusterIP"),
        ("apply --validate=false -f -", SERVICE, "service/app created"),
        ("apply --validate=false -f -", SERVICE, "service/app unchanged"),
        ("apply --validate=false -f -", changed.as_str(), "service/app configured"),
        ("get svc app -o jsonpath={.spec.ports[0].port}", "", "81"),
        ("get svc -l tier=front,!nothing -o name", "", "service/app"),
        ("label svc app a=b", "", "service/app labeled"),
        ("patch svc app -p {\"spec\":{\"type\":\"NodePort\"}}", "", "service/app patched"),
        ("describe svc app", "", "TargetPort:"),
        ("get endpointslices web-ipv4-0 -o jsonpath={.endpoints[*].addresses[0]}", "", "10.244.2.2"),
        ("wait --for=condition=Ready pod/a --timeout=5s", "", "condition met"),
        ("get pods --watch --request-timeout=1s", "", "Running"),
        ("get svc --chunk-size=1 --no-headers", "", "public"),
        ("create namespace alpha", "", "namespace/alpha created"),
        ("create deployment shop --image=shop:1 --replicas=2", "", "deployment.apps/shop created"),
        ("rollout status deployment/shop --timeout=5s", "", "successfully rolled out"),
        ("drain node-a --force --timeout=5s", "", "node/node-a drained"),
        ("get pods -l app=shop -o jsonpath={.items[*].spec.nodeName}", "", "node-b node-b"),
        ("uncordon node-a", "", "uncordoned"),
        ("delete svc app", "", "deleted"),
    ] {
        let Some((done, text)) = kubectl(&kubeconfig, arguments, input).await else {
            assert!(std::env::var_os("CI").is_none(), "there is no kubectl (Debian package kubernetes-client)");
            return println!("SKIPPED: there is no kubectl (Debian package kubernetes-client)");
        };
        assert!(done && text.contains(expected), "kubectl {arguments}: {text}");
    }
    for (arguments, input, expected) in [
        ("get networkpolicies -A", "", "No resources found"),
        ("get endpoints web --no-headers", "", "10.244.3.2:8080"),
        ("delete endpoints web", "", "the lab makes Endpoints itself"),
        ("apply -f -", POLICY, "the lab enforces no NetworkPolicies"),
        ("apply -f -", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n", "no matches for kind \"ConfigMap\""),
        (
            "apply -f -",
            "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: b}\n",
            "no matches for kind \"PodDisruptionBudget\" in version \"policy/v1\"",
        ),
    ] {
        let (_, text) = kubectl(&kubeconfig, arguments, input).await.unwrap();
        assert!(text.contains(expected), "kubectl {arguments}: {text}");
    }
    let broken = SERVICE.replace("port: 80", "port: 0");
    let (done, text) = kubectl(&kubeconfig, "create --validate=false -f -", &broken).await.unwrap();
    assert!(!done && text.contains("spec.ports[0].port: Invalid value"), "{text}");
}
