//! How endpoints are chosen from a service port's elements: by a number that a rule draws or computes.

use std::fmt;
use std::net::SocketAddr;

use nf_tables::field::KeyField;

use super::endpoint_index::{EndpointIndex, IndexedEndpoints};
use crate::model::LoadBalancing;
use crate::nftables::SlotNumber;
use crate::plan::{BackendSet, maglev};

/// The seed of every hash: the same on all nodes, and in all versions.
const SEED: u32 = 0x7365_7276;

const ADDRESS: &[KeyField] = &[KeyField::Source];
const ADDRESS_AND_PORT: &[KeyField] = &[KeyField::Source, KeyField::SourcePort];

/// Which numbers a chain computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SlotChoice {
    /// One of as many numbers as there are endpoints, at random.
    Random(u32),
    /// A slot of a table of this size.
    Hash { slots: u32, with_port: bool },
}

impl SlotChoice {
    pub(super) fn number(self) -> SlotNumber {
        match self {
            SlotChoice::Random(count) => SlotNumber::Random(count),
            SlotChoice::Hash { slots, with_port } => {
                let of = if with_port { ADDRESS_AND_PORT } else { ADDRESS };
                SlotNumber::Jhash { of, modulus: slots, seed: SEED }
            }
        }
    }
}

/// The part of a chain's name.
impl fmt::Display for SlotChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SlotChoice::Random(count) => write!(f, "{count}"),
            SlotChoice::Hash { slots, with_port: false } => write!(f, "maglev-{slots}"),
            SlotChoice::Hash { slots, with_port: true } => write!(f, "maglev-port-{slots}"),
        }
    }
}

/// Tables of consistent hashing, of lists with more than one endpoint: positions in the [`EndpointIndex`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotTables {
    with_port: bool,
    cluster: Box<[u16]>,
    local: Box<[u16]>,
}

impl SlotTables {
    pub fn new(balancing: LoadBalancing, endpoints: &EndpointIndex) -> Option<SlotTables> {
        let with_port = match balancing {
            LoadBalancing::Random => return None,
            LoadBalancing::Maglev => false,
            LoadBalancing::MaglevPort => true,
        };
        let table = |endpoints: &IndexedEndpoints| match endpoints.count() {
            0 | 1 => Box::default(),
            _ => maglev::table(&endpoints.iter().collect::<Vec<_>>()),
        };
        Some(SlotTables { with_port, cluster: table(&endpoints.cluster), local: table(&endpoints.local) })
    }

    fn of(&self, set: BackendSet) -> &[u16] {
        match set {
            BackendSet::Cluster => &self.cluster,
            BackendSet::Local => &self.local,
        }
    }

    /// `None`: the list has at most one endpoint.
    pub fn choice(&self, set: BackendSet) -> Option<SlotChoice> {
        let slots = u32::try_from(self.of(set).len()).ok().filter(|slots| *slots > 0)?;
        Some(SlotChoice::Hash { slots, with_port: self.with_port })
    }

    /// Returns each slot's endpoint.
    pub fn numbered<'a>(
        &'a self,
        set: BackendSet,
        endpoints: &'a EndpointIndex,
    ) -> impl Iterator<Item = (u32, SocketAddr)> + 'a {
        let of = move |position: &u16| endpoints.of(set).get(u32::from(*position));
        (0..).zip(self.of(set)).filter_map(move |(slot, position)| Some((slot, of(position)?)))
    }
}
