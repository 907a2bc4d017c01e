//! Names that a description may use in `config`, and the lines of its keys.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::scenario::alike;

/// The fields of a KubeProxyConfiguration, and those that only svcproxy has.
#[rustfmt::skip]
const CONFIG: [&str; 72] = [
    "apiVersion", "kind", "featureGates", "clientConnection.kubeconfig", "clientConnection.acceptContentTypes",
    "clientConnection.contentType", "clientConnection.qps", "clientConnection.burst", "logging.format",
    "logging.flushFrequency", "logging.verbosity", "logging.vmodule", "logging.options.text.splitStream",
    "logging.options.text.infoBufferSize", "logging.options.json.splitStream", "logging.options.json.infoBufferSize",
    "hostnameOverride", "bindAddress", "healthzBindAddress", "metricsBindAddress", "bindAddressHardFail",
    "enableProfiling", "showHiddenMetricsForVersion", "mode", "iptables.masqueradeBit", "iptables.masqueradeAll",
    "iptables.localhostNodePorts", "iptables.countLocalhostNodePorts", "iptables.syncPeriod",
    "iptables.minSyncPeriod", "ipvs.syncPeriod", "ipvs.minSyncPeriod", "ipvs.scheduler", "ipvs.excludeCIDRs",
    "ipvs.strictARP", "ipvs.tcpTimeout", "ipvs.tcpFinTimeout", "ipvs.udpTimeout", "nftables.masqueradeBit",
    "nftables.masqueradeAll", "nftables.syncPeriod", "nftables.minSyncPeriod", "nftables.flowtable",
    "winkernel.networkName", "winkernel.sourceVip", "winkernel.enableDSR", "winkernel.rootHnsEndpointName",
    "winkernel.forwardHealthCheckVip", "detectLocalMode", "detectLocal.bridgeInterface",
    "detectLocal.interfaceNamePrefix", "clusterCIDR", "noMasqueradeCIDRs", "masqueradeSource", "nodePortAddresses",
    "oomScoreAdj", "conntrack.maxPerCore", "conntrack.min", "conntrack.tcpEstablishedTimeout",
    "conntrack.tcpCloseWaitTimeout", "conntrack.tcpBeLiberal", "conntrack.udpTimeout", "conntrack.udpStreamTimeout",
    "configSyncPeriod", "portRange", "windowsRunAsService", "flowFate", "loadBalancing", "serviceAnnotations",
    "stateFile.path", "stateFile.maxAge", "restartOnConfigChange",
];
/// Fields whose keys are free.
const FREE: [&str; 1] = ["featureGates"];

/// The keys of a YAML map, with their lines, from 1.
#[derive(Default)]
pub(super) struct Keys(Vec<(String, usize, Keys)>);

impl Keys {
    pub(super) fn of(text: &str) -> Keys {
        serde_saphyr::from_str(text).unwrap_or_default()
    }

    /// Returns `line N: ` for the key with this path, or for the nearest key around it.
    pub(super) fn place(&self, path: &[&str]) -> String {
        let (mut keys, mut found) = (self, None);
        for wanted in path {
            let Some((_, line, below)) = keys.0.iter().find(|(key, ..)| key == wanted) else { break };
            (keys, found) = (below, Some(line));
        }
        found.map(|line| format!("line {line}: ")).unwrap_or_default()
    }

    /// Checks the names below the key `config`.
    pub(super) fn check_config(&self) -> Result<(), String> {
        let config = self.0.iter().find(|(key, ..)| key == "config");
        config.map_or(Ok(()), |(.., fields)| fields.check_fields(""))
    }

    /// `parent`: the path of the map, with a dot at its end.
    fn check_fields(&self, parent: &str) -> Result<(), String> {
        for (key, line, below) in &self.0 {
            let path = format!("{parent}{key}");
            let inside = format!("{path}.");
            if !CONFIG.iter().any(|known| *known == path || known.starts_with(&inside)) {
                let siblings = CONFIG.iter().filter_map(|known| known.strip_prefix(parent)?.split('.').next());
                let siblings: Vec<&str> = siblings.collect();
                return Err(format!(
                    "line {line}: config.{path}: a KubeProxyConfiguration has no such field{}",
                    meant(key, &siblings)
                ));
            }
            if !FREE.contains(&path.as_str()) {
                below.check_fields(&inside)?;
            }
        }
        Ok(())
    }
}

/// Returns `: did you mean …?`, or nothing.
pub(super) fn meant(name: &str, known: &[&str]) -> String {
    alike(name, known).map(|near| format!(": did you mean `{near}`?")).unwrap_or_default()
}

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Keys, D::Error> {
        deserializer.deserialize_any(KeysVisitor)
    }
}

struct KeysVisitor;

impl<'de> Visitor<'de> for KeysVisitor {
    type Value = Keys;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
        let mut keys = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let line = usize::try_from(key.referenced.line()).unwrap_or_default();
            keys.push((key.value, line, map.next_value()?));
        }
        Ok(Keys(keys))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Keys, A::Error> {
        while sequence.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Keys::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Keys, E> {
        Ok(Keys::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Keys, E> {
        Ok(Keys::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Keys, E> {
        Ok(Keys::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Keys, E> {
        Ok(Keys::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Keys, E> {
        Ok(Keys::default())
    }

    fn visit_unit<E>(self) -> Result<Keys, E> {
        Ok(Keys::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_that_svcproxy_reads() {
        let own = svcproxy::kubeproxy_config::FIELDS.iter().map(|field| field.path).collect::<Vec<_>>();
        let mut both = [&["apiVersion", "kind"], &own[..]].concat();
        let mut known = CONFIG.to_vec();
        both.sort_unstable();
        known.sort_unstable();
        assert_eq!(known, both);
    }

    #[test]
    fn an_unknown_field_is_named_with_its_line() {
        let wrong = |text: &str| Keys::of(text).check_config().err().unwrap_or_default();
        for text in [
            "name: x\n",
            "config: {iptables: {syncPeriod: 10s}, featureGates: {Anything: true}, mode: null}\n",
            "config:\n  clientConnection: {qps: 5}\n  nodePortAddresses: [primary]\n",
        ] {
            assert_eq!(wrong(text), "");
        }
        for (text, says) in [
            (
                "name: x\nconfig:\n  iptables: {minSyncPeriod: 1s}\n  nftables:\n    synchPeriod: 10s\n",
                "line 5: config.nftables.synchPeriod: a KubeProxyConfiguration has no such field: did you mean `syncPeriod`?",
            ),
            (
                "config: {ipTables: {}}\n",
                "line 1: config.ipTables: a KubeProxyConfiguration has no such field: did you mean `iptables`?",
            ),
            ("config:\n  colour: blue\n", "line 2: config.colour: a KubeProxyConfiguration has no such field"),
        ] {
            assert_eq!(wrong(text), says, "{text}");
        }
    }

    #[test]
    fn a_key_has_its_line() {
        let keys = Keys::of("name: x\nexcused:\n  a: b\n  'c': {reason: d}\nenv: {A: 1}\n");
        assert_eq!(keys.place(&["excused", "c"]), "line 4: ");
        assert_eq!(keys.place(&["env", "A"]), "line 5: ");
        assert_eq!(keys.place(&["env", "B"]), "line 5: ");
        assert_eq!(keys.place(&["none"]), "");
    }
}
