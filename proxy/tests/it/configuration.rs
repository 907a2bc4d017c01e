use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use clap::Parser;
use svcproxy::cli::settings::{ObjectOrigin, ResolvedSettings, Settings};
use svcproxy::config::{
    Config, Conntrack, DetectLocal, FeatureGates, Ipvs, MasqueradeSource, Mode, NodePortAddresses, StateFile, Variant,
    WriterChoice,
};
use svcproxy::kernel::ipvs::Timeouts;
use svcproxy::kubeproxy_config::{self, KubeProxyConfiguration};
use svcproxy::model::{Family, FlowFate, LoadBalancing};

#[derive(Parser)]
struct TestCommandLine {
    #[command(flatten)]
    settings: Settings,
}

fn settings(flags: &[&str]) -> Settings {
    TestCommandLine::try_parse_from(std::iter::once("x").chain(flags.iter().copied())).unwrap().settings
}

pub fn resolve(flags: &[&str]) -> Result<ResolvedSettings, String> {
    settings(flags).resolve().map_err(|error| error.to_string())
}

pub fn svcproxy(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svcproxy"));
    command.env_remove("KUBERNETES_SERVICE_HOST").env_remove("RUST_LOG").args(arguments).output().unwrap()
}

pub const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

pub fn file(directory: &Path, text: &str) -> PathBuf {
    let path = directory.join("config.yaml");
    std::fs::write(&path, text).unwrap();
    path
}

/// kubeadm's ConfigMap `kube-proxy`: most fields are empty, null or zero.
const KUBEADM: &str = r#"apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: ""
  burst: 0
  contentType: ""
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
  qps: 0
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack:
  maxPerCore: null
  min: null
  tcpBeLiberal: false
  tcpCloseWaitTimeout: null
  tcpEstablishedTimeout: null
  udpStreamTimeout: 0s
  udpTimeout: 0s
detectLocal:
  bridgeInterface: ""
  interfaceNamePrefix: ""
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables:
  localhostNodePorts: null
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
ipvs:
  excludeCIDRs: null
  minSyncPeriod: 0s
  scheduler: ""
  strictARP: false
  syncPeriod: 0s
  tcpFinTimeout: 0s
  tcpTimeout: 0s
  udpTimeout: 0s
kind: KubeProxyConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
metricsBindAddress: ""
mode: ""
nftables:
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel:
  enableDSR: false
  forwardHealthCheckVip: false
  networkName: ""
  rootHnsEndpointName: ""
  sourceVip: ""
"#;

#[test]
fn kubeadms_configuration_causes_no_warning() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), KUBEADM);
    let flags = ["--config", path.to_str().unwrap(), "--hostname-override", "Node-1"];
    let resolved = resolve(&flags).unwrap();
    assert_eq!(resolved.warnings, Vec::<String>::new());
    let expected = Config {
        detect_local: DetectLocal::ClusterCidr(vec!["10.244.0.0/16".parse().unwrap()]),
        ..Config::for_node("node-1")
    };
    assert_eq!(resolved.config, expected);
    let origin = settings(&flags).origin(&resolved).unwrap();
    assert!(matches!(origin, ObjectOrigin::Kubernetes(..)), "{origin:?}");
}

#[test]
fn every_field_reaches_the_proxy() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "{HEAD}hostnameOverride: node-7\nbindAddress: fd00::7\nbindAddressHardFail: true\nenableProfiling: true\n\
         metricsBindAddress: '::'\niptables: {{masqueradeBit: 3, masqueradeAll: true, localhostNodePorts: false, \
         countLocalhostNodePorts: true, syncPeriod: 1m, minSyncPeriod: 2s}}\ndetectLocalMode: BridgeInterface\ndetectLocal: {{bridgeInterface: cni0}}\n\
         nodePortAddresses: [primary, localhost]\noomScoreAdj: -7\nconntrack: {{maxPerCore: 1, min: 2, \
         tcpEstablishedTimeout: 1h0m0s, tcpCloseWaitTimeout: 90s, tcpBeLiberal: true, udpTimeout: 5s, \
         udpStreamTimeout: 500ms}}\nipvs: {{scheduler: wlc, excludeCIDRs: [10.99.0.0/16], strictARP: true, \
         tcpTimeout: 2h, tcpFinTimeout: 30s, udpTimeout: 1m, syncPeriod: 7s, minSyncPeriod: 5s}}\nportRange: 9000+9\n\
         featureGates: {{AllowServiceExternalIPs: false}}\nflowFate: keep\nloadBalancing: random\nserviceAnnotations: []\n\
         noMasqueradeCIDRs: [10.244.0.0/16]\nmasqueradeSource: 172.18.0.2\n\
         restartOnConfigChange: true\n\
         stateFile: {{path: /var/lib/svcproxy/state, maxAge: 2h}}\n"
    );
    let path = file(directory.path(), &text);
    let config = resolve(&["--config", path.to_str().unwrap(), "--iptables-variant=legacy", "--ipvs-drain-limit=90s"])
        .unwrap()
        .config;
    let ipvs = Ipvs {
        scheduler: "wlc".into(),
        exclude: vec!["10.99.0.0/16".parse().unwrap()],
        strict_arp: true,
        timeouts: Timeouts {
            tcp: Duration::from_secs(7200),
            tcp_fin: Duration::from_secs(30),
            udp: Duration::from_secs(60),
        },
        drain_limit: Duration::from_secs(90),
    };
    let expected = Config {
        mode: Mode::Iptables,
        ipvs,
        node_name: "node-7".into(),
        detect_local: DetectLocal::BridgeInterface("cni0".into()),
        masquerade_all: true,
        masquerade_bit: 3,
        masquerade_source: MasqueradeSource::Addresses(vec!["172.18.0.2".parse().unwrap()]),
        no_masquerade: vec!["10.244.0.0/16".parse().unwrap()],
        node_port_addresses: NodePortAddresses::PrimaryAndRanges(vec![
            "127.0.0.0/8".parse().unwrap(),
            "::1/128".parse().unwrap(),
        ]),
        localhost_node_ports: false,
        count_localhost_node_ports: true,
        tcp_be_liberal: true,
        sync_period: Duration::from_secs(60),
        min_sync_period: Duration::from_secs(2),
        variant: Variant::Legacy,
        writer: WriterChoice::Auto,
        primary_family: Family::V6,
        bind_address: Some("fd00::7".parse().unwrap()),
        bind_address_hard_fail: true,
        healthz_bind_address: Some("[::]:10256".parse().unwrap()),
        metrics_bind_address: Some("[::]:10249".parse().unwrap()),
        service_counters: None,
        oom_score_adj: -7,
        conntrack: Conntrack {
            max_per_core: 1,
            min: 2,
            tcp_established: Duration::from_secs(3600),
            tcp_close_wait: Duration::from_secs(90),
            udp: Duration::from_secs(5),
            udp_stream: Duration::from_millis(500),
        },
        gates: FeatureGates { service_external_ips: false, ..FeatureGates::default() },
        port_range: "9000-9009".parse().unwrap(),
        flowtable: false,
        flow_fate: FlowFate::Keep,
        load_balancing: LoadBalancing::Random,
        kernel_hashes: true,
        annotations: BTreeSet::new(),
        state_file: Some(StateFile { path: "/var/lib/svcproxy/state".into(), max_age: Duration::from_secs(7200) }),
        restart_on_config_change: true,
    };
    assert_eq!(config, expected);

    // IPVS mode has its own periods, and no node ports on the loopback range.
    let text = text
        .replace("bindAddress: fd00", "mode: ipvs\nbindAddress: fd00")
        .replace("localhostNodePorts: false, ", "")
        .replace("countLocalhostNodePorts: true, ", "")
        .replace("noMasqueradeCIDRs: [10.244.0.0/16]\n", "");
    let path = file(directory.path(), &text);
    let config = resolve(&["--config", path.to_str().unwrap()]).unwrap().config;
    assert_eq!((config.mode, config.localhost_node_ports), (Mode::Ipvs, false));
    assert_eq!((config.sync_period, config.min_sync_period), (Duration::from_secs(7), Duration::from_secs(5)));
    assert_eq!(config.ipvs.drain_limit, Duration::from_secs(15 * 60));
}

#[test]
fn with_a_file_most_flags_are_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!("{HEAD}hostnameOverride: of-file\nlogging: {{verbosity: 2}}\niptables: {{masqueradeBit: 3}}\n");
    let path = file(directory.path(), &text);
    let path = path.to_str().unwrap();
    let flags =
        ["--config", path, "--hostname-override=of-flag", "-v", "6", "--iptables-masquerade-bit=9", "--kubeconfig=k"];
    let resolved = resolve(&flags).unwrap();
    assert_eq!((resolved.config.node_name.as_str(), resolved.config.masquerade_bit), ("of-flag", 3));
    assert_eq!(resolved.configuration.logging.verbosity, 6);
    let ignored = format!("--kubeconfig, --iptables-masquerade-bit ignored: with --config, {path} decides");
    assert_eq!(resolved.warnings, [ignored]);
}

#[test]
fn flags_that_say_zero_mean_zero_and_empty_addresses_mean_nowhere() {
    let flags = ["--iptables-min-sync-period=0", "--healthz-bind-address=", "--metrics-bind-address", "10.0.0.1"];
    let config = resolve(&flags).unwrap().config;
    assert!(config.min_sync_period.is_zero());
    assert_eq!(config.healthz_bind_address, None);
    assert_eq!(config.metrics_bind_address, Some("10.0.0.1:10249".parse().unwrap()));
    let resolved = resolve(&["--healthz-port=0", "--metrics-port=9", "--metrics-bind-address=::"]).unwrap();
    assert_eq!(resolved.config.healthz_bind_address, None);
    assert_eq!(resolved.config.metrics_bind_address, Some("[::]:9".parse().unwrap()));
    assert!(resolved.warnings[0].starts_with("--healthz-port is deprecated"), "{:?}", resolved.warnings);
    assert_eq!(resolve(&["--nodeport-addresses=all"]).unwrap().config.node_port_addresses, NodePortAddresses::All);
}

#[test]
fn an_ipv6_bind_address_moves_the_defaults() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), &format!("{HEAD}bindAddress: '::'\n"));
    for flags in [&["--config", path.to_str().unwrap()][..], &["--bind-address=::"]] {
        let config = resolve(flags).unwrap().config;
        assert_eq!(config.healthz_bind_address, Some("[::]:10256".parse().unwrap()), "{flags:?}");
        assert_eq!(config.metrics_bind_address, Some("[::1]:10249".parse().unwrap()), "{flags:?}");
    }
    let config = resolve(&["--bind-address=::", "--metrics-bind-address=0.0.0.0"]).unwrap().config;
    assert_eq!(config.metrics_bind_address, Some("0.0.0.0:10249".parse().unwrap()), "what is given stays");
}

#[test]
fn rules_read_back_as_written() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("first.yaml"), directory.path().join("second.yaml"));
    let flags = [
        "--hostname-override=n",
        "--cluster-cidr=10.244.0.0/16,fd00:244::/64",
        "--feature-gates=ComponentFlagz=true,AllowServiceExternalIPs=false",
        "--nodeport-addresses=primary,10.0.0.0/8",
        "--conntrack-udp-timeout=1m30s",
        "--kube-api-qps=7.5",
        "--vmodule=a*=3",
        "--metrics-bind-address=[::1]:7",
        "--master=http://not.in.the.file",
    ];
    let write = |flags: &[&str], to: &Path| {
        let output = svcproxy(&[flags, &["--write-config-to", to.to_str().unwrap()]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    write(&flags, &first);
    write(&["--config", first.to_str().unwrap()], &second);
    assert_eq!(std::fs::read_to_string(&first).unwrap(), std::fs::read_to_string(&second).unwrap());
    let read = kubeproxy_config::read(&first).unwrap().configuration;
    assert_eq!(read, resolve(&flags).unwrap().configuration);
    assert_ne!(read, KubeProxyConfiguration::default());
    write(&[], &first);
    insta::assert_snapshot!("default_configuration", std::fs::read_to_string(&first).unwrap());
}

#[test]
fn settings_without_effect_are_reported_on_standard_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(
        directory.path(),
        &format!("{HEAD}windowsRunAsService: true\nfeatureGates: {{MemoryQoS: true}}\nlogging: {{format: json}}\n"),
    );
    let to = directory.path().join("out");
    let output = svcproxy(&["--config", path.to_str().unwrap(), "--write-config-to", to.to_str().unwrap()]);
    let lines: Vec<serde_json::Value> =
        String::from_utf8(output.stderr).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let reported: Vec<_> =
        lines.iter().map(|line| (line["level"].as_str().unwrap(), line["message"].as_str().unwrap())).collect();
    assert_eq!(reported[0], ("WARN", "windowsRunAsService has no effect: it is for Windows nodes"));
    assert_eq!(
        reported[1],
        ("WARN", "feature gate MemoryQoS=true has no effect: kube-proxy does not act on it, nor does this proxy")
    );
    assert_eq!(reported[2], ("INFO", "wrote the configuration"));
}

#[test]
fn external_ips_are_served_unless_their_gate_is_off() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "namespace": "default" },
          "spec": { "clusterIP": "10.96.0.1", "externalIPs": ["203.0.113.4"], "ports": [{ "port": 80 }] } },
        { "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
          "metadata": { "name": "web-x", "namespace": "default", "labels": { "kubernetes.io/service-name": "web" } },
          "ports": [{ "port": 8080 }], "endpoints": [{ "addresses": ["10.244.0.7"] }] },
    ] });
    std::fs::write(directory.path().join("cluster.json"), cluster.to_string()).unwrap();
    let text = |flags: &[&str]| {
        let fixed = ["render", "--hostname-override=n", "--manifests", directory.path().to_str().unwrap()];
        let output = svcproxy(&[&fixed, flags].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    for mode in ["--mode=iptables", "--mode=ipvs", "--mode=userspace"] {
        assert!(text(&[mode]).contains("203.0.113.4"), "{mode}");
        let off = text(&[mode, "--feature-gates=AllowServiceExternalIPs=false"]);
        assert!(!off.contains("203.0.113.4") && off.contains("10.96.0.1"), "{mode}: {off}");
    }
}
