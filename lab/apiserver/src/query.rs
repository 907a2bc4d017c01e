//! Query parameters, with the rules of `ListOptions`.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Serialize};

use super::error::{ApiError, Cause};
use super::selector::Selector;
use crate::objects::{ObjectKey, ObjectKind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VersionMatch {
    /// The request names no version.
    Newest,
    /// Version `0`: any version; the lab serves the newest.
    Any,
    NotOlderThan(u64),
    Exact(u64),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ContinueToken {
    /// Version of the first page.
    pub(super) rv: u64,
    /// Last object of the previous page.
    pub(super) namespace: String,
    pub(super) name: String,
}

impl ContinueToken {
    pub(super) fn token(&self) -> String {
        BASE64URL_NOPAD.encode(&serde_json::to_vec(self).unwrap_or_default())
    }

    fn parse(token: &str) -> Result<Self, ApiError> {
        let bytes = BASE64URL_NOPAD.decode(token.as_bytes()).ok();
        bytes
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .ok_or_else(|| ApiError::bad_request("continue key is not valid: it is none that this server gave out"))
    }

    pub(super) fn after(&self) -> ObjectKey {
        ObjectKey { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) watch: bool,
    pub(super) version: VersionMatch,
    pub(super) limit: Option<usize>,
    pub(super) continued: Option<ContinueToken>,
    pub(super) selector: Selector,
    pub(super) bookmarks: bool,
    pub(super) initial_events: Option<bool>,
    pub(super) timeout: Option<Duration>,
    pub(super) dry_run: bool,
    pub(super) validation: FieldValidation,
    pub(super) include_object: String,
}

#[derive(Default)]
struct QueryPairs {
    pairs: Vec<(String, String)>,
}

impl QueryPairs {
    fn get(&self, name: &str) -> &str {
        self.pairs.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// `None` if absent; `true` if present without a value.
    fn flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.get(name) {
            "" if self.pairs.iter().any(|(key, _)| key == name) => Ok(Some(true)),
            "" => Ok(None),
            "true" | "1" | "True" | "t" => Ok(Some(true)),
            "false" | "0" | "False" | "f" => Ok(Some(false)),
            other => Err(ApiError::bad_request(format!("{name}: {other:?}: expected true or false"))),
        }
    }

    fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.get(name) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| ApiError::bad_request(format!("{name}: {text:?}: expected a whole number"))),
        }
    }
}

impl Query {
    pub(super) fn parse(kind: ObjectKind, text: &str) -> Result<Self, ApiError> {
        let raw = QueryPairs { pairs: form_urlencoded::parse(text.as_bytes()).into_owned().collect() };
        let watch = raw.flag("watch")?.unwrap_or(false);
        let limit = raw.number("limit")?.filter(|limit| *limit > 0).and_then(|limit| usize::try_from(limit).ok());
        let initial_events = raw.flag("sendInitialEvents")?;
        check_combinations(&raw, watch, initial_events)?;
        let continued = match raw.get("continue") {
            "" => None,
            token => Some(ContinueToken::parse(token)?),
        };
        Ok(Query {
            watch,
            version: version_match(&raw, watch, limit)?,
            limit,
            continued,
            selector: Selector::parse(kind, raw.get("labelSelector"), raw.get("fieldSelector"))?,
            bookmarks: raw.flag("allowWatchBookmarks")?.unwrap_or(false),
            initial_events,
            timeout: raw.number("timeoutSeconds")?.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            dry_run: match raw.get("dryRun") {
                "" => false,
                "All" => true,
                other => return Err(invalid(&[Cause::unsupported("dryRun", other, &["All"])])),
            },
            validation: match raw.get("fieldValidation") {
                "" | "Warn" => FieldValidation::Warn,
                "Ignore" => FieldValidation::Ignore,
                "Strict" => FieldValidation::Strict,
                other => {
                    return Err(invalid(&[Cause::unsupported(
                        "fieldValidation",
                        other,
                        &["Ignore", "Warn", "Strict"],
                    )]));
                }
            },
            include_object: raw.get("includeObject").to_owned(),
        })
    }
}

fn invalid(causes: &[Cause]) -> ApiError {
    ApiError::invalid("ListOptions", "meta.k8s.io", "", causes)
}

const VERSION_MATCH: &str = "resourceVersionMatch";
const INITIAL_EVENTS: &str = "sendInitialEvents";

/// The answer of a server without the feature WatchList to `sendInitialEvents` (KEP-3157); clients fall back to lists.
pub(super) fn watch_list_disabled() -> ApiError {
    let detail = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
    invalid(&[Cause::forbidden(INITIAL_EVENTS, detail)])
}

/// Applies `ValidateListOptions` of kube-apiserver.
fn check_combinations(raw: &QueryPairs, watch: bool, initial_events: Option<bool>) -> Result<(), ApiError> {
    let causes = if watch { watch_causes(raw, initial_events) } else { list_causes(raw, initial_events) };
    if !causes.is_empty() {
        return Err(invalid(&causes));
    }
    if !watch && !raw.get("continue").is_empty() && !matches!(raw.get("resourceVersion"), "" | "0") {
        return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
    }
    Ok(())
}

fn watch_causes(raw: &QueryPairs, initial_events: Option<bool>) -> Vec<Cause> {
    let matching = raw.get(VERSION_MATCH);
    let mut causes = Vec::new();
    let mut forbid = |detail: &str| causes.push(Cause::forbidden(VERSION_MATCH, detail));
    match (initial_events, matching) {
        (Some(_), "NotOlderThan") | (None, "") => {}
        (Some(_), _) => forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        (None, _) => forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"),
    }
    if !matching.is_empty() && !raw.get("continue").is_empty() {
        forbid("resourceVersionMatch is forbidden when continue is provided");
    }
    if !matches!(matching, "" | "NotOlderThan") {
        causes.push(Cause::unsupported(VERSION_MATCH, matching, &["NotOlderThan"]));
    }
    causes
}

fn list_causes(raw: &QueryPairs, initial_events: Option<bool>) -> Vec<Cause> {
    let (matching, version) = (raw.get(VERSION_MATCH), raw.get("resourceVersion"));
    let mut causes = Vec::new();
    let mut forbid = |field: &str, detail: &str| causes.push(Cause::forbidden(field, detail));
    if !matching.is_empty() {
        if version.is_empty() {
            forbid(VERSION_MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if !raw.get("continue").is_empty() {
            forbid(VERSION_MATCH, "resourceVersionMatch is forbidden when continue is provided");
        }
        if matching == "Exact" && version == "0" {
            forbid(VERSION_MATCH, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
    }
    if initial_events.is_some() {
        forbid(INITIAL_EVENTS, "sendInitialEvents is forbidden for list");
    }
    if !matches!(matching, "" | "Exact" | "NotOlderThan") {
        causes.push(Cause::unsupported(VERSION_MATCH, matching, &["Exact", "NotOlderThan"]));
    }
    causes
}

/// Without `resourceVersionMatch`, only a list with a limit requests the exact version.
fn version_match(raw: &QueryPairs, watch: bool, limit: Option<usize>) -> Result<VersionMatch, ApiError> {
    let text = raw.get("resourceVersion");
    let version = match text {
        "" => return Ok(VersionMatch::Newest),
        "0" => return Ok(VersionMatch::Any),
        text => text.parse().map_err(|_| {
            ApiError::bad_request(format!("resourceVersion: {text:?}: expected a version that this server gave out"))
        })?,
    };
    match raw.get("resourceVersionMatch") {
        "Exact" => Ok(VersionMatch::Exact(version)),
        "" if limit.is_some() && !watch => Ok(VersionMatch::Exact(version)),
        _ => Ok(VersionMatch::NotOlderThan(version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Query, ApiError> {
        Query::parse(ObjectKind::Service, text)
    }

    #[test]
    fn resource_version_and_match_decide_the_version() {
        for (text, wanted) in [
            ("", VersionMatch::Newest),
            ("resourceVersion=0", VersionMatch::Any),
            ("resourceVersion=7", VersionMatch::NotOlderThan(7)),
            ("resourceVersion=7&limit=2", VersionMatch::Exact(7)),
            ("resourceVersion=7&limit=2&resourceVersionMatch=NotOlderThan", VersionMatch::NotOlderThan(7)),
            ("resourceVersion=7&resourceVersionMatch=Exact", VersionMatch::Exact(7)),
            ("watch=1&resourceVersion=7&limit=2", VersionMatch::NotOlderThan(7)),
        ] {
            assert_eq!(parse(text).unwrap().version, wanted, "{text}");
        }
    }

    #[test]
    fn incompatible_options_are_rejected() {
        for (text, code) in [
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersionMatch=Newest&resourceVersion=1", 422),
            ("resourceVersionMatch=Exact&resourceVersion=0", 422),
            ("sendInitialEvents=true", 422),
            ("watch=1&sendInitialEvents=true", 422),
            ("watch=1&sendInitialEvents=false", 422),
            ("watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1", 422),
            ("watch=1&resourceVersionMatch=NotOlderThan", 422),
            ("resourceVersion=x", 400),
            ("dryRun=Some", 422),
            ("continue=nonsense", 400),
            ("watch=maybe", 400),
            ("limit=-1", 400),
            ("labelSelector=a+b", 400),
        ] {
            assert_eq!(parse(text).unwrap_err().code, code, "{text}");
        }
    }

    #[test]
    fn every_wrong_option_is_a_cause() {
        let refused = parse("watch=1&resourceVersionMatch=Exact&resourceVersion=1").unwrap_err();
        assert_eq!(refused.details.unwrap()["causes"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_continue_token_round_trips() {
        let page = ContinueToken { rv: 7, namespace: "default".into(), name: "web".into() };
        assert_eq!(parse(&format!("limit=1&continue={}", page.token())).unwrap().continued, Some(page));
    }
}
