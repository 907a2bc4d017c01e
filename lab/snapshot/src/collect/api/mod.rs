//! Reads API objects, but no Secret, and writes nothing.

mod access;

use std::fmt::{Debug, Display};
use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::{Api, ListParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{proxy, trim, unread};
use crate::archive::entries::ArchivePart;
use crate::{Objects, Unread};

pub(super) use access::connect;

/// Objects per page, as in `kubectl` (`--chunk-size`).
const PAGE: u32 = 500;
/// Namespace, name and key of kubeadm's ConfigMap of kube-proxy.
const PROXY_CONFIG_MAP: (&str, &str, &str) = ("kube-system", "kube-proxy", "config.conf");

#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error(
        "no kubeconfig ($KUBECONFIG, ~/.kube/config, the proxy's) and no service account here; name one with --kubeconfig"
    )]
    Nowhere,
    #[error("cannot use {name}: {why}")]
    Access { name: String, why: String },
    #[error("listing {what}: {why}")]
    List { what: String, why: String },
    #[error("listing {what}: more than {largest} bytes (--max-size)")]
    Large { what: String, largest: u64 },
}

/// Fails without Services or EndpointSlices: one kind alone would look like a cluster that lost the other. Other kinds
/// may be missing for lack of permissions.
pub(super) async fn objects(client: &Client, largest: u64) -> Result<(Objects, Vec<Unread>), Unread> {
    let (services, slices, nodes, service_cidrs) = tokio::join!(
        list::<Service>(client, "Services", largest, trim::service),
        list::<EndpointSlice>(client, "EndpointSlices", largest, trim::slice),
        list::<Node>(client, "Nodes", largest, trim::node),
        list::<ServiceCIDR>(client, "ServiceCIDRs", largest, trim::service_cidr),
    );
    let needed = |error| unread("objects", error);
    let mut missing = Vec::new();
    let mut objects =
        Objects { services: services.map_err(needed)?, slices: slices.map_err(needed)?, ..Objects::default() };
    match nodes {
        Ok(nodes) => objects.nodes = nodes,
        Err(error) => missing.push(unread(ArchivePart::Nodes.path(), error)),
    }
    match service_cidrs {
        Ok(service_cidrs) => objects.service_cidrs = service_cidrs,
        Err(error) => missing.push(unread(ArchivePart::ServiceCidrs.path(), error)),
    }
    Ok((objects, missing))
}

/// Lists page by page, and once more as a whole if the server drops the list midway. Empty if the server lacks the
/// kind.
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

/// `None` if the ConfigMap is missing or forbidden.
pub(super) async fn proxy_config_map(client: &Client) -> Result<Option<proxy::Config>, Unread> {
    let (namespace, name, key) = PROXY_CONFIG_MAP;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = api.get_opt(name).await.ok().flatten();
    let Some(text) = map.and_then(|map| map.data?.remove(key)) else { return Ok(None) };
    let parsed = proxy::Config::parse(
        &text,
        &format!("ConfigMap {namespace}/{name}"),
        proxy::ContainedPath::new(Path::new("/"), "/"),
    );
    parsed.map(Some).map_err(|error| unread(ArchivePart::ProxyConfig.path(), error))
}

pub(super) fn refusal(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("the API refuses: {} ({})", status.message, status.code),
        other => causes(other),
    }
}

fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut inner: &(dyn std::error::Error + 'static) = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    let texts: [&dyn Display; 2] = [&error, &inner];
    let [outer, inner] = texts.map(ToString::to_string);
    if outer.contains(&inner) { outer } else { format!("{outer}: {inner}") }
}
