//! Files of committed counts, by mode, cluster size and event.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;

pub struct CountFile {
    pub name: &'static str,
    pub committed: &'static str,
    /// The comment at the beginning of the file.
    pub head: &'static str,
}

/// Counts by mode, size and event.
pub type CountTable<T> = BTreeMap<String, BTreeMap<String, BTreeMap<String, T>>>;

pub trait Counts: DeserializeOwned + Copy {
    fn text(&self) -> String;
    /// Returns each count's name, value, and largest value without regression.
    fn counts(&self) -> Vec<(&'static str, u64, u64)>;
}

impl CountFile {
    pub fn read<T: Counts>(&self) -> Result<CountTable<T>> {
        self.parse(self.committed)
    }

    pub fn parse<T: Counts>(&self, text: &str) -> Result<CountTable<T>> {
        serde_saphyr::from_str(text).with_context(|| format!("read {}", self.name))
    }

    pub fn text<T: Counts>(&self, table: &CountTable<T>) -> String {
        let mut text = self.head.to_owned();
        for (mode, sizes) in table {
            let _ = writeln!(text, "{mode}:");
            for (size, events) in sizes {
                let _ = writeln!(text, "  {size}:");
                for (event, counts) in events {
                    let _ = writeln!(text, "    {event}: {}", counts.text());
                }
            }
        }
        text
    }

    pub fn write<T: Counts>(&self, table: &CountTable<T>) -> Result<()> {
        let path = format!("{}/{}", env!("CARGO_MANIFEST_DIR"), self.name);
        std::fs::write(&path, self.text(table)).with_context(|| format!("write {path}"))
    }

    /// Returns grown counts, and events that only one table has.
    pub fn regressions<T: Counts>(&self, before: &CountTable<T>, now: &CountTable<T>) -> Vec<String> {
        let (before, now) = (flat(before), flat(now));
        let gone = before.keys().filter(|key| !now.contains_key(*key));
        let mut found: Vec<String> = gone.map(|key| format!("{key} is counted no longer")).collect();
        for (key, counts) in &now {
            match before.get(key) {
                None => found.push(format!("{key} is not in {}", self.name)),
                Some(old) => found.extend(grown(key, *old, *counts)),
            }
        }
        found
    }

    pub fn improvements<T: Counts>(&self, before: &CountTable<T>, now: &CountTable<T>) -> Vec<String> {
        let (before, now) = (flat(before), flat(now));
        now.iter().filter_map(|(key, counts)| Some(grown(key, *counts, *before.get(key)?))).flatten().collect()
    }
}

fn flat<T: Counts>(table: &CountTable<T>) -> BTreeMap<String, T> {
    let sizes = table.iter().flat_map(|(mode, sizes)| sizes.iter().map(move |(size, events)| (mode, size, events)));
    let events = sizes.flat_map(|(mode, size, events)| {
        events.iter().map(move |(event, counts)| (format!("{mode} {size} {event}"), *counts))
    });
    events.collect()
}

fn grown<T: Counts>(key: &str, old: T, new: T) -> Vec<String> {
    let pairs = new.counts().into_iter().zip(old.counts());
    let grown = pairs.filter(|((_, count, _), (_, _, most))| count > most);
    grown.map(|((name, count, _), (_, was, _))| format!("{key}: {name} is {count}, not {was}")).collect()
}
