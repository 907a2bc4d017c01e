//! Where the proxies get the cluster's objects from: the lab's Kubernetes API, or a directory of manifests.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use svclab_apiserver::objects::publish::publish;
use svclab_apiserver::{ApiServer, Fault, Kubeconfig, ServeOptions, SharedStore, Tls, Tokens, WatchTimes};
use svclab_cluster::Cluster;
use svclab_cluster::traffic::probe::Place;
use svclab_netns::sandbox::WORK_DIR;

use super::error::{LabError, make};

/// The API's port: that of a real API server.
pub(super) const API_PORT: u16 = 6443;
/// Its address in every node's namespace.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), API_PORT);
/// Between bookmarks. A proxy tells the version that it has seen of each kind: with bookmarks as dense as this, a step
/// need not wait for kinds that it did not change.
const BOOKMARKS: Duration = Duration::from_millis(25);

/// What a step says that needs the API where there is none.
const NO_API: &str = "this run has no Kubernetes API: leave out --source manifests";

/// Where objects come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// The lab's Kubernetes API, with a kubeconfig for each node.
    #[default]
    Api,
    /// A directory of manifests, which only this project's proxy reads.
    Manifests,
}

/// What feeds the proxies of one cluster.
pub(super) enum Feed {
    /// The server has a listener for each of `nodes`, in their order.
    Api {
        server: Box<ApiServer>,
        directory: PathBuf,
        nodes: Vec<String>,
    },
    Manifests(PathBuf),
}

impl Feed {
    /// Starts to serve `shared` to every node of `cluster`.
    pub(super) async fn start(
        source: Source,
        cluster: &Cluster,
        shared: &SharedStore,
        seed: u64,
    ) -> Result<Feed, LabError> {
        let directory = PathBuf::from(WORK_DIR).join(match source {
            Source::Api => "kubeconfig",
            Source::Manifests => "manifests",
        });
        // What an earlier scenario of this run published must not be seen by this one's proxies.
        let _ = std::fs::remove_dir_all(&directory);
        make(&directory)?;
        let feed = match source {
            Source::Api => Feed::serve(cluster, shared, seed, directory).await?,
            Source::Manifests => Feed::Manifests(directory),
        };
        feed.publish(shared)?;
        Ok(feed)
    }

    async fn serve(cluster: &Cluster, shared: &SharedStore, seed: u64, directory: PathBuf) -> Result<Feed, LabError> {
        let nodes: Vec<String> = cluster.spec().nodes.into_iter().map(|node| node.name).collect();
        let mut listeners = Vec::new();
        for node in &nodes {
            let listener = cluster.listen(&Place::Node(node.clone()), ADDRESS).await?;
            listeners.push(listener.into_std().map_err(LabError::Api)?);
        }
        let tls = Tls::generate(&[ADDRESS.ip().to_string()])?;
        let tokens = Tokens::new(seed, nodes.iter().cloned());
        let watches = WatchTimes { bookmark_every: BOOKMARKS, ..WatchTimes::default() };
        let options = ServeOptions { tokens: Some(tokens.clone()), tls: Some(tls.clone()), watches };
        let server = ApiServer::start(shared.clone(), listeners, options).map_err(LabError::Api)?;
        for node in &nodes {
            let kubeconfig = Kubeconfig {
                server: server.url(ADDRESS),
                token: tokens.of(node).map(str::to_owned),
                ca_pem: Some(tls.ca_pem().to_owned()),
                client: node.clone(),
            };
            kubeconfig.write(&directory.join(&kubeconfig.client))?;
        }
        Ok(Feed::Api { server: Box::new(server), directory, nodes })
    }

    /// Tells the proxies what there is now; the API does so by itself.
    pub(super) fn publish(&self, shared: &SharedStore) -> Result<(), LabError> {
        match self {
            Feed::Api { .. } => Ok(()),
            Feed::Manifests(directory) => Ok(publish(directory, &shared.read(|store| store.list()))?),
        }
    }

    /// The kubeconfig of a node, where there is an API.
    pub(super) fn kubeconfig(&self, node: &str) -> Option<PathBuf> {
        match self {
            Feed::Api { directory, .. } => Some(directory.join(node)),
            Feed::Manifests(_) => None,
        }
    }

    /// The directory of manifests, where there is no API.
    pub(super) fn manifests(&self) -> Option<&Path> {
        match self {
            Feed::Api { .. } => None,
            Feed::Manifests(directory) => Some(directory),
        }
    }

    /// Makes the API misbehave, or behave again.
    pub(super) fn misbehave(&self, what: Fault) -> Result<(), LabError> {
        match self {
            Feed::Api { server, .. } => {
                server.misbehave(what);
                Ok(())
            }
            Feed::Manifests(_) => Err(LabError::Step(NO_API.to_owned())),
        }
    }

    /// How many requests were given a hostile answer.
    pub(super) fn hostile_answers(&self) -> usize {
        match self {
            Feed::Api { server, .. } => server.hostile_answers().0,
            Feed::Manifests(_) => 0,
        }
    }

    /// Cuts a node off from the API, or lets it through again.
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

    /// Whether the API keeps something from the proxies, so that nobody can wait for them to have applied it.
    pub(super) fn withholds(&self) -> bool {
        matches!(self, Feed::Api { server, .. } if server.withholds())
    }

    /// Whether a proxy's `/healthz` says that it has applied `version`.
    pub(super) fn has_applied(&self, health: &serde_json::Value, version: u64) -> bool {
        let reached = |value: Option<&serde_json::Value>| {
            let applied: Option<u64> = value.and_then(serde_json::Value::as_str).and_then(|text| text.parse().ok());
            applied.is_some_and(|applied| applied >= version)
        };
        match self {
            Feed::Manifests(_) => reached(health.get("appliedResourceVersion")),
            Feed::Api { .. } => {
                let of = |kind: &str| health.get("appliedResourceVersions").and_then(|versions| versions.get(kind));
                // Watched in nftables mode only.
                let ranges = of("servicecidrs").filter(|version| !version.is_null());
                ["services", "endpointslices", "nodes"].iter().all(|kind| reached(of(kind)))
                    && ranges.is_none_or(|ranges| reached(Some(ranges)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_version_counts() {
        let manifests = Feed::Manifests(PathBuf::new());
        for (text, applied) in [
            (r#"{"lastUpdated":"x","appliedResourceVersion":"7"}"#, true),
            (r#"{"appliedResourceVersion":"6"}"#, false),
            (r#"{"appliedResourceVersion":""}"#, false),
            (r#"{"appliedResourceVersion":null}"#, false),
            ("null", false),
        ] {
            assert_eq!(manifests.has_applied(&serde_json::from_str(text).unwrap(), 7), applied, "{text}");
        }
    }
}
