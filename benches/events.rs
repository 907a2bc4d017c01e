//! What happens in a cluster, and is measured.

use crate::cluster::{Endpoints, Size};
use svcproxy::model::Change;

/// Something that a proxy has to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The first sync of a node: nothing is in the kernel.
    First,
    /// A proxy starts, and finds everything in the kernel that it wants.
    Restart,
    /// A slice is written anew and says the same.
    Nothing,
    /// One endpoint of one service is replaced.
    Endpoint,
    /// A service gets one endpoint more.
    More,
    /// A service comes.
    Service,
    /// One endpoint of each hundredth service is replaced, all in one batch.
    Percent,
    /// The last endpoint of a service goes: it refuses from now on.
    LastGoes,
    /// The first endpoint of a service comes: it delivers from now on.
    FirstComes,
    /// The node gets another address on which node ports answer. Noticed with the next change, which is part of it.
    Address,
    /// One endpoint of a UDP service is replaced; conntrack's entries have to follow.
    Udp,
}

/// What is sent to a proxy.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// Changes of objects.
    pub changes: Vec<Change>,
    /// Whether the node has its further address.
    pub has_address: Option<bool>,
}

impl Event {
    /// All of them, in the order of the tables.
    pub const ALL: [Event; 11] = [
        Event::First,
        Event::Restart,
        Event::Nothing,
        Event::Endpoint,
        Event::More,
        Event::Service,
        Event::Percent,
        Event::LastGoes,
        Event::FirstComes,
        Event::Address,
        Event::Udp,
    ];

    /// Its name: criterion's group.
    pub fn name(self) -> &'static str {
        match self {
            Event::First => "first-sync",
            Event::Restart => "restart",
            Event::Nothing => "nothing-changed",
            Event::Endpoint => "endpoint-replaced",
            Event::More => "endpoint-added",
            Event::Service => "service-added",
            Event::Percent => "1-percent-changed",
            Event::LastGoes => "last-endpoint-goes",
            Event::FirstComes => "first-endpoint-comes",
            Event::Address => "node-address-comes",
            Event::Udp => "udp-endpoint-replaced",
        }
    }

    /// What it is, in words.
    pub fn about(self) -> &'static str {
        match self {
            Event::First => "the first sync of a node",
            Event::Restart => "a proxy starts and finds everything as it should be",
            Event::Nothing => "an EndpointSlice is written again and says the same",
            Event::Endpoint => "one endpoint of one service is replaced",
            Event::More => "a service gets one endpoint more",
            Event::Service => "a service with its endpoints comes",
            Event::Percent => "one endpoint of each hundredth service is replaced, all at once",
            Event::LastGoes => "the last endpoint of a service goes, so that it refuses",
            Event::FirstComes => "the first endpoint of a service comes, so that it delivers",
            Event::Address => "the node has a new address for node ports, and one endpoint is replaced",
            Event::Udp => "one endpoint of a UDP service is replaced",
        }
    }

    /// Whether it is the start of a proxy and not a change that one sees.
    pub fn is_start(self) -> bool {
        matches!(self, Event::First | Event::Restart)
    }

    /// What the proxy must see before it, and is not part of it.
    pub fn before(self, size: Size) -> Option<Input> {
        let changes = match self {
            Event::FirstComes => vec![size.slice(size.typical(), Endpoints::None)],
            Event::LastGoes | Event::More => vec![size.slice(size.typical(), Endpoints::Original(0))],
            Event::Service => size.without_another(),
            Event::Address => return Some(Input { has_address: Some(false), ..replaced(size, 0) }),
            Event::First | Event::Restart | Event::Nothing | Event::Endpoint | Event::Percent | Event::Udp => {
                return None;
            }
        };
        Some(Input { changes, has_address: None })
    }

    /// The event itself; `round` counts from 1, and two rounds never say the same.
    pub fn input(self, size: Size, round: u32) -> Input {
        let changes = match self {
            Event::First | Event::Restart => size.changes(),
            Event::Nothing => vec![size.slice(size.typical(), Endpoints::Original(round))],
            Event::Endpoint => return replaced(size, round),
            Event::More => vec![size.slice(size.typical(), Endpoints::OneMore)],
            Event::Service => size.another(),
            Event::Percent => size.one_percent().map(|index| size.slice(index, Endpoints::Replaced(round))).collect(),
            Event::LastGoes => vec![size.slice(size.typical(), Endpoints::None)],
            Event::FirstComes => vec![size.slice(size.typical(), Endpoints::Original(0))],
            Event::Address => return Input { has_address: Some(true), ..replaced(size, round) },
            Event::Udp => vec![size.slice(size.udp(), Endpoints::Replaced(round))],
        };
        Input { changes, has_address: None }
    }
}

fn replaced(size: Size, round: u32) -> Input {
    Input { changes: vec![size.slice(size.typical(), Endpoints::Replaced(round))], has_address: None }
}
