//! Watches the API server as proxies do.
//!
//! kube-apiserver sends bookmarks only once a minute, so a proxy can only be expected to know the version of the last
//! event on its watch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::io::AsyncBufReadExt;
use futures_util::{StreamExt, TryStreamExt};
use hyper::Request;
use serde_json::Value;
use svclab_apiserver::objects::{ObjectKey, ObjectKind};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api::{ApiClient, version_of};
use crate::watch_selectors::{WATCHED, selector};
use crate::{ControlPlaneError, wire};

const AGAIN: Duration = Duration::from_millis(100);

/// The newest versions that watches have sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedVersions {
    kinds: BTreeMap<ObjectKind, u64>,
    nodes: BTreeMap<String, u64>,
}

impl ObservedVersions {
    pub fn of(&self, kind: ObjectKind) -> u64 {
        self.kinds.get(&kind).copied().unwrap_or(0)
    }

    /// Returns the version that watches of `kind` have reached on every node.
    pub fn of_every_node(&self, kind: ObjectKind) -> u64 {
        let nodes = self.nodes.values().copied().min().filter(|_| kind == ObjectKind::Node);
        nodes.unwrap_or_else(|| self.of(kind))
    }

    /// Returns the version that the node's proxy must have seen; proxies watch only their own Node.
    pub fn of_node(&self, node: &str) -> u64 {
        self.nodes.get(node).copied().unwrap_or(0)
    }
}

#[derive(Debug, Default)]
pub(crate) struct ObservedObjects {
    objects: BTreeMap<ObjectKind, BTreeMap<ObjectKey, Value>>,
    /// The newest versions of events and of objects in lists; ignores the versions of lists, which a proxy need not
    /// know.
    newest: BTreeMap<ObjectKind, u64>,
}

impl ObservedObjects {
    pub(crate) fn of(&self, kind: ObjectKind) -> impl Iterator<Item = (&ObjectKey, &Value)> {
        self.objects.get(&kind).into_iter().flatten()
    }

    pub(crate) fn get(&self, kind: ObjectKind, key: &ObjectKey) -> Option<&Value> {
        self.objects.get(&kind)?.get(key)
    }

    fn list(&mut self, kind: ObjectKind, items: Vec<Value>) {
        let newest = items.iter().map(version_of).max().unwrap_or(0);
        let objects = items.into_iter().map(|item| (key_of(&item), item)).collect();
        self.objects.insert(kind, objects);
        let entry = self.newest.entry(kind).or_default();
        *entry = newest.max(*entry);
    }

    fn event(&mut self, kind: ObjectKind, type_: &str, object: Value) {
        let newest = self.newest.entry(kind).or_default();
        *newest = version_of(&object).max(*newest);
        let objects = self.objects.entry(kind).or_default();
        match type_ {
            "DELETED" => drop(objects.remove(&key_of(&object))),
            _ => drop(objects.insert(key_of(&object), object)),
        }
    }
}

fn key_of(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    ObjectKey { namespace: text("namespace"), name: text("name") }
}

pub(crate) struct ApiObserver {
    seen: Arc<Mutex<ObservedObjects>>,
    ticks: watch::Receiver<u64>,
    _tasks: JoinSet<()>,
}

impl ApiObserver {
    pub(crate) async fn start(api: &ApiClient) -> Result<Self, ControlPlaneError> {
        let (seen, (tick, ticks)) = (Arc::new(Mutex::new(ObservedObjects::default())), watch::channel(0));
        let (tick, mut tasks) = (Arc::new(tick), JoinSet::new());
        for kind in WATCHED {
            let watch = KindWatch { api: api.clone(), kind, seen: Arc::clone(&seen), tick: Arc::clone(&tick) };
            let version = watch.list().await?;
            tasks.spawn(watch.run(version));
        }
        Ok(ApiObserver { seen, ticks, _tasks: tasks })
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&ObservedObjects) -> T) -> T {
        look(&self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn ticks(&self) -> watch::Receiver<u64> {
        self.ticks.clone()
    }

    pub(crate) fn versions(&self) -> ObservedVersions {
        self.look(|seen| ObservedVersions {
            kinds: seen.newest.clone(),
            nodes: seen.of(ObjectKind::Node).map(|(key, node)| (key.name.clone(), version_of(node))).collect(),
        })
    }
}

struct KindWatch {
    api: ApiClient,
    kind: ObjectKind,
    seen: Arc<Mutex<ObservedObjects>>,
    tick: Arc<watch::Sender<u64>>,
}

impl KindWatch {
    fn path(&self) -> String {
        let selector = selector(self.kind).map(|selector| format!("labelSelector={selector}&")).unwrap_or_default();
        format!("{}?{}", wire::collection(self.kind, None), selector.replace('/', "%2F").replace('!', "%21"))
    }

    fn change(&self, change: impl FnOnce(&mut ObservedObjects)) {
        change(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        self.tick.send_modify(|ticks| *ticks += 1);
    }

    async fn list(&self) -> Result<u64, ControlPlaneError> {
        let answer = self.api.get(&self.path()).await?;
        let Some(items) = answer.body["items"].as_array() else {
            let (request, answer) = (format!("GET {}", self.path()), answer.body.to_string());
            return Err(ControlPlaneError::Answer { request, answer });
        };
        let items = items.clone();
        self.change(|seen| seen.list(self.kind, items));
        Ok(answer.version())
    }

    async fn run(self, mut version: u64) {
        loop {
            match self.follow(&mut version).await {
                Ok(()) => {}
                // The watch ended or its version expired: list again.
                Err(_) => match self.list().await {
                    Ok(now) => version = now,
                    Err(_) => tokio::time::sleep(AGAIN).await,
                },
            }
        }
    }

    async fn follow(&self, version: &mut u64) -> Result<(), ControlPlaneError> {
        let path = format!("{}watch=true&allowWatchBookmarks=true&resourceVersion={version}", self.path());
        let broken = |answer: String| ControlPlaneError::Answer { request: path.clone(), answer };
        let request = Request::get(&path).body(Vec::new()).map_err(|error| broken(error.to_string()))?;
        let stream = self.api.client().request_stream(request).await?;
        let mut lines = stream.lines().map_err(|error| ControlPlaneError::io("reading a watch")(error)).boxed();
        while let Some(line) = lines.next().await {
            let line = line?;
            let mut event: Value = serde_json::from_str(&line).map_err(|_| broken(line.clone()))?;
            let (type_, object) = (event["type"].take(), event["object"].take());
            let Some(type_ @ ("ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK")) = type_.as_str() else {
                return Err(broken(line));
            };
            *version = version_of(&object);
            if type_ != "BOOKMARK" {
                self.change(|seen| seen.event(self.kind, type_, object));
            }
        }
        Ok(())
    }
}
