//! Log lines at the start, a wrong node name, a second instance; and files of `render` that the commands accept.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{every_kind, http_get, inside, shell, svcproxy, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub fn node(name: &str) -> String {
    serde_json::json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
        "status": { "addresses": [{ "type": "InternalIP", "address": "172.18.0.2" }, { "type": "InternalIP", "address": "fd00:18::2" }] } })
    .to_string()
}

pub struct LoggedProxy(Child, tempfile::NamedTempFile);

impl LoggedProxy {
    pub fn start(manifests: &Path, flags: &[&str]) -> LoggedProxy {
        LoggedProxy::start_by(Command::new(env!("CARGO_BIN_EXE_svcproxy")), manifests, flags)
    }

    fn start_by(mut command: Command, manifests: &Path, flags: &[&str]) -> LoggedProxy {
        let log = tempfile::NamedTempFile::new().unwrap();
        command.arg("--manifests").arg(manifests).args(["--hostname-override=node-a"]).args(flags);
        let stderr = Stdio::from(log.reopen().unwrap());
        LoggedProxy(command.env_remove("RUST_LOG").stderr(stderr).spawn().unwrap(), log)
    }

    /// Ends the proxy and returns all that it has logged: its log thread may be behind.
    pub fn ended(mut self) -> Vec<String> {
        kill(Pid::from_raw(self.0.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        self.0.wait().unwrap();
        self.lines()
    }

    pub fn lines(&self) -> Vec<String> {
        std::fs::read_to_string(self.1.path()).unwrap().lines().map(str::to_owned).collect()
    }

    fn logs(&self, part: &str) -> String {
        wait_for(part, || self.lines().into_iter().find(|line| line.contains(part)))
    }
}

impl Drop for LoggedProxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn ready() {
    let answers = || http_get("127.0.0.1:10256", "/healthz").filter(|answer| answer.starts_with("HTTP/1.1 200"));
    wait_for("the proxy to be ready", answers);
}

#[test]
fn the_first_line_names_the_setup_and_a_missing_node_is_a_warning() {
    if !inside!() {
        return;
    }
    let manifests = tempfile::tempdir().unwrap();
    std::fs::write(manifests.path().join("cluster.json"), every_kind(1, &[1])).unwrap();
    let proxy = LoggedProxy::start(manifests.path(), &["--proxy-mode=iptables", "--iptables-writer=netlink"]);
    let missing = proxy.logs("there is no Node node-a");
    assert!(missing.contains("WARN") && missing.contains("--hostname-override"), "{missing}");
    let first = &proxy.lines()[0];
    let source = format!("source=manifests in {}", manifests.path().display());
    for part in
        [concat!("svcproxy ", env!("CARGO_PKG_VERSION")), "mode=iptables", "writer=netlink", "node=\"node-a\"", &source]
    {
        assert!(first.contains(part), "{part}: {first}");
    }
    let file = manifests.path().join(".partial");
    std::fs::write(&file, node("node-a")).unwrap();
    std::fs::rename(&file, manifests.path().join("node.json")).unwrap();
    proxy.logs("there is a Node node-a now");
}

#[test]
fn names_at_the_apis_limits_are_programmed_and_can_be_listed() {
    if !inside!() {
        return;
    }
    let (namespace, service, port) = ("n".repeat(63), "s".repeat(63), "p".repeat(63));
    let metadata = |name: &str| serde_json::json!({ "name": name, "namespace": namespace, "labels": { "kubernetes.io/service-name": service } });
    let endpoints = ["fd00:1111:2222:3333:4444:5555:6666:7777", "fd00:1111:2222:3333:4444:5555:6666:7778"];
    let endpoints = endpoints.map(|address| serde_json::json!({ "addresses": [address] }));
    let cluster = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Service", "metadata": metadata(&service), "spec": { "clusterIP": "fd00:96::1",
          "ipFamilies": ["IPv6"], "sessionAffinity": "ClientIP", "ports": [{ "name": port, "port": 80, "protocol": "SCTP" }] } },
        { "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv6", "metadata": metadata("slice"),
          "ports": [{ "name": port, "port": 60000, "protocol": "SCTP" }], "endpoints": endpoints },
    ] });
    let manifests = tempfile::tempdir().unwrap();
    std::fs::write(manifests.path().join("node.json"), node("node-a")).unwrap();
    std::fs::write(manifests.path().join("cluster.json"), cluster.to_string()).unwrap();
    let _proxy = LoggedProxy::start(manifests.path(), &["--proxy-mode=nftables"]);
    ready();
    let listed = shell("nft list table ip6 kube-proxy");
    for prefix in ["chain endpoint-", "set affinity-"] {
        let of_endpoints = listed.lines().filter(|line| line.trim_start().starts_with(prefix)).count();
        assert_eq!(of_endpoints, 2, "{prefix}: {listed}");
    }
}

#[test]
fn configurations_that_kube_proxy_warns_of_are_warnings_once() {
    if !inside!() {
        return;
    }
    let manifests = tempfile::tempdir().unwrap();
    std::fs::write(manifests.path().join("node.json"), node("node-a")).unwrap();
    let warnings = |flags: &[&str]| {
        let proxy = LoggedProxy::start(
            manifests.path(),
            &[&["--conntrack-max-per-core=0", "--oom-score-adj=0"], flags].concat(),
        );
        ready();
        proxy.ended().into_iter().filter(|line| line.contains(" WARN ")).collect::<Vec<_>>()
    };
    let dual = "--cluster-cidr=10.244.0.0/16,fd00::/64";
    for (flags, expected) in [
        (&[dual][..], Some("nodePortAddresses (--nodeport-addresses) is not set")),
        (&[dual, "--nodeport-addresses=all"], None),
        (&[dual, "--nodeport-addresses=172.18.0.0/24"], Some("--nodeport-addresses) has no range of IPv6")),
        (
            &["--cluster-cidr=fd00::/64", "--nodeport-addresses=primary"],
            Some("clusterCIDR (--cluster-cidr) has no range of IPv4"),
        ),
        (
            &["--detect-local-mode=ClusterCIDR", "--nodeport-addresses=primary"],
            Some("clusterCIDR (--cluster-cidr) has no range,"),
        ),
        (&["--proxy-mode=nftables", dual], None),
    ] {
        let warned = warnings(flags);
        assert_eq!(warned.len(), usize::from(expected.is_some()), "{flags:?}: {warned:#?}");
        assert!(warned.iter().all(|line| line.contains(expected.unwrap())), "{flags:?}: {warned:#?}");
    }
}

#[test]
fn a_node_whose_pod_range_is_of_the_other_family_ends_the_proxy() {
    if !inside!() {
        return;
    }
    let manifests = tempfile::tempdir().unwrap();
    let mut node: serde_json::Value = serde_json::from_str(&node("node-a")).unwrap();
    node["spec"] = serde_json::json!({ "podCIDRs": ["fd00:1::/64"] });
    std::fs::write(manifests.path().join("node.json"), node.to_string()).unwrap();
    let mut proxy = LoggedProxy::start(manifests.path(), &["--detect-local-mode=NodeCIDR"]);
    let status = wait_for("the proxy to end", || proxy.0.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
    let last = proxy.lines().pop().unwrap();
    assert!(
        last.starts_with("svcproxy: Node node-a has no podCIDR of IPv4, the family of its primary address"),
        "{last}"
    );
    assert!(!shell("iptables-nft-save").contains("KUBE-SERVICES"));
}

#[test]
fn unknown_fields_are_counted() {
    if !inside!() {
        return;
    }
    let (manifests, file) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nnewer: 1\nmode: ipvs\nmode: iptables\n";
    std::fs::write(file.path(), text).unwrap();
    let config = file.path().to_str().unwrap();
    let proxy = LoggedProxy::start(manifests.path(), &["--config", config]);
    assert!(proxy.logs(": newer: there is no such field").contains(" WARN "));
    let metrics = wait_for("metrics", || http_get("127.0.0.1:10249", "/metrics"));
    assert!(metrics.contains("\nsvcproxy_config_unknown_fields 2\n"), "{metrics}");
    drop(proxy);
    let refused = svcproxy(&["--config", config, "--config-strict"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_changed_configuration_ends_the_proxy_and_leaves_the_rules() {
    if !inside!() {
        return;
    }
    let (manifests, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(manifests.path().join("node.json"), node("node-a")).unwrap();
    let file = directory.path().join("config.yaml");
    let replace = |more: &str| {
        let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
        let new = directory.path().join("new");
        std::fs::write(&new, format!("{head}restartOnConfigChange: true\n{more}")).unwrap();
        std::fs::rename(new, &file).unwrap();
    };
    replace("");
    let mut proxy = LoggedProxy::start(manifests.path(), &["--config", file.to_str().unwrap()]);
    ready();
    replace("oomScoreAdj: 5000\n");
    let wrong = proxy.logs("has changed, and is wrong");
    assert!(wrong.contains("WARN") && wrong.contains("oomScoreAdj: 5000 is not from"), "{wrong}");
    replace("");
    proxy.logs("is again as it was read");
    assert_eq!(proxy.0.try_wait().unwrap(), None);
    replace("iptables: {masqueradeAll: true}\n");
    let status = wait_for("the proxy to end", || proxy.0.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
    let last = proxy.lines().pop().unwrap();
    assert_eq!(last, "svcproxy: the configuration file has changed: ended, to be started again with it");
    assert!(shell("iptables-nft-save").contains("KUBE-SERVICES"));
}

#[test]
fn a_wildcard_answers_in_both_families() {
    if !inside!() {
        return;
    }
    let manifests = tempfile::tempdir().unwrap();
    // The proxy sets IPV6_V6ONLY itself.
    shell("echo 1 >/proc/sys/net/ipv6/bindv6only");
    for flags in [&["--metrics-bind-address=0.0.0.0"][..], &["--bind-address=::", "--metrics-bind-address=::"]] {
        let proxy = LoggedProxy::start(manifests.path(), flags);
        for address in ["127.0.0.1:10256", "[::1]:10256", "127.0.0.1:10249", "[::1]:10249"] {
            let path = if address.ends_with("10256") { "/livez" } else { "/metrics" };
            let status = wait_for(&format!("{flags:?}: {address}"), || http_get(address, path));
            assert!(status.starts_with("HTTP/1.1 200 "), "{flags:?}: {address}: {status}");
        }
        drop(proxy);
    }
}

#[test]
fn legacy_tables_without_permission_are_an_error_with_the_missing_right() {
    if !inside!() {
        return;
    }
    let manifests = tempfile::tempdir().unwrap();
    std::fs::write(manifests.path().join("node.json"), node("node-a")).unwrap();
    let mut without = Command::new("setpriv");
    without.args(["--bounding-set=-net_admin,-net_raw", "--inh-caps=-net_admin,-net_raw"]);
    without.arg(env!("CARGO_BIN_EXE_svcproxy"));
    let mut proxy =
        LoggedProxy::start_by(without, manifests.path(), &["--proxy-mode=iptables", "--iptables-variant=legacy"]);
    let failed = proxy.logs("sync failed; will be tried again");
    let missing = "CAP_NET_ADMIN and CAP_NET_RAW are missing";
    assert!(failed.contains("may not change this node's packet filter") && failed.contains(missing), "{failed}");
    let warned: Vec<String> =
        proxy.lines().into_iter().filter(|line| line.contains("cannot be written without")).collect();
    assert!(warned.len() == 1 && warned[0].contains("WARN") && warned[0].contains(missing), "{warned:?}");
    assert!(proxy.0.try_wait().unwrap().is_none(), "the right may come, as a sysctl or a security policy is mended");
}

#[test]
fn a_port_in_use_is_logged_once() {
    if !inside!() {
        return;
    }
    let _taken = std::net::TcpListener::bind("127.0.0.1:10256").unwrap();
    let manifests = tempfile::tempdir().unwrap();
    std::fs::write(manifests.path().join("node.json"), node("node-a")).unwrap();
    let flags = ["--hostname-override=node-a", "--healthz-bind-address=127.0.0.1:10256", "--bind-address-hard-fail"];
    let output = svcproxy(&[&["--manifests", manifests.path().to_str().unwrap()], &flags[..]].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    let last = said.lines().last().unwrap_or_default();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(last.starts_with("svcproxy: cannot listen on 127.0.0.1:10256 for "), "{said}");
    assert_eq!(last.matches("Address already in use").count(), 1, "{last}");
}

#[test]
fn an_oom_score_that_a_user_namespace_forbids_is_no_warning() {
    if !inside!() {
        return;
    }
    let manifests = tempfile::tempdir().unwrap();
    std::fs::write(manifests.path().join("node.json"), node("node-a")).unwrap();
    // Only the initial user namespace's root may lower the value.
    let mut within = Command::new("unshare");
    within.args(["--user", "--map-root-user", "--net", env!("CARGO_BIN_EXE_svcproxy")]);
    let proxy = LoggedProxy::start_by(within, manifests.path(), &["--proxy-mode=nftables", "--oom-score-adj=-1000"]);
    let told = proxy.logs("cannot set oom_score_adj to -1000");
    assert!(told.contains("INFO"), "{told}");
}

#[test]
fn a_second_instance_is_refused_and_the_next_takes_over() {
    if !inside!() {
        return;
    }
    let manifests = tempfile::tempdir().unwrap();
    std::fs::write(manifests.path().join("node.json"), node("node-a")).unwrap();
    let mut first = LoggedProxy::start(manifests.path(), &["--proxy-mode=nftables"]);
    let process = first.0.id();
    ready();
    let flags =
        ["--manifests", manifests.path().to_str().unwrap(), "--hostname-override=node-a", "--proxy-mode=iptables"];
    let second = svcproxy(&flags);
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("svcproxy: another svcproxy (process {process}) is at work in this network namespace")),
        "{said}"
    );
    assert!(!shell("iptables-nft-save").contains("KUBE-"), "it has touched nothing");
    assert!(!first.lines().iter().any(|line| line.contains("existed before")), "nor disturbed the first");
    // A killed proxy leaves no lock behind.
    kill(Pid::from_raw(process.try_into().unwrap()), Signal::SIGKILL).unwrap();
    first.0.wait().unwrap();
    let _third = LoggedProxy::start(manifests.path(), &["--proxy-mode=nftables"]);
    ready();
}

#[test]
fn the_commands_accept_rendered_files() {
    if !inside!() {
        return;
    }
    let manifests = tempfile::tempdir().unwrap();
    std::fs::write(manifests.path().join("cluster.json"), every_kind(1, &[1, 2])).unwrap();
    std::fs::write(manifests.path().join("node.json"), node("node-a")).unwrap();
    let render = |mode: &str, more: &[&str]| {
        let fixed =
            ["render", "--hostname-override=node-a", "--manifests", manifests.path().to_str().unwrap(), "--mode", mode];
        let output = svcproxy(&[&fixed, more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    for mode in ["iptables", "userspace", "ipvs", "nftables"] {
        let to = tempfile::tempdir().unwrap();
        let named = render(mode, &["--output", to.path().to_str().unwrap()]);
        let directory = to.path().display();
        let files: Vec<&str> = named.lines().map(|line| line.rsplit_once('/').unwrap().1).collect();
        match mode {
            "nftables" => {
                assert_eq!(files, ["ipv4.nft", "ipv6.nft"]);
                shell(&format!("nft -c -f {directory}/ipv4.nft && nft -c -f {directory}/ipv6.nft"));
            }
            "ipvs" => {
                assert_eq!(files[..4], ["ipv4.addresses", "ipv4.ipset", "ipv4.ipvsadm", "ipv4.rules"]);
                let rules = std::fs::read_to_string(to.path().join("ipv6.rules")).unwrap();
                assert!(rules.contains("-j KUBE-") && !rules.contains("create "), "{rules}");
            }
            _ => {
                assert_eq!(files, ["ipv4.rules", "ipv6.rules"]);
                shell(&format!(
                    "iptables-restore --test {directory}/ipv4.rules && ip6tables-restore --test {directory}/ipv6.rules"
                ));
                for (family, command) in [("ipv4", "iptables-restore"), ("ipv6", "ip6tables-restore")] {
                    let printed = render(mode, &["--ip-family", family]);
                    std::fs::write(to.path().join("printed"), printed).unwrap();
                    shell(&format!("{command} --test {directory}/printed"));
                }
            }
        }
    }
    let sets = shell("command -v ipset || true");
    if !sets.is_empty() {
        let to = tempfile::tempdir().unwrap();
        render("ipvs", &["--output", to.path().to_str().unwrap()]);
        let directory = to.path().display();
        for family in ["ipv4", "ipv6"] {
            let command = if family == "ipv4" { "iptables-restore" } else { "ip6tables-restore" };
            shell(&format!(
                "ipset restore -file {directory}/{family}.ipset && {command} --test {directory}/{family}.rules"
            ));
        }
    }
}

#[test]
fn node_ports_that_are_left_out_are_named() {
    let manifests = tempfile::tempdir().unwrap();
    std::fs::write(manifests.path().join("cluster.json"), every_kind(1, &[1])).unwrap();
    let said = |flags: &[&str]| {
        let fixed = ["render", "--hostname-override=node-a", "--manifests", manifests.path().to_str().unwrap()];
        String::from_utf8(svcproxy(&[&fixed, flags].concat()).stderr).unwrap()
    };
    let left_out =
        "there is no Node node-a in the manifests, so its addresses are not known and node ports are left out";
    let range = "--nodeport-addresses=172.18.0.0/24";
    for flags in [
        &["--mode=ipvs"][..],
        &["--mode=nftables"],
        &["--mode=nftables", range],
        &["--mode=iptables", range],
        &["--mode=iptables", "--nodeport-addresses=primary"],
        &["--mode=userspace", range],
    ] {
        assert!(said(flags).contains(left_out), "{flags:?}");
        assert_eq!(said(&[flags, &["--local-address=172.18.0.2"]].concat()), "", "{flags:?}");
    }
    let on_every_address = "they are on every local address";
    for flags in [
        &["--mode=iptables"][..],
        &["--mode=iptables", "--nodeport-addresses=0.0.0.0/0,::/0"],
        &["--mode=nftables", "--nodeport-addresses=all"],
        &["--mode=iptables", "--ip-family=ipv6", range],
    ] {
        assert_eq!(said(flags), "", "{flags:?}: there they are on whatever the kernel calls local");
        assert!(said(&[flags, &["--local-address=172.18.0.2"]].concat()).contains(on_every_address), "{flags:?}");
    }
    let rules = |flags: &[&str]| {
        let fixed = ["render", "--hostname-override=node-a", "--manifests", manifests.path().to_str().unwrap()];
        String::from_utf8(svcproxy(&[&fixed, flags].concat()).stdout).unwrap()
    };
    for (mode, chain) in [("iptables", "KUBE-NODEPORTS"), ("userspace", "KUBE-NODEPORT-CONTAINER")] {
        let rules = rules(&["--mode", mode, range, "--local-address=172.18.0.2"]);
        let leads = |line: &str| line.contains("-d 172.18.0.2") && line.contains(chain);
        assert!(rules.lines().any(leads), "{mode}: {rules}");
    }
    std::fs::write(manifests.path().join("node.json"), node("node-a")).unwrap();
    assert_eq!(said(&["--mode", "ipvs"]), "");
}

#[test]
fn help_names_the_flags_that_have_no_effect() {
    let help = String::from_utf8(svcproxy(&["--help"]).stdout).unwrap();
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("metrics server (no effect: this program has no profiler"), "{words}");
    assert!(words.contains("nftables"), "{words}");
    assert!(!words.contains("Jumps (no effect"));
}
