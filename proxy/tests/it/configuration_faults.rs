use svcproxy::config::Ipvs;

use crate::configuration::{HEAD, file, resolve, svcproxy};

#[test]
fn unsupported_ipvs_settings_are_named() {
    for (flags, problem) in [
        (["--proxy-mode=ipvs", "--ipvs-scheduler=lottery"], "--ipvs-scheduler: \"lottery\" is none of rr, wrr, lc,"),
        (["--proxy-mode=ipvs", "--ipvs-exclude-cidrs=10.0.0.1-9"], "--ipvs-exclude-cidrs: \"10.0.0.1-9\" is no range"),
        (["--proxy-mode=ipvs", "--ipvs-udp-timeout=-1s"], "--ipvs-udp-timeout: -1s is negative"),
        (
            ["--proxy-mode=ipvs", "--iptables-count-localhost-nodeports"],
            "--iptables-count-localhost-nodeports: counts by a rule of iptables mode, and the mode is ipvs",
        ),
        (
            ["--proxy-mode=userspace", "--masquerade-source=primary"],
            "--masquerade-source: in userspace mode this process opens the connections",
        ),
        (
            ["--proxy-mode=ipvs", "--no-masquerade-cidrs=10.244.0.0/16"],
            "--no-masquerade-cidrs: in IPVS mode the node's own packets have the service's address",
        ),
        (
            ["--proxy-mode=ipvs", "--service-counters"],
            "--service-counters: counts by rules of iptables and nftables mode, and the mode is ipvs",
        ),
        (
            ["--proxy-mode=userspace", "--service-counters=default/web"],
            "--service-counters: counts by rules of iptables and nftables mode, and the mode is userspace",
        ),
        (["--proxy-mode=ipvs", "--ipvs-drain-limit=-1s"], "--ipvs-drain-limit: -1s is negative"),
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
        ("iptables: 5\n", ", line 3: iptables: invalid type: integer `5`, expected struct IptablesConfiguration"),
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
        (
            "stateFile:\n  path: svcproxy/state\n",
            ", line 4: stateFile.path: \"svcproxy/state\" is no absolute path of a file",
        ),
        ("stateFile:\n  maxAge: -1s\n", ", line 4: stateFile.maxAge: -1s is negative"),
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
    let text = "snatCIDRs: [10.0.0.0/8]
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
        "line 3: snatCIDRs: there is no such field in kubeproxy.config.k8s.io/v1alpha1",
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
    // Unknown fields may have any name, and be numerous.
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
        ("--kube-api-burst=-1", "--kube-api-burst: -1 is negative"),
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
    assert!(
        output.status.code() == Some(2) && reported.contains("only one source of objects is allowed"),
        "{reported}"
    );
    let output = svcproxy(&[]);
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && reported.contains("set the source of objects"), "{reported}");
}
