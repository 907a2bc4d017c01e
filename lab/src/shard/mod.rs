//! Shards: the work of a command, divided among machines. Every machine computes the same division on its own.

mod divide;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use divide::{Times, divide};

/// `--shard NUMBER/OF`; the first shard is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    pub number: usize,
    pub of: usize,
}

/// The place of runs whose kernel each machine chooses (`--kernel auto`).
pub const ANY_PLACE: &str = "auto";

/// A run of a scenario, or of something that a command does once in a mode.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkItem {
    pub scenario: String,
    pub mode: String,
    /// What `--kernel` says, or, in a matrix, the folder of the proxy's version.
    pub place: String,
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignedItem {
    #[serde(flatten)]
    pub item: WorkItem,
    pub shard: usize,
}

/// How long an item took, for `--balance`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ItemTime {
    #[serde(flatten)]
    pub item: WorkItem,
    pub seconds: f64,
}

/// The part of a report that says which shard it is of which whole. All but the number is equal in all shards.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardRecord {
    pub number: usize,
    pub of: usize,
    /// The version of svclab.
    pub lab: String,
    /// The proxy's name and version.
    pub proxy: String,
    /// The flags that decide results, as text.
    pub flags: String,
    /// The items of all shards, in the order of a report of the whole.
    pub items: Vec<AssignedItem>,
}

impl ShardRecord {
    pub fn shard(&self) -> Shard {
        Shard { number: self.number, of: self.of }
    }

    pub fn has(&self, item: &WorkItem) -> bool {
        self.items.iter().any(|one| one.shard == self.number && one.item == *item)
    }

    pub fn own(&self) -> impl Iterator<Item = &WorkItem> {
        self.items.iter().filter(|one| one.shard == self.number).map(|one| &one.item)
    }
}

impl WorkItem {
    /// Returns the item under which a run of `self` is listed in `items`.
    pub fn listed<'a>(&self, items: &'a [AssignedItem]) -> Option<&'a WorkItem> {
        let is_it = |one: &&WorkItem| {
            (one.place == self.place || one.place == ANY_PLACE)
                && (&one.scenario, &one.mode, one.seed) == (&self.scenario, &self.mode, self.seed)
        };
        items.iter().map(|one| &one.item).find(is_it)
    }
}

/// The text decides the item's shard: a change of it moves all items.
impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkItem { scenario, mode, place, seed } = self;
        write!(f, "{scenario} ({mode}, {place}, seed {seed})")
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let numbers = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Shard { number, of }),
            Some((_, of)) if of > 0 => Err(format!("the shards of {of} are 1/{of} to {of}/{of}")),
            _ => Err("expected NUMBER/OF, such as 3/16".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_count_from_1() {
        assert_eq!("3/16".parse(), Ok(Shard { number: 3, of: 16 }));
        assert_eq!(Shard { number: 3, of: 16 }.to_string(), "3/16");
        assert_eq!("0/4".parse::<Shard>().unwrap_err(), "the shards of 4 are 1/4 to 4/4");
        for wrong in ["5/4", "1/0", "0/0", "3", "", "a/b", "1/2/3", "-1/2"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
