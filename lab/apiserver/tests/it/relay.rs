use std::net::TcpListener;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::io::{AsyncBufReadExt, AsyncReadExt};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher;
use serde_json::{Value, json};
use svclab_apiserver::objects::ObjectKind;
use svclab_apiserver::protobuf::{decode, decode_watch_event};
use svclab_apiserver::testing::filled_store;
use svclab_apiserver::{
    ApiServer, HistoryBounds, Kubeconfig, ServeOptions, ServerFault, ServerRefusal, SharedStore, Upstream, WatchTimes,
    hostile_answer,
};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::faults::{follow, mark, sees};
use super::raw::{PROTOBUF, ask, get, send};
use super::support::{ServedCluster, client};

struct RelayedServer {
    behind: ServedCluster,
    front: ApiServer,
}

impl RelayedServer {
    fn start() -> Self {
        let behind = ServedCluster::with(true, HistoryBounds::default(), WatchTimes::default());
        let tls = behind.tls.clone().unwrap();
        let upstream = Upstream::new(behind.server.addresses()[0], &tls).unwrap();
        let options = ServeOptions {
            tokens: Some(behind.tokens.clone()),
            tls: Some(tls),
            upstream: Some(upstream),
            ..ServeOptions::default()
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // The relay does not serve its own objects.
        let front = ApiServer::start(SharedStore::new(filled_store()), [listener], options).unwrap();
        RelayedServer { behind, front }
    }

    fn kubeconfig(&self) -> Kubeconfig {
        Kubeconfig { server: self.front.url(self.front.addresses()[0]), ..self.behind.kubeconfig() }
    }

    fn misbehave(&self, what: ServerFault) {
        self.front.misbehave_before(what, |_| self.behind.server.resource_version());
    }
}

#[tokio::test]
async fn the_relay_takes_requests_of_http_2() {
    let relayed = RelayedServer::start();
    let address = relayed.front.addresses()[0];
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(relayed.behind.tls.as_ref().unwrap().ca_pem().as_bytes()).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = ServerName::IpAddress(address.ip().into());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let token = format!("Bearer {}", relayed.kubeconfig().token.unwrap());
    let request = hyper::Request::get(format!("https://{address}/version")).header("Authorization", token);
    let request = request.body(String::new()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
}

#[tokio::test]
async fn the_relay_returns_the_upstreams_responses() {
    let relayed = RelayedServer::start();
    let (here, there) = (client(&relayed.kubeconfig()).await, relayed.behind.client().await);
    for path in ["/version", "/api/v1/services?limit=1", "/api/v1/namespaces/default/services/nobody", "/apis/none"] {
        let (mut one, mut other) =
            (get(&here, path, "application/json").await, get(&there, path, "application/json").await);
        one.1["metadata"]["continue"] = json!(null);
        other.1["metadata"]["continue"] = json!(null);
        assert_eq!(one, other, "{path}");
    }
    let body = json!({"metadata": {"name": "made"}, "spec": {"ports": [{"port": 80}]}}).to_string();
    assert_eq!(ask(&here, "POST", "/api/v1/namespaces/default/services", &[], &body).await.0, 201);
    assert_eq!(get(&there, "/api/v1/namespaces/default/services/made", "application/json").await.0, 200);
    let mut stranger = relayed.kubeconfig();
    stranger.token = Some("x".to_owned());
    let (code, _) = get(&client(&stranger).await, "/api/v1/services", "application/json").await;
    assert_eq!(code, 401);
}

#[tokio::test]
async fn a_relayed_watch_converges_after_each_fault() {
    let relayed = RelayedServer::start();
    let services = follow::<Service>(client(&relayed.kubeconfig()).await, watcher::Config::default());
    let (behind, mut number) = (relayed.behind.server.store(), 0);
    let mut next = || {
        number += 1;
        mark(behind, number);
        number
    };
    sees(&services, next(), "an event").await;
    for (fault, end) in [
        (ServerFault::CloseWatches { abrupt: false }, None),
        (ServerFault::CloseWatches { abrupt: true }, None),
        (ServerFault::Compact, Some(ServerFault::CloseWatches { abrupt: true })),
        (ServerFault::Expire { requests: 2 }, Some(ServerFault::CloseWatches { abrupt: true })),
        (ServerFault::Repeat(ObjectKind::Service), None),
        (ServerFault::BookmarkAhead { kind: ObjectKind::Service, by: 1 }, None),
        (ServerFault::Refuse(ServerRefusal::Reset), Some(ServerFault::Accept)),
        (ServerFault::Answer(hostile_answer("status").unwrap()), Some(ServerFault::Accept)),
    ] {
        relayed.misbehave(fault);
        let newest = next();
        end.into_iter().for_each(|end| relayed.misbehave(end));
        sees(&services, newest, &format!("{fault:?}")).await;
    }
}

#[tokio::test]
async fn a_held_watch_sends_nothing_until_released() {
    let relayed = RelayedServer::start();
    let services = follow::<Service>(client(&relayed.kubeconfig()).await, watcher::Config::default());
    let (behind, plain) = (relayed.behind.server.store(), client(&relayed.kubeconfig()).await);
    mark(behind, 1);
    sees(&services, 1, "an event").await;
    for (begin, end) in [
        (ServerFault::Stall, ServerFault::Resume),
        (ServerFault::Hold(ObjectKind::Service), ServerFault::Release(ObjectKind::Service)),
    ] {
        relayed.misbehave(begin);
        assert!(relayed.front.withholds());
        mark(behind, 2);
        // The list contains the change, so only the fault withholds its event.
        let (_, list) = get(&plain, "/api/v1/services?labelSelector=mark%3D2", "application/json").await;
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{begin:?}");
        let state = services.store.state();
        let marks: Vec<&str> =
            state.iter().filter_map(|one| one.metadata.labels.as_ref()?.get("mark").map(String::as_str)).collect();
        assert_eq!(marks, ["1"], "{begin:?}");
        relayed.misbehave(end);
        sees(&services, 2, &format!("{end:?}")).await;
        mark(behind, 1);
        sees(&services, 1, "as it was").await;
    }
}

#[tokio::test]
async fn added_events_follow_received_events() {
    let relayed = RelayedServer::start();
    let client = client(&relayed.kubeconfig()).await;
    let from = relayed.behind.server.resource_version();
    mark(relayed.behind.server.store(), 1);
    let path = format!("/api/v1/services?watch=1&allowWatchBookmarks=true&timeoutSeconds=20&resourceVersion={from}");
    let request = hyper::Request::get(path).body(Vec::new()).unwrap();
    let mut lines = client.request_stream(request).await.unwrap().lines();
    let mut next = async || serde_json::from_str::<Value>(&lines.next().await.unwrap().unwrap()).unwrap();
    let mut events = vec![next().await];
    relayed.misbehave(ServerFault::Repeat(ObjectKind::Service));
    relayed.misbehave(ServerFault::Repeat(ObjectKind::Node));
    relayed.front.misbehave_before(ServerFault::BookmarkAhead { kind: ObjectKind::Service, by: 1 }, |_| 77_777);
    events.extend([next().await, next().await]);
    assert_eq!(events[0], events[1], "once more");
    assert_eq!(events[0]["type"], "MODIFIED");
    assert_eq!(
        (&events[2]["type"], &events[2]["object"]["kind"], &events[2]["object"]["metadata"]["resourceVersion"]),
        (&json!("BOOKMARK"), &json!("Service"), &json!("77777"))
    );
}

#[tokio::test]
async fn added_events_follow_received_events_in_protobuf() {
    let relayed = RelayedServer::start();
    let client = client(&relayed.kubeconfig()).await;
    let from = relayed.behind.server.resource_version();
    mark(relayed.behind.server.store(), 1);
    let path = format!("/api/v1/services?watch=1&allowWatchBookmarks=true&timeoutSeconds=20&resourceVersion={from}");
    let request = hyper::Request::get(path).header("accept", PROTOBUF).header("accept-encoding", "gzip");
    let mut stream = client.request_stream(request.body(Vec::new()).unwrap()).await.unwrap();
    let mut next = async || {
        let mut length = [0; 4];
        stream.read_exact(&mut length).await.unwrap();
        let mut event = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        stream.read_exact(&mut event).await.unwrap();
        decode_watch_event(&event).unwrap()
    };
    let first = next().await;
    relayed.misbehave(ServerFault::Repeat(ObjectKind::Service));
    relayed.front.misbehave_before(ServerFault::BookmarkAhead { kind: ObjectKind::Service, by: 1 }, |_| 77_777);
    assert_eq!((&first["type"], &first["object"]["metadata"]["name"]), (&json!("MODIFIED"), &json!("web")));
    assert_eq!(next().await, first, "once more");
    let metadata = json!({"resourceVersion": "77777"});
    let bookmark = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata});
    assert_eq!(next().await, json!({"type": "BOOKMARK", "object": bookmark}));
}

#[tokio::test]
async fn errors_and_compressed_lists_pass_the_relay_in_protobuf() {
    let relayed = RelayedServer::start();
    let client = client(&relayed.kubeconfig()).await;
    let headers = [("accept", PROTOBUF), ("accept-encoding", "gzip")];
    let annotations = json!({"text": "x".repeat(200 << 10)});
    let service = json!({"metadata": {"name": "long", "annotations": annotations}, "spec": {"ports": [{"port": 80}]}});
    let services = "/api/v1/namespaces/default/services";
    assert_eq!(ask(&client, "POST", services, &[], &service.to_string()).await.0, 201);
    let (head, _) = send(&client, "GET", services, &headers, b"").await;
    assert!(head.headers["content-type"] == PROTOBUF && head.headers["content-encoding"] == "gzip", "{head:?}");
    relayed.misbehave(ServerFault::Expire { requests: 2 });
    let (_, event) = send(&client, "GET", &format!("{services}?watch=1&resourceVersion=1"), &headers, b"").await;
    let event = decode_watch_event(&event[4..]).unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    let exact = format!("{services}?resourceVersionMatch=Exact&resourceVersion=1");
    let (head, status) = send(&client, "GET", &exact, &headers, b"").await;
    assert_eq!((head.status.as_u16(), &decode(&status).unwrap()["reason"]), (410, &json!("Expired")));
    relayed.misbehave(ServerFault::DisableWatchList);
    let initial = format!("{services}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    assert_eq!(send(&client, "GET", &initial, &headers, b"").await.0.status.as_u16(), 422);
}

#[tokio::test]
async fn a_compacted_version_expires() {
    let relayed = RelayedServer::start();
    let client = client(&relayed.kubeconfig()).await;
    let before = relayed.behind.server.resource_version();
    mark(relayed.behind.server.store(), 1);
    let told = |kind| if kind == ObjectKind::Service { before + 1 } else { before };
    relayed.front.misbehave_before(ServerFault::Compact, told);
    let now = relayed.behind.server.resource_version();
    let watch = |version: u64| format!("/api/v1/services?watch=1&timeoutSeconds=1&resourceVersion={version}");
    let (code, event) = get(&client, &watch(before), "application/json").await;
    assert_eq!((code, &event["type"], &event["object"]["code"]), (200, &json!("ERROR"), &json!(410)));
    let list = format!("/api/v1/services?resourceVersionMatch=Exact&resourceVersion={before}");
    let (code, status) = get(&client, &list, "application/json").await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
    assert_eq!(get(&client, &watch(now), "application/json").await, (200, json!("")));
    // Watches of this kind had no later event, and a real server lists it at this version.
    let nodes = watch(before).replace("services", "nodes");
    assert_eq!(get(&client, &nodes, "application/json").await, (200, json!("")));
    relayed.misbehave(ServerFault::Refuse(ServerRefusal::Unavailable));
    assert_eq!(get(&client, "/api/v1/services", "application/json").await.0, 503);
    relayed.misbehave(ServerFault::Accept);
    assert_eq!(get(&client, "/api/v1/services", "application/json").await.0, 200);
}
