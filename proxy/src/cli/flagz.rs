//! As in kube-proxy, `/flagz` ignores the configuration file; `/configz` shows the result.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde_json::Value;

use super::settings::Settings;
use crate::kubeproxy_config::{FIELDS, HEALTHZ_PORT, KubeProxyConfiguration, METRICS_PORT};
use crate::source::without_password;

pub(super) fn flags(settings: &Settings) -> BTreeMap<String, String> {
    let default = serde_json::to_value(KubeProxyConfiguration::default()).unwrap_or_default();
    let of_fields = FIELDS.iter().filter_map(|field| {
        let (name, _) = field.flag?;
        let default = || field.path.split('.').try_fold(&default, |value, key| value.get(key));
        let value = settings.config_flags.0.get(field.path).or_else(default)?;
        Some((name, format_value(value)))
    });
    let path =
        |path: &Option<std::path::PathBuf>| path.as_ref().map_or_else(String::new, |path| path.display().to_string());
    let variant = settings.iptables_variant.to_possible_value();
    let writer = settings.iptables_writer.to_possible_value();
    let others = [
        ("config", path(&settings.config)),
        ("config-strict", settings.config_strict.to_string()),
        ("manifests", path(&settings.manifests)),
        ("master", settings.master.as_deref().map(without_password).unwrap_or_default()),
        ("healthz-port", settings.healthz_port.unwrap_or(HEALTHZ_PORT).to_string()),
        ("metrics-port", settings.metrics_port.unwrap_or(METRICS_PORT).to_string()),
        ("service-counters", settings.service_counters.as_ref().map_or_else(String::new, ToString::to_string)),
        ("iptables-variant", variant.map_or_else(String::new, |variant| variant.get_name().to_owned())),
        ("iptables-writer", writer.map_or_else(String::new, |writer| writer.get_name().to_owned())),
        ("ipvs-drain-limit", settings.ipvs_drain_limit.to_string()),
        // The program exits before it serves `/flagz`.
        ("cleanup", false.to_string()),
        ("init-only", false.to_string()),
        ("version", false.to_string()),
        ("write-config-to", String::new()),
    ];
    of_fields.chain(others).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn format_value(value: &Value) -> String {
    let pair = |name: &str, value: &Value| format!("{name}={value}");
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) => fields.iter().map(|(name, value)| pair(name, value)).collect::<Vec<_>>().join(","),
        Value::Array(items) if items.iter().any(Value::is_object) => {
            let pairs = items.iter().filter_map(|item| Some(pair(item["filePattern"].as_str()?, &item["verbosity"])));
            pairs.collect::<Vec<_>>().join(",")
        }
        Value::Array(items) => format!("[{}]", items.iter().map(format_value).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubeproxy_config::FLAGS_ONLY;
    use clap::Parser;

    #[derive(Parser)]
    struct TestCommandLine {
        #[command(flatten)]
        settings: Settings,
    }

    #[test]
    fn every_flag_has_a_value() {
        let given = [
            "x",
            "--config=/c.yaml",
            "--nodeport-addresses=primary,10.0.0.0/8",
            "--vmodule=a=3,b=2",
            "-v=4",
            "--feature-gates=AllBeta=false,ComponentFlagz=true",
            "--iptables-variant=nft",
            "--masquerade-all",
        ];
        let flags = flags(&TestCommandLine::parse_from(given).settings);
        for (name, value) in [
            ("config", "/c.yaml"),
            ("nodeport-addresses", "[primary,10.0.0.0/8]"),
            ("vmodule", "a=3,b=2"),
            ("v", "4"),
            ("feature-gates", "AllBeta=false,ComponentFlagz=true"),
            ("iptables-variant", "nft"),
            ("masquerade-all", "true"),
            ("iptables-sync-period", "30s"),
            ("ipvs-exclude-cidrs", "[]"),
            ("metrics-bind-address", "127.0.0.1:10249"),
            ("healthz-port", "10256"),
            ("hostname-override", ""),
        ] {
            assert_eq!(flags[name], value, "{name}");
        }
        let mut known: Vec<&str> = FIELDS.iter().filter_map(|field| Some(field.flag?.0)).collect();
        known.extend(FLAGS_ONLY.iter().map(|(name, ..)| *name));
        known.sort_unstable();
        assert_eq!(flags.keys().collect::<Vec<_>>(), known);
    }
}
