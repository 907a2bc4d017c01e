use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

use super::route::ResolvedRoute;
use crate::masked::Masked;
use crate::protocol::Family;

/// The routes of a table, found by the longest prefix: nodes of large clusters have thousands.
#[derive(Debug, Clone, Default)]
pub(crate) struct RouteTable {
    /// The first route of each range: that with the lowest metric, of equal ones the first.
    routes: HashMap<Masked, ResolvedRoute>,
    /// The prefix lengths of the ranges, longest first.
    lengths: Vec<(Family, u8)>,
}

impl RouteTable {
    pub(super) fn new(mut routes: Vec<ResolvedRoute>) -> RouteTable {
        routes.sort_by_key(|route| route.metric);
        let mut table = RouteTable::default();
        for route in routes {
            let Some(length) = route.to.prefix() else { continue };
            let key = (route.to.family, length);
            if !table.lengths.contains(&key) {
                table.lengths.push(key);
            }
            table.routes.entry(route.to).or_insert(route);
        }
        table.lengths.sort_by_key(|(_, length)| Reverse(*length));
        table
    }

    pub(super) fn find(&self, to: IpAddr) -> Option<&ResolvedRoute> {
        let family = Family::of(to);
        let lengths = self.lengths.iter().filter(|(of, _)| *of == family);
        lengths.into_iter().find_map(|(_, length)| self.routes.get(&Masked::network(to, *length)?))
    }
}
