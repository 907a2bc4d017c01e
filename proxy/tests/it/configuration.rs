//! Configuration files and flags, through the program and its library.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use clap::Parser;
use svcproxy::cli::settings::{ObjectOrigin, ResolvedSettings, Settings};
use svcproxy::config::{
    Config, Conntrack, DetectLocal, FeatureGates, Ipvs, Mode, NodePortAddresses, Variant, WriterChoice,
};
use svcproxy::kernel::ipvs::Timeouts;
use svcproxy::kubeproxy_config::{self, KubeProxyConfiguration};
use svcproxy::model::Family;

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    settings: Settings,
}

fn settings(flags: &[&str]) -> Settings {
    Flags::try_parse_from(std::iter::once("x").chain(flags.iter().copied())).unwrap().settings
}

fn resolve(flags: &[&str]) -> Result<ResolvedSettings, String> {
    settings(flags).resolve().map_err(|error| error.to_string())
}

fn svcproxy(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svcproxy"));
    command.env_remove("KUBERNETES_SERVICE_HOST").env_remove("RUST_LOG").args(arguments).output().unwrap()
}

const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

fn file(directory: &Path, text: &str) -> PathBuf {
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
    assert!(matches!(origin, ObjectOrigin::Kubernetes(_)), "{origin:?}");
}

#[test]
fn every_field_reaches_the_proxy() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "{HEAD}hostnameOverride: node-7\nbindAddress: fd00::7\nbindAddressHardFail: true\nenableProfiling: true\n\
         metricsBindAddress: '::'\niptables: {{masqueradeBit: 3, masqueradeAll: true, localhostNodePorts: false, \
         syncPeriod: 1m, minSyncPeriod: 2s}}\ndetectLocalMode: BridgeInterface\ndetectLocal: {{bridgeInterface: cni0}}\n\
         nodePortAddresses: [primary, localhost]\noomScoreAdj: -7\nconntrack: {{maxPerCore: 1, min: 2, \
         tcpEstablishedTimeout: 1h0m0s, tcpCloseWaitTimeout: 90s, tcpBeLiberal: true, udpTimeout: 5s, \
         udpStreamTimeout: 500ms}}\nipvs: {{scheduler: wlc, excludeCIDRs: [10.99.0.0/16], strictARP: true, \
         tcpTimeout: 2h, tcpFinTimeout: 30s, udpTimeout: 1m, syncPeriod: 7s, minSyncPeriod: 5s}}\nportRange: 9000+9\n\
         featureGates: {{AllowServiceExternalIPs: false}}\n"
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
        node_port_addresses: NodePortAddresses::PrimaryAndRanges(vec![
            "127.0.0.0/8".parse().unwrap(),
            "::1/128".parse().unwrap(),
        ]),
        localhost_node_ports: false,
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
        service_counters: false,
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
    };
    assert_eq!(config, expected);

    // IPVS mode has its own periods, and no node ports on the loopback range.
    let text =
        text.replace("bindAddress: fd00", "mode: ipvs\nbindAddress: fd00").replace("localhostNodePorts: false, ", "");
    let path = file(directory.path(), &text);
    let config = resolve(&["--config", path.to_str().unwrap()]).unwrap().config;
    assert_eq!((config.mode, config.localhost_node_ports), (Mode::Ipvs, false));
    assert_eq!((config.sync_period, config.min_sync_period), (Duration::from_secs(7), Duration::from_secs(5)));
    assert_eq!(config.ipvs.drain_limit, Duration::from_secs(15 * 60));
}

#[test]
fn unsupported_ipvs_settings_are_named() {
    for (flags, problem) in [
        (["--proxy-mode=ipvs", "--ipvs-scheduler=lottery"], "--ipvs-scheduler: \"lottery\" is none of rr, wrr, lc,"),
        (["--proxy-mode=ipvs", "--ipvs-exclude-cidrs=10.0.0.1-9"], "--ipvs-exclude-cidrs: \"10.0.0.1-9\" is no range"),
        (["--proxy-mode=ipvs", "--ipvs-udp-timeout=-1s"], "--ipvs-udp-timeout: -1s is less than nothing"),
        (["--proxy-mode=ipvs", "--service-counters"], "--service-counters: counts by rules of iptables mode"),
        (["--proxy-mode=ipvs", "--ipvs-drain-limit=-1s"], "--ipvs-drain-limit: -1s is less than nothing"),
    ] {
        let error = resolve(&flags).map(|resolved| resolved.config).unwrap_err();
        assert!(error.starts_with(problem), "{flags:?}: {error}");
    }
}

#[test]
fn a_mistake_is_named_by_file_line_and_field() {
    let directory = tempfile::tempdir().unwrap();
    for (text, expected) in [
        ("mode: kernelspace\n", ", line 3: mode: kernelspace is the mode of Windows nodes; this proxy is for Linux"),
        (
            "iptables:\n  masqueradebit: 3\n",
            ", line 4: iptables.masqueradebit: there is no such field in kubeproxy.config.k8s.io/v1alpha1; is masqueradeBit meant?",
        ),
        (
            "udpIdleTimeout: 250ms\n",
            ", line 3: udpIdleTimeout: there is no such field in kubeproxy.config.k8s.io/v1alpha1",
        ),
        (
            "conntrack:\n  min: 1\n  max: 5\n",
            ", line 5: conntrack.max: there is no such field in kubeproxy.config.k8s.io/v1alpha1",
        ),
        (
            "iptables:\n  syncPeriod: 30\n",
            ", line 4: iptables.syncPeriod: invalid type: integer `30`, expected a string",
        ),
        (
            "iptables:\n  syncPeriod: 30 seconds\n",
            ", line 4: iptables.syncPeriod: \"30 seconds\" is no time such as 30s, 500ms or 1h0m0s",
        ),
        ("iptables: 5\n", ", line 3: iptables: invalid type: integer `5`, expected struct Iptables"),
        (
            "featureGates:\n  A: yes please\n",
            ", line 4: featureGates.A: invalid type: string \"yes please\", expected a boolean",
        ),
        (
            "featureGates:\n  ComponentFlagz: true\n  AllowServiceExternalIp: false\n",
            ", line 5: featureGates.AllowServiceExternalIp: there is no feature gate AllowServiceExternalIp in Kubernetes 1.36 \
             and 1.37; is AllowServiceExternalIPs meant?",
        ),
        (
            "featureGates: {PreferSameTrafficDistribution: false}\n",
            ", line 3: featureGates.PreferSameTrafficDistribution: the feature gate PreferSameTrafficDistribution is locked to true",
        ),
        (
            "mode: ipvs\nfeatureGates:\n  KubeProxyIPVS: false\n",
            ", line 3: mode: the feature gate KubeProxyIPVS, which is off, forbids the mode ipvs",
        ),
        (
            "nodePortAddresses:\n- 10.0.0.0/8\n- 7\n",
            ", line 3: nodePortAddresses[1]: invalid type: integer `7`, expected a string",
        ),
        (
            "clusterCIDR: 10.0.0.0/8,x\n",
            ", line 3: clusterCIDR: \"x\" is no range such as 10.244.0.0/16 or fd00:244::/64",
        ),
        ("oomScoreAdj: 2000\n", ", line 3: oomScoreAdj: 2000 is not from -1000 to 1000"),
        ("logging:\n  format: xml\n", ", line 4: logging.format: \"xml\" is neither text nor json"),
        ("mode: iptables\nmode: iptables\n", ", line 4: mode: is given again, and the last one counts"),
        ("mode: [iptables\n", ", line 3: malformed YAML: unclosed bracket '['"),
    ] {
        let path = file(directory.path(), &format!("{HEAD}{text}"));
        let reported = resolve(&["--config", path.to_str().unwrap(), "--config-strict"]).unwrap_err();
        assert_eq!(reported, format!("{}{expected}", path.display()));
    }
    for (text, expected) in [
        ("", ": is no KubeProxyConfiguration"),
        ("# nothing\n---\n", ": is no KubeProxyConfiguration"),
        ("kind: KubeProxyConfiguration\n", ": apiVersion: is missing; it must be kubeproxy.config.k8s.io/v1alpha1"),
        (
            "apiVersion: kubeproxy.config.k8s.io/v1alpha2\nkind: KubeProxyConfiguration\n",
            ", line 1: apiVersion: is \"kubeproxy.config.k8s.io/v1alpha2\"; this proxy reads kubeproxy.config.k8s.io/v1alpha1",
        ),
        (
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeletConfiguration\n",
            ", line 2: kind: is \"KubeletConfiguration\"; this proxy reads KubeProxyConfiguration",
        ),
    ] {
        let path = file(directory.path(), text);
        let reported = resolve(&["--config", path.to_str().unwrap()]).unwrap_err();
        assert_eq!(reported, format!("{}{expected}", path.display()), "{text:?}");
    }
    let none = directory.path().join("none");
    let reported = resolve(&["--config", none.to_str().unwrap()]).unwrap_err();
    assert_eq!(
        reported,
        format!("cannot read the configuration file {}: No such file or directory (os error 2)", none.display())
    );
}

#[test]
fn an_unknown_or_repeated_field_is_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let text = "noMasqueradeCIDRs: [10.0.0.0/8]
iptables:
  masqueradebit: 3
  masqueradeBit: 4
  masqueradeBit: 5
logging:
  vmodule: [{filePattern: a, verbosity: 1, level: 2}]
ipvs: {scheduler: lc, strictARP: true}
ipvs: {scheduler: sh}
ipvs: null
";
    let path = file(directory.path(), &format!("{HEAD}{text}"));
    let resolved = resolve(&["--config", path.to_str().unwrap()]).unwrap();
    let expected = [
        "line 3: noMasqueradeCIDRs: there is no such field in kubeproxy.config.k8s.io/v1alpha1",
        "line 5: iptables.masqueradebit: there is no such field in kubeproxy.config.k8s.io/v1alpha1; is masqueradeBit meant?",
        "line 7: iptables.masqueradeBit: is given again, and the last one counts",
        "line 9: logging.vmodule[0].level: there is no such field in kubeproxy.config.k8s.io/v1alpha1",
        "line 11: ipvs: is given again, and the last one counts",
        "line 12: ipvs: is given again, and the last one counts",
    ];
    let expected = expected.map(|line| format!("{}, {line} (an error with --config-strict)", path.display()));
    assert_eq!(resolved.warnings[..6], expected);
    assert_eq!(resolved.config.masquerade_bit, 5);
    assert_eq!(resolved.config.ipvs, Ipvs::default(), "as if the others were not there");
    // Unknown names may be any text, and numerous.
    let many: String = (0..30).map(|number| format!("\"x{number:02}\\n\": 1\n")).collect();
    let path = file(directory.path(), &format!("{HEAD}{many}"));
    let warnings = resolve(&["--config", path.to_str().unwrap()]).unwrap().warnings;
    assert!(
        warnings.len() == 21 && warnings[19].contains(", line 22: x19\\n: there is no such field"),
        "{warnings:#?}"
    );
    assert_eq!(warnings[20], format!("{}: 10 more fields are ignored", path.display()));
    // A value of the wrong type is an error, also beside unknown fields.
    let path = file(directory.path(), &format!("{HEAD}a: 1\nmode: 1\n"));
    let error = resolve(&["--config", path.to_str().unwrap()]).unwrap_err();
    assert!(error.ends_with(", line 4: mode: invalid type: integer `1`, expected a string"), "{error}");
    // `render` warns, too.
    let path = file(directory.path(), &format!("{HEAD}a: 1\n"));
    let manifests = tempfile::tempdir().unwrap();
    let (path, manifests) = (path.to_str().unwrap(), manifests.path().to_str().unwrap());
    let output = svcproxy(&["render", "--config", path, "--manifests", manifests, "--hostname-override=n"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("line 3: a: there is no such field"), "{said}");
}

#[test]
fn a_node_name_is_trimmed_and_a_blank_one_is_an_error() {
    let resolved = resolve(&["--hostname-override", "  Bar "]).unwrap();
    assert_eq!((resolved.config.node_name.as_str(), resolved.configuration.hostname_override.as_str()), ("bar", "bar"));
    let error = resolve(&["--hostname-override", "  "]).unwrap_err();
    assert!(error.starts_with("--hostname-override: give this node's name"), "{error}");
}

#[test]
fn an_ipv6_address_in_brackets_has_a_port() {
    for flags in
        [&["--healthz-bind-address=[fd00:1::5]"][..], &["--healthz-bind-address=[fd00:1::5]", "--healthz-port=7"]]
    {
        let error = resolve(flags).unwrap_err();
        assert_eq!(error, "--healthz-bind-address: \"[fd00:1::5]\" is not an address and port such as 0.0.0.0:10256");
    }
    let config = resolve(&["--healthz-bind-address=fd00:1::5", "--healthz-port=7"]).unwrap().config;
    assert_eq!(config.healthz_bind_address, Some("[fd00:1::5]:7".parse().unwrap()));
}

#[test]
fn a_mistake_in_a_flag_is_named_by_the_flag() {
    for (flag, expected) in [
        ("--proxy-mode=nftable", "--proxy-mode: \"nftable\" is none of iptables, ipvs, nftables, userspace"),
        ("--bind-address=x", "--bind-address: \"x\" is no IP address"),
        ("--kube-api-burst=-1", "--kube-api-burst: -1 is less than nothing"),
        ("--iptables-min-sync-period=1h", "--iptables-min-sync-period: 1h0m0s is longer than the syncPeriod, 30s"),
        (
            "--feature-gates=Nonsense=true",
            "--feature-gates: there is no feature gate Nonsense in Kubernetes 1.36 and 1.37",
        ),
        ("--feature-gates=WinDSR=false", "--feature-gates: the feature gate WinDSR is locked to true"),
        ("--logging-format=x", "--logging-format: \"x\" is neither text nor json"),
    ] {
        assert_eq!(resolve(&[flag]).unwrap_err(), expected);
    }
    let output = svcproxy(&["--manifests", "x", "--kubeconfig", "y"]);
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && reported.contains("objects come from one place"), "{reported}");
    let output = svcproxy(&[]);
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && reported.contains("name where objects come from"), "{reported}");
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
