//! Takes names out of a [`Snapshot`] that is to be given away: each is replaced by a keyed hash, the same everywhere, so that what
//! referred to each other still does.
//!
//! Replaced are the names of Services, namespaces, pods, nodes, hosts, zones and ports, and the values of labels, annotations and
//! selectors. Addresses, port numbers, interfaces and the keys of labels stay, and so do the chains' names: kube-proxy's are hashes
//! of the namespace, the name and the port, without a key, so whoever guesses a Service's name can see whether it is there.

mod nft;
mod objects;
mod text;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};

use data_encoding::HEXLOWER;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::archive::entries::Part;
use crate::{Snapshot, Unread};

/// What all replacements start with.
const PREFIX: &str = "x-";
/// Digits of a replacement: among 100,000 names two have the same in 1 of 200 snapshots.
const DIGITS: usize = 10;
/// Values that name nothing of the user's, and that proxies and controllers look at.
const PUBLIC: [&str; 13] = [
    "",
    "true",
    "false",
    "Auto",
    "auto",
    "Disabled",
    "disabled",
    "linux",
    "windows",
    "amd64",
    "arm64",
    "endpointslice-controller.k8s.io",
    "endpointslicemirroring-controller.k8s.io",
];

/// What replacements depend on: they differ from snapshot to snapshot, unless the same key is used again.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// A key that nobody knows, from `/dev/urandom` (random(4)).
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn random() -> io::Result<Key> {
        let mut bytes = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Key(bytes))
    }
}

impl From<[u8; 32]> for Key {
    fn from(bytes: [u8; 32]) -> Self {
        Key(bytes)
    }
}

impl Snapshot {
    /// Replaces names. A part that cannot be understood, and may hold names, is left out and listed as unread.
    pub fn redact(&mut self, key: &Key) {
        let names = Names::of(self, key);
        for rules in [&mut self.nft_v4, &mut self.nft_v6, &mut self.legacy_v4, &mut self.legacy_v6] {
            replace(rules, |rules| text::rules(&names, rules));
        }
        replace(&mut self.sets, |sets| text::sets(&names, sets));
        let left_out = [
            (Part::Nft, try_replace(&mut self.nft, |ruleset| nft::ruleset(&names, ruleset))),
            (Part::ProxyConfig, try_replace(&mut self.proxy_config, |config| proxy_config(&names, config))),
        ];
        if let Some(objects) = &mut self.objects {
            objects::replace(&names, objects);
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

/// None where there was a text that is not understood.
fn try_replace(text: &mut Option<String>, change: impl FnOnce(&str) -> Option<String>) -> Option<()> {
    if let Some(old) = text.take() {
        *text = Some(change(&old)?);
    }
    Some(())
}

/// Names in it are those that are known otherwise, and the node's.
fn proxy_config(names: &Names<'_>, config: &str) -> Option<String> {
    let mut value: Value = serde_saphyr::from_str(config).ok()?;
    let host = value.get_mut("hostnameOverride").and_then(|host| host.as_str().map(|name| names.replaced(name)));
    if let Some(host) = host {
        value["hostnameOverride"] = host.into();
    }
    known_strings(names, &mut value);
    value.is_object().then(|| crate::yaml::text(&value))
}

fn known_strings(names: &Names<'_>, value: &mut Value) {
    match value {
        Value::String(text) if names.known.contains(text) => *text = names.replaced(text),
        Value::Array(items) => items.iter_mut().for_each(|item| known_strings(names, item)),
        Value::Object(fields) => fields.values_mut().for_each(|field| known_strings(names, field)),
        _ => {}
    }
}

/// The names that are known, and how each is replaced.
struct Names<'a> {
    key: &'a Key,
    /// Every single name.
    known: BTreeSet<String>,
    /// Namespace and name of each Service.
    services: BTreeSet<(String, String)>,
}

impl Names<'_> {
    fn of<'a>(snapshot: &Snapshot, key: &'a Key) -> Names<'a> {
        let mut names = Names { key, known: BTreeSet::new(), services: BTreeSet::new() };
        names.known.insert(snapshot.host.clone());
        names.known.extend(snapshot.node_name.clone());
        if let Some(objects) = &snapshot.objects {
            objects::gather(&mut names, objects);
        }
        names.known.retain(|name| !name.is_empty());
        names
    }

    /// A replacement stays what it is, so that a snapshot can be redacted again.
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

    /// For values of labels and annotations.
    fn value(&self, value: &str) -> String {
        if PUBLIC.contains(&value) { value.to_owned() } else { self.replaced(value) }
    }
}

fn is_replacement(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX).filter(|digits| digits.len() == DIGITS);
    digits.is_some_and(|digits| digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
}

#[cfg(test)]
mod tests;
