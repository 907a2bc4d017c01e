use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};

use super::change_log::LogEntry;
use super::encoding::Encoding;
use super::fault_control::misbehave;
use super::negotiate::ResponseForm;
use super::patch::ObjectPatch;
use super::query::Query;
use super::resources::{ApiRoute, ObjectPath, route};
use super::view::ResponseView;
use super::watch::watch;
use super::write::{self, WriteRequest};
use super::{HistoryBounds, ServerFault, SharedStore, WatchTimes, list, testing};
use crate::objects::{ObjectKey, ObjectKind};

fn shared() -> SharedStore {
    SharedStore::new(testing::filled_store())
}

fn path(text: &str) -> ObjectPath {
    match route(text) {
        Some(ApiRoute::Objects(path)) => path,
        other => panic!("{text}: {other:?}"),
    }
}

fn query(kind: ObjectKind, text: &str) -> Query {
    Query::parse(kind, text).unwrap()
}

async fn listed(shared: &SharedStore, at: &str, options: &str) -> Result<Value, super::error::ApiError> {
    let path = path(at);
    let query = Query::parse(path.resource.kind, options)?;
    let view = ResponseView {
        resource: path.resource,
        form: ResponseForm::Objects,
        encoding: Encoding::Json,
        include_object: String::new(),
    };
    let body = list::list(shared, &view, path.namespace.as_deref(), &query).await?;
    Ok(serde_json::from_slice(&body).unwrap())
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

/// Returns the first `count` events of a watch; fewer if it ends.
async fn watched(shared: &SharedStore, at: &str, options: &str, count: usize) -> Vec<String> {
    let events = open(shared, at, options).await;
    tokio::pin!(events);
    let mut seen = Vec::new();
    while seen.len() < count
        && let Some(event) = events.next().await
    {
        seen.push(event);
    }
    seen
}

async fn open(shared: &SharedStore, at: &str, options: &str) -> impl futures_util::Stream<Item = String> + use<> {
    let path = path(at);
    let query = query(path.resource.kind, &format!("watch=1&{options}"));
    let view = ResponseView {
        resource: path.resource,
        form: ResponseForm::Objects,
        encoding: Encoding::Json,
        include_object: String::new(),
    };
    let times = WatchTimes { longest: Duration::from_secs(600), bookmark_every: Duration::from_secs(60) };
    let chunks = watch(shared, view, path.namespace, query, times).await.unwrap();
    lines(chunks)
}

fn lines(
    chunks: impl futures_util::Stream<Item = std::io::Result<bytes::Bytes>>,
) -> impl futures_util::Stream<Item = String> {
    let texts = chunks.map(|chunk| {
        chunk.map_or_else(|error| format!("{error}\n"), |chunk| String::from_utf8(chunk.to_vec()).unwrap())
    });
    let whole = texts.scan(String::new(), |line, text| {
        line.push_str(&text);
        let done = line.ends_with('\n').then(|| std::mem::take(line));
        futures_util::future::ready(Some(done))
    });
    whole.filter_map(|line| futures_util::future::ready(line.map(|line| short(&line))))
}

fn short(line: &str) -> String {
    let Ok(event) = serde_json::from_str::<Value>(line) else { return line.trim().to_owned() };
    let (type_, object) = (event["type"].as_str().unwrap(), &event["object"]);
    match type_ {
        "ERROR" => format!("ERROR {} {}", object["code"], object["reason"].as_str().unwrap()),
        "BOOKMARK" if object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true" => {
            "BOOKMARK end".to_owned()
        }
        "BOOKMARK" => format!("BOOKMARK {}", object["metadata"]["resourceVersion"].as_str().unwrap()),
        _ => format!("{type_} {}", object["metadata"]["name"].as_str().unwrap()),
    }
}

fn label(shared: &SharedStore, service: &str, labels: Value) {
    let at = path(&format!("/api/v1/namespaces/default/services/{service}"));
    let patch = ObjectPatch::parse(
        Some("application/merge-patch+json"),
        json!({"metadata": {"labels": labels}}).to_string().as_bytes(),
    );
    let patch = patch.unwrap();
    shared
        .update(|state| WriteRequest { state, path: &at, query: &query(ObjectKind::Service, "") }.patch(&patch))
        .map(|_| ())
        .unwrap();
}

#[test]
fn a_path_is_routed_to_its_resource() {
    for (text, expected) in [
        ("/api/v1/services", Some((ObjectKind::Service, None, None, false))),
        ("/api/v1/namespaces/x/services/y", Some((ObjectKind::Service, Some("x"), Some("y"), false))),
        ("/api/v1/namespaces/x/services/y/status", Some((ObjectKind::Service, Some("x"), Some("y"), true))),
        ("/api/v1/namespaces/x", Some((ObjectKind::Namespace, None, Some("x"), false))),
        ("/api/v1/namespaces/x/status", Some((ObjectKind::Namespace, None, Some("x"), true))),
        ("/api/v1/nodes/n/status", Some((ObjectKind::Node, None, Some("n"), true))),
        ("/apis/discovery.k8s.io/v1/endpointslices", Some((ObjectKind::EndpointSlice, None, None, false))),
        ("/apis/networking.k8s.io/v1/servicecidrs", Some((ObjectKind::ServiceCidr, None, None, false))),
        ("/apis/networking.k8s.io/v1/namespaces/x/servicecidrs", None),
        ("/apis/events.k8s.io/v1/namespaces/x/events", Some((ObjectKind::Event, Some("x"), None, false))),
        ("/apis/discovery.k8s.io/v1/namespaces/x/endpointslices/y/status", None),
        ("/api/v1/namespaces/x/nodes", None),
        ("/api/v1/services/y", None),
        ("/api/v1/configmaps", None),
        ("/apis/apps/v1/namespaces/x/deployments/y", Some((ObjectKind::Deployment, Some("x"), Some("y"), false))),
        ("/apis/apps/v1/deployments/scale", None),
        ("/apis/discovery.k8s.io/v1/namespaces/x/endpointslices/y/scale", None),
        ("/apis/apps/v1/statefulsets", None),
        ("/apis/networking.k8s.io/v1/networkpolicies", Some((ObjectKind::NetworkPolicy, None, None, false))),
        ("/api/v1/namespaces/x/endpoints/y", Some((ObjectKind::Endpoints, Some("x"), Some("y"), false))),
        ("/openapi/v4", None),
    ] {
        let found = route(text).map(|route| match route {
            ApiRoute::Objects(path) => (path.resource.kind, path.namespace, path.name, path.status),
            other => panic!("{text}: {other:?}"),
        });
        let expected = expected.map(|(kind, namespace, name, status)| {
            (kind, namespace.map(str::to_owned), name.map(str::to_owned), status)
        });
        assert_eq!(found, expected, "{text}");
    }
}

#[tokio::test]
async fn all_pages_of_a_list_have_one_version() {
    let shared = shared();
    let first = listed(&shared, "/api/v1/services", "limit=2").await.unwrap();
    assert_eq!(names(&first), ["outside", "public"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    shared.write(|store| store.delete("service", &ObjectKey::new(None, "web"))).unwrap();
    let next = format!("limit=2&continue={}", first["metadata"]["continue"].as_str().unwrap());
    let second = listed(&shared, "/api/v1/services", &next).await.unwrap();
    assert_eq!(names(&second), ["web"], "as it was when the first page was made");
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert_eq!(second["metadata"].get("continue"), None);
    misbehave(&shared, ServerFault::Compact);
    let error = listed(&shared, "/api/v1/services", &next).await.unwrap_err();
    assert_eq!((error.code, error.reason), (410, "Expired"));
    let fresh = error.status()["metadata"]["continue"].as_str().unwrap().to_owned();
    let rest = listed(&shared, "/api/v1/services", &format!("continue={fresh}")).await.unwrap();
    assert_eq!(names(&rest), [""; 0], "the token of the 410 goes on with today's objects");
}

#[tokio::test]
async fn a_list_applies_selectors_and_version() {
    let shared = shared();
    let version = shared.version();
    label(&shared, "web", json!({"tier": "back"}));
    for (at, options, expected) in [
        ("/api/v1/services", "labelSelector=tier%3Dback".to_owned(), vec!["web"]),
        ("/api/v1/services", "labelSelector=!tier&fieldSelector=spec.type%3DLoadBalancer".to_owned(), vec!["public"]),
        ("/api/v1/services", "fieldSelector=metadata.name!%3Dweb".to_owned(), vec!["outside", "public"]),
        ("/api/v1/namespaces/kube-system/services", String::new(), vec![]),
        ("/api/v1/pods", "fieldSelector=spec.nodeName%3Dnode-b".to_owned(), vec!["b"]),
        (
            "/api/v1/services",
            format!("labelSelector=tier%3Dfront&resourceVersionMatch=Exact&resourceVersion={version}"),
            vec!["web"],
        ),
    ] {
        assert_eq!(names(&listed(&shared, at, &options).await.unwrap()), expected, "{at} {options}");
    }
    let future = listed(&shared, "/api/v1/services", &format!("resourceVersion={}", version + 100)).await.unwrap_err();
    assert_eq!((future.code, future.reason), (504, "Timeout"));
}

#[tokio::test]
async fn a_watch_sends_initial_objects_and_then_changes() {
    let shared = shared();
    let options = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let initial = watched(&shared, "/api/v1/services", options, 4).await;
    assert_eq!(initial, ["ADDED outside", "ADDED public", "ADDED web", "BOOKMARK end"]);
    assert_eq!(watched(&shared, "/api/v1/pods", "", 2).await, ["ADDED a", "ADDED b"]);
    let before = shared.version();
    shared.write(|store| store.set_ready(&ObjectKey::new(None, "a"), false)).unwrap();
    shared.write(|store| store.delete("pod", &ObjectKey::new(None, "b"))).unwrap();
    let since = format!("resourceVersion={before}");
    assert_eq!(watched(&shared, "/api/v1/pods", &since, 2).await, ["MODIFIED a", "DELETED b"]);
    let slices = watched(&shared, "/apis/discovery.k8s.io/v1/endpointslices", &since, 4).await;
    assert_eq!(
        slices,
        ["MODIFIED public-ipv4-0", "MODIFIED web-ipv4-0", "MODIFIED public-ipv4-0", "MODIFIED web-ipv4-0"]
    );
}

#[tokio::test]
async fn an_object_that_stops_matching_is_deleted_and_one_that_begins_is_added() {
    let shared = shared();
    let since = format!("labelSelector=tier%3Dfront&resourceVersion={}", shared.version());
    label(&shared, "web", json!({"tier": "back"}));
    label(&shared, "web", json!({"tier": "front", "x": "y"}));
    label(&shared, "web", json!({"x": "z"}));
    let seen = watched(&shared, "/api/v1/services", &since, 3).await;
    assert_eq!(seen, ["DELETED web", "ADDED web", "MODIFIED web"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_sends_bookmarks_periodically_and_before_its_end() {
    let shared = shared();
    let version = shared.version();
    let seen = async |options: &str| {
        let path = path("/api/v1/services");
        let query = query(ObjectKind::Service, &format!("watch=1&resourceVersion={version}{options}"));
        let view = ResponseView {
            resource: path.resource,
            form: ResponseForm::Objects,
            encoding: Encoding::Json,
            include_object: String::new(),
        };
        let times = WatchTimes { longest: Duration::from_millis(250), bookmark_every: Duration::from_millis(100) };
        lines(watch(&shared, view, None, query, times).await.unwrap()).collect::<Vec<_>>().await
    };
    let bookmark = format!("BOOKMARK {version}");
    let all = seen("&allowWatchBookmarks=true").await;
    assert!(all.len() >= 2 && all.iter().all(|line| *line == bookmark), "{all:?}");
    assert_eq!(seen("").await, [""; 0], "no bookmark unless asked for");
}

#[tokio::test]
async fn a_version_older_than_the_history_expires() {
    let shared = SharedStore::with_bounds(testing::store(false, 0), HistoryBounds { events: 2, bytes: 1 << 20 });
    let begin = shared.version();
    shared.write(testing::fill);
    let seen = watched(&shared, "/api/v1/services", &format!("resourceVersion={begin}"), 9).await;
    assert_eq!(seen, ["ERROR 410 Expired"]);
    let nodes = watched(&shared, "/api/v1/nodes", &format!("resourceVersion={begin}&timeoutSeconds=1"), 9).await;
    assert_eq!(nodes, [""; 0], "another kind's history is its own");
}

#[tokio::test]
async fn each_fault_affects_an_open_watch() {
    let shared = shared();
    let since = format!("resourceVersion={}&allowWatchBookmarks=true", shared.version());
    let events = open(&shared, "/api/v1/services", &since).await;
    tokio::pin!(events);
    let pending = |shared: &SharedStore| shared.inspect(|state| state.log.end(ObjectKind::Service));

    misbehave(&shared, ServerFault::Hold(ObjectKind::Service));
    label(&shared, "web", json!({"x": "1"}));
    assert!(pending(&shared) > 0);
    let slices = watched(&shared, "/apis/discovery.k8s.io/v1/endpointslices", "resourceVersion=0", 2).await;
    assert_eq!(slices.len(), 2);
    assert!(events.next().now_or_never().is_none());
    misbehave(&shared, ServerFault::Release(ObjectKind::Service));
    assert_eq!(events.next().await.unwrap(), "MODIFIED web");

    misbehave(&shared, ServerFault::Repeat(ObjectKind::Service));
    assert_eq!(events.next().await.unwrap(), "MODIFIED web");

    misbehave(&shared, ServerFault::BookmarkAhead { kind: ObjectKind::Service, by: 1_000 });
    assert_eq!(events.next().await.unwrap(), format!("BOOKMARK {}", shared.version()));
    let resumed = format!("resourceVersion={}", shared.version());

    misbehave(&shared, ServerFault::Stall);
    label(&shared, "web", json!({"x": "2"}));
    assert!(events.next().now_or_never().is_none());
    misbehave(&shared, ServerFault::Resume);
    assert_eq!(events.next().await.unwrap(), "MODIFIED web");
    assert_eq!(
        watched(&shared, "/api/v1/services", &resumed, 1).await,
        ["MODIFIED web"],
        "nothing is lost after the leap"
    );

    misbehave(&shared, ServerFault::Compact);
    assert_eq!(watched(&shared, "/api/v1/services", &resumed, 9).await, ["ERROR 410 Expired"]);
    label(&shared, "web", json!({"x": "3"}));
    assert_eq!(events.next().await.unwrap(), "MODIFIED web", "an open watch goes on");

    misbehave(&shared, ServerFault::Expire { requests: 1 });
    let now = format!("resourceVersion={}&timeoutSeconds=1", shared.version());
    assert_eq!(watched(&shared, "/api/v1/services", &now, 9).await, ["ERROR 410 Expired"]);
    assert_eq!(watched(&shared, "/api/v1/services", &now, 9).await, [""; 0], "only one was asked for");

    misbehave(&shared, ServerFault::CloseWatches { abrupt: false });
    assert_eq!(events.next().await, None);
    let events = open(&shared, "/api/v1/services", &since.replace("resourceVersion=", "x=")).await;
    tokio::pin!(events);
    misbehave(&shared, ServerFault::CloseWatches { abrupt: true });
    assert_eq!(events.next().await.unwrap(), "connection aborted");
    assert_eq!(events.next().await, None);
}

#[test]
fn the_history_drops_changes_beyond_its_bytes() {
    let shared = SharedStore::with_bounds(testing::store(false, 0), HistoryBounds { events: 1_000, bytes: 8 << 10 });
    shared.write(testing::fill);
    for number in 0..100 {
        label(&shared, "web", json!({"x": number.to_string()}));
    }
    let kept = shared.inspect(|state| {
        let oldest = state.log.oldest(ObjectKind::Service);
        let place = state.log.position_after(ObjectKind::Service, oldest).unwrap();
        let entries = state.log.entries_from(ObjectKind::Service, place, 1_000).unwrap();
        entries
            .iter()
            .map(|entry| if let LogEntry::Change(change) = entry.as_ref() { change.record.json.len() } else { 0 })
            .sum::<usize>()
    });
    assert!((4 << 10..=8 << 10).contains(&kept), "{kept}");
}

#[test]
fn an_invalid_write_is_rejected_and_changes_nothing() {
    let shared = shared();
    let all = query(ObjectKind::Service, "");
    let (services, web) =
        (path("/api/v1/namespaces/default/services"), path("/api/v1/namespaces/default/services/web"));
    let create =
        |value: Value| shared.update(|state| WriteRequest { state, path: &services, query: &all }.create(value));
    let update = |value: Value| shared.update(|state| WriteRequest { state, path: &web, query: &all }.update(value));
    let code =
        |result: Result<write::WriteResult, super::error::ApiError>| result.map_or_else(|error| error.code, |_| 200);
    let spec = json!({"ports": [{"port": 80}]});

    let made = create(
        json!({"metadata": {"generateName": "x-"}, "spec": spec, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}),
    );
    let made = made.unwrap().record;
    assert!(made.key.name.starts_with("x-") && made.key.name.len() == 7, "{}", made.key.name);
    let value = made.value();
    assert!(value["spec"]["clusterIP"].as_str().unwrap().starts_with("10.96."));
    assert_eq!(value["status"], json!({"loadBalancer": {}}), "nobody is born with a status");
    assert_eq!(code(create(json!({"metadata": {"name": "web"}, "spec": spec}))), 409);
    assert_eq!(code(create(json!({"metadata": {"name": "Web"}, "spec": spec}))), 422);
    assert_eq!(code(create(json!({"kind": "Pod", "metadata": {"name": "y"}, "spec": spec}))), 400);
    assert_eq!(code(create(json!({"metadata": {"name": "y", "namespace": "other"}, "spec": spec}))), 400);
    assert_eq!(code(create(json!({"metadata": {"name": "y"}, "spec": {"ports": [{"port": "x"}]}}))), 400);
    let taken =
        json!({"metadata": {"name": "y"}, "spec": {"ports": [{"port": 80}], "clusterIP": value["spec"]["clusterIP"]}});
    assert_eq!(code(create(taken)), 422);
    let elsewhere = path("/api/v1/namespaces/nowhere/services");
    let lost = shared.update(|state| {
        WriteRequest { state, path: &elsewhere, query: &all }.create(json!({"metadata": {"name": "y"}, "spec": spec}))
    });
    assert_eq!(code(lost), 404);

    let present = shared.read(|store| store.record(ObjectKind::Service, &ObjectKey::new(None, "web")).unwrap().value());
    let mut newer = present.clone();
    newer["metadata"]["labels"]["x"] = json!("1");
    newer["metadata"]["uid"] = json!("");
    newer["status"] = json!({"conditions": []});
    let updated = update(newer.clone()).unwrap().record.value();
    assert_eq!(updated["status"], present["status"], "the status has a path of its own");
    assert_eq!(updated["metadata"]["uid"], present["metadata"]["uid"]);
    assert_eq!(code(update(newer)), 409, "that version is no longer the present one");
    let mut moved = updated.clone();
    moved["spec"]["clusterIP"] = json!("10.96.0.77");
    moved["spec"]["clusterIPs"] = json!(["10.96.0.77"]);
    assert_eq!(code(update(moved)), 422);
    let after = shared.read(|store| store.record(ObjectKind::Service, &ObjectKey::new(None, "web")).unwrap().value());
    assert_eq!(after, updated, "what was refused left nothing behind");

    let dry = query(ObjectKind::Service, "dryRun=All");
    let version = shared.version();
    let tried = shared.update(|state| {
        WriteRequest { state, path: &services, query: &dry }.create(json!({"metadata": {"name": "dry"}, "spec": spec}))
    });
    assert_eq!(tried.unwrap().record.key.name, "dry");
    assert_eq!(shared.version(), version);
    let strict = query(ObjectKind::Service, "fieldValidation=Strict");
    let odd = json!({"metadata": {"name": "odd"}, "spec": {"ports": [{"port": 80}], "clutserIP": "x"}});
    let refused = shared
        .update(|state| WriteRequest { state, path: &services, query: &strict }.create(odd.clone()))
        .map(|_| ())
        .unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (400, "strict decoding error: unknown field \"spec.clutserIP\"")
    );
    assert_eq!(create(odd).unwrap().warnings, ["unknown field \"spec.clutserIP\""]);
}

#[test]
fn a_deletion_checks_preconditions_and_dry_run() {
    let shared = shared();
    let all = query(ObjectKind::Service, "");
    let delete = |at: &str, body: Value| {
        let options = write::DeleteOptions::parse(Encoding::Json, body.to_string().as_bytes()).unwrap();
        shared
            .update(|state| WriteRequest { state, path: &path(at), query: &all }.delete(&options))
            .map_or_else(|error| error.code, |_| 200)
    };
    let web = "/api/v1/namespaces/default/services/web";
    assert_eq!(delete(web, json!({"preconditions": {"uid": "x"}})), 409);
    assert_eq!(delete(web, json!({"dryRun": ["All"]})), 200);
    assert_eq!(delete(web, json!({})), 200);
    assert_eq!(delete(web, json!({})), 404);
    assert_eq!(delete("/api/v1/namespaces/default", json!({})), 403);
    let services = path("/api/v1/namespaces/default/services");
    let gone = shared.update(|state| {
        WriteRequest { state, path: &services, query: &query(ObjectKind::Service, "labelSelector=!x") }
            .delete_collection()
    });
    assert_eq!(gone.unwrap().len(), 2);
    assert_eq!(
        shared.read(|store| store.records(ObjectKind::Service).count() + store.records(ObjectKind::EndpointSlice).count()),
        0
    );
}
