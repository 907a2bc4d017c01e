use bytes::Bytes;
use kube::Client;
use serde_json::{Value, json};
use svclab_apiserver::protobuf::{decode, decode_watch_event, encode};

use super::raw::{PROTOBUF, get, send};
use super::support::ServedCluster;

const BODY: [(&str, &str); 2] = [("accept", PROTOBUF), ("content-type", PROTOBUF)];

async fn ask(client: &Client, method: &str, path: &str, object: &Value) -> (u16, Value) {
    let body = if object.is_null() { Vec::new() } else { encode(object).unwrap() };
    let (head, bytes) = send(client, method, path, &BODY, &body).await;
    assert_eq!(head.headers["content-type"], PROTOBUF, "{method} {path}");
    (head.status.as_u16(), decode(&bytes).unwrap())
}

fn events(stream: &[u8]) -> Vec<Value> {
    let (mut rest, mut events) = (stream, Vec::new());
    while let Some((length, after)) = rest.split_first_chunk() {
        let (event, after) = after.split_at(usize::try_from(u32::from_be_bytes(*length)).unwrap());
        events.push(decode_watch_event(event).unwrap());
        rest = after;
    }
    events
}

#[tokio::test]
async fn both_encodings_have_the_same_objects() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    for path in [
        "/api/v1/services?limit=2",
        "/api/v1/namespaces/default/services/web",
        "/api/v1/nodes",
        "/api/v1/pods",
        "/api/v1/namespaces",
        "/api/v1/events",
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/replicasets",
        "/apis/coordination.k8s.io/v1/leases",
        "/apis/discovery.k8s.io/v1/endpointslices",
        "/apis/events.k8s.io/v1/events",
        "/apis/networking.k8s.io/v1/servicecidrs",
        "/api/v1/namespaces/default/services/none",
    ] {
        let (code, in_json) = get(&client, path, "application/json").await;
        let (head, in_protobuf) = send(&client, "GET", path, &[("accept", PROTOBUF)], b"").await;
        assert_eq!((head.status.as_u16(), &in_protobuf[..]), (code, &encode(&in_json).unwrap()[..]), "{path}");
    }
}

#[tokio::test]
async fn metadata_alone_is_served_in_protobuf() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    let accept = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let (_, bytes) = send(&client, "GET", "/api/v1/services", &[("accept", &accept)], b"").await;
    let list = decode(&bytes).unwrap();
    assert_eq!((&list["kind"], &list["items"][0]["spec"]), (&json!("PartialObjectMetadataList"), &json!(null)));
    assert!(list["items"][0]["metadata"]["name"].is_string(), "{list}");
}

#[tokio::test]
async fn a_watch_has_lengths_bookmarks_and_errors() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    let watch = async |query: &str| -> Bytes {
        let path = format!("/apis/discovery.k8s.io/v1/endpointslices?watch=1&timeoutSeconds=1{query}");
        let (head, bytes) = send(&client, "GET", &path, &[("accept", PROTOBUF)], b"").await;
        assert_eq!(head.headers["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
        bytes
    };
    let initial = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let events_seen = events(&watch(initial).await);
    let types: Vec<&str> = events_seen.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let added = types.iter().filter(|kind| **kind == "ADDED").count();
    assert!(added > 0 && types[added] == "BOOKMARK", "{types:?}");
    let bookmark = &events_seen[added]["object"];
    assert_eq!((&bookmark["kind"], &bookmark["apiVersion"]), (&json!("EndpointSlice"), &json!("discovery.k8s.io/v1")));
    assert_eq!(bookmark["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    served.server.misbehave(svclab_apiserver::ServerFault::Compact);
    let gone = events(&watch("&resourceVersion=1").await);
    assert_eq!((&gone[0]["type"], &gone[0]["object"]["code"]), (&json!("ERROR"), &json!(410)), "{gone:?}");
}

/// The body with which kube-proxy 1.36.2 reports its start.
const STARTED: &[&[u8]] = &[
    b"k8s\0\x0a\x19\x0a\x10events.k8s.io/v1\x12\x05Event\x12\xa5\x01",
    b"\x0a\x2e\x0a\x17node-a.18ec18c17f0dda0c\x12\x00\x1a\x07default\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00",
    b"\x12\x0c\x08\x82\x9d\xa9\xd8\x06\x10\xa8\x82\x9d\xe7\x02",
    b"\x22\x0akube-proxy\x2a\x0dkube-proxy-vm\x32\x0eStartKubeProxy\x3a\x08Starting",
    b"\x42\x1a\x0a\x04Node\x12\x00\x1a\x06node-a\x22\x00\x2a\x02v1\x32\x00\x3a\x00",
    b"\x52\x00\x5a\x06Normal\x62\x04\x0a\x00\x12\x00\x6a\x00\x72\x00\x78\x00",
    b"\x1a\x00\x22\x00",
];

#[tokio::test]
async fn kube_proxys_events_are_stored() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    let all = "/apis/events.k8s.io/v1/namespaces/default/events";
    let (head, answer) = send(&client, "POST", all, &BODY, &STARTED.concat()).await;
    assert_eq!(head.status.as_u16(), 201, "{:?}", decode(&answer));
    // As kube-apiserver 1.36.2 shows it.
    let (_, seen) = get(&client, &format!("{all}/node-a.18ec18c17f0dda0c"), "application/json").await;
    assert_eq!(seen["eventTime"], "2026-11-28T03:46:10.753353Z");
    assert_eq!(seen["regarding"], json!({"apiVersion": "v1", "kind": "Node", "name": "node-a"}));
    for (field, value) in [
        ("reportingController", "kube-proxy"),
        ("reportingInstance", "kube-proxy-vm"),
        ("action", "StartKubeProxy"),
        ("reason", "Starting"),
        ("type", "Normal"),
    ] {
        assert_eq!(seen[field], value, "{field}");
    }
    assert!(seen["note"].as_str().unwrap_or_default().is_empty() && seen["metadata"]["uid"].is_string(), "{seen}");
    let listed = format!("{all}?fieldSelector=involvedObject.name%3Dnode-a");
    let (_, seen) = get(&client, &listed.replace("/apis/events.k8s.io/v1", "/api/v1"), "application/json").await;
    assert_eq!((&seen["items"][0]["reason"], &seen["items"][1]), (&json!("Starting"), &Value::Null));
}

#[tokio::test]
async fn bodies_in_protobuf_create_update_and_delete() {
    let served = ServedCluster::start(false);
    let client = served.client().await;
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "started"}, "note": "it began",
        "eventTime": "2026-01-02T03:04:05.678901Z", "reportingController": "kube-proxy", "reason": "Starting",
        "regarding": {"kind": "Node", "name": "node-a"}, "type": "Normal",
    });
    let all = "/apis/events.k8s.io/v1/namespaces/default/events";
    let (code, created) = ask(&client, "POST", all, &event).await;
    assert_eq!((code, &created["note"]), (201, &json!("it began")), "{created}");
    let (_, seen) = get(&client, "/api/v1/namespaces/default/events/started", "*/*").await;
    assert_eq!((&seen["message"], &seen["eventTime"]), (&event["note"], &event["eventTime"]));

    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"}, "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "shop"}},
        "template": {"metadata": {"labels": {"app": "shop"}}, "spec": {"containers": [{"name": "c", "image": "a"}]}},
    }});
    let all = "/apis/apps/v1/namespaces/default/deployments";
    let (code, mut shop) = ask(&client, "POST", all, &deployment).await;
    assert_eq!((code, &shop["spec"]["replicas"]), (201, &json!(2)), "{shop}");
    shop["spec"]["replicas"] = json!(0);
    let one = format!("{all}/shop");
    assert_eq!(ask(&client, "PUT", &one, &shop).await.0, 200);
    let (_, scale) = ask(&client, "GET", &format!("{one}/scale"), &Value::Null).await;
    assert_eq!((&scale["kind"], &scale["spec"]), (&json!("Scale"), &json!(null)));
    let options = json!({"apiVersion": "apps/v1", "kind": "DeleteOptions", "preconditions": {"uid": "other"}});
    assert_eq!(ask(&client, "DELETE", &one, &options).await.0, 409);
    let (code, deleted) = ask(&client, "DELETE", &one, &Value::Null).await;
    assert_eq!((code, &deleted["status"]), (200, &json!("Success")), "{deleted}");
}
