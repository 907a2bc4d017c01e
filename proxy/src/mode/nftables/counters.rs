//! Counters of service ports: their names in the kernel, and which service ports have them.
//!
//! A counter's name contains kind, service port and protocol, so a scrape needs only the kernel's list of counters. Names
//! have only characters that `nft` accepts without quotes. `/` separates the parts: no name of an object contains it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::warn;

use crate::habits::{self, Habit};
use crate::model::{Family, ObjectKey, Protocol, ServicePortName, ServiceSelection};
use crate::nftables::Name;

/// The most service ports of one family with counters: five series each.
pub const MOST: usize = 10_000;

/// `NFT_OBJ_MAXNAMELEN` (`include/uapi/linux/netfilter/nf_tables.h`) less the final zero.
const LONGEST: usize = 255;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CounterKind {
    Connections,
    Original,
    Reply,
}

const KINDS: [(&str, CounterKind); 3] =
    [("connections", CounterKind::Connections), ("original", CounterKind::Original), ("reply", CounterKind::Reply)];

/// The names of one service port's counters, which its frontends share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterNames {
    pub connections: Name,
    pub original: Name,
    pub reply: Name,
}

impl CounterNames {
    /// `None`: a name cannot express the service port.
    pub(super) fn of(port: &ServicePortName) -> Option<CounterNames> {
        let ServicePortName { service: ObjectKey { namespace, name }, port, protocol } = port;
        let name = if habits::has(Habit::ServicesShareCounters) { "all" } else { &**name };
        let parts = [&**namespace, name, &*protocol.to_string(), &**port];
        let is_plain = |part: &&str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
        let text = parts.join("/");
        let longest = KINDS.iter().map(|(kind, _)| kind.len()).max().unwrap_or_default() + 1 + text.len();
        let fits = parts.iter().all(is_plain) && longest <= LONGEST;
        let name = |kind: CounterKind| {
            let kind = KINDS.iter().find(|(_, one)| *one == kind).map_or("", |(kind, _)| kind);
            Name::from(format!("{kind}-{}", text.trim_end_matches('/')))
        };
        fits.then(|| CounterNames {
            connections: name(CounterKind::Connections),
            original: name(CounterKind::Original),
            reply: name(if habits::has(Habit::AnswersCountAsRequests) {
                CounterKind::Original
            } else {
                CounterKind::Reply
            }),
        })
    }

    pub fn all(&self) -> [&Name; 3] {
        [&self.connections, &self.original, &self.reply]
    }
}

/// Reads a counter's name; `None` if it is not one of this program's.
pub fn parse(name: &str) -> Option<(CounterKind, ServicePortName)> {
    let (kind, rest) = name.split_once('-')?;
    let (_, kind) = KINDS.iter().find(|(text, _)| *text == kind)?;
    let mut parts = rest.splitn(4, '/');
    let (namespace, name, protocol) = (parts.next()?, parts.next()?, parts.next()?);
    let protocol = Protocol::ALL.into_iter().find(|one| one.to_string() == protocol)?;
    let port = parts.next().unwrap_or_default().into();
    Some((*kind, ServicePortName { service: ObjectKey::new(namespace, name), port, protocol }))
}

/// Which service ports have counters. A service port keeps its counters while others come and go.
#[derive(Debug, Default)]
pub(super) struct CountedPorts {
    selection: Option<ServiceSelection>,
    counted: BTreeSet<ServicePortName>,
    left_out: BTreeSet<ServicePortName>,
    left_out_count: Arc<AtomicUsize>,
}

impl CountedPorts {
    pub(super) fn of(selection: Option<ServiceSelection>) -> CountedPorts {
        CountedPorts { selection, ..CountedPorts::default() }
    }

    /// The number of selected service ports without counters, for a metric.
    pub(super) fn left_out(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.left_out_count)
    }

    /// Forgets service ports that do not exist; those with a counter in the table come before others.
    pub(super) fn replace_all<'a>(
        &mut self,
        found: impl Iterator<Item = &'a str>,
        existing: impl Iterator<Item = ServicePortName>,
    ) {
        let Some(selection) = &self.selection else { return };
        let known: BTreeSet<ServicePortName> = found.filter_map(|name| Some(parse(name)?.1)).collect();
        let known = &known | &self.counted;
        let selected: BTreeSet<ServicePortName> = existing.filter(|name| selection.contains(&name.service)).collect();
        let (first, others): (Vec<_>, Vec<_>) = selected.into_iter().partition(|name| known.contains(name));
        (self.counted, self.left_out) = Default::default();
        first.into_iter().chain(others).for_each(|name| drop(self.admit(&name)));
    }

    /// Returns the counters of a service port, if it has any.
    pub(super) fn admit(&mut self, name: &ServicePortName) -> Option<CounterNames> {
        self.selection.as_ref().filter(|selection| selection.contains(&name.service))?;
        let room = self.counted.len() < MOST || self.counted.contains(name);
        let names = CounterNames::of(name).filter(|_| room);
        if names.is_some() {
            self.counted.insert(name.clone());
            self.left_out.remove(name);
        } else {
            self.left_out.insert(name.clone());
        }
        names
    }

    pub(super) fn remove(&mut self, name: &ServicePortName) {
        self.counted.remove(name);
        self.left_out.remove(name);
    }

    /// Logs when service ports begin to be left out.
    pub(super) fn report(&self, family: Family) {
        let now = self.left_out.len();
        if self.left_out_count.swap(now, Ordering::Relaxed) == 0 && now > 0 {
            warn!(
                %family, left_out = now,
                "--service-counters: at most {MOST} service ports are counted; the next full sync counts others if some \
                 are gone; select Services by --service-counters=NAMESPACE/NAME,…"
            );
        }
    }
}

/// Returns every service port's counters, without a limit.
pub(super) fn selected(selection: Option<&ServiceSelection>, name: &ServicePortName) -> Option<CounterNames> {
    selection.filter(|selection| selection.contains(&name.service)).and_then(|_| CounterNames::of(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(namespace: &str, name: &str, port: &str, protocol: Protocol) -> ServicePortName {
        let service = ObjectKey::new(namespace, name);
        ServicePortName { service, port: port.into(), protocol }
    }

    #[test]
    fn a_name_is_read_as_it_was_written() {
        for (name, expected) in [
            (port("default", "web", "http", Protocol::Tcp), "original-default/web/tcp/http"),
            (port("kube-system", "dns", "", Protocol::Udp), "original-kube-system/dns/udp"),
        ] {
            let names = CounterNames::of(&name).unwrap();
            assert_eq!(&*names.original, expected);
            let parsed = names.all().map(|one| parse(one).unwrap());
            let kinds = KINDS.map(|(_, kind)| (kind, name.clone()));
            assert_eq!(parsed, kinds);
        }
        for other in ["", "original", "x-default/web/tcp", "original-default/web", "reply-default/web/icmp/x"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_longest_service_has_a_name_and_other_characters_have_none() {
        let longest = "x".repeat(63);
        assert!(CounterNames::of(&port(&longest, &longest, &longest, Protocol::Sctp)).is_some());
        assert_eq!(CounterNames::of(&port(&longest, &"x".repeat(200), "", Protocol::Tcp)), None);
        for wrong in ["a/b", "a b", "a\"", "a}", "ä", "a\n"] {
            assert_eq!(CounterNames::of(&port("default", wrong, "", Protocol::Tcp)), None, "{wrong}");
        }
    }

    #[test]
    fn beyond_the_limit_a_service_port_keeps_its_counters() {
        let at = |number: usize| port("default", &format!("svc-{number:05}"), "", Protocol::Tcp);
        let mut ports = CountedPorts::of(Some("default/*".parse().unwrap()));
        ports.replace_all(std::iter::empty(), (1..=MOST + 2).map(at));
        ports.report(Family::V4);
        assert_eq!((ports.counted.len(), ports.left_out().load(Ordering::Relaxed)), (MOST, 2));
        assert!(ports.admit(&at(1)).is_some() && ports.admit(&at(0)).is_none());
        ports.remove(&at(5));
        assert!(ports.admit(&at(0)).is_some(), "there is room");
        // A restart: the names sort behind, and have counters.
        let mut again = CountedPorts::of(Some("*/*".parse().unwrap()));
        let found = CounterNames::of(&at(MOST + 1)).unwrap();
        again.replace_all(std::iter::once(&*found.reply), (1..=MOST + 1).map(at));
        assert!(again.counted.contains(&at(MOST + 1)) && again.left_out.contains(&at(MOST)));
        assert_eq!(again.admit(&port("other", "web", "", Protocol::Tcp)), None);
    }
}
