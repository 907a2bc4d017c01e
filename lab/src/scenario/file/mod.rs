//! The types of a scenario file. [`super::load()`] checks the values.

mod audit;
mod cluster;
mod expect;
mod fault;
mod impair;
mod kill;
mod meaning;
mod metric;
mod nodes_or;
mod proxy;
mod rule;
mod scale;
mod scan;
mod start;
mod step;
mod step_file;

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;

pub use audit::{FindingFile, ServiceRef};
pub use cluster::{
    ClientFile, ClusterFamily, ClusterFile, CniFile, Ip, Net, NodeFile, Nodes, OverlayFile, ReversePathFile,
};
pub use expect::{EXPECT_KEYS, ExpectFile, ExpectKey, ExpectedServers, Spread};
pub use fault::{BusyWriterFile, CommandFaultFile, LogFaultFile};
pub use impair::ImpairFile;
pub(in crate::scenario) use kill::KillMap;
pub use kill::{KillFile, KillMoment};
pub use metric::{HealthCheckFile, HealthPath, MetricFile};
pub use proxy::{
    ConntrackFile, DetectLocalFile, DetectLocalMode, IptablesFile, IptablesWriter, IpvsFile, ProxyFile, Scheduler,
};
pub use rule::{IptablesTable, Listing, RuleFamily, RuleFile, nft_table};
pub use scale::ScaleFile;
pub use scan::{PortRange, ScanFile};
pub(in crate::scenario) use start::StartMap;
pub use start::{ProxyOverride, StartFile, StartMoment};
pub use step::{Action, DSCPS, DURATIONS, Effect, KernelOnly, ProxyAction, SIZES, STEP_KEYS, StepKey};
pub use step_file::{CommonKeys, StepFile};

use super::values::{InvalidObject, OneOrMany, PlaceRef, PlainText, PodRef, ProbeTarget, TimeSpan};
use crate::mode::{Mode, Need};
use crate::scenario::IptablesVariant;

/// A whole file. The descriptions are the table in docs/scenarios.md.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ScenarioFile {
    #[schemars(description = "the file's name without `.yaml`")]
    #[schemars(with = "String")]
    pub name: Spanned<String>,
    #[schemars(description = "what the scenario shows, in a sentence")]
    pub about: String,
    #[schemars(
        description = "the promise that the scenario tests, by its short name (`svclab conformance --promises`): a failed step breaks it on a proxy's [card](conformance.md)"
    )]
    #[schemars(with = "Option<String>")]
    pub promise: Option<Spanned<String>>,
    #[schemars(
        description = "the proxy modes of the scenario; default all: `[iptables, ipvs, nftables, userspace]`, and [`other`](#none-of-kube-proxys-modes) where the description of the proxy has that mode. `svclab run` runs it in each mode, `--mode ipvs` in that mode only; where the host's kernel has no IPVS, in a microVM: see [Modes](#modes)"
    )]
    #[schemars(with = "Option<Vec<Mode>>")]
    pub modes: Option<Spanned<Vec<Mode>>>,
    #[schemars(description = "`nft` or `legacy`: the variant of iptables, which overrides `--iptables-variant`")]
    pub variant: Option<IptablesVariant>,
    #[schemars(
        description = "a list of what not every machine has: `virtualTime` (implied by `advance`), `netem` (implied by `impair`), `sctp` to send it, `ipvs`, `dummy`, `flowtable`, and `largeBatches`: rules of hundreds of endpoints in one transaction of iptables-nft, required only of other projects' proxies, as svcproxy sends several. Where the host's kernel lacks one, `svclab run` uses a microVM and says so: [determinism.md](determinism.md)"
    )]
    #[serde(default)]
    pub needs: Vec<Need>,
    #[schemars(description = "nodes, clients, networks; everything has a default")]
    #[schemars(with = "Option<ClusterFile>")]
    pub cluster: Option<Spanned<ClusterFile>>,
    #[schemars(description = "settings of the proxies, in the words of a KubeProxyConfiguration")]
    #[schemars(with = "Option<ProxyFile>")]
    pub proxy: Option<Spanned<ProxyFile>>,
    #[schemars(description = "the objects before the first step: text (`|`), or a list of files beside the scenario")]
    pub manifests: Option<Manifests>,
    #[schemars(
        description = "objects here and in `apply` steps that no API server would accept and that are meant so: `service/web`, a list, or `all`. Any other such object is a mistake of the file"
    )]
    pub invalid: Option<OneOrMany<InvalidObject>>,
    #[schemars(description = "the steps, in order; step names are unique")]
    #[schemars(with = "Vec<StepFile>")]
    pub steps: Spanned<Vec<Spanned<StepFile>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OneFamily {
    Ipv4,
    Ipv6,
}

/// Manifests in the scenario, or files beside the scenario.
#[derive(Debug, Clone)]
pub enum Manifests {
    Inline(Spanned<String>),
    /// Paths of files, relative to the folder of the scenario.
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
        struct ManifestsVisitor;
        impl<'de> serde::de::Visitor<'de> for ManifestsVisitor {
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
        deserializer.deserialize_any(ManifestsVisitor)
    }
}

/// `probe:` The descriptions are the table in docs/scenarios.md.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ProbeFile {
    #[schemars(description = "`pod/NAME`, `pod/NAMESPACE/NAME`, `node/NAME`, `client/NAME` or `load-balancer`")]
    #[schemars(with = "PlaceRef")]
    pub from: Spanned<PlaceRef>,
    #[schemars(
        description = "`service/NAME` (its cluster IP), `nodePort/NAME@NODE`, `loadBalancer/NAME`, `externalIP/NAME`, each with `:PORT` (name or number) after NAME where the service has several; a second address of the family is `loadBalancer/NAME#2`, `externalIP/NAME#2`; `pod/NAME:PORT`, `node/NAME:PORT`, `IP:PORT`"
    )]
    #[schemars(with = "ProbeTarget")]
    pub to: Spanned<ProbeTarget>,
    #[schemars(description = "`TCP`, `UDP` or `SCTP` (needs `sctp`); default: the service port's")]
    pub protocol: Option<ProtocolFile>,
    #[schemars(description = "`ipv4` or `ipv6`; default: the cluster's primary family")]
    #[schemars(with = "Option<OneFamily>")]
    pub family: Option<Spanned<OneFamily>>,
    #[schemars(description = "the number of requests; default: as many as the claim needs, 1 without a claim")]
    #[schemars(with = "Option<usize>")]
    pub count: Option<Spanned<usize>>,
    #[schemars(description = "the number of requests at a time; default 16")]
    pub concurrency: Option<usize>,
    #[schemars(
        description = "the port that the client binds; without it each probe of a run has a port of its own, so that no conntrack entry of an earlier probe decides its fate"
    )]
    pub source_port: Option<u16>,
    #[schemars(description = "the address that the client binds")]
    pub source_address: Option<Ip>,
    #[schemars(
        description = "the size of each request; the answer repeats it, and so is as large. UDP: one datagram, in fragments if need be; at most 65000. The simulator sends one small packet, and says so"
    )]
    #[schemars(with = "Option<usize>")]
    pub bytes: Option<Spanned<usize>>,
    #[schemars(description = "the DSCP of the requests' packets, 0 to 63: see `sawDscp`")]
    #[schemars(with = "Option<u8>")]
    pub dscp: Option<Spanned<u8>>,
    #[schemars(description = "the node to which an outside client sends packets for this address")]
    #[schemars(with = "Option<String>")]
    pub via: Option<Spanned<String>>,
    #[schemars(
        description = "how long a missing answer counts as a drop; default 700 ms where a drop is expected, else 5 s (`svclab run --patience MS`)"
    )]
    pub timeout: Option<TimeSpan>,
    #[schemars(
        description = "UDP: each request is two datagrams (`A?`, `AAAA?`) that two threads send at once over one socket, and `answered` is about each of them"
    )]
    #[schemars(with = "Option<bool>")]
    pub pair: Option<Spanned<bool>>,
}

impl ProbeFile {
    /// Returns a probe with defaults except for source and destination.
    pub fn plain(from: &Spanned<PlaceRef>, to: &Spanned<ProbeTarget>) -> Self {
        ProbeFile {
            from: from.clone(),
            to: to.clone(),
            protocol: None,
            family: None,
            count: None,
            concurrency: None,
            source_port: None,
            source_address: None,
            bytes: None,
            dscp: None,
            via: None,
            timeout: None,
            pair: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ProtocolFile {
    Tcp,
    Udp,
    Sctp,
}

/// `connect:` opens a TCP connection for later `send:` steps.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ConnectFile {
    /// The name by which `send` and `sendStray` steps refer to the connection.
    #[schemars(with = "String")]
    pub name: Spanned<String>,
    /// The caller: `pod/NAME`, `node/NAME`, `client/NAME` or `load-balancer`.
    #[schemars(with = "PlaceRef")]
    pub from: Spanned<PlaceRef>,
    /// The target, as in `probe`.
    #[schemars(with = "ProbeTarget")]
    pub to: Spanned<ProbeTarget>,
    /// `ipv4` or `ipv6`; default: the cluster's primary family.
    #[schemars(with = "Option<OneFamily>")]
    pub family: Option<Spanned<OneFamily>>,
    /// The node to which an outside client sends packets for this address.
    #[schemars(with = "Option<String>")]
    pub via: Option<Spanned<String>>,
    /// The port that the client binds; default: one that the kernel chooses.
    pub source_port: Option<u16>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ExecFile {
    /// Where the command runs: `pod/NAME`, `node/NAME`, `client/NAME` or `load-balancer`.
    #[schemars(with = "PlaceRef")]
    #[serde(alias = "on")]
    pub at: Spanned<PlaceRef>,
    /// The program and its arguments; no shell.
    #[schemars(with = "Vec<PlainText>")]
    pub command: Vec<String>,
}

/// `loadBalancer:` reads which nodes the load balancer sends to.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LoadBalancerFile {
    /// The Service whose address the load balancer publishes: `NAME` or `NAMESPACE/NAME`.
    #[schemars(with = "PodRef")]
    pub service: Spanned<PodRef>,
    /// `ipv4` or `ipv6`: the Service's first address of that family; default: its first address.
    #[schemars(with = "Option<OneFamily>")]
    pub family: Option<Spanned<OneFamily>>,
}

/// `traffic:` sends requests in the background until an `endTraffic:` step.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TrafficFile {
    /// The name by which the `endTraffic` step refers to the traffic.
    #[schemars(with = "String")]
    pub name: Spanned<String>,
    /// The caller: `pod/NAME`, `node/NAME`, `client/NAME` or `load-balancer`.
    #[schemars(with = "PlaceRef")]
    pub from: Spanned<PlaceRef>,
    /// The target, a frontend of a Service, as in `probe`.
    #[schemars(with = "ProbeTarget")]
    pub to: Spanned<ProbeTarget>,
    /// `TCP`, `UDP` or `SCTP`; default: the service port's.
    pub protocol: Option<ProtocolFile>,
    /// `ipv4` or `ipv6`; default: the cluster's primary family.
    #[schemars(with = "Option<OneFamily>")]
    pub family: Option<Spanned<OneFamily>>,
    /// The node to which an outside client sends packets for this address.
    #[schemars(with = "Option<String>")]
    pub via: Option<Spanned<String>>,
    /// The number of requests at a time, at most 10000; default 4.
    pub concurrency: Option<usize>,
    /// The pause after each request of a task; default `5ms`.
    pub pause: Option<TimeSpan>,
    /// UDP: the port that the client binds, so that all requests are of one flow, one at a time.
    #[schemars(with = "Option<u16>")]
    pub source_port: Option<Spanned<u16>>,
}
