//! The notations in a scenario file, each with its error message.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;
use svclab_apiserver::objects::{ObjectKey, ObjectKind};
use svclab_apiserver::{HOSTILE_ANSWERS, ServerFault, ServerRefusal, hostile_answer};
use svclab_cluster::traffic::probe::ClusterHost;

use super::file::{Ip, Net, PortRange};
use crate::expect::counters::PacketCount;

/// Derives `Deserialize` from `FromStr`.
macro_rules! from_text {
    ($($type:ty),+) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

from_text!(
    ApiFault,
    TimeBound,
    PlaceRef,
    ProbeTarget,
    InvalidObject,
    ObjectRef,
    PodRef,
    Sensitivity,
    Share,
    TimeSpan,
    SourceAddress,
    NodeChoice,
    PlainText,
    Net,
    Ip,
    PortRange,
    PacketCount
);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiFault(pub ServerFault);

impl FromStr for ApiFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kind = |name: &str| match name {
            "services" => Ok(ObjectKind::Service),
            "endpointslices" => Ok(ObjectKind::EndpointSlice),
            "nodes" => Ok(ObjectKind::Node),
            other => Err(format!("{other:?}: expected services, endpointslices or nodes")),
        };
        let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{text:?}: expected a number"));
        let words: Vec<&str> = text.split_whitespace().collect();
        Ok(ApiFault(match words[..] {
            ["close", "watches"] => ServerFault::CloseWatches { abrupt: false },
            ["break", "watches"] => ServerFault::CloseWatches { abrupt: true },
            ["compact"] => ServerFault::Compact,
            ["expire", requests] => ServerFault::Expire { requests: number(requests)? },
            ["refuse", "unavailable"] => ServerFault::Refuse(ServerRefusal::Unavailable),
            ["refuse", "reset"] => ServerFault::Refuse(ServerRefusal::Reset),
            ["accept"] => ServerFault::Accept,
            ["stall"] => ServerFault::Stall,
            ["resume"] => ServerFault::Resume,
            ["hold", held] => ServerFault::Hold(kind(held)?),
            ["release", held] => ServerFault::Release(kind(held)?),
            ["disable", "watch-list"] => ServerFault::DisableWatchList,
            ["enable", "watch-list"] => ServerFault::EnableWatchList,
            ["repeat", repeated] => ServerFault::Repeat(kind(repeated)?),
            ["answer", ..] => {
                let name = words[1..].join(" ");
                let names = || HOSTILE_ANSWERS.map(|answer| answer.name).join(", ");
                let found = hostile_answer(&name);
                ServerFault::Answer(found.ok_or_else(|| format!("{name:?}: expected one of {}", names()))?)
            }
            ["bookmark", marked, "ahead", by] => {
                ServerFault::BookmarkAhead { kind: kind(marked)?, by: u64::from(number(by)?) }
            }
            _ => {
                return Err(format!(
                    "{text:?}: expected close watches, break watches, compact, expire N, refuse unavailable, refuse reset, \
                     accept, stall, resume, hold KIND, release KIND, disable watch-list, enable watch-list, \
                     repeat KIND, bookmark KIND ahead N or answer NAME"
                ));
            }
        }))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct OneOrMany<T>(pub Vec<Spanned<T>>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T>
where
    T: FromStr<Err = String>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrManyVisitor<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de> + FromStr<Err = String>> serde::de::Visitor<'de> for OneOrManyVisitor<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one value or a list")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<OneOrMany<T>, E> {
                text.parse().map(|value| OneOrMany(vec![spanned(value)])).map_err(E::custom)
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, sequence: A) -> Result<OneOrMany<T>, A::Error> {
                Vec::deserialize(serde::de::value::SeqAccessDeserializer::new(sequence)).map(OneOrMany)
            }
        }
        deserializer.deserialize_any(OneOrManyVisitor(std::marker::PhantomData))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainText(pub String);

impl FromStr for PlainText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(PlainText(text.to_owned()))
    }
}

/// Parses `NAME` or `NAMESPACE/NAME`.
fn key(text: &str) -> Option<ObjectKey> {
    let mut parts = text.split('/');
    let key = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, None) => ObjectKey::new(None, name),
        (Some(namespace), Some(name), None) if !namespace.is_empty() => ObjectKey::new(Some(namespace), name),
        _ => return None,
    };
    (!key.name.is_empty()).then_some(key)
}

/// `pod/[NAMESPACE/]NAME`, `node/NAME`, `client/NAME` or `load-balancer`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceRef(pub ClusterHost);

impl FromStr for PlaceRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted =
            || format!("{text:?}: expected pod/NAME, pod/NAMESPACE/NAME, node/NAME, client/NAME or load-balancer");
        if text == "load-balancer" {
            return Ok(PlaceRef(ClusterHost::LoadBalancer));
        }
        let (kind, rest) = text.split_once('/').ok_or_else(wanted)?;
        let plain = || Some(rest.to_owned()).filter(|name| !name.is_empty() && !name.contains('/'));
        let place = match kind {
            "pod" => key(rest).map(|key| ClusterHost::Pod { namespace: key.namespace, name: key.name }),
            "node" => plain().map(ClusterHost::Node),
            "client" => plain().map(ClusterHost::Client),
            _ => None,
        };
        place.map(PlaceRef).ok_or_else(wanted)
    }
}

/// A pod, with or without `pod/` before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef(pub ObjectKey);

impl FromStr for PodRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("{text:?}: expected a pod: NAME, NAMESPACE/NAME or pod/NAME");
        key(text.strip_prefix("pod/").unwrap_or(text)).map(PodRef).ok_or_else(wanted)
    }
}

/// `pod/…`, `service/…`, `endpointslice/…`, `node/…` or `servicecidr/…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRef {
    /// The kind in lower case.
    pub kind: String,
    pub key: ObjectKey,
}

impl FromStr for ObjectRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted =
            || format!("{text:?}: expected pod/NAME, service/NAME, endpointslice/NAME, node/NAME or servicecidr/NAME");
        let (kind, rest) = text.split_once('/').ok_or_else(wanted)?;
        let known = matches!(kind, "pod" | "service" | "endpointslice" | "node" | "servicecidr");
        let key = key(rest).filter(|_| known).ok_or_else(wanted)?;
        Ok(ObjectRef { kind: kind.to_owned(), key })
    }
}

/// An object, or every object, that no API server would accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvalidObject {
    All,
    One(ObjectRef),
}

impl FromStr for InvalidObject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(InvalidObject::All),
            one => one.parse().map(InvalidObject::One).map_err(|error: String| format!("{error}, or all")),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceFrontend {
    /// `service/NAME`: the cluster IP.
    ClusterIp,
    /// `nodePort/NAME@NODE`.
    NodePort(String),
    /// `loadBalancer/NAME`, `loadBalancer/NAME#2`: a published address of the family, counted from 0 here.
    LoadBalancer(usize),
    /// `externalIP/NAME`, `externalIP/NAME#2`: an external IP of the family, counted from 0 here.
    ExternalIp(usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeTarget {
    Service {
        frontend: ServiceFrontend,
        service: ObjectKey,
        /// Name or number; `None` for a service with one port.
        port: Option<String>,
    },
    Pod(ObjectKey, u16),
    Node(String, u16),
    Address(SocketAddr),
}

impl FromStr for ProbeTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || {
            format!(
                "{text:?}: expected service/NAME[:PORT], nodePort/NAME[:PORT]@NODE, loadBalancer/NAME[:PORT][#2], \
                 externalIP/NAME[:PORT][#2], pod/NAME:PORT, node/NAME:PORT or IP:PORT"
            )
        };
        if let Ok(address) = text.parse() {
            return Ok(ProbeTarget::Address(address));
        }
        let (kind, rest) = text.split_once('/').ok_or_else(wanted)?;
        let (rest, number) = match rest.split_once('#') {
            Some((rest, number)) => {
                let number = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                (rest, Some(number.ok_or_else(wanted)?))
            }
            None => (rest, None),
        };
        let (rest, node) = match rest.split_once('@') {
            Some((rest, node)) => (rest, Some(node.to_owned()).filter(|node| !node.is_empty())),
            None => (rest, None),
        };
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) if !port.is_empty() => (name, Some(port.to_owned())),
            Some(_) => return Err(wanted()),
            None => (rest, None),
        };
        let port_number = || port.as_deref().and_then(|port| port.parse().ok()).ok_or_else(wanted);
        let frontend = match (kind, node, number) {
            ("service", None, None) => ServiceFrontend::ClusterIp,
            ("nodePort", Some(node), None) => ServiceFrontend::NodePort(node),
            ("loadBalancer", None, number) => ServiceFrontend::LoadBalancer(number.unwrap_or(0)),
            ("externalIP", None, number) => ServiceFrontend::ExternalIp(number.unwrap_or(0)),
            ("pod", None, None) => return Ok(ProbeTarget::Pod(key(name).ok_or_else(wanted)?, port_number()?)),
            ("node", None, None) => return Ok(ProbeTarget::Node(name.to_owned(), port_number()?)),
            _ => return Err(wanted()),
        };
        Ok(ProbeTarget::Service { frontend, service: key(name).ok_or_else(wanted)?, port })
    }
}

/// A share of all answers: `1/3`, `0.25` or `25%`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let value = match (text.split_once('/'), text.strip_suffix('%')) {
            (Some((top, bottom)), _) => number(top).zip(number(bottom)).map(|(top, bottom)| top / bottom),
            (None, Some(percent)) => number(percent).map(|percent| percent / 100.0),
            (None, None) => number(text),
        };
        let value = value.filter(|value| (0.0..=1.0).contains(value));
        value.map(Share).ok_or_else(|| format!("{text:?}: expected a share of the answers such as 1/3, 0.25 or 25%"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sensitivity(pub f64);

impl serde::Serialize for Sensitivity {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl FromStr for Sensitivity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share: Option<f64> =
            text.parse().ok().map(|Share(value)| value).filter(|value| (0.01..=1.0).contains(value));
        share
            .map(Sensitivity)
            .ok_or_else(|| format!("{text:?}: expected a part of a share from 1% to 100%, such as 20%"))
    }
}

/// A length of time: `300ms`, `10s`, `3m` or `3h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSpan(pub Duration);

impl FromStr for TimeSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("{text:?}: expected a time such as 300ms, 10s, 3m or 3h");
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wanted())?;
        let span = match unit {
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "m" => Duration::from_secs(number.checked_mul(60).ok_or_else(wanted)?),
            "h" => Duration::from_secs(number.checked_mul(3600).ok_or_else(wanted)?),
            _ => return Err(wanted()),
        };
        Ok(TimeSpan(span))
    }
}

/// A bound on a time: `">=100ms"` or `"<=2s"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeBound {
    AtLeast(Duration),
    AtMost(Duration),
}

impl TimeBound {
    pub fn accepts(self, time: Duration) -> bool {
        match self {
            TimeBound::AtLeast(least) => time >= least,
            TimeBound::AtMost(most) => time <= most,
        }
    }
}

impl FromStr for TimeBound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("{text:?}: expected a bound on a time such as \">=100ms\" or \"<=2s\"");
        let span = |text: &str| text.trim().parse::<TimeSpan>().map(|span| span.0).map_err(|_| wanted());
        match (text.strip_prefix(">="), text.strip_prefix("<=")) {
            (Some(least), _) => span(least).map(TimeBound::AtLeast),
            (_, Some(most)) => span(most).map(TimeBound::AtMost),
            _ => Err(wanted()),
        }
    }
}

impl fmt::Display for TimeBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimeBound::AtLeast(least) => write!(f, "at least {least:?}"),
            TimeBound::AtMost(most) => write!(f, "at most {most:?}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceAddress {
    /// `client`: the prober's own address.
    Client,
    /// `not-client`: any other address.
    NotClient,
    /// `node`: an address of any node.
    AnyNode,
    ClusterHost(ClusterHost),
    Address(std::net::IpAddr),
}

impl FromStr for SourceAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || {
            format!("{text:?}: expected client, not-client, node, node/NAME, pod/NAME, load-balancer or an IP address")
        };
        match text {
            "client" => Ok(SourceAddress::Client),
            "not-client" => Ok(SourceAddress::NotClient),
            "node" => Ok(SourceAddress::AnyNode),
            _ => match text.parse() {
                Ok(address) => Ok(SourceAddress::Address(address)),
                Err(_) => text.parse().map(|PlaceRef(place)| SourceAddress::ClusterHost(place)).map_err(|_| wanted()),
            },
        }
    }
}

impl fmt::Display for SourceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceAddress::Client => f.write_str("the client's own address"),
            SourceAddress::NotClient => f.write_str("another address than the client's"),
            SourceAddress::AnyNode => f.write_str("a node's address"),
            SourceAddress::ClusterHost(place) => write!(f, "the address of {place}"),
            SourceAddress::Address(address) => write!(f, "{address}"),
        }
    }
}

/// A node by name (with or without `node/`), or `all`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeChoice {
    All,
    Named(String),
}

impl FromStr for NodeChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("node/").unwrap_or(text) {
            "all" => Ok(NodeChoice::All),
            name if !name.is_empty() && !name.contains('/') => Ok(NodeChoice::Named(name.to_owned())),
            _ => Err(format!("{text:?}: expected a node's name or `all`")),
        }
    }
}

impl NodeChoice {
    pub fn among<'a>(&self, nodes: impl Iterator<Item = &'a str>) -> Result<Vec<String>, String> {
        let nodes: Vec<String> = nodes.map(str::to_owned).collect();
        match self {
            NodeChoice::All => Ok(nodes),
            NodeChoice::Named(name) if nodes.contains(name) => Ok(vec![name.clone()]),
            NodeChoice::Named(name) => {
                Err(format!("{name:?} is no node of this cluster (there is: {})", nodes.join(", ")))
            }
        }
    }
}

pub(super) fn position(at: serde_saphyr::Location) -> (usize, usize) {
    let number = |value: u64| usize::try_from(value).unwrap_or(1).max(1);
    (number(at.line()), number(at.column()))
}

pub(super) fn spanned<T>(value: T) -> Spanned<T> {
    Spanned::new(value, serde_saphyr::Location::UNKNOWN, serde_saphyr::Location::UNKNOWN)
}
