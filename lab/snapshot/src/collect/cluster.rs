//! The proxy's configuration may name the API's kubeconfig; the API may have the configuration in a ConfigMap.

use tokio::time::Instant;

use super::proxy::Config;
use super::{CollectOptions, api, node, proxy, unread, within};
use crate::archive::entries::ArchivePart;
use crate::{Snapshot, Unread};

pub(super) async fn read(options: &CollectOptions, end: Instant, snapshot: &mut Snapshot) {
    let path = ArchivePart::ProxyConfig.path();
    let process = proxy::process::find();
    let local = within(end, path, proxy::local(options.proxy_config.as_deref(), process.as_ref())).await;
    let local = local.and_then(|local| local);
    let kubeconfig = local.as_ref().ok().and_then(Option::as_ref).and_then(Config::kubeconfig);
    let connected = within(end, "objects", api::connect(options.kubeconfig.as_deref(), kubeconfig)).await;
    let config = match connected.and_then(|connected| connected) {
        Ok((client, source)) => {
            objects(&client, &source, options, end, snapshot).await;
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

async fn objects(client: &kube::Client, source: &str, options: &CollectOptions, end: Instant, snapshot: &mut Snapshot) {
    let objects = within(end, "objects", api::objects(client, options.max_size)).await;
    match objects.and_then(|objects| objects) {
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
