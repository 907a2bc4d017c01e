//! A minimal API server for a reflector, on loopback, with faults on request.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use svcproxy::testing::held_port;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::support::protobuf;

type Body = BoxBody<Bytes, Infallible>;

#[derive(Default)]
pub struct ServerContent {
    version: u64,
    /// Objects by path and name.
    objects: BTreeMap<(&'static str, String), Value>,
    /// Each event's version, path and line.
    events: Vec<(u64, &'static str, String)>,
    /// Watches from an older version are answered with 410.
    compacted: u64,
    /// Requests for this path (empty: any) are answered with this status.
    pub refuse: Option<(&'static str, u16)>,
    /// The number of next connections that are accepted and never answered.
    pub silent: usize,
    /// The number of connections so far.
    pub connections: usize,
    /// Answers in protobuf if the client accepts it.
    pub protobuf: bool,
    /// Packs lists if the client accepts it.
    pub gzip: bool,
    /// The number of zeros after a list.
    pub zeros: usize,
    /// Lists end after this many bytes.
    pub cut: Option<usize>,
    /// The last `Accept`.
    pub accept: String,
    /// The last `User-Agent`.
    pub client: String,
    /// The required token.
    pub token: Option<String>,
    /// Watches of an earlier epoch end.
    epoch: u64,
    /// Number of requests and the last query, by verb and path.
    pub asked: HashMap<(&'static str, String), (usize, String)>,
    /// Created objects with their paths and queries.
    pub posted: Vec<(String, Value)>,
}

pub struct ScriptedApi {
    pub address: SocketAddr,
    pub world: Arc<Mutex<ServerContent>>,
    changed: watch::Sender<u64>,
    tls: Option<TlsAcceptor>,
    task: Option<JoinSet<()>>,
    /// Keeps the port while the server is down.
    _port: TcpSocket,
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub const SERVICES: &str = "/api/v1/services";
pub const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
pub const NODES: &str = "/api/v1/nodes";
pub const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
pub const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";

impl ScriptedApi {
    pub async fn start(tls: Option<TlsAcceptor>) -> ScriptedApi {
        let world = Arc::new(Mutex::new(ServerContent { version: 10, ..ServerContent::default() }));
        let (port, address) = held_port();
        let mut api = ScriptedApi { address, world, changed: watch::channel(0).0, tls, task: None, _port: port };
        api.up().await;
        api
    }

    /// Listens again on the same port.
    pub async fn up(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        let mut task = JoinSet::new();
        task.spawn(serve(listener, Arc::clone(&self.world), self.changed.subscribe(), self.tls.clone()));
        self.task = Some(task);
    }

    pub fn down(&mut self) {
        self.task = None;
    }

    fn change<T>(&self, change: impl FnOnce(&mut ServerContent) -> T) -> T {
        let result = change(&mut self.world.lock().unwrap());
        self.changed.send_modify(|count| *count += 1);
        result
    }

    fn event(&self, path: &'static str, kind: &str, name: &str, mut object: Value) -> u64 {
        self.change(|world| {
            (object["apiVersion"], object["kind"]) = (kind_of(path).0.into(), kind_of(path).1.into());
            world.version += 1;
            object["metadata"]["resourceVersion"] = world.version.to_string().into();
            let line = json!({"type": kind, "object": object}).to_string();
            world.events.push((world.version, path, line));
            if kind == "DELETED" {
                world.objects.remove(&(path, name.to_owned()));
            } else if kind != "BOOKMARK" {
                world.objects.insert((path, name.to_owned()), object);
            }
            world.version
        })
    }

    /// Creates or replaces an object; returns its version.
    pub fn put(&self, path: &'static str, object: Value) -> u64 {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let there = self.world.lock().unwrap().objects.contains_key(&(path, name.clone()));
        self.event(path, if there { "MODIFIED" } else { "ADDED" }, &name, object)
    }

    pub fn delete(&self, path: &'static str, name: &str) -> u64 {
        let object = self.world.lock().unwrap().objects[&(path, name.to_owned())].clone();
        self.event(path, "DELETED", name, object)
    }

    pub fn bookmark(&self, path: &'static str) -> u64 {
        self.event(path, "BOOKMARK", "", json!({"metadata": {}}))
    }

    pub fn line(&self, path: &'static str, line: &str) {
        self.change(|world| {
            world.version += 1;
            world.events.push((world.version, path, line.to_owned()));
        });
    }

    pub fn close_watches(&self) {
        self.change(|world| world.epoch += 1);
    }

    /// Forces older watches to list again.
    pub fn compact(&self) {
        self.change(|world| {
            world.compacted = world.version;
            world.events.clear();
        });
    }

    /// Continues from a backup: with older versions, and without events.
    pub fn restore(&self) {
        self.change(|world| {
            (world.version, world.compacted, world.epoch) = (3, 0, world.epoch + 1);
            world.events.clear();
        });
    }

    pub fn asked(&self, verb: &'static str, path: &str) -> (usize, String) {
        self.world.lock().unwrap().asked.get(&(verb, path.to_owned())).cloned().unwrap_or_default()
    }
}

async fn serve(
    listener: TcpListener,
    world: Arc<Mutex<ServerContent>>,
    changed: watch::Receiver<u64>,
    tls: Option<TlsAcceptor>,
) {
    let mut connections = JoinSet::new();
    let mut silent = Vec::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        {
            let world = &mut world.lock().unwrap();
            world.connections += 1;
            if world.silent > 0 {
                world.silent -= 1;
                silent.push(stream);
                continue;
            }
        }
        connections.spawn(connection(stream, Arc::clone(&world), changed.clone(), tls.clone()));
    }
}

async fn connection(
    stream: TcpStream,
    world: Arc<Mutex<ServerContent>>,
    changed: watch::Receiver<u64>,
    tls: Option<TlsAcceptor>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (world, changed) = (Arc::clone(&world), changed.clone());
        async move {
            if request.method() == hyper::Method::POST {
                return Ok::<_, Infallible>(create(request, &world).await);
            }
            Ok(respond(&request, &world, changed))
        }
    });
    let http = hyper::server::conn::http1::Builder::new();
    // Some tests close the connection, or do not trust the certificate.
    let _ = match tls {
        None => http.serve_connection(TokioIo::new(stream), service).await.is_ok(),
        Some(tls) => match tls.accept(stream).await {
            Ok(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                http.serve_connection(TokioIo::new(stream), service).await.is_ok()
            }
            Ok(stream) => http.serve_connection(TokioIo::new(stream), service).await.is_ok(),
            Err(_) => false,
        },
    };
}

fn respond(
    request: &Request<Incoming>,
    world: &Arc<Mutex<ServerContent>>,
    changed: watch::Receiver<u64>,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let parameter = |name: &str| {
        let value = query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
        value.map(str::to_owned).filter(|value| !value.is_empty())
    };
    let verb = if parameter("watch").as_deref() == Some("true") { "watch" } else { "list" };
    let mut held = world.lock().unwrap();
    let asked = held.asked.entry((verb, path.clone())).or_default();
    *asked = (asked.0 + 1, query.clone());
    if let Some((_, code)) = held.refuse.filter(|(refused, _)| refused.is_empty() || *refused == path) {
        return status(code, "on request");
    }
    let shown = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    if held.token.as_ref().is_some_and(|token| shown != Some(&format!("Bearer {token}"))) {
        return status(401, "Unauthorized");
    }
    let from: u64 = parameter("resourceVersion").and_then(|v| v.parse().ok()).unwrap_or_default();
    if from > held.version {
        let cause = json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]});
        return failure(504, json!({"message": "Too large resource version", "details": cause}));
    }
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    held.accept = header("accept").unwrap_or_default();
    held.client = header("user-agent").unwrap_or_default();
    let protobuf = held.protobuf && held.accept.starts_with(PROTOBUF);
    if verb == "list" {
        let list = list(&held, &path, parameter("limit").as_deref(), parameter("continue").as_deref());
        let mut bytes = if protobuf { protobuf::answer(&list) } else { list.to_string().into_bytes() };
        if path == SERVICES {
            bytes.resize(bytes.len() + held.zeros, 0);
        }
        let gzip = held.gzip && header("accept-encoding").is_some_and(|accepted| accepted.contains("gzip"));
        if gzip {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(&bytes).unwrap();
            bytes = packed.finish().unwrap();
        }
        bytes.truncate(held.cut.unwrap_or(usize::MAX));
        let mut response = Response::new(Full::new(Bytes::from(bytes)).boxed());
        if gzip {
            response.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
        }
        if protobuf {
            response.headers_mut().insert("content-type", PROTOBUF.parse().unwrap());
        }
        return response;
    }
    if from < held.compacted {
        return status(410, "too old resource version");
    }
    let epoch = held.epoch;
    drop(held);
    let watching = (Arc::clone(world), changed, path, from, epoch);
    let lines = stream::unfold(watching, move |(world, mut changed, path, from, epoch)| async move {
        loop {
            changed.borrow_and_update();
            let next = {
                let held = world.lock().unwrap();
                if held.epoch != epoch {
                    return None;
                }
                held.events.iter().find(|(version, of, _)| *version > from && *of == path).cloned()
            };
            if let Some((version, _, line)) = next {
                let event = serde_json::from_str(&line).ok().filter(|_| protobuf);
                let frame = event.map_or_else(|| (line + "\n").into_bytes(), |event| protobuf::frame(&event));
                let frame = Frame::data(Bytes::from(frame));
                return Some((Ok::<_, Infallible>(frame), (world, changed, path, version, epoch)));
            }
            changed.changed().await.ok()?;
        }
    });
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(Box::pin(lines) as SyncLines)));
    if protobuf {
        response.headers_mut().insert("content-type", format!("{PROTOBUF};stream=watch").parse().unwrap());
    }
    response
}

async fn create(request: Request<Incoming>, world: &Mutex<ServerContent>) -> Response<Body> {
    let refuse = world.lock().unwrap().refuse;
    if let Some((_, code)) = refuse.filter(|(refused, _)| *refused == request.uri().path()) {
        return status(code, "on request");
    }
    let path = request.uri().to_string();
    let is_protobuf = request.headers()["content-type"] == PROTOBUF;
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let posted = if is_protobuf { protobuf::request(&body) } else { serde_json::from_slice(&body).unwrap() };
    // Refusals and answers are asked for in JSON.
    let mut response = Response::new(Full::new(Bytes::from(posted.to_string())).boxed());
    world.lock().unwrap().posted.push((path, posted));
    *response.status_mut() = StatusCode::CREATED;
    response
}

type EventLines = dyn futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + Sync;
type SyncLines = std::pin::Pin<Box<EventLines>>;

/// The continue token has the list's version and the number of earlier objects.
fn list(world: &ServerContent, path: &str, limit: Option<&str>, token: Option<&str>) -> Value {
    let limit: usize = limit.and_then(|l| l.parse().ok()).unwrap_or(usize::MAX);
    let begun = token.and_then(|token| token.split_once("-"));
    let (version, from) = begun.map_or((world.version, 0), |(v, n)| (v.parse().unwrap(), n.parse::<usize>().unwrap()));
    let all: Vec<&Value> = world.objects.iter().filter(|((of, _), _)| *of == path).map(|(_, object)| object).collect();
    let end = all.len().min(from.saturating_add(limit));
    let token = if end < all.len() { format!("{version}-{end}") } else { String::new() };
    let metadata = json!({"resourceVersion": version.to_string(), "continue": token});
    let (api_version, kind) = kind_of(path);
    json!({"apiVersion": api_version, "kind": format!("{kind}List"), "metadata": metadata, "items": all[from..end]})
}

fn kind_of(path: &str) -> (&'static str, &'static str) {
    match path {
        SERVICES => ("v1", "Service"),
        SLICES => ("discovery.k8s.io/v1", "EndpointSlice"),
        RANGES => ("networking.k8s.io/v1", "ServiceCIDR"),
        _ => ("v1", "Node"),
    }
}

fn status(code: u16, message: &str) -> Response<Body> {
    failure(code, json!({"message": message}))
}

fn failure(code: u16, mut status: Value) -> Response<Body> {
    (status["apiVersion"], status["kind"]) = ("v1".into(), "Status".into());
    (status["status"], status["code"]) = ("Failure".into(), code.into());
    let mut response = Response::new(Full::new(Bytes::from(status.to_string())).boxed());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}
