//! The proxy's configuration may name the API's kubeconfig; the API may have the configuration in a ConfigMap.

use tokio::time::Instant;

use super::proxy::process::Process;
use super::proxy::{Config, ContainedPath};
use super::{CollectOptions, ObjectSource, api, node, proxy, unread, within};
use crate::archive::entries::ArchivePart;
use crate::{Objects, Snapshot, Unread};

/// The proxy that runs here, and its configuration.
#[derive(Debug)]
pub(super) struct LocalProxy {
    process: Option<Process>,
    config: Result<Option<Config>, Unread>,
}

impl LocalProxy {
    pub(super) async fn read(options: &CollectOptions, end: Instant) -> LocalProxy {
        let process = proxy::process::find();
        let path = ArchivePart::ProxyConfig.path();
        let config = within(end, path, proxy::local(options.proxy_config.as_deref(), process.as_ref())).await;
        LocalProxy { process, config: config.and_then(|config| config) }
    }

    /// Returns the configuration, or why there is none.
    pub(super) fn config_text(&self) -> Result<Option<String>, &str> {
        self.config.as_ref().map(|config| config.as_ref().map(Config::text)).map_err(|unread| unread.why.as_str())
    }

    fn kubeconfig(&self) -> Option<ContainedPath> {
        self.config.as_ref().ok().and_then(Option::as_ref).and_then(Config::kubeconfig)
    }
}

/// Connects with the kubeconfig that the options or the proxy's configuration name, or the pod's service account.
pub(super) async fn connect(options: &CollectOptions) -> Result<(kube::Client, String), Unread> {
    let end = Instant::now() + options.deadline;
    let kubeconfig = LocalProxy::read(options, end).await.kubeconfig();
    within(end, "objects", api::connect(options.kubeconfig.as_deref(), kubeconfig)).await?
}

pub(super) async fn read(
    options: &CollectOptions,
    source: ObjectSource<'_>,
    proxy: LocalProxy,
    end: Instant,
    snapshot: &mut Snapshot,
) {
    let path = ArchivePart::ProxyConfig.path();
    let kubeconfig = proxy.kubeconfig();
    let LocalProxy { process, config: local } = proxy;
    let connected = match source {
        ObjectSource::Watch(watch) => watch.connection(),
        ObjectSource::List => {
            let connected = within(end, "objects", api::connect(options.kubeconfig.as_deref(), kubeconfig)).await;
            connected.and_then(|connected| connected)
        }
    };
    let config = match connected {
        Ok((client, name)) => {
            let found = match source {
                ObjectSource::Watch(watch) => watch.objects(),
                ObjectSource::List => {
                    let listed = within(end, "objects", api::objects(&client, options.max_size)).await;
                    listed.and_then(|listed| listed)
                }
            };
            place(found, &name, snapshot);
            // A file that the user named has no substitute.
            if options.proxy_config.is_some() { local } else { or_map(local, &client, end).await }
        }
        Err(unread) => {
            snapshot.unread.push(unread);
            local
        }
    };
    let nobody = || unread(path, "no kube-proxy or svcproxy answers or runs here; name a file with --proxy-config");
    match config.and_then(|config| config.ok_or_else(nobody)) {
        Ok(config) => {
            snapshot.sources.insert(path.to_owned(), config.source.clone());
            snapshot.proxy_config = Some(config.text());
        }
        Err(unread) => snapshot.unread.push(unread),
    }
    snapshot.node_name = node::name(options.node_name.as_deref(), process.as_ref(), snapshot);
    if snapshot.node_name.is_none() && snapshot.objects.is_some() {
        let why = "no Node has this host's name or one of its addresses; name it with --node-name";
        snapshot.unread.push(unread("node name", why));
    }
}

fn place(found: Result<(Objects, Vec<Unread>), Unread>, source: &str, snapshot: &mut Snapshot) {
    match found {
        Ok((objects, missing)) => {
            snapshot.objects = Some(objects);
            snapshot.unread.extend(missing);
        }
        Err(unread) => snapshot.unread.push(unread),
    }
    for part in [ArchivePart::Services, ArchivePart::EndpointSlices, ArchivePart::Nodes, ArchivePart::ServiceCidrs] {
        snapshot.sources.insert(part.path().to_owned(), format!("Kubernetes API, {source}"));
    }
}

/// Falls back to the ConfigMap; if that is missing too, returns the node's error.
async fn or_map(
    local: Result<Option<Config>, Unread>,
    client: &kube::Client,
    end: Instant,
) -> Result<Option<Config>, Unread> {
    if let Ok(Some(_)) = local {
        return local;
    }
    let map = within(end, ArchivePart::ProxyConfig.path(), api::proxy_config_map(client)).await.and_then(|map| map);
    match (local, map) {
        (_, Ok(Some(config))) => Ok(Some(config)),
        (Err(unread), _) | (_, Err(unread)) => Err(unread),
        (Ok(_), Ok(None)) => Ok(None),
    }
}
