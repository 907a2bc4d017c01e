use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::OneFamily;
use crate::scenario::values::{NodeChoice, PlaceRef, PodRef};

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricFile {
    /// The node whose proxy is asked.
    #[schemars(with = "NodeChoice")]
    pub node: Spanned<NodeChoice>,
    /// The metric's name, with labels to choose samples: `NAME{label="value"}`.
    pub name: String,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct HealthCheckFile {
    /// The node that is asked.
    #[schemars(with = "NodeChoice")]
    pub node: Spanned<NodeChoice>,
    /// The Service whose `healthCheckNodePort` is asked; either this or `path`.
    #[schemars(with = "Option<PodRef>")]
    pub service: Option<Spanned<PodRef>>,
    /// `ipv4` or `ipv6`; default: the cluster's primary family.
    #[schemars(with = "Option<OneFamily>")]
    pub family: Option<Spanned<OneFamily>>,
    /// The path of the proxy's own health at port 10256; either this or `service`.
    pub path: Option<HealthPath>,
    /// The caller; default: the node itself.
    #[schemars(with = "Option<PlaceRef>")]
    pub from: Option<Spanned<PlaceRef>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum HealthPath {
    /// Whether load balancers should send here.
    #[serde(rename = "/healthz")]
    Healthz,
    /// Whether the proxy works.
    #[serde(rename = "/livez")]
    Livez,
    /// 200 once the rules come from the API and not from a state file; svcproxy's alone.
    #[serde(rename = "/readyz")]
    Readyz,
}

impl HealthPath {
    pub fn text(self) -> &'static str {
        match self {
            HealthPath::Healthz => "/healthz",
            HealthPath::Livez => "/livez",
            HealthPath::Readyz => "/readyz",
        }
    }
}

impl HealthCheckFile {
    pub(super) fn mistake(&self) -> Option<&'static str> {
        let is_right = self.service.is_some() != self.path.is_some();
        (!is_right).then_some("healthCheck: expected either a `service`, or the `path` of the proxy's own health")
    }

    /// Whether the node asks itself over loopback, as the kubelet's probes do.
    pub fn is_over_loopback(&self) -> bool {
        self.path.is_some() && self.from.is_none() && self.family.is_none()
    }
}
