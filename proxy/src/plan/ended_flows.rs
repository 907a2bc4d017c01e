//! Established TCP connections that lost their endpoint, for a mode whose rules cannot tell a translated connection's
//! Service. Their conntrack entries are deleted once, so that their next packet meets the rules like a new
//! connection's, and is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Instant;

use super::conntrack_index::DueFlows;
use super::lost_flows::{LostFlows, TrackedPort};
use crate::model::{Frontend, ServicePortName};

#[derive(Debug, Default)]
pub struct EndedFlows {
    lost: LostFlows,
    /// Service ports whose earlier losses are unknown, with the time at which their drains have ended.
    unknown: BTreeMap<ServicePortName, Instant>,
    due: BTreeMap<Frontend, DueFlows>,
    has_started: bool,
}

impl EndedFlows {
    /// Replaces service ports; `None`: deleted.
    pub fn replace(&mut self, changed: Vec<(ServicePortName, Option<TrackedPort>)>, now: Instant) {
        self.lost.replace(changed, now);
        self.advance(now);
    }

    /// Replaces all service ports. The first call is a proxy's start: what a previous proxy served is unknown, so every
    /// endpoint that does not serve is lost.
    pub fn replace_all(&mut self, ports: BTreeMap<ServicePortName, TrackedPort>, now: Instant) {
        if !std::mem::replace(&mut self.has_started, true) {
            let drains = ports.iter().filter_map(|(name, port)| Some((name.clone(), now + port.fate().delay()?)));
            self.unknown = drains.collect();
        }
        self.lost.replace_all(ports, now);
        self.advance(now);
    }

    /// Makes flows due whose drain has ended. Returns whether there are any.
    pub fn advance(&mut self, now: Instant) -> bool {
        let mut are_any = false;
        for (frontend, endpoint) in self.lost.take_drained(now) {
            are_any = true;
            let due = self.due.entry(frontend).or_insert_with(|| DueFlows::ToServers(BTreeSet::new()));
            if let DueFlows::ToServers(servers) = due {
                servers.insert(endpoint);
            }
        }
        let EndedFlows { lost, unknown, due, .. } = self;
        unknown.retain(|name, drained| {
            let is_over = *drained <= now;
            if let Some(port) = lost.port(name).filter(|_| is_over) {
                due.extend(port.frontends().map(|frontend| (frontend, DueFlows::All)));
                are_any = true;
            }
            !is_over
        });
        are_any
    }

    /// Returns when [`EndedFlows::advance`] has work.
    pub fn next(&self) -> Option<Instant> {
        self.lost.next_drained().into_iter().chain(self.unknown.values().copied()).min()
    }

    pub fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns frontends with ended flows, and the endpoints to which flows stay: they serve, or drain.
    pub fn due(&self) -> impl Iterator<Item = (Frontend, DueFlows, BTreeSet<SocketAddr>)> {
        self.due.iter().filter_map(|(frontend, due)| Some((*frontend, due.clone(), self.lost.allowed(frontend)?)))
    }

    pub fn clear_due(&mut self) {
        self.due.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{FlowFate, Protocol};
    use crate::testing::port_name;

    fn at(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    fn port(fate: FlowFate, serving: &[&str]) -> TrackedPort {
        let serving = serving.iter().map(|address| at(address)).collect();
        TrackedPort::new(fate, vec![Frontend::Address(at("10.96.0.1:80"))], serving)
    }

    fn name() -> ServicePortName {
        port_name("web", Protocol::Tcp)
    }

    fn take_due(flows: &mut EndedFlows) -> Vec<String> {
        let text = |(frontend, due, kept): (Frontend, DueFlows, BTreeSet<SocketAddr>)| {
            format!("{frontend:?} {due:?} but {kept:?}").replace("Address(10.96.0.1:80) ", "").replace("ToServers", "")
        };
        let due = flows.due().map(text).collect();
        flows.clear_due();
        due
    }

    const ONE: &str = "10.244.1.5:80";
    const TWO: &str = "10.244.2.6:80";

    #[test]
    fn flows_end_once_after_their_drain_unless_the_endpoint_serves_again() {
        let (mut flows, now) = (EndedFlows::default(), Instant::now());
        let seconds = |seconds| now + Duration::from_secs(seconds);
        flows.replace_all(BTreeMap::new(), now);
        let drain = |serving: &[&str]| vec![(name(), Some(port(FlowFate::Drain(5), serving)))];
        flows.replace(drain(&[ONE, TWO]), now);
        flows.replace(drain(&[TWO]), now);
        assert!(!flows.is_due(), "they drain");
        assert_eq!(flows.next(), Some(seconds(5)));
        flows.replace(drain(&[ONE, TWO]), seconds(1));
        assert_eq!((flows.advance(seconds(9)), flows.next()), (false, None), "the endpoint serves again");
        flows.replace(drain(&[TWO]), seconds(10));
        flows.replace(drain(&[]), seconds(12));
        assert!(flows.advance(seconds(15)));
        assert_eq!(take_due(&mut flows), [format!("({{{ONE}}}) but {{{TWO}}}")], "the other one drains");
        assert!(!flows.advance(seconds(15)), "they end once");
        flows.replace(vec![(name(), None)], seconds(16));
        assert!(flows.advance(seconds(17)));
        assert_eq!(take_due(&mut flows), [format!("({{{TWO}}}) but {{}}")]);
        flows.replace(vec![(name(), Some(port(FlowFate::Reset, &[ONE, TWO])))], seconds(20));
        flows.replace(vec![(name(), Some(port(FlowFate::Reset, &[TWO])))], seconds(20));
        assert_eq!(take_due(&mut flows), [format!("({{{ONE}}}) but {{{TWO}}}")], "without a drain at once");
        flows.replace(vec![(name(), None)], seconds(20));
        assert_eq!(take_due(&mut flows), [format!("({{{TWO}}}) but {{}}")], "the Service is deleted");
    }

    #[test]
    fn flows_of_a_service_that_keeps_them_are_not_due() {
        let (mut flows, now) = (EndedFlows::default(), Instant::now());
        flows.replace_all(BTreeMap::from([(name(), port(FlowFate::Reset, &[ONE]))]), now);
        flows.clear_due();
        flows.replace(vec![(name(), Some(port(FlowFate::Reset, &[])))], now);
        flows.replace(vec![(name(), Some(port(FlowFate::Keep, &[])))], now);
        assert!(flows.is_due());
        assert_eq!(take_due(&mut flows), [""; 0], "it asks for nothing since");
    }

    #[test]
    fn a_proxy_that_starts_ends_flows_to_every_other_endpoint() {
        let now = Instant::now();
        let start = |fate| {
            let mut flows = EndedFlows::default();
            flows.replace_all(BTreeMap::from([(name(), port(fate, &[ONE]))]), now);
            flows
        };
        assert_eq!(take_due(&mut start(FlowFate::Reset)), [format!("All but {{{ONE}}}")]);
        assert_eq!(take_due(&mut start(FlowFate::Keep)), [""; 0]);
        let mut drains = start(FlowFate::Drain(5));
        assert!(!drains.is_due());
        drains.replace(vec![(name(), Some(port(FlowFate::Drain(5), &[TWO])))], now + Duration::from_secs(3));
        assert!(drains.advance(now + Duration::from_secs(5)));
        let kept = format!("All but {{{ONE}, {TWO}}}");
        assert_eq!(take_due(&mut drains), [kept], "what is lost since then drains for its own time");
    }
}
