use std::fmt;

use serde_json::Value as Json;

use super::{KubeProxyConfiguration, gates, tree};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldSupport {
    Honoured,
    Different(&'static str),
    NoEffect(&'static str),
    /// Has no effect yet.
    Pending(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagValue {
    Text,
    /// `true` or `false`; a flag without a value means `true`.
    Bool,
    Number,
    Fraction,
    Time,
    List,
    /// Comma-separated `NAME=BOOL` pairs.
    Gates,
    /// Comma-separated `PATTERN=NUMBER` pairs.
    Modules,
}

#[derive(Debug, Clone, Copy)]
pub struct ConfigField {
    /// The field's path, such as `iptables.syncPeriod`.
    pub path: &'static str,
    /// The flag's name without dashes, and the syntax of its value.
    pub flag: Option<(&'static str, FlagValue)>,
    pub help: &'static str,
    pub state: FieldSupport,
}

const fn field(path: &'static str, state: FieldSupport, help: &'static str) -> ConfigField {
    ConfigField { path, flag: None, help, state }
}

const fn flag(
    path: &'static str,
    name: &'static str,
    value: FlagValue,
    state: FieldSupport,
    help: &'static str,
) -> ConfigField {
    ConfigField { path, flag: Some((name, value)), help, state }
}

const WINDOWS: FieldSupport = FieldSupport::NoEffect("it is for Windows nodes");
const ENCODINGS: FieldSupport = FieldSupport::Different("of protobuf and JSON; other types are left out");
const OWN: FieldSupport = FieldSupport::Different("not upstream's");
const UNBUFFERED: FieldSupport = FieldSupport::NoEffect("each log line goes to standard error at once");

use FieldSupport::{Different, Honoured, NoEffect};
use FlagValue::{Bool, Fraction, Gates, List, Modules, Number, Text, Time};

/// In the order of kube-proxy's types.
#[rustfmt::skip]
pub const FIELDS: &[ConfigField] = &[
    flag("featureGates", "feature-gates", Gates, Different("see the table of gates below"), "Feature gates: comma-separated NAME=BOOL pairs"),
    flag("clientConnection.kubeconfig", "kubeconfig", Text, Different("a missing or wrong file is logged once, and read again until it works"), "Kubeconfig with the address of the API server and the credentials to show"),
    field("clientConnection.acceptContentTypes", ENCODINGS, "Content types to accept from the API server, instead of contentType"),
    flag("clientConnection.contentType", "kube-api-content-type", Text, ENCODINGS, "Content type to ask the API server for"),
    flag("clientConnection.qps", "kube-api-qps", Fraction, Honoured, "Requests per second to the API server; negative: no limit"),
    flag("clientConnection.burst", "kube-api-burst", Number, Honoured, "Requests in a burst to the API server"),
    flag("logging.format", "logging-format", Text, Honoured, "Format of log lines: text or json"),
    flag("logging.flushFrequency", "log-flush-frequency", Time, UNBUFFERED, "Most time between log flushes"),
    flag("logging.verbosity", "v", Number, Different("4 and 5 add debug messages, 6 and more trace messages; RUST_LOG goes first"), "Number of the log level"),
    flag("logging.vmodule", "vmodule", Modules, NoEffect("it names files of Go source; use RUST_LOG=svcproxy::source=debug instead"), "Log levels of single files: comma-separated PATTERN=NUMBER pairs"),
    flag("logging.options.text.splitStream", "log-text-split-stream", Bool, UNBUFFERED, "Text format: errors to standard error, the rest to standard output"),
    flag("logging.options.text.infoBufferSize", "log-text-info-buffer-size", Text, UNBUFFERED, "Text format with split streams: size of the buffer"),
    flag("logging.options.json.splitStream", "log-json-split-stream", Bool, UNBUFFERED, "JSON format: errors to standard error, the rest to standard output"),
    flag("logging.options.json.infoBufferSize", "log-json-info-buffer-size", Text, UNBUFFERED, "JSON format with split streams: size of the buffer"),
    flag("hostnameOverride", "hostname-override", Text, Honoured, "This node's name in Kubernetes; default: the host name"),
    flag("bindAddress", "bind-address", Text, Honoured, "This node's primary address, which also determines the primary address family; nothing listens on it"),
    flag("healthzBindAddress", "healthz-bind-address", Text, Honoured, "Address and port of /healthz; 0.0.0.0 and :: stand for both families; as a flag, empty: none"),
    flag("metricsBindAddress", "metrics-bind-address", Text, Honoured, "Address and port of /metrics; 0.0.0.0 and :: stand for both families; as a flag, empty: none"),
    flag("bindAddressHardFail", "bind-address-hard-fail", Bool, Honoured, "Whether a port that cannot be bound ends the proxy; otherwise it is tried again"),
    flag("enableProfiling", "profiling", Bool, NoEffect("this program has no profiler; use perf"), "Profiling below /debug/pprof of the metrics server"),
    flag("showHiddenMetricsForVersion", "show-hidden-metrics-for-version", Text, NoEffect("this proxy hides no metric"), "Version whose hidden metrics are to be shown"),
    flag("mode", "proxy-mode", Text, Different("iptables, ipvs, nftables, and the former userspace mode"), "Proxy mode: iptables, ipvs, nftables or userspace"),
    flag("iptables.masqueradeBit", "iptables-masquerade-bit", Number, Honoured, "Bit of the packet mark that asks for masquerade (0 to 31)"),
    flag("iptables.masqueradeAll", "masquerade-all", Bool, Honoured, "Masquerade everything that goes to a cluster IP"),
    flag("iptables.localhostNodePorts", "iptables-localhost-nodeports", Bool, Honoured, "Accept node ports on 127.0.0.1 (IPv4)"),
    flag("iptables.countLocalhostNodePorts", "iptables-count-localhost-nodeports", Bool, Different("not upstream's; iptables mode, and nftables mode counts without it"), "Count connections to node ports on 127.0.0.1 by one rule (kubeproxy_iptables_localhost_nodeports_accepted_packets_total)"),
    flag("iptables.syncPeriod", "iptables-sync-period", Time, Honoured, "Longest time between two checks of the whole state"),
    flag("iptables.minSyncPeriod", "iptables-min-sync-period", Time, Honoured, "Shortest time between two syncs, except for a burst of two"),
    flag("ipvs.syncPeriod", "ipvs-sync-period", Time, Honoured, "IPVS mode: longest time between two checks of the whole state"),
    flag("ipvs.minSyncPeriod", "ipvs-min-sync-period", Time, Honoured, "IPVS mode: shortest time between two syncs"),
    flag("ipvs.scheduler", "ipvs-scheduler", Text, Honoured, "IPVS mode: scheduler"),
    flag("ipvs.excludeCIDRs", "ipvs-exclude-cidrs", List, Honoured, "IPVS mode: ranges whose virtual servers the proxy does not touch"),
    flag("ipvs.strictARP", "ipvs-strict-arp", Bool, Honoured, "IPVS mode: do not answer ARP for cluster IPs"),
    flag("ipvs.tcpTimeout", "ipvs-tcp-timeout", Time, Honoured, "IPVS mode: time-out of idle TCP connections; 0: keep the kernel's"),
    flag("ipvs.tcpFinTimeout", "ipvs-tcpfin-timeout", Time, Honoured, "IPVS mode: time-out of TCP connections after a FIN; 0: keep the kernel's"),
    flag("ipvs.udpTimeout", "ipvs-udp-timeout", Time, Honoured, "IPVS mode: time-out of UDP flows; 0: keep the kernel's"),
    field("nftables.masqueradeBit", Honoured, "nftables mode: bit of the packet mark that asks for masquerade"),
    field("nftables.masqueradeAll", Honoured, "nftables mode: masquerade everything that goes to a cluster IP"),
    field("nftables.syncPeriod", Honoured, "nftables mode: longest time between two checks of the whole state"),
    field("nftables.minSyncPeriod", Honoured, "nftables mode: shortest time between two syncs"),
    flag("nftables.flowtable", "nftables-flowtable", Bool, Different("not upstream's; a kernel without flowtables is a warning"), "nftables mode: offload connections of more than 20 packets to a flowtable, past all rules"),
    field("winkernel.networkName", WINDOWS, "Windows: network of the endpoints"),
    field("winkernel.sourceVip", WINDOWS, "Windows: source address of load balancing"),
    field("winkernel.enableDSR", WINDOWS, "Windows: direct server return"),
    field("winkernel.rootHnsEndpointName", WINDOWS, "Windows: endpoint of the root namespace"),
    field("winkernel.forwardHealthCheckVip", WINDOWS, "Windows: forward the health check's address"),
    flag("detectLocalMode", "detect-local-mode", Text, Honoured, "How traffic from pods is detected: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix"),
    flag("detectLocal.bridgeInterface", "pod-bridge-interface", Text, Honoured, "The pods' bridge, for detect-local mode BridgeInterface"),
    flag("detectLocal.interfaceNamePrefix", "pod-interface-name-prefix", Text, Honoured, "Start of the pods' interface names, for detect-local mode InterfaceNamePrefix"),
    flag("clusterCIDR", "cluster-cidr", Text, Honoured, "Pod ranges of the cluster, at most one per family, comma-separated"),
    flag("noMasqueradeCIDRs", "no-masquerade-cidrs", List, Different("for packets of the node itself only; iptables and nftables mode"), "Endpoint ranges to which this node's own calls of services keep their source (KEP-6246)"),
    flag("masqueradeSource", "masquerade-source", Text, Different("not upstream's; iptables, IPVS and nftables mode"), "Source of masqueraded packets: primary (the node's primary addresses), or an address per family, comma-separated; empty: an address of the outgoing interface"),
    flag("nodePortAddresses", "nodeport-addresses", List, Honoured, "Addresses that accept node ports: ranges, primary, localhost, all; default: all, in nftables mode primary; in nftables mode relays serve loopback addresses"),
    flag("oomScoreAdj", "oom-score-adj", Number, Different("a refused write is a warning"), "How readily the kernel kills this process when memory is short (-1000 to 1000)"),
    flag("conntrack.maxPerCore", "conntrack-max-per-core", Number, Different("a refused write is a warning"), "Connections to track for each processor of the node, 1048576 in all at most; 0: keep the kernel's limit"),
    flag("conntrack.min", "conntrack-min", Number, Honoured, "Connections to track at least, if there is a limit for each processor"),
    flag("conntrack.tcpEstablishedTimeout", "conntrack-tcp-timeout-established", Time, Different("a refused write is a warning"), "Time-out of idle established TCP connections; 0: keep the kernel's"),
    flag("conntrack.tcpCloseWaitTimeout", "conntrack-tcp-timeout-close-wait", Time, Different("a refused write is a warning"), "Time-out of TCP connections in CLOSE_WAIT; 0: keep the kernel's"),
    flag("conntrack.tcpBeLiberal", "conntrack-tcp-be-liberal", Bool, Honoured, "Let conntrack accept out-of-window segments, and do not drop INVALID packets"),
    flag("conntrack.udpTimeout", "conntrack-udp-timeout", Time, Different("a refused write is a warning"), "Time-out of UDP flows without a reply; 0: keep the kernel's"),
    flag("conntrack.udpStreamTimeout", "conntrack-udp-timeout-stream", Time, Different("a refused write is a warning"), "Time-out of UDP flows with replies; 0: keep the kernel's"),
    flag("configSyncPeriod", "config-sync-period", Time, NoEffect("the watches of the API report every change"), "How often objects of the API are listed again"),
    flag("portRange", "proxy-port-range", Text, Different("kube-proxy has no userspace mode any more, and ignores it; empty: 61000-65535"), "Userspace mode: ports to listen on, as FIRST-LAST, FIRST+MORE or a single one"),
    field("windowsRunAsService", WINDOWS, "Windows: run as a service"),
    flag("flowFate", "flow-fate", Text, Different("not upstream's; an error in IPVS mode and with nftables.flowtable"), "Established TCP connections whose endpoint no longer serves their Service: keep, reset at the next packet, or drain=TIME, which resets them after that time; see [svcproxy.md](svcproxy.md#established-connections)"),
    flag("loadBalancing", "load-balancing", Text, Different("not upstream's; an error but in nftables mode"), "How a new connection's endpoint is chosen: random, maglev (by a hash of the client's address) or maglev-port (address and port), which choose the same on every node; see [svcproxy.md](svcproxy.md#consistent-hashing)"),
    flag("serviceAnnotations", "service-annotations", List, Different("not upstream's; an annotation that is not allowed is a warning and an Event"), "Annotations of Services that have an effect: names without the prefix svcproxy/, or all; an empty list: none"),
    flag("stateFile.path", "state-file", Text, OWN, "File that keeps what the API said, for a start while the API is away; empty: none"),
    flag("stateFile.maxAge", "state-file-max-age", Time, OWN, "Age from which on the state file is ignored"),
    flag("restartOnConfigChange", "restart-on-config-change", Bool, OWN, "Whether a valid change of the configuration file ends the proxy with status 1, to be started again; the rules stay"),
];

/// Flags that set no field: name, help, support.
#[rustfmt::skip]
pub const FLAGS_ONLY: &[(&str, &str, FieldSupport)] = &[
    ("config", "The configuration file", Different("a change of the file is a line in the log, and takes effect with a restart; see `restartOnConfigChange`")),
    ("config-strict", "Reject a configuration file with unknown or repeated fields instead of warning (not upstream's)", Honoured),
    ("write-config-to", "Write the configuration, with its defaults, to this file and exit", Honoured),
    ("cleanup", "Remove all packet-filter state of this proxy or kube-proxy, and exit", Honoured),
    ("init-only", "Do what needs full root privileges, and exit", Honoured),
    ("master", "Address of the API server, instead of the kubeconfig's", Honoured),
    ("healthz-port", "Deprecated: port of /healthz where its address has none; 0: no /healthz", Honoured),
    ("metrics-port", "Deprecated: port of /metrics where its address has none; 0: no /metrics", Honoured),
    ("version", "Print the version and exit", Honoured),
    ("manifests", "Directory of manifests to read objects from, instead of the API (not upstream's)", Honoured),
    ("service-counters", "Count connections, packets and bytes per service port in nftables mode, connections in iptables mode, where each scrape then reads the filter and nat tables; of all Services, or of those in a list such as default/web,team-*/* (not upstream's)", Honoured),
    ("ipvs-drain-limit", "IPVS mode: how long a removed backend keeps its connections, 15m by default (not upstream's)", Honoured),
    ("iptables-variant", "Which iptables commands: auto, nft or legacy (not upstream's)", Honoured),
    ("iptables-writer", "How to write the tables: auto, netlink (iptables-nft's tables, without its commands) or commands (not upstream's)", Honoured),
];

/// Returns one sentence per non-default field or gate without effect.
pub fn without_effect(configuration: &KubeProxyConfiguration) -> Vec<String> {
    let (Ok(given), Ok(default)) =
        (serde_json::to_value(configuration), serde_json::to_value(KubeProxyConfiguration::default()))
    else {
        return Vec::new();
    };
    let set = |path: &str| tree::get(&given, path) != tree::get(&default, path);
    let of_fields = FIELDS.iter().filter(|field| set(field.path)).filter_map(|field| match field.state {
        FieldSupport::NoEffect(why) | FieldSupport::Pending(why) => {
            Some(format!("{} has no effect: {why}", name_with_flag(field)))
        }
        FieldSupport::Honoured | FieldSupport::Different(_) => None,
    });
    of_fields.chain(gates::without_effect(&configuration.feature_gates)).collect()
}

fn name_with_flag(field: &ConfigField) -> String {
    field.flag.map_or_else(|| field.path.to_owned(), |(flag, _)| format!("{} (--{flag})", field.path))
}

pub fn document() -> String {
    let default = serde_json::to_value(KubeProxyConfiguration::default()).unwrap_or_default();
    let mut text = String::from(INTRODUCTION);
    text.push_str("\n| Field | Flag | Default | What it is | State |\n| --- | --- | --- | --- | --- |\n");
    for field in FIELDS {
        let flag = field
            .flag
            .map_or_else(String::new, |(flag, _)| format!("`{}{flag}`", if flag.len() == 1 { "-" } else { "--" }));
        let shown = tree::get(&default, field.path).map(shown).unwrap_or_default();
        text.push_str(&format!("| `{}` | {flag} | {shown} | {} | {} |\n", field.path, field.help, field.state));
    }
    text.push_str("\n## Flags without a field\n\n| Flag | What it is | State |\n| --- | --- | --- |\n");
    for (flag, help, of) in FLAGS_ONLY {
        text.push_str(&format!("| `--{flag}` | {help} | {of} |\n"));
    }
    text.push_str(&gates::document());
    text
}

fn shown(value: &Json) -> String {
    match value {
        Json::String(text) if text.is_empty() => String::new(),
        Json::String(text) => format!("`{text}`"),
        Json::Array(items) if items.is_empty() => String::new(),
        Json::Object(fields) if fields.is_empty() => String::new(),
        other => format!("`{other}`"),
    }
}

impl fmt::Display for FieldSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldSupport::Honoured => f.write_str("honoured"),
            FieldSupport::Different(how) => write!(f, "honoured: {how}"),
            FieldSupport::NoEffect(why) => write!(f, "warned: {why}"),
            FieldSupport::Pending(why) => write!(f, "warned, not yet there: {why}"),
        }
    }
}

const INTRODUCTION: &str = "# Configuration

`svcproxy` takes kube-proxy's configuration file (`kubeproxy.config.k8s.io/v1alpha1`, with `--config`) and kube-proxy's
flags, as of Kubernetes 1.37. The program generates this page from its table of fields, which also defines the flags and the warnings.

- *honoured*: works as kube-proxy's documentation says, except for the difference given.
- *warned*: is read and checked, and has no effect; a value other than the default is a warning with the reason.
- An unknown or repeated field is a warning with file, line and field, as in kube-proxy; of a repeated field the last value counts. `svcproxy_config_unknown_fields` counts both; with `--config-strict` the first one is an error. A value of a wrong type always is an error.

As in kube-proxy, the file overrides the flags. The flags `--hostname-override`, `--master`, `-v`, `--vmodule` and the
other `--log…` flags override the file. `--config-strict`, `--cleanup`, `--init-only`, `--write-config-to`, `--manifests`,
`--service-counters`, `--iptables-variant`, `--iptables-writer` and `--ipvs-drain-limit` have no field. The log lists all other flags that are ignored. An
empty text, a `null` or a zero time in the file means the default.

There is exactly one source of objects: `--manifests DIR`; or the API server, by `--kubeconfig` (in the file:
`clientConnection.kubeconfig`), `--master`, or, with neither, the pod's service account.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(value: &Json, path: &str, found: &mut Vec<String>) {
        match value {
            Json::Object(fields) if !fields.is_empty() => {
                for (key, value) in fields {
                    let dot = if path.is_empty() { "" } else { "." };
                    leaves(value, &format!("{path}{dot}{key}"), found);
                }
            }
            _ => found.push(path.to_owned()),
        }
    }

    #[test]
    fn the_table_lists_exactly_the_fields_of_the_types() {
        let mut found = Vec::new();
        leaves(&serde_json::to_value(KubeProxyConfiguration::default()).unwrap(), "", &mut found);
        found.retain(|path| path != "apiVersion" && path != "kind");
        let mut listed: Vec<String> = FIELDS.iter().map(|field| field.path.to_owned()).collect();
        found.sort();
        listed.sort();
        assert_eq!(listed, found);
    }

    #[test]
    fn the_document_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, document()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == document(), "docs/configuration.md is not the table: UPDATE_DOCS=1 writes it anew");
    }

    #[test]
    fn fields_without_effect_are_reported_with_the_reason() {
        let mut configuration = KubeProxyConfiguration::default();
        assert_eq!(without_effect(&configuration), Vec::<String>::new());
        configuration.enable_profiling = true;
        configuration.winkernel.network_name = "x".to_owned();
        configuration.iptables.masquerade_bit = 15;
        configuration.feature_gates.insert("NativeHistograms".to_owned(), false);
        let reported = without_effect(&configuration);
        assert_eq!(reported.len(), 3, "{reported:#?}");
        assert!(reported[0].starts_with("enableProfiling (--profiling) has no effect: this program has no profiler"));
        assert_eq!(reported[1], "winkernel.networkName has no effect: it is for Windows nodes");
        let gate = "feature gate NativeHistograms=false has no effect: metrics are in the text format, which has no native histograms";
        assert_eq!(reported[2], gate);
    }
}
