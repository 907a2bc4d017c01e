//! Excuses: scenarios and promises that a proxy is known to fail.

use std::collections::BTreeMap;

use semver::{Version, VersionReq};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::mode::Mode;
use crate::promises::Promise;

pub(super) type Excuses = BTreeMap<String, ExcuseEntry>;

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected a reason, or `{reason, modes, versions}`, or a list of them")]
pub(super) enum ExcuseEntry {
    Reason(String),
    One(Excuse),
    /// Several excuses, of which the first that matches counts.
    Several(Vec<Excuse>),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Excuse {
    reason: String,
    /// Empty: all modes.
    #[serde(default)]
    modes: Vec<Mode>,
    /// Cargo's notation: `<1.31`, `>=1.36, <1.37`.
    versions: Option<VersionReq>,
}

pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Excuses, D::Error> {
    of_key("excused", deserializer)
}

pub(super) fn read_promises<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Excuses, D::Error> {
    let excuses = of_key("excusedPromises", deserializer)?;
    match excuses.keys().find(|promise| Promise::of_id(promise).is_none()) {
        None => Ok(excuses),
        Some(promise) => Err(D::Error::custom(format!(
            "excusedPromises.{promise}: there is no such promise; `svclab conformance --promises` lists all"
        ))),
    }
}

fn of_key<'de, D: Deserializer<'de>>(key: &str, deserializer: D) -> Result<Excuses, D::Error> {
    let written = BTreeMap::<String, serde_json::Value>::deserialize(deserializer)?;
    let excuses = written.into_iter().map(|(name, value)| match serde_json::from_value(value) {
        Ok(excuse) => Ok((name, excuse)),
        Err(error) => Err(D::Error::custom(format!("{key}.{name}: {error}"))),
    });
    excuses.collect()
}

impl ExcuseEntry {
    pub(super) fn reason(&self, mode: Mode, version: Option<&Version>) -> Option<&str> {
        match self {
            ExcuseEntry::Reason(reason) => Some(reason),
            ExcuseEntry::One(excuse) => excuse.reason(mode, version),
            ExcuseEntry::Several(excuses) => excuses.iter().find_map(|excuse| excuse.reason(mode, version)),
        }
    }

    pub(super) fn asks_for_the_version(&self) -> bool {
        match self {
            ExcuseEntry::Reason(_) => false,
            ExcuseEntry::One(excuse) => excuse.versions.is_some(),
            ExcuseEntry::Several(excuses) => excuses.iter().any(|excuse| excuse.versions.is_some()),
        }
    }
}

impl Excuse {
    fn reason(&self, mode: Mode, version: Option<&Version>) -> Option<&str> {
        let of_mode = self.modes.is_empty() || self.modes.contains(&mode);
        let of_version = fits(self.versions.as_ref(), version);
        (of_mode && of_version).then_some(self.reason.as_str())
    }
}

/// Whether `versions` contains `version`; without `versions`, every version fits.
pub(super) fn fits(versions: Option<&VersionReq>, version: Option<&Version>) -> bool {
    versions.is_none_or(|versions| {
        // A pre-release counts as its release; `VersionReq` would reject it.
        version.is_some_and(|version| versions.matches(&Version::new(version.major, version.minor, version.patch)))
    })
}

pub(super) fn version_in(text: &str) -> Option<Version> {
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, '"' | ',' | ';' | '(' | ')'));
    words.map(|word| word.trim_start_matches(['v', 'V'])).find_map(|word| Version::parse(word).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excuse_applies_to_its_modes_and_versions() {
        let text = "
            flush: it looks every 30 s
            refusals: {reason: no canary, modes: [ipvs]}
            topology:
            - {reason: needs an annotation, versions: '<1.31'}
            - {reason: broken again, versions: '>=1.36, <1.36.3', modes: [iptables]}";
        let excuses: Excuses = serde_saphyr::from_str(text).unwrap();
        let why = |scenario: &str, mode, version: &str| {
            let version = Version::parse(version).unwrap();
            excuses[scenario].reason(mode, Some(&version)).map(str::to_owned)
        };
        assert_eq!(why("flush", Mode::Userspace, "1.36.2").as_deref(), Some("it looks every 30 s"));
        assert_eq!(why("refusals", Mode::Ipvs, "1.36.2").as_deref(), Some("no canary"));
        assert_eq!(why("refusals", Mode::Iptables, "1.36.2"), None);
        assert_eq!(why("topology", Mode::Ipvs, "1.30.5").as_deref(), Some("needs an annotation"));
        assert_eq!(why("topology", Mode::Ipvs, "1.30.5-rc.1").as_deref(), Some("needs an annotation"));
        assert_eq!(why("topology", Mode::Ipvs, "1.31.0"), None);
        assert_eq!(why("topology", Mode::Iptables, "1.36.2").as_deref(), Some("broken again"));
        assert_eq!(why("topology", Mode::Iptables, "1.36.3"), None);
        assert!(excuses["topology"].asks_for_the_version() && !excuses["refusals"].asks_for_the_version());
    }

    #[test]
    fn a_version_is_found_in_the_output_of_programs() {
        for (text, version) in [
            ("Kubernetes v1.36.2\n", "1.36.2"),
            ("kube-router version v2.5.0, built on 2025-02-14", "2.5.0"),
            ("{\"version\": \"1.30.5-rc.1+abc\"}", "1.30.5-rc.1+abc"),
        ] {
            let found = version_in(&text.replace("\": \"", " ").replace("\"}", ""));
            assert_eq!(found, Version::parse(version).ok(), "{text}");
        }
        assert_eq!(version_in("unknown flag: --version 10.0.0.1:53 go1.26"), None);
    }
}
