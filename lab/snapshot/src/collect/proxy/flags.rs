//! What the flags of a proxy that was started without a configuration file say, in the words of such a file.
//!
//! With `--config` kube-proxy takes every field from the file and ignores these flags (cmd/kube-proxy/app/options.go); svcproxy does
//! the same.

use serde_json::{Map, Value, json};

use super::Config;
use super::process::Process;

/// How a flag's value is written.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Bool,
    Number,
    /// Separated by commas; a flag that is repeated adds to it.
    List,
    /// The same, of `NAME=BOOL`.
    Gates,
}

/// Flags that decide where packets go, and how the API is reached, with the fields that they set. `nftables.masqueradeBit` has none:
/// `--iptables-masquerade-bit` is for iptables and IPVS mode, and without a file nftables mode has the default.
const FIELDS: [(&str, Form, &[&str]); 14] = [
    ("proxy-mode", Form::Text, &["mode"]),
    ("cluster-cidr", Form::Text, &["clusterCIDR"]),
    ("detect-local-mode", Form::Text, &["detectLocalMode"]),
    ("pod-bridge-interface", Form::Text, &["detectLocal.bridgeInterface"]),
    ("pod-interface-name-prefix", Form::Text, &["detectLocal.interfaceNamePrefix"]),
    ("nodeport-addresses", Form::List, &["nodePortAddresses"]),
    ("masquerade-all", Form::Bool, &["iptables.masqueradeAll", "nftables.masqueradeAll"]),
    ("iptables-masquerade-bit", Form::Number, &["iptables.masqueradeBit"]),
    ("iptables-localhost-nodeports", Form::Bool, &["iptables.localhostNodePorts"]),
    ("ipvs-scheduler", Form::Text, &["ipvs.scheduler"]),
    ("ipvs-exclude-cidrs", Form::List, &["ipvs.excludeCIDRs"]),
    ("ipvs-strict-arp", Form::Bool, &["ipvs.strictARP"]),
    ("feature-gates", Form::Gates, &["featureGates"]),
    (KUBECONFIG, Form::Text, &["clientConnection.kubeconfig"]),
];
const KUBECONFIG: &str = "kubeconfig";

/// The configuration of a proxy that has no file.
pub(super) fn config(process: &Process) -> Config {
    let mut value = json!({ "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration" });
    for (flag, form, fields) in FIELDS {
        let Some(said) = said(process, flag, form) else { continue };
        fields.iter().for_each(|field| set(&mut value, field, said.clone()));
    }
    // A relative path is the process's own.
    let beside = if process.flag(KUBECONFIG).is_some_and(|path| path.starts_with('/')) { "/" } else { "flags" };
    Config { value, source: format!("the flags of {}", process.name), file: process.file(beside) }
}

fn said(process: &Process, flag: &str, form: Form) -> Option<Value> {
    let parts = || process.values(flag).into_iter().flat_map(|text| text.split(',')).map(str::trim);
    match form {
        Form::Text => process.flag(flag).map(Value::from),
        Form::Number => process.flag(flag)?.parse::<u32>().ok().map(Value::from),
        Form::Bool => process.switch(flag).map(Value::from),
        Form::List => {
            let list: Vec<&str> = parts().filter(|part| !part.is_empty()).collect();
            (!list.is_empty()).then(|| json!(list))
        }
        Form::Gates => {
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

/// Sets a field by its path.
fn set(value: &mut Value, field: &str, to: Value) {
    match field.split_once('.') {
        Some((outer, inner)) => set(&mut value[outer], inner, to),
        None => value[field] = to,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Inside;
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
        assert_eq!(config.kubeconfig(), Some(Inside::new(Path::new("/proc/7/root"), "/a/b.conf")));
        assert_eq!(of("kube-proxy --kubeconfig=a/b").kubeconfig(), Some(Inside::new(Path::new("/proc/7/cwd"), "a/b")));
    }

    #[test]
    fn the_bit_of_iptables_is_not_that_of_nftables() {
        let config = of("kube-proxy --proxy-mode=nftables --iptables-masquerade-bit=20").value;
        assert_eq!((&config["iptables"]["masqueradeBit"], &config["nftables"]), (&json!(20), &Value::Null));
    }

    /// Without a file and without flags a proxy has the defaults, which is known as well.
    #[test]
    fn no_flag_is_the_defaults() {
        assert_eq!(of("/usr/bin/kube-proxy").text(), of("svcproxy --iptables-masquerade-bit=x").text());
    }
}
