//! The cluster's objects, from the Kubernetes API. No Secret is read, and nothing is written.

use std::fmt::{Debug, Display};
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::{Api, ListParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::proxy::process::under;
use super::{files, proxy, trim, unread};
use crate::archive::entries::Part;
use crate::{Objects, Unread};

/// Objects that are asked for at once, as `kubectl` does (`--chunk-size`).
const PAGE: u32 = 500;
/// A server that does not answer in this time is not there.
const CONNECT: Duration = Duration::from_secs(10);
/// Present in every pod that has a service account (kubernetes.io, "Accessing the Kubernetes API from a Pod").
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// kubeadm's ConfigMap of kube-proxy, and the key that the configuration is under.
const PROXY_CONFIG_MAP: (&str, &str, &str) = ("kube-system", "kube-proxy", "config.conf");

/// The API cannot be asked, or does not answer as it should.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error(
        "no kubeconfig ($KUBECONFIG, ~/.kube/config, the proxy's) and no service account here; name one with --kubeconfig"
    )]
    Nowhere,
    #[error("cannot use {source_name}: {why}")]
    Access { source_name: String, why: String },
    #[error("listing {what}: {why}")]
    List { what: String, why: String },
    #[error("listing {what}: more than {largest} bytes (--max-size)")]
    Large { what: String, largest: u64 },
}

/// A client, and what it is called in the manifest. `named` is the kubeconfig of the proxy's, and the root of its paths.
pub(super) async fn connect(
    given: Option<&Path>,
    named: Option<(PathBuf, PathBuf)>,
) -> Result<(Client, String), Unread> {
    let connected = match kubeconfig(given, named) {
        Some((path, root, name)) => {
            from_file(&path, &root).await.map(|config| (config, name.clone())).map_err(|why| (name, why))
        }
        None if Path::new(SERVICE_ACCOUNT).exists() => {
            let name = "the service account".to_owned();
            Config::incluster().map(|config| (config, name.clone())).map_err(|error| (name, causes(&error)))
        }
        None => return Err(unread("objects", ApiError::Nowhere)),
    };
    let client = connected.and_then(|(mut config, name)| {
        config.connect_timeout = Some(CONNECT);
        // A refusal is told: trying again takes longer than all of it may.
        config.default_retry = false;
        Client::try_from(config).map(|client| (client, name.clone())).map_err(|error| (name, causes(&error)))
    });
    client.map_err(|(source_name, why)| unread("objects", ApiError::Access { source_name, why }))
}

/// The first that there is: its path, the root of the paths in it, and how it is called.
fn kubeconfig(given: Option<&Path>, named: Option<(PathBuf, PathBuf)>) -> Option<(PathBuf, PathBuf, String)> {
    let here = || PathBuf::from("/");
    if let Some(path) = given {
        return Some((path.to_owned(), here(), "--kubeconfig".to_owned()));
    }
    // A list of files is merged by kubectl; the first that exists is enough here.
    let environment = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
    let listed = environment.iter().flat_map(std::env::split_paths).find(|path| path.exists());
    if let Some(path) = listed {
        return Some((path, here(), "$KUBECONFIG".to_owned()));
    }
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".kube/config")).filter(|path| path.exists());
    if let Some(path) = home {
        return Some((path, here(), "~/.kube/config".to_owned()));
    }
    let (path, root) = named.filter(|(path, _)| path.exists())?;
    Some((path, root, "the proxy's kubeconfig".to_owned()))
}

/// Paths in it start from `root`: in the proxy's container, its token and certificates are elsewhere than here.
async fn from_file(path: &Path, root: &Path) -> Result<Config, String> {
    let text = files::config(path).map_err(|error| error.to_string())?;
    let mut kubeconfig = Kubeconfig::from_yaml(&text).map_err(|error| causes(&error))?;
    // A relative path starts from the kubeconfig's own directory (kubernetes.io, "Organizing Cluster Access").
    let directory = path.parent().unwrap_or(Path::new("/"));
    let move_path = |path: &mut Option<String>| {
        if let Some(path) = path.as_mut().filter(|path| !path.is_empty()) {
            let moved = if path.starts_with('/') { under(root, path) } else { directory.join(&path) };
            *path = moved.to_string_lossy().into_owned();
        }
    };
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|cluster| cluster.cluster.as_mut()) {
        move_path(&mut cluster.certificate_authority);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|user| user.auth_info.as_mut()) {
        move_path(&mut user.token_file);
        move_path(&mut user.client_certificate);
        move_path(&mut user.client_key);
    }
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(|error| causes(&error))
}

/// All four kinds, or none: some without the others would look like a cluster that has lost them.
pub(super) async fn objects(client: &Client, largest: u64) -> Result<Objects, Unread> {
    let listed = tokio::try_join!(
        list::<Service>(client, "Services", largest, trim::service),
        list::<EndpointSlice>(client, "EndpointSlices", largest, trim::slice),
        list::<Node>(client, "Nodes", largest, trim::node),
        list::<ServiceCIDR>(client, "ServiceCIDRs", largest, trim::service_cidr),
    );
    let (services, slices, nodes, service_cidrs) = listed.map_err(|error| unread("objects", error))?;
    Ok(Objects { services, slices, nodes, service_cidrs })
}

/// Page by page. A list that the server forgets midway is begun once more, in one piece. A kind that it does not have is empty.
async fn list<T>(client: &Client, what: &str, largest: u64, trim: fn(&mut T)) -> Result<Vec<T>, ApiError>
where
    T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    let api: Api<T> = Api::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let (mut items, mut bytes) = (Vec::new(), 0);
    loop {
        let page = match api.list(&params).await {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
            Err(kube::Error::Api(status)) if status.code == 410 && params.limit.is_some() => {
                params = ListParams::default();
                items.clear();
                bytes = 0;
                continue;
            }
            Err(error) => return Err(ApiError::List { what: what.to_owned(), why: refusal(&error) }),
        };
        for mut item in page.items {
            trim(&mut item);
            bytes += serde_json::to_vec(&item).map_or(0, |text| text.len() as u64);
            items.push(item);
        }
        if bytes > largest {
            return Err(ApiError::Large { what: what.to_owned(), largest });
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = ListParams::default().limit(PAGE).continue_token(&token),
            None => return Ok(items),
        }
    }
}

/// What kubeadm has written for kube-proxy; nothing where it is not, or may not be read.
pub(super) async fn proxy_config_map(client: &Client) -> Result<Option<proxy::Config>, Unread> {
    let (namespace, name, key) = PROXY_CONFIG_MAP;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = api.get_opt(name).await.ok().flatten();
    let Some(text) = map.and_then(|map| map.data?.remove(key)) else { return Ok(None) };
    let parsed = proxy::Config::parse(&text, &format!("ConfigMap {namespace}/{name}"), Path::new("/"));
    parsed.map(Some).map_err(|error| unread(Part::ProxyConfig.path(), error))
}

/// What the server says; or what lies below, since the outer errors repeat it.
fn refusal(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("the API refuses: {} ({})", status.message, status.code),
        other => causes(other),
    }
}

/// An error with the innermost of its causes.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut inner: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    let texts: [&dyn Display; 2] = [&error, &inner];
    let [outer, inner] = texts.map(ToString::to_string);
    if outer.contains(&inner) { outer } else { format!("{outer}: {inner}") }
}
