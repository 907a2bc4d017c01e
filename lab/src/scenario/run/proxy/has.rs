//! The modes that another's proxy has, some of them in some versions only.

use semver::{Version, VersionReq};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::excuse::fits;
use crate::mode::Mode;

/// A mode, in every version or in some.
#[derive(Debug, Clone)]
pub(super) struct Has {
    pub(super) mode: Mode,
    /// As Cargo writes them.
    pub(super) versions: Option<VersionReq>,
}

impl Has {
    /// Whether a proxy of `version` has it.
    pub(super) fn is_in(&self, version: Option<&Version>) -> bool {
        fits(self.versions.as_ref(), version)
    }
}

impl<'de> Deserialize<'de> for Has {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Has, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct OfVersions {
            mode: Mode,
            versions: VersionReq,
        }
        let written = serde_json::Value::deserialize(deserializer)?;
        if let Some(word) = written.as_str() {
            let mode = word.parse().map_err(D::Error::custom)?;
            return Ok(Has { mode, versions: None });
        }
        let of: OfVersions = serde_json::from_value(written)
            .map_err(|error| D::Error::custom(format!("modes: expected a mode or `{{mode, versions}}`: {error}")))?;
        Ok(Has { mode: of.mode, versions: Some(of.versions) })
    }
}
