//! What is simulated, and with which figures.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::cluster::ClusterSize;
use crate::control_plane::{ControlPlaneFigures, ListFigures};

/// The simulated cluster.
pub const NODES: u32 = 5_000;
pub const SERVICES: u64 = 10_000;
/// Of each service.
pub const ENDPOINTS: u64 = 10;

/// The API server: processors like the measured machine's, and one network interface.
pub const PROCESSORS: usize = 16;
/// 10 Gbit/s in bytes per second.
pub const NETWORK: f64 = 1.25e9;
/// Requests that it works on or queues; it refuses others with status 429 (`--max-requests-inflight` and
/// `--max-mutating-requests-inflight`, whose sum priority and fairness divides: kube-apiserver's reference).
pub const IN_FLIGHT: usize = 600;
/// The work of a refusal.
pub const REFUSAL: Duration = Duration::from_micros(200);

/// The time without an API server.
pub const AWAY: Duration = Duration::from_secs(10);
/// Pods that a rollout replaces at once: `maxUnavailable` of 10 %.
pub const AT_ONCE: u32 = NODES / 10;
/// From the end of a pod until the next one's first request.
pub const POD_START: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(15));
/// From the last byte until the rules stand.
pub const SYNC: Duration = Duration::from_millis(500);

/// The endpoints that the rolling update replaces, each by two changes of a slice, and the time for it.
pub const REPLACED: u32 = 10_000;
pub const UPDATE: Duration = Duration::from_secs(600);

/// How a proxy asks.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoding {
    pub name: &'static str,
    /// Of a list of everything in the simulated cluster.
    pub list_bytes: f64,
    pub list_work: Duration,
    pub event_bytes: f64,
    pub event_work: Duration,
}

/// When a proxy asks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Each second, without chance.
    EachSecond,
    /// client-go's back-off and jitter, and a relist after a random part of five seconds, as svcproxy does.
    Jitter,
}

impl Retry {
    pub const ALL: [Retry; 2] = [Retry::Jitter, Retry::EachSecond];

    pub fn name(self) -> &'static str {
        match self {
            Retry::EachSecond => "each second",
            Retry::Jitter => "jitter",
        }
    }

    /// The wait after `failures` failures in a row (client-go: 0.8 s doubled up to 30 s, and up to as much again).
    pub fn after(self, failures: u32, chance: f64) -> Duration {
        match self {
            Retry::EachSecond => Duration::from_secs(1),
            Retry::Jitter => {
                let step = (0.8 * f64::from(2u32.saturating_pow(failures.saturating_sub(1)))).min(30.0);
                Duration::from_secs_f64(step * (1.0 + chance))
            }
        }
    }

    /// The wait before lists of everything, while the rules stand.
    pub fn before_relist(self, chance: f64) -> Duration {
        match self {
            Retry::EachSecond => Duration::ZERO,
            Retry::Jitter => Duration::from_secs_f64(5.0 * chance),
        }
    }
}

/// By how much the simulated cluster is larger than the measured one.
pub fn factor(figures: &ControlPlaneFigures) -> Result<f64> {
    let measured: ClusterSize = figures.cluster.parse()?;
    ensure!(
        u64::from(measured.endpoints) == ENDPOINTS,
        "the measured services have {} endpoints, not {ENDPOINTS}",
        measured.endpoints
    );
    Ok(SERVICES as f64 / f64::from(measured.services))
}

/// The encodings, with the measured figures of one cluster scaled to the simulated one. A streaming list is not compressed by
/// servers up to 1.36, so it counts as protobuf without gzip; its work was not measured by itself.
pub fn encodings(figures: &ControlPlaneFigures) -> Result<Vec<Encoding>> {
    let factor = factor(figures)?;
    let event = figures.proxies.get("svcproxy").map_or(0.0, |proxy| proxy.change_bytes as f64);
    let event_work = figures.fleet.as_ref().map_or(0.0, |fleet| fleet.event_server_ms);
    let of = |name, list: &str, event_factor: f64| {
        let zero = ListFigures { bytes: 0, server_ms: None };
        let list = figures.lists.get(list).copied().unwrap_or(zero);
        Encoding {
            name,
            list_bytes: list.bytes as f64 * factor,
            list_work: Duration::from_secs_f64(list.server_ms.unwrap_or_default() * factor / 1000.0),
            event_bytes: event * event_factor,
            event_work: Duration::from_secs_f64(event_work / 1000.0),
        }
    };
    Ok(vec![
        of("JSON", "JSON", JSON_EVENT),
        of("JSON, gzip", "JSON, gzip", JSON_EVENT),
        of("protobuf, streamed", "protobuf", 1.0),
        of("protobuf, gzip", "protobuf, gzip", 1.0),
    ])
}

/// A watch event in JSON by one in protobuf, as measured: 3,525 to 1,841 bytes. Events are never compressed.
const JSON_EVENT: f64 = 3_525.0 / 1_841.0;
