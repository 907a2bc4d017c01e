//! Runs the tools that print rules, all at once: iptables-legacy's save commands take no lock, and nft's detect
//! changes.

use std::collections::HashSet;
use std::path::Path;

use serde_json::Value;

use super::tool::{Limits, ToolError, run};
use super::{Findings, files, ipvs, nft, unread};
use crate::Unread;
use crate::archive::entries::ArchivePart;

/// A tool's output, and its source if that is unusual. `None` if there is nothing to read.
type ToolOutput = Result<Option<(String, Option<String>)>, Unread>;

pub(super) async fn read(limits: Limits) -> Findings {
    let (nft, nft_v4, nft_v6, legacy_v4, legacy_v6, sets, servers) = tokio::join!(
        nft::read(limits),
        saved("iptables", IptablesVariant::Nft, limits),
        saved("ip6tables", IptablesVariant::Nft, limits),
        saved("iptables", IptablesVariant::Legacy, limits),
        saved("ip6tables", IptablesVariant::Legacy, limits),
        sets(limits),
        ipvs::read(limits),
    );
    let mut findings = Findings::default();
    let ruleset = nft.as_ref().ok().and_then(|(text, _)| serde_json::from_str(text).ok());
    let nft_v4 = present(nft_v4, || has_tables(ruleset.as_ref(), "ip"), ArchivePart::NftV4);
    let nft_v6 = present(nft_v6, || has_tables(ruleset.as_ref(), "ip6"), ArchivePart::NftV6);
    let legacy_v4 = present(legacy_v4, || is_not_empty("ip_tables_names"), ArchivePart::LegacyV4);
    let legacy_v6 = present(legacy_v6, || is_not_empty("ip6_tables_names"), ArchivePart::LegacyV6);
    let nft = present(nft, || module("nf_tables"), ArchivePart::Nft);
    let found = [
        (ArchivePart::NftV4, nft_v4),
        (ArchivePart::NftV6, nft_v6),
        (ArchivePart::LegacyV4, legacy_v4),
        (ArchivePart::LegacyV6, legacy_v6),
        (ArchivePart::Nft, nft),
        (ArchivePart::Sets, sets),
        (ArchivePart::Servers, servers),
    ];
    for (part, found) in found {
        match found {
            Ok(Some((text, source))) => findings.texts.push((part, text, source)),
            Ok(None) => {}
            Err(unread) => findings.unread.push(unread),
        }
    }
    findings
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IptablesVariant {
    Nft,
    Legacy,
}

impl IptablesVariant {
    fn name(self) -> &'static str {
        match self {
            IptablesVariant::Nft => "nft",
            IptablesVariant::Legacy => "legacy",
        }
    }

    /// Parses `iptables-save v1.8.9 (nf_tables)`. Before 1.8 only legacy existed.
    fn of(version: &str) -> IptablesVariant {
        if version.contains("(nf_tables)") { IptablesVariant::Nft } else { IptablesVariant::Legacy }
    }
}

/// The most runs of a save command; the last output is used in any case.
const SAVES: usize = 5;

/// Saves until the output is consistent. nft's commands read again after a change, but another program's uncommitted
/// chain can still be printed twice.
async fn save(program: &str, limits: Limits) -> Result<String, ToolError> {
    let mut text = run(&[program, "-c"], limits).await?;
    for _ in 1..SAVES {
        if !declares_twice(&text) {
            break;
        }
        text = run(&[program, "-c"], limits).await?;
    }
    Ok(text)
}

fn declares_twice(text: &str) -> bool {
    let mut chains = HashSet::new();
    text.lines().any(|line| {
        if line.starts_with('*') {
            chains.clear();
        }
        let chain = line.strip_prefix(':').and_then(|rest| rest.split_ascii_whitespace().next());
        chain.is_some_and(|chain| !chains.insert(chain))
    })
}

/// Runs the variant's own program, else the generic one if it is of that variant.
async fn saved(family: &str, variant: IptablesVariant, limits: Limits) -> Result<(String, Option<String>), ToolError> {
    let program = format!("{family}-{}-save", variant.name());
    match save(&program, limits).await {
        Err(ToolError::Missing { program }) => {
            let plain = format!("{family}-save");
            let version = run(&[&plain, "--version"], limits).await?;
            if IptablesVariant::of(&version) != variant {
                return Err(ToolError::Missing { program });
            }
            let text = save(&plain, limits).await?;
            Ok((text, Some(format!("{plain} -c ({})", version.trim()))))
        }
        answer => Ok((answer?, None)),
    }
}

/// Ignores a missing tool if the kernel has nothing for it.
fn present(
    answer: Result<(String, Option<String>), ToolError>,
    has_something: impl FnOnce() -> bool,
    part: ArchivePart,
) -> ToolOutput {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(ToolError::Missing { .. }) if !has_something() => Ok(None),
        Err(error) => Err(unread(part.path(), error)),
    }
}

/// Runs `ipset` only if the module is loaded: `ipset` would load it.
pub(super) async fn sets(limits: Limits) -> ToolOutput {
    if !module("ip_set") {
        return Ok(None);
    }
    present(run(&["ipset", "save"], limits).await.map(|text| (text, None)), || true, ArchivePart::Sets)
}

/// Whether the ruleset is unknown or has a table that iptables-nft may have made.
fn has_tables(ruleset: Option<&Value>, family: &str) -> bool {
    let Some(objects) = ruleset.and_then(|ruleset| ruleset.get("nftables")?.as_array()) else {
        return module("nf_tables");
    };
    let names = ["filter", "nat", "mangle", "raw", "security"];
    objects.iter().filter_map(|object| object.get("table")).any(|table| {
        let is = |key: &str, wanted: &str| table.get(key).and_then(Value::as_str) == Some(wanted);
        is("family", family) && names.iter().any(|name| is("name", name))
    })
}

/// Whether the kernel module is loaded, or built in with parameters (sysfs; `Documentation/ABI/stable/sysfs-module`).
pub(super) fn module(name: &str) -> bool {
    Path::new("/sys/module").join(name).exists()
}

fn is_not_empty(name: &str) -> bool {
    // Without root's permission to read it, the file counts as not empty.
    files::net(name).map_or_else(|error| error.kind() == std::io::ErrorKind::PermissionDenied, |text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_version_tells_the_variant() {
        assert!(IptablesVariant::of("iptables-save v1.8.9 (nf_tables)\n") == IptablesVariant::Nft);
        assert!(IptablesVariant::of("iptables-save v1.8.7 (legacy)\n") == IptablesVariant::Legacy);
        assert!(IptablesVariant::of("iptables-save v1.6.1\n") == IptablesVariant::Legacy);
    }

    #[test]
    fn a_chain_that_is_printed_twice_is_seen() {
        assert!(!declares_twice(""));
        assert!(!declares_twice("*nat\n:A - [0:0]\n:B - [0:0]\n-A B -j A\nCOMMIT\n*filter\n:A - [0:0]\nCOMMIT\n"));
        assert!(declares_twice("*nat\n:A - [0:0]\n:B - [0:0]\n:A - [7:9]\n-A B -j A\nCOMMIT\n"));
    }

    #[test]
    fn a_missing_tool_is_told_of_where_it_is_missed() {
        let missing = || Err(ToolError::Missing { program: "iptables-legacy-save".to_owned() });
        assert_eq!(present(missing(), || false, ArchivePart::LegacyV4), Ok(None));
        let told = present(missing(), || true, ArchivePart::LegacyV4).unwrap_err();
        assert_eq!(
            (told.what.as_str(), told.why.as_str()),
            ("rules/iptables-legacy.v4", "there is no iptables-legacy-save on this machine")
        );
    }

    #[test]
    fn tables_of_iptables_are_known_by_name() {
        let ruleset = json!({"nftables": [{"metainfo": {}}, {"table": {"family": "ip", "name": "nat", "handle": 1}}]});
        assert!(has_tables(Some(&ruleset), "ip"));
        assert!(!has_tables(Some(&ruleset), "ip6"));
    }
}
