//! The proxies' source of objects: the lab's Kubernetes API, a real control plane, or a directory of manifests.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use svclab_apiserver::objects::publish::publish;
use svclab_apiserver::objects::{ObjectKind, Store, StoreOptions};
use svclab_apiserver::{
    ApiServer, Kubeconfig, ServeOptions, ServerFault, SharedStore, Tls, Tokens, Upstream, WatchTimes,
};
use svclab_cluster::Cluster;
use svclab_cluster::traffic::probe::ClusterHost;
use svclab_control_plane::{ControlPlane, ControlPlaneOptions, ObservedVersions, Programs};
use svclab_netns::sandbox::WORK_DIR;

use super::error::{LabError, make};

pub(super) const API_PORT: u16 = 6443;
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), API_PORT);
/// The interval of bookmarks, which advance the version that proxies report for unchanged kinds.
const BOOKMARKS: Duration = Duration::from_millis(25);

const NO_API: &str = "this run has no Kubernetes API: leave out --source manifests";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ObjectSource {
    /// The lab's Kubernetes API, with a kubeconfig per node.
    #[default]
    Api,
    /// A directory of manifests, which only svcproxy reads.
    Manifests,
}

pub(super) struct FeedPlace<'a> {
    pub(super) source: ObjectSource,
    /// The client on whose address the API listens; `None`: on the loopback address of every node.
    pub(super) api_server: Option<&'a str>,
}

pub(super) enum Feed {
    Api {
        server: Box<ApiServer>,
        /// `None`: the lab's own objects.
        plane: Option<Box<ControlPlane>>,
        directory: PathBuf,
        /// The nodes with a listener of their own, in the listeners' order.
        nodes: Vec<String>,
    },
    Manifests(PathBuf),
}

/// A state of the objects, in the versions that proxies report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ObjectsVersion {
    Lab(u64),
    Told(ObservedVersions),
}

impl fmt::Display for ObjectsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectsVersion::Lab(version) => write!(f, "version {version}"),
            ObjectsVersion::Told(told) => {
                let (services, slices) = (told.of(ObjectKind::Service), told.of(ObjectKind::EndpointSlice));
                write!(f, "versions {services} of Services and {slices} of EndpointSlices")
            }
        }
    }
}

impl Feed {
    pub(super) async fn start(
        at: FeedPlace<'_>,
        programs: Option<&Programs>,
        cluster: &Cluster,
        shared: &SharedStore,
        options: &StoreOptions,
    ) -> Result<Feed, LabError> {
        let directory = PathBuf::from(WORK_DIR).join(match at.source {
            ObjectSource::Api => "kubeconfig",
            ObjectSource::Manifests => "manifests",
        });
        // Files of an earlier scenario must not reach the proxies.
        let _ = std::fs::remove_dir_all(&directory);
        make(&directory)?;
        match at.source {
            ObjectSource::Api => Feed::serve(at.api_server, programs, cluster, (shared, options), directory).await,
            ObjectSource::Manifests => Ok(Feed::Manifests(directory)),
        }
    }

    async fn serve(
        api_server: Option<&str>,
        programs: Option<&Programs>,
        cluster: &Cluster,
        (shared, store): (&SharedStore, &StoreOptions),
        directory: PathBuf,
    ) -> Result<Feed, LabError> {
        let spec = cluster.spec();
        let nodes: Vec<String> = spec.nodes.into_iter().map(|node| node.name).collect();
        let host = spec.clients.iter().find(|client| Some(client.name.as_str()) == api_server);
        let address = host.and_then(|client| client.addresses.first()).map_or(ADDRESS, |own| (*own, API_PORT).into());
        let places = match host {
            Some(client) => vec![ClusterHost::Client(client.name.clone())],
            None => nodes.iter().cloned().map(ClusterHost::Node).collect(),
        };
        let mut listeners = Vec::new();
        for place in &places {
            let listener = cluster.listen(place, address).await?;
            listeners.push(listener.into_std().map_err(LabError::Api)?);
        }
        let tls = Tls::generate(&[address.ip().to_string()])?;
        let tokens = Tokens::new(store.seed, nodes.iter().cloned());
        let plane = match programs {
            None => None,
            Some(programs) => {
                let options = ControlPlaneOptions {
                    programs,
                    service_cidrs: &spec.service_cidrs,
                    max_endpoints_per_slice: store.max_endpoints_per_slice,
                    tls: &tls,
                    tokens: &tokens,
                    seed: store.seed,
                };
                Some(Box::new(ControlPlane::start(&options).await?))
            }
        };
        let upstream = plane.as_ref().map(|plane| Upstream::new(plane.address(), &tls)).transpose()?;
        let watches = WatchTimes { bookmark_every: BOOKMARKS, ..WatchTimes::default() };
        let options = ServeOptions { tokens: Some(tokens.clone()), tls: Some(tls.clone()), watches, upstream };
        let server = ApiServer::start(shared.clone(), listeners, options).map_err(LabError::Api)?;
        for node in &nodes {
            let kubeconfig = Kubeconfig {
                server: server.url(address),
                token: tokens.of(node).map(str::to_owned),
                ca_pem: Some(tls.ca_pem().to_owned()),
                client: node.clone(),
            };
            kubeconfig.write(&directory.join(&kubeconfig.client))?;
        }
        // A partition keeps a cut-off node from an API on the nodes' network by itself.
        let nodes = if host.is_some() { Vec::new() } else { nodes };
        Ok(Feed::Api { server: Box::new(server), plane, directory, nodes })
    }

    pub(super) async fn publish(&self, shared: &SharedStore) -> Result<(), LabError> {
        match self {
            Feed::Api { plane: None, .. } => Ok(()),
            Feed::Api { plane: Some(plane), .. } => {
                let store = shared.read(Store::clone);
                Ok(plane.follow(&store).await?)
            }
            Feed::Manifests(directory) => Ok(publish(directory, &shared.read(|store| store.list()))?),
        }
    }

    pub(super) fn kubeconfig(&self, node: &str) -> Option<PathBuf> {
        match self {
            Feed::Api { directory, .. } => Some(directory.join(node)),
            Feed::Manifests(_) => None,
        }
    }

    pub(super) fn manifests(&self) -> Option<&Path> {
        match self {
            Feed::Api { .. } => None,
            Feed::Manifests(directory) => Some(directory),
        }
    }

    pub(super) fn version(&self, shared: &SharedStore) -> ObjectsVersion {
        match self {
            Feed::Api { plane: Some(plane), .. } => ObjectsVersion::Told(plane.versions()),
            _ => ObjectsVersion::Lab(shared.version()),
        }
    }

    pub(super) async fn misbehave(&self, what: ServerFault) -> Result<(), LabError> {
        match self {
            Feed::Api { server, plane: None, .. } => server.misbehave(what),
            Feed::Api { server, plane: Some(plane), .. } => {
                if let ServerFault::BookmarkAhead { by, .. } = what {
                    let newest = plane.let_versions_pass(by).await?;
                    server.misbehave_before(what, |_| newest);
                } else {
                    let told = plane.versions();
                    server.misbehave_before(what, |kind| told.of_every_node(kind));
                }
            }
            Feed::Manifests(_) => return Err(LabError::Step(NO_API.to_owned())),
        }
        Ok(())
    }

    pub(super) fn hostile_answers(&self) -> usize {
        match self {
            Feed::Api { server, .. } => server.hostile_answers().0,
            Feed::Manifests(_) => 0,
        }
    }

    pub(super) fn cut_off(&self, node: &str, cut_off: bool) -> Result<(), LabError> {
        match self {
            Feed::Api { server, nodes, .. } => {
                if let Some(listener) = nodes.iter().position(|listening| listening == node) {
                    server.cut_off(listener, cut_off);
                }
                Ok(())
            }
            Feed::Manifests(_) => Err(LabError::Step(NO_API.to_owned())),
        }
    }

    /// Whether the API withholds changes, so that no step can wait for the proxies.
    pub(super) fn withholds(&self) -> bool {
        matches!(self, Feed::Api { server, .. } if server.withholds())
    }

    /// Returns what `node`'s proxy has applied instead of `version`; `None`: it has applied it. `health`: its answer to
    /// `/healthz`, or the part of an address family.
    pub(super) fn behind(&self, node: &str, health: &Value, version: &ObjectsVersion) -> Option<String> {
        let wanted = |kind: ObjectKind| match version {
            ObjectsVersion::Lab(version) => *version,
            ObjectsVersion::Told(told) if kind == ObjectKind::Node => told.of_node(node),
            ObjectsVersion::Told(told) => told.of(kind),
        };
        let is_behind = |text: Option<&str>, kind: ObjectKind| {
            text.and_then(|text| text.parse::<u64>().ok()).is_none_or(|seen| seen < wanted(kind))
        };
        let Feed::Api { .. } = self else {
            let seen = health.get("appliedResourceVersion").and_then(Value::as_str);
            return is_behind(seen, ObjectKind::Service)
                .then(|| format!("it has applied {}", seen.unwrap_or("nothing")));
        };
        let of = |name: &str| health.get("appliedResourceVersions").and_then(|versions| versions.get(name));
        // svcproxy watches ServiceCIDRs in nftables mode only.
        let ranges = of("servicecidrs").is_some_and(|version| !version.is_null());
        let kinds = [
            (ObjectKind::Service, "services"),
            (ObjectKind::EndpointSlice, "endpointslices"),
            (ObjectKind::Node, "nodes"),
            (ObjectKind::ServiceCidr, "servicecidrs"),
        ];
        let late = kinds.into_iter().take(if ranges { 4 } else { 3 }).filter_map(|(kind, name)| {
            let seen = of(name).and_then(Value::as_str);
            is_behind(seen, kind).then(|| format!("{} of {name}", seen.unwrap_or("nothing")))
        });
        let late: Vec<String> = late.collect();
        (!late.is_empty()).then(|| format!("it has applied {}", late.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_without_the_version_is_not_applied() {
        let manifests = Feed::Manifests(PathBuf::new());
        for (text, applied) in [
            (r#"{"lastUpdated":"x","appliedResourceVersion":"7"}"#, true),
            (r#"{"appliedResourceVersion":"6"}"#, false),
            (r#"{"appliedResourceVersion":""}"#, false),
            (r#"{"appliedResourceVersion":null}"#, false),
            ("null", false),
        ] {
            let behind = manifests.behind("node-a", &serde_json::from_str(text).unwrap(), &ObjectsVersion::Lab(7));
            assert_eq!(behind.is_none(), applied, "{text}: {behind:?}");
        }
    }
}
