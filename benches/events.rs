//! The measured events in a cluster.

use crate::cluster::{ClusterSize, SliceEndpoints};
use svcproxy::model::Change;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    First,
    Restart,
    Nothing,
    Endpoint,
    More,
    Service,
    Percent,
    LastGoes,
    FirstComes,
    /// The node gets another address, which the proxy notices with the next change.
    Address,
    /// One endpoint of a UDP Service is replaced, with its conntrack entries.
    Udp,
}

#[derive(Debug, Clone, Default)]
pub struct EventInput {
    pub changes: Vec<Change>,
    /// Whether the node has its second address; `None` for no change.
    pub has_address: Option<bool>,
}

impl Event {
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

    pub fn about(self) -> &'static str {
        match self {
            Event::First => "the first sync of a node",
            Event::Restart => "a proxy starts and finds everything as it should be",
            Event::Nothing => "an EndpointSlice is written again and says the same",
            Event::Endpoint => "one endpoint of one service is replaced",
            Event::More => "a service gets one endpoint more",
            Event::Service => "a service with its endpoints is added",
            Event::Percent => "one endpoint of each hundredth service is replaced, all at once",
            Event::LastGoes => "the last endpoint of a service is removed, so that it rejects",
            Event::FirstComes => "the first endpoint of a service is added, so that it delivers",
            Event::Address => "the node has a new address for node ports, and one endpoint is replaced",
            Event::Udp => "one endpoint of a UDP service is replaced",
        }
    }

    pub fn is_start(self) -> bool {
        matches!(self, Event::First | Event::Restart)
    }

    /// Returns a preparation, which is not measured.
    pub fn before(self, size: ClusterSize) -> Option<EventInput> {
        let changes = match self {
            Event::FirstComes => vec![size.slice(size.typical(), SliceEndpoints::None)],
            Event::LastGoes | Event::More => vec![size.slice(size.typical(), SliceEndpoints::Original(0))],
            Event::Service => size.without_another(),
            Event::Address => return Some(EventInput { has_address: Some(false), ..replaced(size, 0) }),
            Event::First | Event::Restart | Event::Nothing | Event::Endpoint | Event::Percent | Event::Udp => {
                return None;
            }
        };
        Some(EventInput { changes, has_address: None })
    }

    pub fn input(self, size: ClusterSize, round: u32) -> EventInput {
        let changes = match self {
            Event::First | Event::Restart => size.changes(),
            Event::Nothing => vec![size.slice(size.typical(), SliceEndpoints::Original(round))],
            Event::Endpoint => return replaced(size, round),
            Event::More => vec![size.slice(size.typical(), SliceEndpoints::OneMore)],
            Event::Service => size.another(),
            Event::Percent => {
                size.one_percent().map(|index| size.slice(index, SliceEndpoints::Replaced(round))).collect()
            }
            Event::LastGoes => vec![size.slice(size.typical(), SliceEndpoints::None)],
            Event::FirstComes => vec![size.slice(size.typical(), SliceEndpoints::Original(0))],
            Event::Address => return EventInput { has_address: Some(true), ..replaced(size, round) },
            Event::Udp => vec![size.slice(size.udp(), SliceEndpoints::Replaced(round))],
        };
        EventInput { changes, has_address: None }
    }
}

fn replaced(size: ClusterSize, round: u32) -> EventInput {
    EventInput { changes: vec![size.slice(size.typical(), SliceEndpoints::Replaced(round))], has_address: None }
}
