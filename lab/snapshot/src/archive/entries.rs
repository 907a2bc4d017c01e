use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::ArchiveError;
use crate::{Objects, Snapshot};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ArchivePart {
    Programs,
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

impl ArchivePart {
    pub(crate) const ALL: [ArchivePart; 18] = [
        ArchivePart::Programs,
        ArchivePart::Conntrack,
        ArchivePart::Network,
        ArchivePart::EndpointSlices,
        ArchivePart::Nodes,
        ArchivePart::ServiceCidrs,
        ArchivePart::Services,
        ArchivePart::ProxyConfig,
        ArchivePart::Sets,
        ArchivePart::LegacyV4,
        ArchivePart::LegacyV6,
        ArchivePart::NftV4,
        ArchivePart::NftV6,
        ArchivePart::Servers,
        ArchivePart::Nft,
        ArchivePart::Sockets,
        ArchivePart::Sysctls,
        ArchivePart::Versions,
    ];

    pub(crate) fn path(self) -> &'static str {
        match self {
            ArchivePart::Programs => "bpf.json",
            ArchivePart::Conntrack => "conntrack.json",
            ArchivePart::Network => "network.json",
            ArchivePart::EndpointSlices => "objects/endpointslices.json",
            ArchivePart::Nodes => "objects/nodes.json",
            ArchivePart::ServiceCidrs => "objects/servicecidrs.json",
            ArchivePart::Services => "objects/services.json",
            ArchivePart::ProxyConfig => "proxy/config.yaml",
            ArchivePart::Sets => "rules/ipset",
            ArchivePart::LegacyV4 => "rules/iptables-legacy.v4",
            ArchivePart::LegacyV6 => "rules/iptables-legacy.v6",
            ArchivePart::NftV4 => "rules/iptables-nft.v4",
            ArchivePart::NftV6 => "rules/iptables-nft.v6",
            ArchivePart::Servers => "rules/ipvs",
            ArchivePart::Nft => "rules/nft.json",
            ArchivePart::Sockets => "sockets.json",
            ArchivePart::Sysctls => "sysctls",
            ArchivePart::Versions => "versions.json",
        }
    }

    pub(crate) fn at(path: &str) -> Option<ArchivePart> {
        ArchivePart::ALL.into_iter().find(|part| part.path() == path)
    }
}

pub(crate) fn usual_source(part: ArchivePart) -> &'static str {
    match part {
        ArchivePart::Programs => "route netlink, bpf(2)",
        ArchivePart::Conntrack => "/proc/sys/net/netfilter, /proc/net/stat/nf_conntrack",
        ArchivePart::Network => "route netlink",
        ArchivePart::EndpointSlices | ArchivePart::Nodes | ArchivePart::ServiceCidrs | ArchivePart::Services => {
            "Kubernetes API"
        }
        ArchivePart::ProxyConfig => "the proxy's configuration",
        ArchivePart::Sets => "ipset save",
        ArchivePart::LegacyV4 => "iptables-legacy-save -c",
        ArchivePart::LegacyV6 => "ip6tables-legacy-save -c",
        ArchivePart::NftV4 => "iptables-nft-save -c",
        ArchivePart::NftV6 => "ip6tables-nft-save -c",
        ArchivePart::Servers => "ipvsadm -Sn",
        ArchivePart::Nft => "nft -j list ruleset",
        ArchivePart::Sockets => "/proc/net/tcp, tcp6, udp, udp6",
        ArchivePart::Sysctls => "/proc/sys",
        ArchivePart::Versions => "--version of each program",
    }
}

pub(super) fn of(snapshot: &Snapshot) -> Vec<(ArchivePart, Vec<u8>)> {
    ArchivePart::ALL.into_iter().filter_map(|part| Some((part, content(snapshot, part)?))).collect()
}

/// `None` if the part is empty.
pub(crate) fn content(snapshot: &Snapshot, part: ArchivePart) -> Option<Vec<u8>> {
    let text = |text: &Option<String>| text.clone().map(String::into_bytes);
    let objects = snapshot.objects.as_ref();
    match part {
        ArchivePart::Programs => snapshot.programs.as_ref().map(pretty),
        ArchivePart::Conntrack => (!snapshot.conntrack.is_empty()).then(|| pretty(&snapshot.conntrack)),
        ArchivePart::Network => snapshot.network.as_ref().map(pretty),
        ArchivePart::EndpointSlices => objects.map(|objects| list(&objects.slices)),
        ArchivePart::Nodes => objects.map(|objects| list(&objects.nodes)),
        ArchivePart::ServiceCidrs => objects.map(|objects| list(&objects.service_cidrs)),
        ArchivePart::Services => objects.map(|objects| list(&objects.services)),
        ArchivePart::ProxyConfig => text(&snapshot.proxy_config),
        ArchivePart::Sets => text(&snapshot.sets),
        ArchivePart::LegacyV4 => text(&snapshot.legacy_v4),
        ArchivePart::LegacyV6 => text(&snapshot.legacy_v6),
        ArchivePart::NftV4 => text(&snapshot.nft_v4),
        ArchivePart::NftV6 => text(&snapshot.nft_v6),
        ArchivePart::Servers => text(&snapshot.servers),
        ArchivePart::Nft => text(&snapshot.nft),
        ArchivePart::Sockets => snapshot.sockets.as_ref().map(pretty),
        ArchivePart::Sysctls => (!snapshot.sysctls.is_empty()).then(|| settings(&snapshot.sysctls)),
        ArchivePart::Versions => (!snapshot.versions.is_empty()).then(|| pretty(&snapshot.versions)),
    }
}

pub(super) fn place(snapshot: &mut Snapshot, part: ArchivePart, bytes: Vec<u8>) -> Result<(), ArchiveError> {
    let objects = &mut snapshot.objects;
    match part {
        ArchivePart::Programs => snapshot.programs = Some(parse(part, &bytes)?),
        ArchivePart::Conntrack => snapshot.conntrack = parse(part, &bytes)?,
        ArchivePart::Network => snapshot.network = Some(parse(part, &bytes)?),
        ArchivePart::EndpointSlices => objects.get_or_insert_with(Objects::default).slices = items(part, &bytes)?,
        ArchivePart::Nodes => objects.get_or_insert_with(Objects::default).nodes = items(part, &bytes)?,
        ArchivePart::ServiceCidrs => objects.get_or_insert_with(Objects::default).service_cidrs = items(part, &bytes)?,
        ArchivePart::Services => objects.get_or_insert_with(Objects::default).services = items(part, &bytes)?,
        ArchivePart::ProxyConfig => snapshot.proxy_config = Some(text(part, bytes)?),
        ArchivePart::Sets => snapshot.sets = Some(text(part, bytes)?),
        ArchivePart::LegacyV4 => snapshot.legacy_v4 = Some(text(part, bytes)?),
        ArchivePart::LegacyV6 => snapshot.legacy_v6 = Some(text(part, bytes)?),
        ArchivePart::NftV4 => snapshot.nft_v4 = Some(text(part, bytes)?),
        ArchivePart::NftV6 => snapshot.nft_v6 = Some(text(part, bytes)?),
        ArchivePart::Servers => snapshot.servers = Some(text(part, bytes)?),
        ArchivePart::Nft => snapshot.nft = Some(text(part, bytes)?),
        ArchivePart::Sockets => snapshot.sockets = Some(parse(part, &bytes)?),
        ArchivePart::Sysctls => snapshot.sysctls = read_settings(&text(part, bytes)?)?,
        ArchivePart::Versions => snapshot.versions = parse(part, &bytes)?,
    }
    Ok(())
}

pub(super) fn pretty(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

fn list(items: &[impl Serialize]) -> Vec<u8> {
    pretty(&json!({ "apiVersion": "v1", "kind": "List", "items": items }))
}

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
            .ok_or_else(|| wrong(ArchivePart::Sysctls, format!("line {}: expected `key = value`", index + 1)))?;
        Ok((key.to_owned(), value.strip_prefix(' ').unwrap_or(value).to_owned()))
    });
    settings.collect()
}

fn items<T: DeserializeOwned>(part: ArchivePart, bytes: &[u8]) -> Result<Vec<T>, ArchiveError> {
    let mut list: Value = parse(part, bytes)?;
    let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
        return Err(wrong(part, "expected a List with items"));
    };
    let parsed = items.into_iter().enumerate().map(|(index, item)| {
        serde_json::from_value(item).map_err(|error| wrong(part, format!("item {}: {error}", index + 1)))
    });
    parsed.collect()
}

fn parse<T: DeserializeOwned>(part: ArchivePart, bytes: &[u8]) -> Result<T, ArchiveError> {
    serde_json::from_slice(bytes).map_err(|error| wrong(part, error))
}

fn text(part: ArchivePart, bytes: Vec<u8>) -> Result<String, ArchiveError> {
    String::from_utf8(bytes).map_err(|_| wrong(part, "it is no text in UTF-8"))
}

fn wrong(part: ArchivePart, why: impl Display) -> ArchiveError {
    ArchiveError::Content { path: part.path().to_owned(), why: why.to_string() }
}
