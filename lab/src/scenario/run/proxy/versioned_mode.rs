use semver::{Version, VersionReq};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::excuse::fits;
use crate::mode::Mode;

#[derive(Debug, Clone)]
pub(super) struct VersionedMode {
    pub(super) mode: Mode,
    pub(super) versions: Option<VersionReq>,
}

impl VersionedMode {
    pub(super) fn is_in(&self, version: Option<&Version>) -> bool {
        fits(self.versions.as_ref(), version)
    }
}

impl<'de> Deserialize<'de> for VersionedMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<VersionedMode, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct OfVersions {
            mode: Mode,
            versions: VersionReq,
        }
        let written = serde_json::Value::deserialize(deserializer)?;
        if let Some(word) = written.as_str() {
            let mode = word.parse().map_err(D::Error::custom)?;
            return Ok(VersionedMode { mode, versions: None });
        }
        let of: OfVersions = serde_json::from_value(written)
            .map_err(|error| D::Error::custom(format!("modes: expected a mode or `{{mode, versions}}`: {error}")))?;
        Ok(VersionedMode { mode: of.mode, versions: Some(of.versions) })
    }
}
