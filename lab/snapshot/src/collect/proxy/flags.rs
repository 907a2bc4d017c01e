//! The flags of a proxy without a configuration file. With `--config` kube-proxy (cmd/kube-proxy/app/options.go) and
//! svcproxy ignore them.

use serde_json::{Map, Value, json};

use super::Config;
use super::process::Process;

#[derive(Clone, Copy)]
enum FlagFormat {
    Text,
    Bool,
    Number,
    /// A comma-separated list; a repeated flag adds to it.
    List,
    /// A list of `NAME=BOOL`.
    Gates,
}

/// Flags that affect packets or the API's address, and their fields. `nftables.masqueradeBit` has no flag:
/// `--iptables-masquerade-bit` is for iptables and IPVS mode.
const FIELDS: [(&str, FlagFormat, &[&str]); 18] = [
    ("proxy-mode", FlagFormat::Text, &["mode"]),
    ("cluster-cidr", FlagFormat::Text, &["clusterCIDR"]),
    ("detect-local-mode", FlagFormat::Text, &["detectLocalMode"]),
    ("pod-bridge-interface", FlagFormat::Text, &["detectLocal.bridgeInterface"]),
    ("pod-interface-name-prefix", FlagFormat::Text, &["detectLocal.interfaceNamePrefix"]),
    ("nodeport-addresses", FlagFormat::List, &["nodePortAddresses"]),
    ("masquerade-all", FlagFormat::Bool, &["iptables.masqueradeAll", "nftables.masqueradeAll"]),
    ("masquerade-source", FlagFormat::Text, &["masqueradeSource"]),
    ("no-masquerade-cidrs", FlagFormat::List, &["noMasqueradeCIDRs"]),
    ("load-balancing", FlagFormat::Text, &["loadBalancing"]),
    ("service-annotations", FlagFormat::List, &["serviceAnnotations"]),
    ("iptables-masquerade-bit", FlagFormat::Number, &["iptables.masqueradeBit"]),
    ("iptables-localhost-nodeports", FlagFormat::Bool, &["iptables.localhostNodePorts"]),
    ("ipvs-scheduler", FlagFormat::Text, &["ipvs.scheduler"]),
    ("ipvs-exclude-cidrs", FlagFormat::List, &["ipvs.excludeCIDRs"]),
    ("ipvs-strict-arp", FlagFormat::Bool, &["ipvs.strictARP"]),
    ("feature-gates", FlagFormat::Gates, &["featureGates"]),
    (KUBECONFIG, FlagFormat::Text, &["clientConnection.kubeconfig"]),
];
const KUBECONFIG: &str = "kubeconfig";

pub(super) fn config(process: &Process) -> Config {
    let mut value = json!({ "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration" });
    for (flag, form, fields) in FIELDS {
        let Some(said) = said(process, flag, form) else { continue };
        fields.iter().for_each(|field| set(&mut value, field, said.clone()));
    }
    // A relative path starts from the process's working directory.
    let beside = if process.flag(KUBECONFIG).is_some_and(|path| path.starts_with('/')) { "/" } else { "flags" };
    Config { value, source: format!("the flags of {}", process.name), file: process.file(beside) }
}

fn said(process: &Process, flag: &str, form: FlagFormat) -> Option<Value> {
    let parts = || process.values(flag).into_iter().flat_map(|text| text.split(',')).map(str::trim);
    match form {
        FlagFormat::Text => process.flag(flag).map(Value::from),
        FlagFormat::Number => process.flag(flag)?.parse::<u32>().ok().map(Value::from),
        FlagFormat::Bool => process.switch(flag).map(Value::from),
        FlagFormat::List => {
            let list: Vec<&str> = parts().filter(|part| !part.is_empty()).collect();
            (!list.is_empty()).then(|| json!(list))
        }
        FlagFormat::Gates => {
            let gates = parts().filter_map(|part| part.split_once('='));
            let gates: Map<String, Value> = gates
                .filter_map(|(name, on)| {
                    Some((name.trim().to_owned(), Value::from(super::process::is_true(on.trim())?)))
                })
                .collect();
            (!gates.is_empty()).then_some(Value::Object(gates))
        }
    }
}

fn set(value: &mut Value, field: &str, to: Value) {
    match field.split_once('.') {
        Some((outer, inner)) => set(&mut value[outer], inner, to),
        None => value[field] = to,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::ContainedPath;
    use super::*;

    fn of(command: &str) -> Config {
        config(&Process::of(7, command.split(' ').map(str::to_owned).collect()).unwrap())
    }

    #[test]
    fn flags_are_the_fields_that_they_set() {
        let line = "kube-proxy --proxy-mode=ipvs --cluster-cidr 10.244.0.0/16,fd00::/56 --nodeport-addresses=10.0.0.0/8 \
                    --nodeport-addresses=172.18.0.0/24 --masquerade-all --iptables-localhost-nodeports=false --v 2 \
                    --feature-gates=A=true,AllowServiceExternalIPs=false --ipvs-scheduler=sh --kubeconfig /a/b.conf";
        let config = of(&line.split_whitespace().collect::<Vec<_>>().join(" "));
        let expected = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "ipvs",
            "clusterCIDR": "10.244.0.0/16,fd00::/56",
            "nodePortAddresses": ["10.0.0.0/8", "172.18.0.0/24"],
            "iptables": { "masqueradeAll": true, "localhostNodePorts": false },
            "nftables": { "masqueradeAll": true },
            "ipvs": { "scheduler": "sh" },
            "featureGates": { "A": true, "AllowServiceExternalIPs": false },
            "clientConnection": { "kubeconfig": "/a/b.conf" },
        });
        assert_eq!(config.value, expected);
        assert_eq!(config.source, "the flags of kube-proxy");
        assert_eq!(config.kubeconfig(), Some(ContainedPath::new(Path::new("/proc/7/root"), "/a/b.conf")));
        assert_eq!(
            of("kube-proxy --kubeconfig=a/b").kubeconfig(),
            Some(ContainedPath::new(Path::new("/proc/7/cwd"), "a/b"))
        );
    }

    #[test]
    fn the_bit_of_iptables_is_not_that_of_nftables() {
        let config = of("kube-proxy --proxy-mode=nftables --iptables-masquerade-bit=20").value;
        assert_eq!((&config["iptables"]["masqueradeBit"], &config["nftables"]), (&json!(20), &Value::Null));
    }

    #[test]
    fn no_flag_is_the_defaults() {
        assert_eq!(of("/usr/bin/kube-proxy").text(), of("svcproxy --iptables-masquerade-bit=x").text());
    }
}
