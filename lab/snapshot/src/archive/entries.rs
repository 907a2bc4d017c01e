//! Which file of an archive holds which part of a [`Snapshot`]: there and back.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::ArchiveError;
use crate::{Objects, Snapshot};

/// A file of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Conntrack,
    Network,
    EndpointSlices,
    Nodes,
    ServiceCidrs,
    Services,
    ProxyConfig,
    LegacyV4,
    LegacyV6,
    NftV4,
    NftV6,
    Sets,
    Servers,
    Nft,
    Sockets,
    Sysctls,
    Versions,
}

impl Part {
    /// In the archive's order.
    pub(crate) const ALL: [Part; 17] = [
        Part::Conntrack,
        Part::Network,
        Part::EndpointSlices,
        Part::Nodes,
        Part::ServiceCidrs,
        Part::Services,
        Part::ProxyConfig,
        Part::Sets,
        Part::LegacyV4,
        Part::LegacyV6,
        Part::NftV4,
        Part::NftV6,
        Part::Servers,
        Part::Nft,
        Part::Sockets,
        Part::Sysctls,
        Part::Versions,
    ];

    /// Its path in the archive.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Part::Conntrack => "conntrack.json",
            Part::Network => "network.json",
            Part::EndpointSlices => "objects/endpointslices.json",
            Part::Nodes => "objects/nodes.json",
            Part::ServiceCidrs => "objects/servicecidrs.json",
            Part::Services => "objects/services.json",
            Part::ProxyConfig => "proxy/config.yaml",
            Part::Sets => "rules/ipset",
            Part::LegacyV4 => "rules/iptables-legacy.v4",
            Part::LegacyV6 => "rules/iptables-legacy.v6",
            Part::NftV4 => "rules/iptables-nft.v4",
            Part::NftV6 => "rules/iptables-nft.v6",
            Part::Servers => "rules/ipvs",
            Part::Nft => "rules/nft.json",
            Part::Sockets => "sockets.json",
            Part::Sysctls => "sysctls",
            Part::Versions => "versions.json",
        }
    }

    /// The part at this path.
    pub(crate) fn at(path: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.path() == path)
    }
}

/// How a part is read unless [`Snapshot::sources`] says otherwise.
pub(crate) fn usual_source(part: Part) -> &'static str {
    match part {
        Part::Conntrack => "/proc/sys/net/netfilter, /proc/net/stat/nf_conntrack",
        Part::Network => "route netlink",
        Part::EndpointSlices | Part::Nodes | Part::ServiceCidrs | Part::Services => "Kubernetes API",
        Part::ProxyConfig => "the proxy's configuration",
        Part::Sets => "ipset save",
        Part::LegacyV4 => "iptables-legacy-save -c",
        Part::LegacyV6 => "ip6tables-legacy-save -c",
        Part::NftV4 => "iptables-nft-save -c",
        Part::NftV6 => "ip6tables-nft-save -c",
        Part::Servers => "ipvsadm -Sn",
        Part::Nft => "nft -j list ruleset",
        Part::Sockets => "/proc/net/tcp, tcp6, udp, udp6",
        Part::Sysctls => "/proc/sys",
        Part::Versions => "--version of each program",
    }
}

/// The files of a snapshot, in the archive's order.
pub(super) fn of(snapshot: &Snapshot) -> Vec<(Part, Vec<u8>)> {
    Part::ALL.into_iter().filter_map(|part| Some((part, content(snapshot, part)?))).collect()
}

/// A part's file, unless there is nothing to tell.
pub(crate) fn content(snapshot: &Snapshot, part: Part) -> Option<Vec<u8>> {
    let text = |text: &Option<String>| text.clone().map(String::into_bytes);
    let objects = snapshot.objects.as_ref();
    match part {
        Part::Conntrack => (!snapshot.conntrack.is_empty()).then(|| pretty(&snapshot.conntrack)),
        Part::Network => snapshot.network.as_ref().map(pretty),
        Part::EndpointSlices => objects.map(|objects| list(&objects.slices)),
        Part::Nodes => objects.map(|objects| list(&objects.nodes)),
        Part::ServiceCidrs => objects.map(|objects| list(&objects.service_cidrs)),
        Part::Services => objects.map(|objects| list(&objects.services)),
        Part::ProxyConfig => text(&snapshot.proxy_config),
        Part::Sets => text(&snapshot.sets),
        Part::LegacyV4 => text(&snapshot.legacy_v4),
        Part::LegacyV6 => text(&snapshot.legacy_v6),
        Part::NftV4 => text(&snapshot.nft_v4),
        Part::NftV6 => text(&snapshot.nft_v6),
        Part::Servers => text(&snapshot.servers),
        Part::Nft => text(&snapshot.nft),
        Part::Sockets => snapshot.sockets.as_ref().map(pretty),
        Part::Sysctls => (!snapshot.sysctls.is_empty()).then(|| settings(&snapshot.sysctls)),
        Part::Versions => (!snapshot.versions.is_empty()).then(|| pretty(&snapshot.versions)),
    }
}

/// Puts a part's file into a snapshot.
pub(super) fn place(snapshot: &mut Snapshot, part: Part, bytes: Vec<u8>) -> Result<(), ArchiveError> {
    let objects = &mut snapshot.objects;
    match part {
        Part::Conntrack => snapshot.conntrack = parse(part, &bytes)?,
        Part::Network => snapshot.network = Some(parse(part, &bytes)?),
        Part::EndpointSlices => objects.get_or_insert_with(Objects::default).slices = items(part, &bytes)?,
        Part::Nodes => objects.get_or_insert_with(Objects::default).nodes = items(part, &bytes)?,
        Part::ServiceCidrs => objects.get_or_insert_with(Objects::default).service_cidrs = items(part, &bytes)?,
        Part::Services => objects.get_or_insert_with(Objects::default).services = items(part, &bytes)?,
        Part::ProxyConfig => snapshot.proxy_config = Some(text(part, bytes)?),
        Part::Sets => snapshot.sets = Some(text(part, bytes)?),
        Part::LegacyV4 => snapshot.legacy_v4 = Some(text(part, bytes)?),
        Part::LegacyV6 => snapshot.legacy_v6 = Some(text(part, bytes)?),
        Part::NftV4 => snapshot.nft_v4 = Some(text(part, bytes)?),
        Part::NftV6 => snapshot.nft_v6 = Some(text(part, bytes)?),
        Part::Servers => snapshot.servers = Some(text(part, bytes)?),
        Part::Nft => snapshot.nft = Some(text(part, bytes)?),
        Part::Sockets => snapshot.sockets = Some(parse(part, &bytes)?),
        Part::Sysctls => snapshot.sysctls = read_settings(&text(part, bytes)?)?,
        Part::Versions => snapshot.versions = parse(part, &bytes)?,
    }
    Ok(())
}

/// For people: indented, with a line feed at the end. What the format holds is always JSON.
pub(super) fn pretty(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

fn list(items: &[impl Serialize]) -> Vec<u8> {
    pretty(&json!({ "apiVersion": "v1", "kind": "List", "items": items }))
}

/// One setting a line; no value has a line feed.
fn settings(settings: &BTreeMap<String, String>) -> Vec<u8> {
    let mut text = String::new();
    for (key, value) in settings {
        let _ = writeln!(text, "{key} = {}", value.replace('\n', " "));
    }
    text.into_bytes()
}

fn read_settings(text: &str) -> Result<BTreeMap<String, String>, ArchiveError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let settings = lines.map(|(index, line)| {
        let (key, value) = line
            .split_once(" =")
            .ok_or_else(|| wrong(Part::Sysctls, format!("line {}: expected `key = value`", index + 1)))?;
        Ok((key.to_owned(), value.strip_prefix(' ').unwrap_or(value).to_owned()))
    });
    settings.collect()
}

fn items<T: DeserializeOwned>(part: Part, bytes: &[u8]) -> Result<Vec<T>, ArchiveError> {
    let mut list: Value = parse(part, bytes)?;
    let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
        return Err(wrong(part, "expected a List with items"));
    };
    let parsed = items.into_iter().enumerate().map(|(index, item)| {
        serde_json::from_value(item).map_err(|error| wrong(part, format!("item {}: {error}", index + 1)))
    });
    parsed.collect()
}

fn parse<T: DeserializeOwned>(part: Part, bytes: &[u8]) -> Result<T, ArchiveError> {
    serde_json::from_slice(bytes).map_err(|error| wrong(part, error))
}

fn text(part: Part, bytes: Vec<u8>) -> Result<String, ArchiveError> {
    String::from_utf8(bytes).map_err(|_| wrong(part, "it is no text in UTF-8"))
}

fn wrong(part: Part, why: impl Display) -> ArchiveError {
    ArchiveError::Content { path: part.path().to_owned(), why: why.to_string() }
}
