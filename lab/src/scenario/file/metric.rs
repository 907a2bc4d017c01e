//! `metric:` and `healthCheck:`, which look at what a proxy tells of itself.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;
use svclab_apiserver::objects::ObjectKey;

use super::OneFamily;
use crate::scenario::values::{NodeChoice, PodRef};

/// `metric:`
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricFile {
    #[schemars(with = "NodeChoice")]
    pub node: Spanned<NodeChoice>,
    pub name: String,
}

/// `healthCheck:` asks a node's health check for a service, or the proxy for its own health.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct HealthCheckFile {
    #[schemars(with = "NodeChoice")]
    pub node: Spanned<NodeChoice>,
    #[schemars(with = "Option<PodRef>")]
    pub service: Option<Spanned<PodRef>>,
    #[schemars(with = "Option<OneFamily>")]
    pub family: Option<Spanned<OneFamily>>,
    pub path: Option<HealthPath>,
}

/// A path of the proxy's own health port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum HealthPath {
    /// Whether load balancers should send here.
    #[serde(rename = "/healthz")]
    Healthz,
    /// Whether the proxy works.
    #[serde(rename = "/livez")]
    Livez,
}

impl HealthPath {
    /// As it is asked for.
    pub fn text(self) -> &'static str {
        match self {
            HealthPath::Healthz => "/healthz",
            HealthPath::Livez => "/livez",
        }
    }
}

/// Whose health is asked for.
pub enum Asked {
    Service(ObjectKey, Option<Spanned<OneFamily>>),
    Proxy(HealthPath),
}

impl HealthCheckFile {
    /// Whose health is asked for.
    ///
    /// # Errors
    /// A sentence, where it is not one of the two.
    pub fn asked(self) -> Result<Asked, String> {
        match (self.service, self.family, self.path) {
            (Some(service), family, None) => Ok(Asked::Service(service.value.0, family)),
            (None, None, Some(path)) => Ok(Asked::Proxy(path)),
            _ => Err("healthCheck: expected either a `service`, or the `path` of the proxy's own health".to_owned()),
        }
    }
}
