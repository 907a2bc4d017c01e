//! The measured figures, kept in `control-plane.yaml`: [`crate::scale`] computes with them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

const COMMITTED: &str = include_str!("../control-plane.yaml");
const HEAD: &str = "# What proxies cost a kube-apiserver: written by `./just bench --control-plane DIR --update`, and read by the simulation of
# docs/scale.md. Medians; bytes are those that the server sent, with TLS and HTTP; processor times are kube-apiserver's.
";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlPlaneFigures {
    pub server: String,
    /// Such as `2000x10`.
    pub cluster: String,
    pub proxies: BTreeMap<String, ProxyFigures>,
    /// A list of all services and one of all slices, by how they are written.
    pub lists: BTreeMap<String, ListFigures>,
    pub fleet: Option<FleetFigures>,
}

/// One proxy alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProxyFigures {
    pub start_bytes: u64,
    pub start_requests: u64,
    /// `None` with the lab's API.
    pub start_server_ms: Option<f64>,
    /// From the start of the process until the last service answers.
    pub start_ms: f64,
    /// Of one changed slice.
    pub change_bytes: u64,
    pub peak_bytes: u64,
    pub resident_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListFigures {
    pub bytes: u64,
    /// `None` with the lab's API.
    pub server_ms: Option<f64>,
}

/// Many svcproxy processes at one kube-apiserver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FleetFigures {
    pub proxies: u16,
    /// Until the last proxy has its rules, all having been started at once.
    pub start_ms: f64,
    pub start_server_ms: f64,
    pub start_bytes: u64,
    /// Until the last proxy follows one change.
    pub change_ms: f64,
    /// The server's work for one event to one proxy.
    pub event_server_ms: f64,
    /// The time without a server.
    pub away_ms: f64,
    /// From the server's return until the last proxy follows a change made then.
    pub return_ms: f64,
    pub return_server_ms: f64,
    pub return_bytes: u64,
}

impl ControlPlaneFigures {
    pub fn committed() -> Result<ControlPlaneFigures> {
        serde_saphyr::from_str(COMMITTED).context("read benches/control-plane.yaml")
    }

    pub fn write(&self) -> Result<()> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/control-plane.yaml");
        let text = serde_saphyr::to_string(self).context("write the figures as YAML")?;
        std::fs::write(path, format!("{HEAD}{text}")).with_context(|| format!("write {path}"))
    }
}

pub(super) fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}
