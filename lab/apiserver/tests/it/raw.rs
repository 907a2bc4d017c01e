use std::io::Read;

use bytes::Bytes;
use flate2::read::GzDecoder;
use hyper::Request;
use hyper::http::response::Parts;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::support::ServedCluster;

const TABLE: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
pub(super) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

pub(super) async fn ask(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Value) {
    let (head, bytes) = send(client, method, path, headers, body.as_bytes()).await;
    (head.status.as_u16(), serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))))
}

pub(super) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> (Parts, Bytes) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_vec())).unwrap();
    let (head, body) = client.send(request).await.unwrap().into_parts();
    (head, body.collect_bytes().await.unwrap())
}

pub(super) async fn get(client: &Client, path: &str, accept: &str) -> (u16, Value) {
    ask(client, "GET", path, &[("accept", accept)], "").await
}

#[tokio::test]
async fn a_table_has_the_columns_of_kubectl() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    let mut shown = String::new();
    for path in ["/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices", "/api/v1/nodes", "/api/v1/pods"] {
        let (code, table) = get(&client, &format!("{path}?limit=500"), TABLE).await;
        assert_eq!((code, &table["kind"], &table["apiVersion"]), (200, &json!("Table"), &json!("meta.k8s.io/v1")));
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        let columns = table["columnDefinitions"].as_array().unwrap();
        let names: Vec<&str> = columns.iter().map(|column| column["name"].as_str().unwrap()).collect();
        shown.push_str(&format!("{}\n", names.join(" | ")));
        for row in table["rows"].as_array().unwrap() {
            let cells = row["cells"].as_array().unwrap().iter().zip(&names);
            let cells = cells.map(|(cell, name)| if *name == "Age" { "AGE" } else { cell.as_str().unwrap() });
            shown.push_str(&format!("{}\n", cells.collect::<Vec<_>>().join(" | ")));
        }
    }
    insta::assert_snapshot!(shown);
    let (_, one) = get(&client, "/api/v1/namespaces/default/services/web", TABLE).await;
    assert_eq!(one["rows"].as_array().unwrap().len(), 1);
    let (_, whole) = get(&client, "/api/v1/services?includeObject=Object", TABLE).await;
    assert_eq!(whole["rows"][0]["object"]["kind"], "Service");
}

#[tokio::test]
async fn discovery_lists_every_resource() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    for (path, kind) in [
        ("/api", "APIVersions"),
        ("/apis", "APIGroupList"),
        ("/apis/discovery.k8s.io", "APIGroup"),
        ("/api/v1", "APIResourceList"),
        ("/apis/coordination.k8s.io/v1", "APIResourceList"),
    ] {
        let (code, answer) = get(&client, path, aggregated).await;
        assert_eq!((code, &answer["kind"]), (200, &json!(kind)), "{path}");
    }
    let (_, list) = get(&client, "/api/v1", "application/json").await;
    let names: Vec<&str> =
        list["resources"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    let expected = [
        "endpoints",
        "events",
        "namespaces",
        "namespaces/status",
        "nodes",
        "nodes/status",
        "pods",
        "pods/eviction",
        "pods/status",
        "services",
        "services/status",
    ];
    assert_eq!(names, expected);
    assert_eq!(get(&client, "/healthz", "*/*").await, (200, json!("ok")));
    assert_eq!(get(&client, "/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf").await.0, 200);
    let (_, document) = get(&client, "/openapi/v3/api/v1", "application/json").await;
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/services/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Service");
}

#[tokio::test]
async fn a_deployment_is_scaled_by_its_sub_resource() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    let all = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "shop"}, "spec": {
        "selector": {"matchLabels": {"app": "shop"}},
        "template": {"metadata": {"labels": {"app": "shop"}}, "spec": {"containers": [{"name": "c", "image": "a"}]}},
    }});
    let (code, made) = ask(&client, "POST", all, &[], &deployment.to_string()).await;
    assert_eq!((code, &made["spec"]["replicas"]), (201, &json!(1)), "{made}");
    let scale = format!("{all}/shop/scale");
    let merge = [("content-type", "application/merge-patch+json")];
    let (code, scaled) = ask(&client, "PATCH", &scale, &merge, r#"{"spec":{"replicas":3}}"#).await;
    assert_eq!((code, &scaled["kind"], &scaled["spec"]["replicas"]), (200, &json!("Scale"), &json!(3)), "{scaled}");
    let (_, seen) = get(&client, &scale, "*/*").await;
    assert_eq!(seen["status"], json!({"replicas": 3, "selector": "app=shop"}), "{seen}");
    let (_, pods) = get(&client, "/api/v1/namespaces/default/pods?labelSelector=app%3Dshop", "*/*").await;
    assert_eq!(pods["items"].as_array().unwrap().len(), 3);
    let mut anew = seen;
    anew["spec"]["replicas"] = json!(0);
    assert_eq!(ask(&client, "PUT", &scale, &[], &anew.to_string()).await.0, 200);
    // The body still has the previous version.
    assert_eq!(ask(&client, "PUT", &scale, &[], &scaled.to_string()).await.0, 409);
    assert_eq!(ask(&client, "PATCH", &scale, &merge, r#"{"spec":{"replicas":-1}}"#).await.0, 400);
    let strategic = [("content-type", "application/strategic-merge-patch+json")];
    let image = r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"b"}]}}}}"#;
    let (code, patched) = ask(&client, "PATCH", &format!("{all}/shop"), &strategic, image).await;
    assert_eq!((code, &patched["metadata"]["generation"]), (200, &json!(4)), "{patched}");
    let (_, table) = get(&client, all, TABLE).await;
    assert_eq!(table["rows"][0]["cells"][1], "0/0", "{table}");
}

#[tokio::test]
async fn an_evicted_pod_is_replaced_on_a_node_that_is_not_cordoned() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    let deployment = json!({"metadata": {"name": "shop"}, "spec": {
        "selector": {"matchLabels": {"app": "shop"}},
        "template": {"metadata": {"labels": {"app": "shop"}}, "spec": {"containers": [{"name": "c", "image": "a"}]}},
    }});
    ask(&client, "POST", "/apis/apps/v1/namespaces/default/deployments", &[], &deployment.to_string()).await;
    let shop = async || get(&client, "/api/v1/pods?labelSelector=app%3Dshop", "*/*").await.1["items"][0].clone();
    let pod = shop().await;
    let (name, node) = (pod["metadata"]["name"].as_str().unwrap(), pod["spec"]["nodeName"].as_str().unwrap());
    let merge = [("content-type", "application/merge-patch+json")];
    ask(&client, "PATCH", &format!("/api/v1/nodes/{node}"), &merge, r#"{"spec":{"unschedulable":true}}"#).await;
    let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
    let eviction = |name: &str, options: Value| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options});
    for (name, options, expected) in [
        ("other", json!(null), 400),
        (name, json!({"preconditions": {"uid": "other"}}), 409),
        (name, json!({"dryRun": ["All"]}), 201),
        (name, json!(null), 201),
        (name, json!(null), 404),
    ] {
        let (code, status) = ask(&client, "POST", &path, &[], &eviction(name, options).to_string()).await;
        assert_eq!(
            (code, &status["kind"], &status["code"]),
            (expected, &json!("Status"), &json!(expected)),
            "{status}"
        );
    }
    let new = shop().await;
    assert!(new["metadata"]["name"] != name && new["spec"]["nodeName"] != node, "{new}");
}

#[tokio::test]
async fn a_kubelet_sub_resource_gets_501_with_an_alternative() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    for (method, asked, instead) in [
        ("GET", "log?container=web", "`svclab logs NODE`"),
        ("POST", "exec?command=true", "`svclab exec pod/default/a -- COMMAND`"),
        ("GET", "attach", "`svclab exec pod/default/a -- COMMAND`"),
        ("POST", "portforward", "`svclab exec pod/default/a -- curl "),
    ] {
        let path = format!("/api/v1/namespaces/default/pods/a/{asked}");
        let (code, status) = ask(&client, method, &path, &[], "").await;
        assert_eq!((code, &status["kind"], &status["reason"]), (501, &json!("Status"), &json!("NotImplemented")));
        assert!(status["message"].as_str().unwrap().contains(instead), "{status}");
    }
}

#[tokio::test]
async fn unsupported_requests_get_the_code_that_makes_clients_fall_back() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    let both = format!("{PROTOBUF},application/json");
    let services = "/api/v1/namespaces/default/services";
    let strategic = "application/strategic-merge-patch+json";
    for (method, path, headers, body, expected) in [
        ("GET", "/api/v1", vec![("accept", PROTOBUF)], "", 406),
        ("GET", "/api/v1", vec![("accept", both.as_str())], "", 200),
        ("GET", services, vec![("accept", "application/yaml")], "", 406),
        ("POST", services, vec![("content-type", "application/yaml")], "kind: Service", 415),
        ("POST", services, vec![("content-type", PROTOBUF)], "{}", 400),
        ("PATCH", services, vec![("content-type", strategic)], "{}", 405),
        (
            "PATCH",
            "/api/v1/namespaces/default/services/web",
            vec![("content-type", "application/apply-patch+yaml")],
            "{}",
            415,
        ),
        ("PATCH", "/api/v1/namespaces/default/services/web", vec![("content-type", strategic)], "[]", 400),
        ("POST", services, vec![("content-type", "application/json")], "{", 400),
        ("POST", "/api/v1/services", vec![], "{}", 405),
        ("POST", "/version", vec![], "{}", 405),
        ("GET", "/api/v1/configmaps", vec![], "", 404),
        ("GET", "/apis/apps/v1/statefulsets", vec![], "", 404),
        ("GET", "/api/v1/services?fieldSelector=spec.nodeName%3Da", vec![], "", 400),
        ("GET", "/api/v1/services?resourceVersionMatch=Exact", vec![], "", 422),
        ("DELETE", "/api/v1/namespaces/default/services/none", vec![], "", 404),
    ] {
        let (code, status) = ask(&client, method, path, &headers, body).await;
        assert_eq!(code, expected, "{method} {path}: {status}");
        if expected != 200 {
            assert_eq!(
                (&status["kind"], &status["status"], &status["code"]),
                (&json!("Status"), &json!("Failure"), &json!(code))
            );
        }
    }
    let huge = format!("{{\"metadata\": {{\"name\": \"{}\"}}}}", "x".repeat(4 << 20));
    assert_eq!(ask(&client, "POST", services, &[], &huge).await.0, 413);
}

#[tokio::test]
async fn a_large_answer_is_compressed_on_request() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    for number in 0..30 {
        let annotations = json!({"text": "x".repeat(8 << 10)});
        let lease = json!({"metadata": {"name": format!("l{number}"), "annotations": annotations}});
        let all = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
        assert_eq!(ask(&client, "POST", all, &[], &lease.to_string()).await.0, 201);
    }
    let leases = "/apis/coordination.k8s.io/v1/leases";
    let list = async |path: &str, accept: &str, encoding: &str| {
        let headers = [("accept", accept), ("accept-encoding", encoding)];
        let (head, bytes) = send(&client, "GET", path, &headers, b"").await;
        (head.headers.get("content-encoding").map(|value| value.to_str().unwrap().to_owned()), bytes)
    };
    for accept in ["application/json", PROTOBUF] {
        let (encoding, whole) = list(leases, accept, "identity").await;
        assert!(encoding.is_none() && whole.len() > 128 << 10);
        let (encoding, compressed) = list(leases, accept, "deflate, gzip").await;
        assert_eq!(encoding.as_deref(), Some("gzip"));
        let mut unpacked = Vec::new();
        GzDecoder::new(&compressed[..]).read_to_end(&mut unpacked).unwrap();
        assert!(compressed.len() < whole.len() / 10 && unpacked == whole, "{} bytes", compressed.len());
    }
    assert_eq!(list("/apis/coordination.k8s.io/v1/leases?limit=3", PROTOBUF, "gzip").await.0, None, "small");
    assert_eq!(list("/apis/coordination.k8s.io/v1/leases?watch=1&timeoutSeconds=1", PROTOBUF, "gzip").await.0, None);
}

#[tokio::test]
async fn an_invalid_object_gets_a_cause_per_field() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    let body = json!({"metadata": {"name": "Web"}, "spec": {"ports": [{"port": 0}, {"port": 80, "protocol": "ICMP"}]}});
    let (code, status) = ask(&client, "POST", "/api/v1/namespaces/default/services", &[], &body.to_string()).await;
    assert_eq!(code, 422);
    insta::assert_snapshot!(format!("{status:#}"));
}

#[tokio::test]
async fn every_listener_serves_the_same_objects_with_a_token_only() {
    let served = ServedCluster::start(false);
    let mut kubeconfig = served.kubeconfig();
    kubeconfig.server = served.server.url(served.server.addresses()[1]);
    let other = super::support::client(&kubeconfig).await;
    let names = |list: &Value| list["items"].as_array().unwrap().len();
    assert_eq!(names(&get(&other, "/api/v1/services", "application/json").await.1), 3);
    kubeconfig.token = None;
    let stranger = super::support::client(&kubeconfig).await;
    let (code, status) = get(&stranger, "/api/v1/services", "application/json").await;
    assert_eq!((code, &status["reason"]), (401, &json!("Unauthorized")));
    assert_eq!(get(&stranger, "/readyz", "*/*").await.0, 200);
}
