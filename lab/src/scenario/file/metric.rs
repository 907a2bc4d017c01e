use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::OneFamily;
use crate::scenario::values::{NodeChoice, PlaceRef, PodRef};

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricFile {
    #[schemars(with = "NodeChoice")]
    pub node: Spanned<NodeChoice>,
    pub name: String,
}

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
