//! Finds and deletes stale conntrack entries.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::kernel::conntrack::FlowFilter;
use crate::model::Protocol;
use crate::plan::stale_flows::StaleFlowFilter;

/// With more filters, one full dump is cheaper: each filter walks the whole table (3.3 ms for an empty one of 262,144
/// buckets, Linux 6.18).
const FEW: usize = 4;

/// Returns the smallest set of dumps that contains every flow that `flows` judges.
pub(super) fn filters(flows: &StaleFlowFilter) -> Vec<FlowFilter> {
    let lost = flows.lost();
    let (some, all): (BTreeSet<_>, BTreeSet<_>) = flows.frontends().partition(|frontend| lost.contains_key(frontend));
    let servers: BTreeSet<_> =
        some.iter().flat_map(|key| lost.get(key).into_iter().flatten().map(|server| (key.0, *server))).collect();
    let to = |(protocol, frontend)| FlowFilter::To(protocol, frontend);
    let from = |(protocol, server)| FlowFilter::From(protocol, server);
    let mut filters: Vec<FlowFilter> = all.into_iter().map(to).collect();
    if servers.len() < some.len() {
        filters.extend(servers.into_iter().map(from));
    } else {
        filters.extend(some.into_iter().map(to));
    }
    if filters.len() > FEW {
        let protocols: BTreeSet<Protocol> = flows.frontends().map(|(protocol, _)| protocol).collect();
        filters = protocols.into_iter().map(FlowFilter::Protocol).collect();
    }
    filters
}

/// Runs in pieces between syncs: an endpoint may have a hundred thousand flows.
#[derive(Debug)]
pub(super) struct FlowCleanup {
    pub(super) flows: StaleFlowFilter,
    pub(super) is_new: bool,
    pub(super) deleted: usize,
    pub(super) took: Duration,
}

impl FlowCleanup {
    /// Continues the cleanup if the filter is unchanged; else starts again, because a checked entry may be stale now.
    pub(super) fn after_sync(under_way: Option<FlowCleanup>, now: Option<StaleFlowFilter>) -> Option<FlowCleanup> {
        let flows = now?;
        let (deleted, took) = match under_way {
            Some(cleanup) if cleanup.flows == flows => return Some(cleanup),
            Some(cleanup) => (cleanup.deleted, cleanup.took),
            None => (0, Duration::ZERO),
        };
        Some(FlowCleanup { flows, is_new: true, deleted, took })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::SocketAddr;

    use super::*;
    use crate::model::Frontend;
    use crate::plan::conntrack_index::DueFlows;

    fn server(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 244, 0, host], 53))
    }

    fn filters(due: &[(u16, DueFlows)]) -> Vec<FlowFilter> {
        let key = |port: u16| (Protocol::Udp, Frontend::NodePort(port));
        let due: BTreeMap<_, _> = due.iter().map(|(port, due)| (key(*port), due.clone())).collect();
        super::filters(&StaleFlowFilter::default().only(&due))
    }

    #[test]
    fn stale_flows_need_few_dumps() {
        let to = |port: u16| FlowFilter::To(Protocol::Udp, Frontend::NodePort(port));
        let lost = |hosts: &[u8]| DueFlows::ToServers(hosts.iter().map(|host| server(*host)).collect());
        let from = |host: u8| FlowFilter::From(Protocol::Udp, server(host));
        assert_eq!(filters(&[]), []);
        assert_eq!(filters(&[(1, DueFlows::All), (2, DueFlows::All)]), [to(1), to(2)]);
        assert_eq!(filters(&[(1, lost(&[7]))]), [to(1)], "where it makes no difference, what clients send to");
        assert_eq!(filters(&[(1, lost(&[7])), (2, lost(&[7]))]), [from(7)], "one server, of two frontends");
        assert_eq!(filters(&[(1, lost(&[7, 8])), (2, lost(&[7, 8]))]), [to(1), to(2)]);
        assert_eq!(filters(&[(1, DueFlows::All), (2, lost(&[7])), (3, lost(&[7]))]), [to(1), from(7)]);
        let many: Vec<(u16, DueFlows)> = (1..=5).map(|port| (port, DueFlows::All)).collect();
        assert_eq!(filters(&many), [FlowFilter::Protocol(Protocol::Udp)]);
        let many: Vec<(u16, DueFlows)> = (1..=9).map(|port| (port, lost(&[7, 8]))).collect();
        assert_eq!(filters(&many), [from(7), from(8)]);
    }

    #[test]
    fn a_cleanup_restarts_when_its_filter_changes() {
        let flows = |hosts: &[u8]| {
            let due = DueFlows::ToServers(hosts.iter().map(|host| server(*host)).collect());
            let key = (Protocol::Udp, Frontend::NodePort(1));
            Some(StaleFlowFilter::default().only(&BTreeMap::from([(key, due)])))
        };
        let begun = FlowCleanup::after_sync(None, flows(&[7])).unwrap();
        assert!(begun.is_new);
        let begun = FlowCleanup { is_new: false, deleted: 9, ..begun };
        let goes_on = FlowCleanup::after_sync(Some(begun), flows(&[7])).unwrap();
        assert!(!goes_on.is_new, "a sync of something else");
        let anew = FlowCleanup::after_sync(Some(goes_on), flows(&[7, 8])).unwrap();
        assert!(anew.is_new && anew.deleted == 9, "what was deleted counts");
        assert!(FlowCleanup::after_sync(Some(anew), None).is_none());
    }
}
