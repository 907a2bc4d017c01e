//! Replaces each name in a [`Snapshot`] by a keyed hash: references still match.
//!
//! Replaces names of Services, namespaces, pods, nodes, hosts, zones and ports, and values of labels, annotations and
//! selectors. Keeps addresses, port numbers, interfaces, label keys and chain names. kube-proxy's chain names are
//! unkeyed hashes of namespace, name and port, so they confirm a guessed Service.

mod nft;
mod objects;
mod text;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};

use data_encoding::HEXLOWER;
use ipnet::IpNet;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::archive::entries::ArchivePart;
use crate::{Snapshot, Unread};

const PREFIX: &str = "x-";
/// Digits of a replacement: 100,000 names collide in 1 of 200 snapshots.
const DIGITS: usize = 10;
/// Values that stay, because they reveal nothing about the user.
const PUBLIC: [&str; 18] = [
    "",
    "true",
    "false",
    "Auto",
    "auto",
    "Disabled",
    "disabled",
    "random",
    "maglev",
    "maglev-port",
    "none",
    "cluster",
    "linux",
    "windows",
    "amd64",
    "arm64",
    "endpointslice-controller.k8s.io",
    "endpointslicemirroring-controller.k8s.io",
];

/// The key of the hashes that replace names.
#[derive(Clone)]
pub struct RedactionKey([u8; 32]);

impl RedactionKey {
    /// A random key from `/dev/urandom` (random(4)).
    ///
    /// # Errors
    /// `/dev/urandom` cannot be read.
    pub fn random() -> io::Result<RedactionKey> {
        let mut bytes = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(RedactionKey(bytes))
    }
}

impl From<[u8; 32]> for RedactionKey {
    fn from(bytes: [u8; 32]) -> Self {
        RedactionKey(bytes)
    }
}

impl Snapshot {
    /// Replaces names. Removes a malformed part, which may contain names, and lists it as unread.
    pub fn redact(&mut self, key: &RedactionKey) {
        let names = KnownNames::of(self, key);
        for rules in [&mut self.nft_v4, &mut self.nft_v6, &mut self.legacy_v4, &mut self.legacy_v6] {
            replace(rules, |rules| text::rules(&names, rules));
        }
        replace(&mut self.sets, |sets| text::sets(&names, sets));
        let left_out = [
            (ArchivePart::Nft, try_replace(&mut self.nft, |ruleset| nft::ruleset(&names, ruleset))),
            (ArchivePart::ProxyConfig, try_replace(&mut self.proxy_config, |config| proxy_config(&names, config))),
        ];
        if let Some(objects) = &mut self.objects {
            objects::replace(&names, objects);
        }
        for program in self.programs.iter_mut().flatten() {
            let texts = [&mut program.cgroup, &mut program.filter].into_iter().flatten().chain([&mut program.name]);
            texts.for_each(|text| *text = text::free(&names, text));
        }
        for unread in &mut self.unread {
            unread.why = text::free(&names, &unread.why);
        }
        for source in self.sources.values_mut() {
            *source = text::free(&names, source);
        }
        self.host = names.replaced(&self.host);
        self.node_name = self.node_name.take().map(|name| names.replaced(&name));
        let why = "it is not understood, and might hold names (--redact)";
        let left_out = left_out.into_iter().filter(|(_, done)| done.is_none());
        self.unread.extend(left_out.map(|(part, _)| Unread { what: part.path().to_owned(), why: why.to_owned() }));
    }
}

fn replace(text: &mut Option<String>, change: impl FnOnce(&str) -> String) {
    *text = text.take().map(|text| change(&text));
}

fn try_replace(text: &mut Option<String>, change: impl FnOnce(&str) -> Option<String>) -> Option<()> {
    if let Some(old) = text.take() {
        *text = Some(change(&old)?);
    }
    Some(())
}

fn proxy_config(names: &KnownNames<'_>, config: &str) -> Option<String> {
    let mut value: Value = serde_saphyr::from_str(config).ok()?;
    let host = value.get_mut("hostnameOverride").and_then(|host| host.as_str().map(|name| names.replaced(name)));
    if let Some(host) = host {
        value["hostnameOverride"] = host.into();
    }
    known_strings(names, &mut value);
    value.is_object().then(|| crate::yaml::text(&value))
}

fn known_strings(names: &KnownNames<'_>, value: &mut Value) {
    match value {
        Value::String(text) if names.known.contains(text) => *text = names.replaced(text),
        Value::Array(items) => items.iter_mut().for_each(|item| known_strings(names, item)),
        Value::Object(fields) => fields.values_mut().for_each(|field| known_strings(names, field)),
        _ => {}
    }
}

struct KnownNames<'a> {
    key: &'a RedactionKey,
    known: BTreeSet<String>,
    services: BTreeSet<(String, String)>,
}

impl KnownNames<'_> {
    fn of<'a>(snapshot: &Snapshot, key: &'a RedactionKey) -> KnownNames<'a> {
        let mut names = KnownNames { key, known: BTreeSet::new(), services: BTreeSet::new() };
        names.known.insert(snapshot.host.clone());
        names.known.extend(snapshot.node_name.clone());
        if let Some(objects) = &snapshot.objects {
            objects::gather(&mut names, objects);
        }
        names.known.retain(|name| !name.is_empty());
        names
    }

    /// Keeps earlier replacements, so that a snapshot can be redacted twice.
    fn replaced(&self, name: &str) -> String {
        if name.is_empty() || is_replacement(name) {
            return name.to_owned();
        }
        let mut hash = Sha256::new();
        hash.update(self.key.0);
        hash.update(name);
        let digits = HEXLOWER.encode(&hash.finalize());
        format!("{PREFIX}{}", digits.get(..DIGITS).unwrap_or(&digits))
    }

    fn value(&self, value: &str) -> String {
        let stays = PUBLIC.contains(&value) || value.split(',').all(|part| part.trim().parse::<IpNet>().is_ok());
        if stays { value.to_owned() } else { self.replaced(value) }
    }
}

fn is_replacement(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX).filter(|digits| digits.len() == DIGITS);
    digits.is_some_and(|digits| digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
}

#[cfg(test)]
mod tests;
