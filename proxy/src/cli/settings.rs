//! Flags that say how the proxy behaves, with kube-proxy's names and defaults, and their check.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ipnet::IpNet;

use crate::config::{Config, DetectLocal, NodePortAddresses, Variant};
use crate::mode::iptables::fragment::pod_source_fits;
use crate::plan::PodSource;

/// A value that the proxy cannot work with.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {problem}")]
pub struct UsageError {
    flag: &'static str,
    problem: String,
}

/// How pods are told from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum DetectLocalMode {
    /// By the cluster's pod range
    #[value(name = "ClusterCIDR")]
    ClusterCidr,
    /// By this node's own pod range, as its Node object has it
    #[value(name = "NodeCIDR")]
    NodeCidr,
    /// By the bridge that they come in through
    BridgeInterface,
    /// By the start of the name of the interface that they come in through
    InterfaceNamePrefix,
}

/// Proxy modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Chains and rules of iptables
    Iptables,
}

/// Which iptables commands to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VariantFlag {
    /// As the system's alternatives have it
    Auto,
    /// iptables-nft
    Nft,
    /// iptables-legacy
    Legacy,
}

/// The flags.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// Directory of Kubernetes manifests (Services, EndpointSlices, Nodes), watched for changes
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    /// This node's name in Kubernetes; default: the host name
    #[arg(long, value_name = "NODE")]
    pub hostname_override: Option<String>,
    /// Proxy mode
    #[arg(long, value_enum, default_value = "iptables")]
    pub proxy_mode: Mode,
    /// Pod ranges of the cluster, at most one per family
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub cluster_cidr: Vec<IpNet>,
    /// How pods are told from others
    #[arg(long, value_enum, default_value = "ClusterCIDR", value_name = "MODE")]
    pub detect_local_mode: DetectLocalMode,
    /// The pods' bridge, for --detect-local-mode BridgeInterface
    #[arg(long, value_name = "NAME")]
    pub pod_bridge_interface: Option<String>,
    /// Start of the pods' interface names, for --detect-local-mode InterfaceNamePrefix
    #[arg(long, value_name = "PREFIX")]
    pub pod_interface_name_prefix: Option<String>,
    /// Masquerade everything that goes to a cluster IP
    #[arg(long, default_value_t = false, num_args = 0..=1, default_missing_value = "true", require_equals = true,
          action = clap::ArgAction::Set, value_name = "BOOL")]
    pub masquerade_all: bool,
    /// Bit of the packet mark that asks for masquerade
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u8).range(0..=31), value_name = "BIT")]
    pub iptables_masquerade_bit: u8,
    /// Addresses that accept node ports: ranges, or `primary`; default: all
    #[arg(long, value_delimiter = ',', value_name = "CIDR")]
    pub nodeport_addresses: Vec<String>,
    /// Accept node ports on 127.0.0.1 (IPv4)
    #[arg(long, default_value_t = true, num_args = 0..=1, default_missing_value = "true", require_equals = true,
          action = clap::ArgAction::Set, value_name = "BOOL")]
    pub iptables_localhost_nodeports: bool,
    /// Look at the whole state this often, at least
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "TIME")]
    pub iptables_sync_period: Duration,
    /// Sync no more often than this, but for a burst of two
    #[arg(long, default_value = "1s", value_parser = duration, value_name = "TIME")]
    pub iptables_min_sync_period: Duration,
    /// Let conntrack take out-of-window segments for valid, and do not drop INVALID packets
    #[arg(long, default_value_t = false, num_args = 0..=1, default_missing_value = "true", require_equals = true,
          action = clap::ArgAction::Set, value_name = "BOOL")]
    pub conntrack_tcp_be_liberal: bool,
    /// Address and port of /healthz; empty: none
    #[arg(long, default_value = "0.0.0.0:10256", value_name = "IP:PORT")]
    pub healthz_bind_address: String,
    /// Which iptables commands
    #[arg(long, value_enum, default_value = "auto")]
    pub iptables_variant: VariantFlag,
}

impl Settings {
    /// The settings as the proxy takes them.
    ///
    /// # Errors
    /// When a value makes no sense, or one that another needs is missing.
    pub fn config(&self) -> Result<Config, UsageError> {
        let Mode::Iptables = self.proxy_mode;
        Ok(Config {
            node_name: self.node_name()?,
            detect_local: self.detect_local()?,
            masquerade_all: self.masquerade_all,
            masquerade_bit: self.iptables_masquerade_bit,
            node_port_addresses: self.node_port_addresses()?,
            localhost_node_ports: self.iptables_localhost_nodeports,
            tcp_be_liberal: self.conntrack_tcp_be_liberal,
            sync_period: positive("--iptables-sync-period", self.iptables_sync_period)?,
            min_sync_period: self.iptables_min_sync_period,
            variant: match self.iptables_variant {
                VariantFlag::Auto => Variant::Auto,
                VariantFlag::Nft => Variant::Nft,
                VariantFlag::Legacy => Variant::Legacy,
            },
        })
    }

    /// The manifest directory.
    ///
    /// # Errors
    /// When none is given.
    pub fn manifests(&self) -> Result<&PathBuf, UsageError> {
        let problem =
            || "name a directory with Services and EndpointSlices (the Kubernetes API is no source yet)".into();
        self.manifests.as_ref().ok_or_else(|| UsageError { flag: "--manifests", problem: problem() })
    }

    /// Where `/healthz` listens, if anywhere.
    ///
    /// # Errors
    /// When it is no address with a port.
    pub fn healthz(&self) -> Result<Option<SocketAddr>, UsageError> {
        if self.healthz_bind_address.is_empty() {
            return Ok(None);
        }
        let parsed = self.healthz_bind_address.parse();
        let problem = || format!("{:?} is not an address and port such as 0.0.0.0:10256", self.healthz_bind_address);
        parsed.map(Some).map_err(|_| UsageError { flag: "--healthz-bind-address", problem: problem() })
    }

    fn node_name(&self) -> Result<String, UsageError> {
        let given = self.hostname_override.clone().filter(|name| !name.trim().is_empty());
        let host = || nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let problem = "give this node's name in Kubernetes (the host has none that could be used)".to_owned();
        // Upstream compares node names in lower case too.
        let name = given.or_else(host).map(|name| name.trim().to_lowercase());
        name.ok_or(UsageError { flag: "--hostname-override", problem })
    }

    fn detect_local(&self) -> Result<DetectLocal, UsageError> {
        match self.detect_local_mode {
            DetectLocalMode::ClusterCidr => self.cluster_ranges().map(DetectLocal::ClusterCidr),
            DetectLocalMode::NodeCidr => Ok(DetectLocal::NodeCidr),
            DetectLocalMode::BridgeInterface => {
                let name = interface("--pod-bridge-interface", self.pod_bridge_interface.as_deref())?;
                fits("--pod-bridge-interface", PodSource::Interface(name.clone()))?;
                Ok(DetectLocal::BridgeInterface(name))
            }
            DetectLocalMode::InterfaceNamePrefix => {
                let prefix = interface("--pod-interface-name-prefix", self.pod_interface_name_prefix.as_deref())?;
                fits("--pod-interface-name-prefix", PodSource::InterfacePrefix(prefix.clone()))?;
                Ok(DetectLocal::InterfaceNamePrefix(prefix))
            }
        }
    }

    fn cluster_ranges(&self) -> Result<Vec<IpNet>, UsageError> {
        let flag = "--cluster-cidr";
        let v4 = self.cluster_cidr.iter().filter(|range| range.addr().is_ipv4()).count();
        if v4 > 1 || self.cluster_cidr.len() - v4 > 1 {
            return Err(UsageError { flag, problem: "takes at most one range per address family".into() });
        }
        if let Some(range) = self.cluster_cidr.iter().find(|range| range.prefix_len() == 0) {
            return Err(UsageError { flag, problem: format!("{range} is everything, which tells no pod from others") });
        }
        Ok(self.cluster_cidr.clone())
    }

    fn node_port_addresses(&self) -> Result<NodePortAddresses, UsageError> {
        let flag = "--nodeport-addresses";
        match self.nodeport_addresses.as_slice() {
            [] => Ok(NodePortAddresses::All),
            [only] if only == "primary" => Ok(NodePortAddresses::Primary),
            ranges => {
                let parse = |text: &String| {
                    let problem = || format!("{text:?} is no range such as 10.0.0.0/8, nor the only word `primary`");
                    text.trim().parse::<IpNet>().map_err(|_| UsageError { flag, problem: problem() })
                };
                ranges.iter().map(parse).collect::<Result<_, _>>().map(NodePortAddresses::Ranges)
            }
        }
    }
}

fn positive(flag: &'static str, value: Duration) -> Result<Duration, UsageError> {
    if value.is_zero() { Err(UsageError { flag, problem: "must be longer than nothing".into() }) } else { Ok(value) }
}

/// An interface name goes into rules, so it may hold only what the kernel's names hold in practice.
fn interface(flag: &'static str, value: Option<&str>) -> Result<String, UsageError> {
    let Some(name) = value.filter(|name| !name.is_empty()) else {
        return Err(UsageError { flag, problem: "is needed by this --detect-local-mode".into() });
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    if name.chars().all(allowed) {
        Ok(name.to_owned())
    } else {
        Err(UsageError { flag, problem: format!("{name:?} is no interface name") })
    }
}

fn fits(flag: &'static str, source: PodSource) -> Result<(), UsageError> {
    if pod_source_fits(&source) {
        Ok(())
    } else {
        Err(UsageError { flag, problem: "is longer than an interface name can be (15 characters)".into() })
    }
}

/// Reads `30s`, `1500ms`, `1m30s`, `1h`: Go's spelling, which kube-proxy's flags have.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time such as 30s, 500ms or 1m30s");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let seconds = match &rest[..unit_end] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        total += Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        rest = &rest[unit_end..];
    }
    if text.is_empty() { Err(wrong()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_in_gos_spelling() {
        let table = [("30s", 30_000), ("1m30s", 90_000), ("500ms", 500), ("1h", 3_600_000), ("0", 0), ("1.5s", 1_500)];
        for (text, milliseconds) in table {
            assert_eq!(duration(text).unwrap().as_millis(), milliseconds, "{text}");
        }
        for text in ["", "30", "s", "-1s", "1x", "1s2"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn interface_names_cannot_end_a_rule() {
        for name in ["", "eth0 -j ACCEPT", "a\nb", "!x"] {
            assert!(interface("--x", Some(name)).is_err(), "{name:?}");
        }
        assert_eq!(interface("--x", Some("cni0.1")).unwrap(), "cni0.1");
    }
}
