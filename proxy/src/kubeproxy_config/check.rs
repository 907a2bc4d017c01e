use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::address::bind_address;
use super::{GoDuration, KubeProxyConfiguration, gates, masquerade};
use crate::config::{Config, Conntrack, DetectLocal, Ipvs, Mode, NodePortAddresses, StateFile, Variant, WriterChoice};
use crate::kernel::ipvs::{SCHEDULERS, Timeouts};
use crate::model::{Family, FlowFate, LoadBalancing, ServiceAnnotation, parse_ip};
use crate::plan::{BalancingIgnored, FateIgnored, PodSource};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldProblem {
    pub field: Cow<'static, str>,
    pub problem: String,
}

pub(super) type Checked<T> = Result<T, FieldProblem>;

pub(super) fn wrong<T>(field: &'static str, problem: impl Into<String>) -> Checked<T> {
    Err(FieldProblem { field: field.into(), problem: problem.into() })
}

pub fn config(from: &KubeProxyConfiguration, node_name: String) -> Checked<Config> {
    let mode: Mode = from.mode.parse().or_else(|problem: String| wrong("mode", problem))?;
    let (sync_period, min_sync_period) = periods(from, mode)?;
    unused(from)?;
    let bind = match parse_ip(&from.bind_address) {
        None => return wrong("bindAddress", format!("{:?} is no IP address", from.bind_address)),
        Some(address) => address,
    };
    let listen = |field, text: &str| bind_address(text).or_else(|problem| wrong(field, problem));
    Ok(Config {
        mode,
        node_name,
        detect_local: detect_local(from)?,
        masquerade_all: if mode == Mode::Nftables {
            from.nftables.masquerade_all
        } else {
            from.iptables.masquerade_all
        },
        masquerade_bit: masquerade_bit(from, mode)?,
        masquerade_source: masquerade::source(&from.masquerade_source, mode)?,
        no_masquerade: masquerade::exceptions(&from.no_masquerade_cidrs, mode)?,
        node_port_addresses: node_port_addresses(&from.node_port_addresses, mode)?,
        // IPVS does not forward packets from the loopback range.
        localhost_node_ports: from.iptables.localhost_node_ports && mode != Mode::Ipvs,
        count_localhost_node_ports: count_localhost(from, mode)?,
        tcp_be_liberal: from.conntrack.tcp_be_liberal,
        sync_period,
        min_sync_period,
        variant: Variant::Auto,
        writer: WriterChoice::Auto,
        primary_family: Family::of(&bind),
        bind_address: Some(bind).filter(|address| !address.is_unspecified()),
        bind_address_hard_fail: from.bind_address_hard_fail,
        healthz_bind_address: listen("healthzBindAddress", &from.healthz_bind_address)?,
        metrics_bind_address: listen("metricsBindAddress", &from.metrics_bind_address)?,
        service_counters: None,
        oom_score_adj: in_range("oomScoreAdj", from.oom_score_adj, -1000, 1000)?,
        conntrack: conntrack(&from.conntrack)?,
        ipvs: ipvs(&from.ipvs)?,
        gates: gates::checked(&from.feature_gates, mode)?,
        flowtable: from.nftables.flowtable && mode == Mode::Nftables,
        flow_fate: flow_fate(from, mode)?,
        load_balancing: load_balancing(from, mode)?,
        kernel_hashes: true,
        annotations: annotations(&from.service_annotations)?,
        state_file: state_file(&from.state_file)?,
        restart_on_config_change: from.restart_on_config_change,
        port_range: from.port_range.parse().or_else(|problem: String| wrong("portRange", problem))?,
    })
}

fn count_localhost(from: &KubeProxyConfiguration, mode: Mode) -> Checked<bool> {
    let is_asked = from.iptables.count_localhost_node_ports;
    match mode {
        Mode::Ipvs | Mode::Userspace if is_asked => wrong(
            "iptables.countLocalhostNodePorts",
            format!("counts by a rule of iptables mode, and the mode is {mode}"),
        ),
        // Relays count their connections.
        Mode::Ipvs | Mode::Userspace | Mode::Nftables => Ok(false),
        Mode::Iptables => Ok(is_asked),
    }
}

fn state_file(from: &super::StateFileConfiguration) -> Checked<Option<StateFile>> {
    let max_age = positive("stateFile.maxAge", from.max_age)?;
    if from.path.is_empty() {
        return Ok(None);
    }
    let path = PathBuf::from(&from.path);
    // The file is replaced by a rename: the name must be one of a file in a directory.
    if !path.is_absolute() || path.file_name().is_none() || from.path.ends_with('/') {
        return wrong("stateFile.path", format!("{:?} is no absolute path of a file", from.path));
    }
    Ok(Some(StateFile { path, max_age }))
}

fn ipvs(from: &super::IpvsConfiguration) -> Checked<Ipvs> {
    let default = Ipvs::default();
    let scheduler = match from.scheduler.as_str() {
        "" => default.scheduler,
        known if SCHEDULERS.contains(&known) => known.to_owned(),
        other => {
            return wrong("ipvs.scheduler", format!("{other:?} is none of {}", SCHEDULERS.join(", ")));
        }
    };
    let mut exclude: Vec<IpNet> = Vec::new();
    for range in from.exclude_cidrs.iter().map(|range| range.trim()) {
        match range.parse::<IpNet>() {
            Ok(range) => exclude.push(range.trunc()),
            Err(_) => return wrong("ipvs.excludeCIDRs", format!("{range:?} is no range such as 10.96.7.0/24")),
        }
    }
    let timeouts = Timeouts {
        tcp: not_negative("ipvs.tcpTimeout", from.tcp_timeout)?,
        tcp_fin: not_negative("ipvs.tcpFinTimeout", from.tcp_fin_timeout)?,
        udp: not_negative("ipvs.udpTimeout", from.udp_timeout)?,
    };
    Ok(Ipvs { scheduler, exclude, strict_arp: from.strict_arp, timeouts, drain_limit: default.drain_limit })
}

fn in_range<T: TryFrom<i32>>(field: &'static str, value: i32, least: i32, most: i32) -> Checked<T> {
    let fits = (least..=most).contains(&value).then(|| T::try_from(value).ok()).flatten();
    fits.map_or_else(|| wrong(field, format!("{value} is not from {least} to {most}")), Ok)
}

fn not_negative(field: &'static str, value: GoDuration) -> Checked<Duration> {
    value.positive_or_zero().map_or_else(|| wrong(field, format!("{value} is negative")), Ok)
}

fn positive(field: &'static str, value: GoDuration) -> Checked<Duration> {
    let value = not_negative(field, value)?;
    if value.is_zero() { wrong(field, "must be positive") } else { Ok(value) }
}

/// Returns the mode's periods; also validates those of other modes.
fn periods(from: &KubeProxyConfiguration, mode: Mode) -> Checked<(Duration, Duration)> {
    let iptables = &from.iptables;
    let of_iptables = periods_of(
        ("iptables.syncPeriod", iptables.sync_period),
        ("iptables.minSyncPeriod", iptables.min_sync_period),
    )?;
    let ipvs = &from.ipvs;
    let of_ipvs = periods_of(("ipvs.syncPeriod", ipvs.sync_period), ("ipvs.minSyncPeriod", ipvs.min_sync_period))?;
    let nftables = &from.nftables;
    let of_nftables = periods_of(
        ("nftables.syncPeriod", nftables.sync_period),
        ("nftables.minSyncPeriod", nftables.min_sync_period),
    )?;
    Ok(match mode {
        Mode::Ipvs => of_ipvs,
        Mode::Nftables => of_nftables,
        Mode::Iptables | Mode::Userspace => of_iptables,
    })
}

fn masquerade_bit(from: &KubeProxyConfiguration, mode: Mode) -> Checked<u8> {
    let of_iptables = in_range("iptables.masqueradeBit", from.iptables.masquerade_bit, 0, 31)?;
    let of_nftables = in_range("nftables.masqueradeBit", from.nftables.masquerade_bit, 0, 31)?;
    Ok(if mode == Mode::Nftables { of_nftables } else { of_iptables })
}

type Period = (&'static str, GoDuration);

fn periods_of((sync_field, sync): Period, (least_field, least): Period) -> Checked<(Duration, Duration)> {
    let (checked, checked_least) = (positive(sync_field, sync)?, not_negative(least_field, least)?);
    if checked_least > checked {
        return wrong(least_field, format!("{least} is longer than the syncPeriod, {sync}"));
    }
    Ok((checked, checked_least))
}

fn unused(from: &KubeProxyConfiguration) -> Checked<()> {
    positive("configSyncPeriod", from.config_sync_period)?;
    if from.client_connection.burst < 0 {
        return wrong("clientConnection.burst", format!("{} is negative", from.client_connection.burst));
    }
    if !matches!(from.logging.format.as_str(), "text" | "json") {
        return wrong("logging.format", format!("{:?} is neither text nor json", from.logging.format));
    }
    Ok(())
}

fn conntrack(from: &super::ConntrackConfiguration) -> Checked<Conntrack> {
    Ok(Conntrack {
        max_per_core: in_range("conntrack.maxPerCore", from.max_per_core, 0, i32::MAX)?,
        min: in_range("conntrack.min", from.min, 0, i32::MAX)?,
        tcp_established: not_negative("conntrack.tcpEstablishedTimeout", from.tcp_established_timeout)?,
        tcp_close_wait: not_negative("conntrack.tcpCloseWaitTimeout", from.tcp_close_wait_timeout)?,
        udp: not_negative("conntrack.udpTimeout", from.udp_timeout)?,
        udp_stream: not_negative("conntrack.udpStreamTimeout", from.udp_stream_timeout)?,
    })
}

fn detect_local(from: &KubeProxyConfiguration) -> Checked<DetectLocal> {
    let ranges = cluster_ranges(&from.cluster_cidr)?;
    match from.detect_local_mode.as_str() {
        "" | "ClusterCIDR" => Ok(DetectLocal::ClusterCidr(ranges)),
        "NodeCIDR" => Ok(DetectLocal::NodeCidr),
        "BridgeInterface" => {
            let field = "detectLocal.bridgeInterface";
            let name = interface(field, &from.detect_local.bridge_interface, PodSource::Interface)?;
            Ok(DetectLocal::BridgeInterface(name))
        }
        "InterfaceNamePrefix" => {
            let field = "detectLocal.interfaceNamePrefix";
            let prefix = interface(field, &from.detect_local.interface_name_prefix, PodSource::InterfacePrefix)?;
            Ok(DetectLocal::InterfaceNamePrefix(prefix))
        }
        other => {
            let modes = "ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix";
            wrong("detectLocalMode", format!("{other:?} is none of {modes}"))
        }
    }
}

fn cluster_ranges(text: &str) -> Checked<Vec<IpNet>> {
    let field = "clusterCIDR";
    let mut ranges: Vec<IpNet> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.parse::<IpNet>() {
            Ok(range) => ranges.push(range),
            Err(_) => return wrong(field, format!("{part:?} is no range such as 10.244.0.0/16 or fd00:244::/64")),
        }
    }
    let v4 = ranges.iter().filter(|range| range.addr().is_ipv4()).count();
    if v4 > 1 || ranges.len() - v4 > 1 {
        return wrong(field, "takes at most one range per address family");
    }
    match ranges.iter().find(|range| range.prefix_len() == 0) {
        Some(range) => wrong(field, format!("{range} is everything, which tells no pod from others")),
        None => Ok(ranges),
    }
}

/// Interface names are used in rules, so only usual characters are allowed.
fn interface(field: &'static str, name: &str, source: fn(String) -> PodSource) -> Checked<String> {
    if name.is_empty() {
        return wrong(field, "is needed by this detectLocalMode");
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    if !name.chars().all(allowed) {
        return wrong(field, format!("{name:?} is no interface name"));
    }
    if !source(name.to_owned()).fits() {
        return wrong(field, "is longer than an interface name can be (15 characters)");
    }
    Ok(name.to_owned())
}

const LOCALHOST: [&str; 2] = ["127.0.0.0/8", "::1/128"];

/// Accepts ranges and `primary`, `localhost` and `all`, combined freely (Kubernetes 1.37). Default: `primary` in
/// nftables mode, else `all`.
fn node_port_addresses(entries: &[String], mode: Mode) -> Checked<NodePortAddresses> {
    let field = "nodePortAddresses";
    let mut primary = false;
    let mut ranges: Vec<IpNet> = Vec::new();
    for entry in entries.iter().map(|entry| entry.trim()) {
        match entry {
            "all" => return Ok(NodePortAddresses::All),
            "primary" => primary = true,
            "localhost" => ranges.extend(LOCALHOST.iter().filter_map(|range| range.parse::<IpNet>().ok())),
            range => match range.parse::<IpNet>() {
                Ok(range) => ranges.push(range),
                Err(_) => {
                    let words = "primary, localhost and all";
                    return wrong(
                        field,
                        format!("{entry:?} is no range such as 10.0.0.0/8, nor one of the words {words}"),
                    );
                }
            },
        }
    }
    Ok(match (primary, ranges.is_empty()) {
        (false, true) if mode == Mode::Nftables => NodePortAddresses::Primary,
        (false, true) => NodePortAddresses::All,
        (true, true) => NodePortAddresses::Primary,
        (false, false) => NodePortAddresses::Ranges(ranges),
        (true, false) => NodePortAddresses::PrimaryAndRanges(ranges),
    })
}

fn flow_fate(from: &KubeProxyConfiguration, mode: Mode) -> Checked<FlowFate> {
    let fate = from.flow_fate.parse().or_else(|problem: String| wrong("flowFate", problem))?;
    match FateIgnored::by_mode(mode, from.nftables.flowtable).filter(|_| fate != FlowFate::Keep) {
        Some(why) => wrong("flowFate", format!("{fate} cannot be had here: {why}")),
        None => Ok(fate),
    }
}

fn load_balancing(from: &KubeProxyConfiguration, mode: Mode) -> Checked<LoadBalancing> {
    let wanted = from.load_balancing.parse().or_else(|problem: String| wrong("loadBalancing", problem))?;
    match BalancingIgnored::by_mode(mode).filter(|_| wanted != LoadBalancing::Random) {
        Some(why) => wrong("loadBalancing", format!("{wanted} cannot be had here: {why}")),
        None => Ok(wanted),
    }
}

fn annotations(names: &[String]) -> Checked<BTreeSet<ServiceAnnotation>> {
    let mut allowed = BTreeSet::new();
    for name in names.iter().map(|name| name.trim()) {
        match name {
            "all" => allowed.extend(ServiceAnnotation::ALL),
            name => {
                let named = ServiceAnnotation::named(name);
                allowed.insert(named.or_else(|problem| wrong("serviceAnnotations", problem))?);
            }
        }
    }
    Ok(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(change: impl FnOnce(&mut KubeProxyConfiguration)) -> Checked<Config> {
        let mut configuration = KubeProxyConfiguration::default();
        change(&mut configuration);
        config(&configuration, "n".to_owned())
    }

    #[test]
    fn the_defaults_equal_those_of_the_proxy() {
        assert_eq!(checked(|_| ()), Ok(Config::for_node("n")));
    }

    #[test]
    fn invalid_values_are_reported_with_their_field() {
        type Change = fn(&mut KubeProxyConfiguration);
        let table: [(&str, Change, &str); 25] = [
            ("mode", |c| c.mode = "kernelspace".into(), "Windows"),
            ("mode", |c| c.mode = "x".into(), "none of"),
            ("iptables.masqueradeBit", |c| c.iptables.masquerade_bit = 32, "32 is not from 0 to 31"),
            ("iptables.syncPeriod", |c| c.iptables.sync_period = GoDuration::default(), "must be positive"),
            ("iptables.minSyncPeriod", |c| c.iptables.min_sync_period = GoDuration::seconds(31), "31s is longer"),
            ("conntrack.udpTimeout", |c| c.conntrack.udp_timeout = GoDuration::seconds(-1), "-1s is negative"),
            ("conntrack.min", |c| c.conntrack.min = -1, "-1 is not from 0"),
            ("oomScoreAdj", |c| c.oom_score_adj = 1001, "1001 is not from -1000 to 1000"),
            ("bindAddress", |c| c.bind_address = "eth0".into(), "no IP address"),
            ("metricsBindAddress", |c| c.metrics_bind_address = "x:1".into(), "not an address and port"),
            ("clusterCIDR", |c| c.cluster_cidr = "10.0.0.0/8,11.0.0.0/8".into(), "one range per address family"),
            ("clusterCIDR", |c| c.cluster_cidr = "0.0.0.0/0".into(), "is everything"),
            ("detectLocalMode", |c| c.detect_local_mode = "x".into(), "none of"),
            ("detectLocal.bridgeInterface", |c| c.detect_local_mode = "BridgeInterface".into(), "is needed"),
            ("nodePortAddresses", |c| c.node_port_addresses = vec!["10.0.0.1".into()], "no range"),
            ("portRange", |c| c.port_range = "9-1".into(), "no range of ports"),
            ("flowFate", |c| c.flow_fate = "rest".into(), "none of keep, reset and drain=TIME"),
            ("flowFate", |c| (c.mode, c.flow_fate) = ("ipvs".into(), "reset".into()), "--ipvs-drain-limit"),
            (
                "flowFate",
                |c| (c.mode, c.flow_fate, c.nftables.flowtable) = ("nftables".into(), "reset".into(), true),
                "past the rules",
            ),
            ("loadBalancing", |c| c.load_balancing = "mh".into(), "none of random, maglev and maglev-port"),
            ("loadBalancing", |c| c.load_balancing = "maglev".into(), "iptables mode chooses endpoints at random"),
            ("loadBalancing", |c| (c.mode, c.load_balancing) = ("ipvs".into(), "maglev".into()), "ipvs.scheduler"),
            (
                "loadBalancing",
                |c| (c.mode, c.load_balancing) = ("userspace".into(), "maglev-port".into()),
                "userspace mode chooses endpoints in turn",
            ),
            ("serviceAnnotations", |c| c.service_annotations = vec!["x".into()], "no annotation of svcproxy"),
            ("logging.format", |c| c.logging.format = "xml".into(), "neither text nor json"),
        ];
        for (field, change, problem) in table {
            let reported = checked(change).unwrap_err();
            assert_eq!(reported.field, field);
            assert!(reported.problem.contains(problem), "{field}: {}", reported.problem);
        }
    }

    #[test]
    fn interface_names_cannot_end_a_rule() {
        for name in ["", "eth0 -j ACCEPT", "a\nb", "!x", "a-name-of-16-char"] {
            assert!(interface("x", name, PodSource::Interface).is_err(), "{name:?}");
        }
        assert_eq!(interface("x", "cni0.1", PodSource::Interface).unwrap(), "cni0.1");
    }

    #[test]
    fn node_port_addresses_are_ranges_and_words() {
        let read = |entries: &[&str]| {
            let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
            node_port_addresses(&entries, Mode::Iptables).unwrap()
        };
        let range = |text: &str| text.parse::<IpNet>().unwrap();
        assert_eq!(read(&[]), NodePortAddresses::All);
        assert_eq!(read(&["primary", "all"]), NodePortAddresses::All);
        assert_eq!(read(&["primary"]), NodePortAddresses::Primary);
        assert_eq!(read(&["10.0.0.0/8"]), NodePortAddresses::Ranges(vec![range("10.0.0.0/8")]));
        let both = vec![range("127.0.0.0/8"), range("::1/128")];
        assert_eq!(read(&["primary", "localhost"]), NodePortAddresses::PrimaryAndRanges(both));
    }

    #[test]
    fn the_bind_address_decides_the_primary_family() {
        let of = |text: &str| {
            let config = checked(|c| c.bind_address = text.into()).unwrap();
            (config.primary_family, config.bind_address.map(|address| address.to_string()))
        };
        assert_eq!(of("0.0.0.0"), (Family::V4, None));
        assert_eq!(of("::"), (Family::V6, None));
        assert_eq!(of("192.0.2.7"), (Family::V4, Some("192.0.2.7".into())));
    }
}
