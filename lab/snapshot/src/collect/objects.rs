//! Watches the objects of the API: lists them once, and then receives changes alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{CollectOptions, api, cluster, trim, unread};
use crate::archive::entries::ArchivePart;
use crate::{Objects, Unread};

const RECONNECT: Duration = Duration::from_secs(5);
/// The most changes that are remembered.
const CHANGES: usize = 10_000;
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The objects of the API, kept up to date until it is dropped.
#[derive(Debug)]
pub(super) struct ObjectWatch {
    state: SharedState,
    task: JoinHandle<()>,
}

impl Drop for ObjectWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type SharedState = Arc<Mutex<WatchState>>;
type ObjectKey = (String, String);

struct WatchState {
    connection: Result<(Client, String), Unread>,
    services: KeptObjects<Service>,
    slices: KeptObjects<EndpointSlice>,
    nodes: KeptObjects<Node>,
    service_cidrs: KeptObjects<ServiceCIDR>,
    version: u64,
    changes: VecDeque<ServiceChange>,
}

impl WatchState {
    fn ready(&self) -> Result<(), Unread> {
        for (what, why) in [("Services", &self.services.missing), ("EndpointSlices", &self.slices.missing)] {
            if let Some(why) = why {
                return Err(unread("objects", format!("listing {what}: {why}")));
            }
        }
        Ok(())
    }

    fn without_list(&mut self, why: &str) {
        for missing in [&mut self.services.missing, &mut self.slices.missing].into_iter().flatten() {
            why.clone_into(missing);
        }
    }
}

impl Debug for WatchState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchState").field("version", &self.version).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct KeptObjects<T> {
    objects: BTreeMap<ObjectKey, T>,
    /// The objects of a list that has not ended.
    listing: BTreeMap<ObjectKey, T>,
    /// Why there is no list yet.
    missing: Option<String>,
}

impl<T> Default for KeptObjects<T> {
    fn default() -> Self {
        let missing = Some("the API has not answered yet".to_owned());
        KeptObjects { objects: BTreeMap::new(), listing: BTreeMap::new(), missing }
    }
}

/// A change of a Service or of its EndpointSlices.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ServiceChange {
    at: Instant,
    service: ObjectKey,
    /// The addresses and ports that the Service had before, `10.96.0.1:80/TCP`.
    released: Vec<String>,
}

/// Services that changed, and frontends that they had before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecentChanges {
    /// Namespaces and names.
    pub services: BTreeSet<(String, String)>,
    /// `10.96.0.1:80`, `node port 30080`.
    pub released: BTreeSet<String>,
}

impl ObjectWatch {
    /// Needs a runtime.
    pub(super) fn start(options: CollectOptions) -> ObjectWatch {
        let state = SharedState::new(Mutex::new(WatchState {
            connection: Err(unread("objects", "the API has not answered yet")),
            services: KeptObjects::default(),
            slices: KeptObjects::default(),
            nodes: KeptObjects::default(),
            service_cidrs: KeptObjects::default(),
            version: 0,
            changes: VecDeque::new(),
        }));
        ObjectWatch { task: tokio::spawn(follow_all(options, Arc::clone(&state))), state }
    }

    /// Increases with every change of a field that a proxy reads.
    pub(super) fn version(&self) -> u64 {
        locked(&self.state).version
    }

    pub(super) fn connection(&self) -> Result<(Client, String), Unread> {
        locked(&self.state).connection.clone()
    }

    pub(super) fn ready(&self) -> Result<(), Unread> {
        locked(&self.state).ready()
    }

    /// Fails without Services or EndpointSlices, as [`api::objects`].
    pub(super) fn objects(&self) -> Result<(Objects, Vec<Unread>), Unread> {
        let state = locked(&self.state);
        state.ready()?;
        let optional =
            [(ArchivePart::Nodes, &state.nodes.missing), (ArchivePart::ServiceCidrs, &state.service_cidrs.missing)];
        let missing = optional.into_iter().filter_map(|(part, why)| Some(unread(part.path(), why.as_ref()?)));
        let objects = Objects {
            services: state.services.objects.values().cloned().collect(),
            slices: state.slices.objects.values().cloned().collect(),
            nodes: state.nodes.objects.values().cloned().collect(),
            service_cidrs: state.service_cidrs.objects.values().cloned().collect(),
        };
        Ok((objects, missing.collect()))
    }

    pub(super) fn changes_since(&self, since: Instant) -> RecentChanges {
        let state = locked(&self.state);
        let mut recent = RecentChanges::default();
        for change in state.changes.iter().rev().take_while(|change| change.at >= since) {
            recent.services.insert(change.service.clone());
            recent.released.extend(change.released.iter().cloned());
        }
        recent
    }
}

fn locked(state: &SharedState) -> MutexGuard<'_, WatchState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects again if a watch is refused for its credentials: a kubeconfig's token may have been read once only.
async fn follow_all(options: CollectOptions, state: SharedState) {
    loop {
        let connected = cluster::connect(&options).await;
        locked(&state).connection = connected.clone();
        let why = match connected {
            Ok((client, _)) => tokio::select! {
                why = follow::<Service>(&client, &state, |state| &mut state.services, trim::service) => why,
                why = follow::<EndpointSlice>(&client, &state, |state| &mut state.slices, trim::slice) => why,
                why = follow::<Node>(&client, &state, |state| &mut state.nodes, trim::node) => why,
                why = follow::<ServiceCIDR>(&client, &state, |state| &mut state.service_cidrs, trim::service_cidr) => why,
            },
            Err(failure) => failure.why,
        };
        locked(&state).without_list(&why);
        tokio::time::sleep(RECONNECT).await;
    }
}

/// Ends if the API refuses the credentials; returns its words.
async fn follow<T: WatchedObject>(
    client: &Client,
    state: &SharedState,
    kept: fn(&mut WatchState) -> &mut KeptObjects<T>,
    trim: fn(&mut T),
) -> String {
    let mut events = pin!(watcher(Api::<T>::all(client.clone()), watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        let (code, why) = match event {
            Ok(event) => {
                take(&mut locked(state), kept, event, trim);
                continue;
            }
            Err(watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) => {
                let code = if let kube::Error::Api(status) = &error { status.code } else { 0 };
                (code, api::refusal(&error))
            }
            Err(error) => (0, error.to_string()),
        };
        if code == 401 {
            return why;
        }
        let mut state = locked(state);
        let kept = kept(&mut state);
        if kept.missing.is_some() {
            // With 404 the server does not have the kind.
            kept.missing = (code != 404).then_some(why);
        }
    }
    "the watch has ended".to_owned()
}

fn take<T: WatchedObject>(
    state: &mut WatchState,
    kept: fn(&mut WatchState) -> &mut KeptObjects<T>,
    event: Event<T>,
    trim: fn(&mut T),
) {
    let trimmed = |mut object: T| {
        trim(&mut object);
        // Changes with every heartbeat of a Node.
        object.meta_mut().resource_version = None;
        object
    };
    let mut changed: Vec<(Option<T>, Option<T>)> = Vec::new();
    let objects = kept(state);
    match event {
        Event::Init => objects.listing.clear(),
        Event::InitApply(object) => {
            let object = trimmed(object);
            objects.listing.insert(key(&object), object);
        }
        Event::InitDone => {
            let new = std::mem::take(&mut objects.listing);
            let mut old = std::mem::replace(&mut objects.objects, new);
            for (key, object) in &objects.objects {
                let before = old.remove(key);
                if before.as_ref() != Some(object) {
                    changed.push((before, Some(object.clone())));
                }
            }
            changed.extend(old.into_values().map(|gone| (Some(gone), None)));
            if objects.missing.take().is_some() {
                // The first list tells nothing about when the objects changed.
                changed.clear();
                state.version += 1;
            }
        }
        Event::Apply(object) => {
            let object = trimmed(object);
            let before = objects.objects.insert(key(&object), object.clone());
            if before.as_ref() != Some(&object) {
                changed.push((before, Some(object)));
            }
        }
        Event::Delete(object) => changed.extend(objects.objects.remove(&key(&object)).map(|gone| (Some(gone), None))),
    }
    state.version += u64::from(!changed.is_empty());
    let at = Instant::now();
    for (before, after) in changed {
        let Some(service) = before.as_ref().or(after.as_ref()).and_then(T::service) else { continue };
        let released = before.as_ref().map(T::frontends).unwrap_or_default();
        state.changes.push_back(ServiceChange { at, service, released });
        if state.changes.len() > CHANGES {
            state.changes.pop_front();
        }
    }
}

fn key<T: WatchedObject>(object: &T) -> ObjectKey {
    let meta = object.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

trait WatchedObject: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + PartialEq + Send + 'static {
    /// The Service whose rules the object changes.
    fn service(&self) -> Option<ObjectKey> {
        None
    }

    /// Addresses and ports of the object, in the words of a finding of a frontend without Service.
    fn frontends(&self) -> Vec<String> {
        Vec::new()
    }
}

impl WatchedObject for Node {}
impl WatchedObject for ServiceCIDR {}

impl WatchedObject for EndpointSlice {
    fn service(&self) -> Option<ObjectKey> {
        let name = self.metadata.labels.as_ref()?.get(SERVICE_NAME)?.clone();
        Some((self.metadata.namespace.clone().unwrap_or_default(), name))
    }
}

impl WatchedObject for Service {
    fn service(&self) -> Option<ObjectKey> {
        Some(key(self))
    }

    fn frontends(&self) -> Vec<String> {
        let Some(spec) = &self.spec else { return Vec::new() };
        let balancer = self.status.iter().filter_map(|status| status.load_balancer.as_ref());
        let ingress = balancer.flat_map(|balancer| balancer.ingress.iter().flatten()).filter_map(|one| one.ip.as_ref());
        let addresses: Vec<&String> =
            spec.cluster_ips.iter().flatten().chain(spec.external_ips.iter().flatten()).chain(ingress).collect();
        let mut frontends = Vec::new();
        for port in spec.ports.iter().flatten() {
            frontends.extend(addresses.iter().map(|address| format!("{address}:{}", port.port)));
            frontends.extend(port.node_port.map(|port| format!("node port {port}")));
        }
        frontends
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state() -> WatchState {
        WatchState {
            connection: Err(unread("objects", "test")),
            services: KeptObjects::default(),
            slices: KeptObjects::default(),
            nodes: KeptObjects::default(),
            service_cidrs: KeptObjects::default(),
            version: 0,
            changes: VecDeque::new(),
        }
    }

    fn service(name: &str, address: &str, version: &str) -> Service {
        let value = json!({
            "metadata": { "name": name, "namespace": "shop", "resourceVersion": version },
            "spec": { "clusterIPs": [address], "ports": [{ "port": 80, "nodePort": 30080 }] },
        });
        serde_json::from_value(value).unwrap()
    }

    fn send(state: &mut WatchState, event: Event<Service>) -> u64 {
        take(state, |state| &mut state.services, event, trim::service);
        state.version
    }

    #[test]
    fn only_changes_of_what_a_proxy_reads_count() {
        let mut state = state();
        send(&mut state, Event::Init);
        send(&mut state, Event::InitApply(service("web", "10.96.0.1", "1")));
        assert_eq!(send(&mut state, Event::InitDone), 1);
        assert!(state.changes.is_empty() && state.services.missing.is_none());
        assert_eq!(send(&mut state, Event::Apply(service("web", "10.96.0.1", "2"))), 1, "a heartbeat");
        assert_eq!(send(&mut state, Event::Apply(service("web", "10.96.0.2", "3"))), 2);
        let change = state.changes.back().unwrap();
        assert_eq!(change.service, ("shop".to_owned(), "web".to_owned()));
        assert_eq!(change.released, ["10.96.0.1:80", "node port 30080"]);
        assert_eq!(send(&mut state, Event::Delete(service("web", "", ""))), 3);
        assert_eq!(send(&mut state, Event::Delete(service("web", "", ""))), 3);
        assert_eq!(state.changes.back().unwrap().released, ["10.96.0.2:80", "node port 30080"]);
    }

    #[test]
    fn a_second_list_counts_by_what_differs() {
        let mut state = state();
        let list = |state: &mut WatchState, all: &[(&str, &str)]| {
            send(state, Event::Init);
            for (name, address) in all {
                send(state, Event::InitApply(service(name, address, "7")));
            }
            send(state, Event::InitDone)
        };
        assert_eq!(list(&mut state, &[("a", "10.96.0.1"), ("b", "10.96.0.2")]), 1);
        assert_eq!(list(&mut state, &[("a", "10.96.0.1"), ("b", "10.96.0.2")]), 1);
        assert_eq!(list(&mut state, &[("b", "10.96.0.3"), ("c", "10.96.0.4")]), 2);
        let changed: Vec<&str> = state.changes.iter().map(|change| change.service.1.as_str()).collect();
        assert_eq!(changed, ["b", "c", "a"]);
    }
}
