//! Names and defaults of k8s.io/kube-proxy `config/v1alpha1`, k8s.io/component-base `config/v1alpha1` and
//! `logs/api/v1`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::address::with_port;
use super::{GoDuration, tree};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeProxyConfiguration {
    pub api_version: String,
    pub kind: String,
    pub feature_gates: BTreeMap<String, bool>,
    pub client_connection: ClientConnectionConfiguration,
    pub logging: LoggingConfiguration,
    pub hostname_override: String,
    pub bind_address: String,
    pub healthz_bind_address: String,
    pub metrics_bind_address: String,
    pub bind_address_hard_fail: bool,
    pub enable_profiling: bool,
    pub show_hidden_metrics_for_version: String,
    pub mode: String,
    pub iptables: IptablesConfiguration,
    pub ipvs: IpvsConfiguration,
    pub nftables: NftablesConfiguration,
    pub winkernel: WinkernelConfiguration,
    pub detect_local_mode: String,
    pub detect_local: DetectLocalConfiguration,
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: String,
    #[serde(rename = "noMasqueradeCIDRs")]
    pub no_masquerade_cidrs: Vec<String>,
    /// Exists only in this proxy.
    pub masquerade_source: String,
    pub node_port_addresses: Vec<String>,
    pub oom_score_adj: i32,
    pub conntrack: ConntrackConfiguration,
    pub config_sync_period: GoDuration,
    pub port_range: String,
    pub windows_run_as_service: bool,
    /// Exists only in this proxy.
    pub flow_fate: String,
    /// Exists only in this proxy.
    pub load_balancing: String,
    /// Exists only in this proxy.
    pub service_annotations: Vec<String>,
    /// This and the next exist only in this proxy.
    pub state_file: StateFileConfiguration,
    pub restart_on_config_change: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StateFileConfiguration {
    pub path: String,
    pub max_age: GoDuration,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientConnectionConfiguration {
    pub kubeconfig: String,
    pub accept_content_types: String,
    pub content_type: String,
    pub qps: f32,
    pub burst: i32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoggingConfiguration {
    pub format: String,
    #[serde(deserialize_with = "time_or_nanoseconds")]
    pub flush_frequency: GoDuration,
    pub verbosity: u32,
    pub vmodule: Vec<ModuleVerbosity>,
    pub options: LoggingOptions,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModuleVerbosity {
    pub file_pattern: String,
    #[serde(default)]
    pub verbosity: u32,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoggingOptions {
    pub text: OutputRouting,
    pub json: OutputRouting,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OutputRouting {
    pub split_stream: bool,
    #[serde(deserialize_with = "quantity")]
    pub info_buffer_size: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IptablesConfiguration {
    pub masquerade_bit: i32,
    pub masquerade_all: bool,
    pub localhost_node_ports: bool,
    /// Exists only in this proxy.
    pub count_localhost_node_ports: bool,
    pub sync_period: GoDuration,
    pub min_sync_period: GoDuration,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpvsConfiguration {
    pub sync_period: GoDuration,
    pub min_sync_period: GoDuration,
    pub scheduler: String,
    #[serde(rename = "excludeCIDRs")]
    pub exclude_cidrs: Vec<String>,
    #[serde(rename = "strictARP")]
    pub strict_arp: bool,
    pub tcp_timeout: GoDuration,
    pub tcp_fin_timeout: GoDuration,
    pub udp_timeout: GoDuration,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NftablesConfiguration {
    pub masquerade_bit: i32,
    pub masquerade_all: bool,
    pub sync_period: GoDuration,
    pub min_sync_period: GoDuration,
    /// Exists only in this proxy.
    pub flowtable: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WinkernelConfiguration {
    pub network_name: String,
    pub source_vip: String,
    #[serde(rename = "enableDSR")]
    pub enable_dsr: bool,
    pub root_hns_endpoint_name: String,
    pub forward_health_check_vip: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DetectLocalConfiguration {
    pub bridge_interface: String,
    pub interface_name_prefix: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConntrackConfiguration {
    pub max_per_core: i32,
    pub min: i32,
    pub tcp_established_timeout: GoDuration,
    pub tcp_close_wait_timeout: GoDuration,
    pub tcp_be_liberal: bool,
    pub udp_timeout: GoDuration,
    pub udp_stream_timeout: GoDuration,
}

const KEEP: &str = "keep";
const RANDOM: &str = "random";
const SYNC_PERIOD: GoDuration = GoDuration::seconds(30);
const MIN_SYNC_PERIOD: GoDuration = GoDuration::seconds(1);
const CONFIG_SYNC_PERIOD: GoDuration = GoDuration::seconds(15 * 60);
/// The rules of a node that was off for longer are hardly of use.
const STATE_FILE_MAX_AGE: GoDuration = GoDuration::seconds(24 * 3600);
const MASQUERADE_BIT: i32 = 14;
const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

impl Default for KubeProxyConfiguration {
    fn default() -> Self {
        KubeProxyConfiguration::bound_to("")
    }
}

impl KubeProxyConfiguration {
    /// The family of `bindAddress` decides the defaults of `/healthz` and `/metrics`. An empty text means its default.
    pub fn bound_to(bind_address: &str) -> KubeProxyConfiguration {
        let mut empty = KubeProxyConfiguration {
            api_version: super::API_VERSION.to_owned(),
            kind: super::KIND.to_owned(),
            feature_gates: BTreeMap::new(),
            client_connection: ClientConnectionConfiguration::default(),
            logging: LoggingConfiguration::default(),
            hostname_override: String::new(),
            bind_address: bind_address.to_owned(),
            healthz_bind_address: String::new(),
            metrics_bind_address: String::new(),
            bind_address_hard_fail: false,
            enable_profiling: false,
            show_hidden_metrics_for_version: String::new(),
            mode: String::new(),
            iptables: IptablesConfiguration::default(),
            ipvs: IpvsConfiguration::default(),
            nftables: NftablesConfiguration::default(),
            winkernel: WinkernelConfiguration::default(),
            detect_local_mode: String::new(),
            detect_local: DetectLocalConfiguration::default(),
            cluster_cidr: String::new(),
            no_masquerade_cidrs: Vec::new(),
            masquerade_source: String::new(),
            node_port_addresses: Vec::new(),
            oom_score_adj: -999,
            conntrack: ConntrackConfiguration::default(),
            config_sync_period: CONFIG_SYNC_PERIOD,
            port_range: String::new(),
            windows_run_as_service: false,
            flow_fate: KEEP.to_owned(),
            load_balancing: RANDOM.to_owned(),
            service_annotations: vec!["all".to_owned()],
            state_file: StateFileConfiguration::default(),
            restart_on_config_change: false,
        };
        empty.fill();
        empty
    }
}

impl Default for ClientConnectionConfiguration {
    fn default() -> Self {
        let content_type = CONTENT_TYPE.to_owned();
        ClientConnectionConfiguration {
            kubeconfig: String::new(),
            accept_content_types: String::new(),
            content_type,
            qps: 5.0,
            burst: 10,
        }
    }
}

impl Default for LoggingConfiguration {
    fn default() -> Self {
        LoggingConfiguration {
            format: "text".to_owned(),
            flush_frequency: GoDuration::seconds(5),
            verbosity: 0,
            vmodule: Vec::new(),
            options: LoggingOptions::default(),
        }
    }
}

impl Default for OutputRouting {
    fn default() -> Self {
        OutputRouting { split_stream: false, info_buffer_size: "0".to_owned() }
    }
}

impl Default for IptablesConfiguration {
    fn default() -> Self {
        IptablesConfiguration {
            masquerade_bit: MASQUERADE_BIT,
            masquerade_all: false,
            localhost_node_ports: true,
            count_localhost_node_ports: false,
            sync_period: SYNC_PERIOD,
            min_sync_period: MIN_SYNC_PERIOD,
        }
    }
}

impl Default for IpvsConfiguration {
    fn default() -> Self {
        let zero = GoDuration::default();
        IpvsConfiguration {
            sync_period: SYNC_PERIOD,
            min_sync_period: zero,
            scheduler: String::new(),
            exclude_cidrs: Vec::new(),
            strict_arp: false,
            tcp_timeout: zero,
            tcp_fin_timeout: zero,
            udp_timeout: zero,
        }
    }
}

impl Default for NftablesConfiguration {
    fn default() -> Self {
        NftablesConfiguration {
            masquerade_bit: MASQUERADE_BIT,
            masquerade_all: false,
            sync_period: SYNC_PERIOD,
            min_sync_period: MIN_SYNC_PERIOD,
            flowtable: false,
        }
    }
}

impl Default for StateFileConfiguration {
    fn default() -> Self {
        StateFileConfiguration { path: String::new(), max_age: STATE_FILE_MAX_AGE }
    }
}

impl Default for ConntrackConfiguration {
    fn default() -> Self {
        ConntrackConfiguration {
            max_per_core: 32 * 1024,
            min: 128 * 1024,
            tcp_established_timeout: GoDuration::seconds(24 * 3600),
            tcp_close_wait_timeout: GoDuration::seconds(3600),
            tcp_be_liberal: false,
            udp_timeout: GoDuration::default(),
            udp_stream_timeout: GoDuration::default(),
        }
    }
}

impl KubeProxyConfiguration {
    /// Replaces empty and zero values of a file, as kube-proxy's `SetDefaults_KubeProxyConfiguration` and
    /// `platformApplyDefaults` do. Flags are applied later, so that their zero stays.
    pub(super) fn fill(&mut self) {
        let text = |value: &mut String, default: &str| {
            if value.is_empty() {
                default.clone_into(value);
            }
        };
        let time = |value: &mut GoDuration, default: GoDuration| {
            if value.is_zero() {
                *value = default;
            }
        };
        text(&mut self.bind_address, "0.0.0.0");
        let v4 = crate::model::parse_ip(&self.bind_address).is_none_or(|address| address.is_ipv4());
        text(&mut self.healthz_bind_address, if v4 { "0.0.0.0" } else { "::" });
        text(&mut self.metrics_bind_address, if v4 { "127.0.0.1" } else { "::1" });
        self.healthz_bind_address = with_port(&self.healthz_bind_address, HEALTHZ_PORT);
        self.metrics_bind_address = with_port(&self.metrics_bind_address, METRICS_PORT);
        text(&mut self.mode, "iptables");
        text(&mut self.detect_local_mode, "ClusterCIDR");
        text(&mut self.client_connection.content_type, CONTENT_TYPE);
        text(&mut self.logging.format, "text");
        text(&mut self.flow_fate, KEEP);
        text(&mut self.load_balancing, RANDOM);
        if self.client_connection.qps == 0.0 {
            self.client_connection.qps = 5.0;
        }
        if self.client_connection.burst == 0 {
            self.client_connection.burst = 10;
        }
        time(&mut self.iptables.sync_period, SYNC_PERIOD);
        time(&mut self.iptables.min_sync_period, MIN_SYNC_PERIOD);
        time(&mut self.ipvs.sync_period, SYNC_PERIOD);
        time(&mut self.nftables.sync_period, SYNC_PERIOD);
        time(&mut self.nftables.min_sync_period, MIN_SYNC_PERIOD);
        time(&mut self.config_sync_period, CONFIG_SYNC_PERIOD);
        time(&mut self.state_file.max_age, STATE_FILE_MAX_AGE);
        time(&mut self.logging.flush_frequency, GoDuration::seconds(5));
    }
}

impl KubeProxyConfiguration {
    pub fn with(&self, path: &str, value: Value) -> Result<KubeProxyConfiguration, String> {
        let mut whole = serde_json::to_value(self).map_err(|error| error.to_string())?;
        tree::set(&mut whole, path, value);
        serde_json::from_value(whole).map_err(|error| error.to_string())
    }

    pub fn to_yaml(&self) -> Result<String, String> {
        // A JSON value sorts the fields, as kube-proxy does.
        let whole = serde_json::to_value(self).map_err(|error| error.to_string())?;
        serde_saphyr::to_string(&whole).map_err(|error| error.to_string())
    }
}

pub const HEALTHZ_PORT: u16 = 10256;
pub const METRICS_PORT: u16 = 10249;

fn time_or_nanoseconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<GoDuration, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => text.parse().map_err(serde::de::Error::custom),
        Value::Number(number) if number.is_i64() => Ok(GoDuration::nanoseconds(number.as_i64().unwrap_or_default())),
        other => Err(serde::de::Error::custom(format!("{other} is neither a time nor a number of nanoseconds"))),
    }
}

fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(serde::de::Error::custom(format!("{other} is no quantity such as 64Ki"))),
    }
}
