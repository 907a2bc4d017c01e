//! A scenario file, key by key, as its author typed it. Meaning is given to it in [`super::load()`].

mod audit;
mod cluster;
mod fault;
mod impair;
mod kill;
mod metric;
mod nodes_or;
mod proxy;
mod rule;
mod scan;
mod start;

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;

pub use audit::{FindingFile, ServiceRef};
pub use cluster::{ClientFile, ClusterFile, CniFile, Family, Ip, Net, NodeFile, Nodes, OverlayFile, ReversePathFile};
pub use fault::{BusyWriterFile, CommandFaultFile, FaultKeys, LogFaultFile};
pub use impair::ImpairFile;
pub use kill::{KillFile, Moment};
pub use metric::{Asked, HealthCheckFile, HealthPath, MetricFile};
pub use proxy::{
    ConntrackFile, DetectLocalFile, DetectLocalMode, IptablesFile, IpvsFile, ProxyFile, Scheduler, Writer,
};
pub use rule::{Listing, RuleFamily, RuleFile, Table};
pub use scan::{Ports, ScanFile};
pub use start::{ProxyOverride, StartFile};

use super::values::{
    ApiFault, Bound, NodeChoice, ObjectRef, OneOrMany, PlaceRef, PodRef, Sensitivity, Share, Source, Span, Target, Text,
};
use crate::expect::counters::PacketCount;
use crate::mode::{Mode, Need};
use crate::scenario::Variant;

/// A whole file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ScenarioFile {
    #[schemars(with = "String")]
    pub name: Spanned<String>,
    pub about: String,
    #[schemars(with = "Option<String>")]
    pub promise: Option<Spanned<String>>,
    #[schemars(with = "Option<Vec<Mode>>")]
    pub modes: Option<Spanned<Vec<Mode>>>,
    pub variant: Option<Variant>,
    #[serde(default)]
    pub needs: Vec<Need>,
    #[schemars(with = "Option<ClusterFile>")]
    pub cluster: Option<Spanned<ClusterFile>>,
    #[schemars(with = "Option<ProxyFile>")]
    pub proxy: Option<Spanned<ProxyFile>>,
    pub manifests: Option<Manifests>,
    #[schemars(with = "Vec<StepFile>")]
    pub steps: Spanned<Vec<Spanned<StepFile>>>,
}

/// One IP family, for a probe or a health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OneFamily {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// Manifests in place, or files beside the scenario.
#[derive(Debug)]
pub enum Manifests {
    /// The text itself.
    Inline(Spanned<String>),
    /// Paths relative to the scenario.
    Files(Vec<Spanned<String>>),
}

impl<'de> Deserialize<'de> for Manifests {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let either = Spanned::<TextOrList>::deserialize(deserializer)?;
        Ok(match either.value {
            TextOrList::Text(text) => Manifests::Inline(Spanned::new(text, either.referenced, either.defined)),
            TextOrList::List(files) => Manifests::Files(files),
        })
    }
}

enum TextOrList {
    Text(String),
    List(Vec<Spanned<String>>),
}

impl<'de> Deserialize<'de> for TextOrList {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = TextOrList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("manifests as a block of text (`|`), or a list of files")
            }

            fn visit_str<E>(self, text: &str) -> Result<TextOrList, E> {
                Ok(TextOrList::Text(text.to_owned()))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, sequence: A) -> Result<TextOrList, A::Error> {
                Vec::deserialize(serde::de::value::SeqAccessDeserializer::new(sequence)).map(TextOrList::List)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// One of `steps:`; exactly one of the actions is set.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct StepFile {
    pub name: String,
    #[schemars(with = "Option<String>")]
    pub promise: Option<Spanned<String>>,
    pub modes: Option<Vec<Mode>>,
    pub apply: Option<Manifests>,
    pub delete: Option<OneOrMany<ObjectRef>>,
    pub ready: Option<OneOrMany<PodRef>>,
    pub unready: Option<OneOrMany<PodRef>>,
    pub terminate: Option<OneOrMany<PodRef>>,
    pub probe: Option<ProbeFile>,
    pub connect: Option<ConnectFile>,
    #[schemars(with = "Option<String>")]
    pub send: Option<Spanned<String>>,
    #[schemars(with = "Option<String>")]
    pub send_stray: Option<Spanned<String>>,
    #[schemars(with = "Option<ScanFile>")]
    pub scan: Option<Spanned<ScanFile>>,
    #[schemars(with = "Option<Vec<RuleFile>>")]
    pub rules: Option<Vec<Spanned<RuleFile>>>,
    pub exec: Option<ExecFile>,
    pub kill_proxy: Option<KillFile>,
    pub stop_proxy: Option<OneOrMany<NodeChoice>>,
    pub start_proxy: Option<StartFile>,
    pub cleanup_proxy: Option<OneOrMany<NodeChoice>>,
    pub health_check: Option<HealthCheckFile>,
    #[schemars(with = "Option<LoadBalancerFile>")]
    pub load_balancer: Option<Spanned<LoadBalancerFile>>,
    pub metric: Option<MetricFile>,
    pub traffic: Option<TrafficFile>,
    #[schemars(with = "Option<String>")]
    pub end_traffic: Option<Spanned<String>>,
    pub scale: Option<ScaleFile>,
    #[schemars(with = "Option<ApiFault>")]
    pub api: Option<Spanned<ApiFault>>,
    pub partition: Option<OneOrMany<NodeChoice>>,
    pub heal: Option<OneOrMany<NodeChoice>>,
    pub impair: Option<ImpairFile>,
    pub repair: Option<OneOrMany<NodeChoice>>,
    pub command_fault: Option<CommandFaultFile>,
    pub end_command_fault: Option<OneOrMany<NodeChoice>>,
    pub hold_lock: Option<OneOrMany<NodeChoice>>,
    pub release_lock: Option<OneOrMany<NodeChoice>>,
    pub busy_writer: Option<BusyWriterFile>,
    pub end_busy_writer: Option<OneOrMany<NodeChoice>>,
    pub log_fault: Option<LogFaultFile>,
    pub end_log_fault: Option<OneOrMany<NodeChoice>>,
    pub advance: Option<Span>,
    pub idle: Option<Span>,
    pub audit: Option<OneOrMany<NodeChoice>>,
    #[schemars(with = "Option<ExpectFile>")]
    pub expect: Option<Spanned<ExpectFile>>,
    pub eventually: Option<Span>,
    pub every: Option<Span>,
}

/// `probe:`
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ProbeFile {
    #[schemars(with = "PlaceRef")]
    pub from: Spanned<PlaceRef>,
    #[schemars(with = "Target")]
    pub to: Spanned<Target>,
    pub protocol: Option<ProtocolFile>,
    #[schemars(with = "Option<OneFamily>")]
    pub family: Option<Spanned<OneFamily>>,
    #[schemars(with = "Option<usize>")]
    pub count: Option<Spanned<usize>>,
    pub concurrency: Option<usize>,
    pub source_port: Option<u16>,
    pub source_address: Option<Ip>,
    #[schemars(with = "Option<String>")]
    pub via: Option<Spanned<String>>,
    pub timeout: Option<Span>,
    #[schemars(with = "Option<bool>")]
    pub pair: Option<Spanned<bool>>,
}

impl ProbeFile {
    /// A probe of which nothing but the way is said.
    pub fn plain(from: &Spanned<PlaceRef>, to: &Spanned<Target>) -> Self {
        ProbeFile {
            from: from.clone(),
            to: to.clone(),
            protocol: None,
            family: None,
            count: None,
            concurrency: None,
            source_port: None,
            source_address: None,
            via: None,
            timeout: None,
            pair: None,
        }
    }
}

/// A transport protocol that the lab speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ProtocolFile {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// `connect:` opens a TCP connection that later `send:` steps use.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ConnectFile {
    #[schemars(with = "String")]
    pub name: Spanned<String>,
    #[schemars(with = "PlaceRef")]
    pub from: Spanned<PlaceRef>,
    #[schemars(with = "Target")]
    pub to: Spanned<Target>,
    #[schemars(with = "Option<OneFamily>")]
    pub family: Option<Spanned<OneFamily>>,
    #[schemars(with = "Option<String>")]
    pub via: Option<Spanned<String>>,
}

/// `exec:` runs a command.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ExecFile {
    #[schemars(with = "PlaceRef")]
    pub on: Spanned<PlaceRef>,
    /// Program and arguments.
    #[schemars(with = "Vec<Text>")]
    pub command: Vec<String>,
}

/// `loadBalancer:` looks at the nodes that the load balancer sends a service's traffic to.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LoadBalancerFile {
    #[schemars(with = "PodRef")]
    pub service: Spanned<PodRef>,
}

/// `traffic:` sends requests in the background until an `endTraffic:` step.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TrafficFile {
    #[schemars(with = "String")]
    pub name: Spanned<String>,
    #[schemars(with = "PlaceRef")]
    pub from: Spanned<PlaceRef>,
    #[schemars(with = "Target")]
    pub to: Spanned<Target>,
    pub protocol: Option<ProtocolFile>,
    #[schemars(with = "Option<OneFamily>")]
    pub family: Option<Spanned<OneFamily>>,
    #[schemars(with = "Option<String>")]
    pub via: Option<Spanned<String>>,
    pub concurrency: Option<usize>,
    pub pause: Option<Span>,
    #[schemars(with = "Option<u16>")]
    pub source_port: Option<Spanned<u16>>,
}

/// `scale:` makes copies of a pod, or takes them away.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaleFile {
    #[schemars(with = "PodRef")]
    pub pod: Spanned<PodRef>,
    pub to: usize,
}

/// `expect:`
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ExpectFile {
    #[schemars(with = "Option<Answered>")]
    pub answered: Option<Spanned<Answered>>,
    pub spread: Option<Spread>,
    #[schemars(with = "Option<Sensitivity>")]
    pub sensitivity: Option<Spanned<Sensitivity>>,
    /// The one of all steps of a run, which no file says.
    #[serde(skip)]
    pub sensitivity_of_run: Option<f64>,
    pub sticky: Option<bool>,
    #[schemars(with = "Option<String>")]
    pub same_as: Option<Spanned<String>>,
    #[schemars(with = "Option<String>")]
    pub differs_from: Option<Spanned<String>>,
    pub saw_source: Option<OneOrMany<Source>>,
    pub refused: Option<bool>,
    pub dropped: Option<bool>,
    pub unanswered: Option<bool>,
    pub took: Option<OneOrMany<Bound>>,
    #[schemars(with = "Vec<RuleFile>")]
    pub counters: Vec<Spanned<RuleFile>>,
    pub status: Option<i32>,
    pub output: Option<OneOrMany<Text>>,
    pub lacks: Option<OneOrMany<Text>>,
    pub local_endpoints: Option<u64>,
    #[schemars(with = "Option<Vec<String>>")]
    pub healthy_nodes: Option<Vec<Spanned<String>>>,
    pub alive: Option<bool>,
    #[schemars(with = "Option<Vec<u16>>")]
    pub open: Option<Spanned<Vec<u16>>>,
    pub made: Option<PacketCount>,
    pub failed: Option<PacketCount>,
    pub misdelivered: Option<PacketCount>,
    pub grew: Option<PacketCount>,
    pub processor: Option<OneOrMany<Bound>>,
    pub wake_ups: Option<PacketCount>,
    #[schemars(with = "Option<Vec<FindingFile>>")]
    pub findings: Option<Vec<Spanned<FindingFile>>>,
}

/// `spread: even` or `spread: turns`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Spread {
    /// Everybody the same share.
    Even,
    /// One after the other, always in the same order: what a round robin promises to one client at a time.
    Turns,
}

/// `answered:` a pod, a list of pods, or a share for each.
#[derive(Debug, Clone)]
pub enum Answered {
    /// Any of these.
    By(Vec<PodRef>),
    /// These, in proportion.
    Shares(BTreeMap<String, Share>),
}

impl<'de> Deserialize<'de> for Answered {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Answered;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pod, a list of pods, or pods with their shares ({web-1: 1/3, web-2: 2/3})")
            }

            fn visit_str<E: serde::de::Error>(self, pod: &str) -> Result<Answered, E> {
                pod.parse().map(|pod| Answered::By(vec![pod])).map_err(E::custom)
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, sequence: A) -> Result<Answered, A::Error> {
                Vec::deserialize(serde::de::value::SeqAccessDeserializer::new(sequence)).map(Answered::By)
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Answered, A::Error> {
                BTreeMap::deserialize(serde::de::value::MapAccessDeserializer::new(map)).map(Answered::Shares)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
