//! Ports at which userspace proxies accept connections and open others to backends. `svcproxy render` prints relays in
//! comments.

mod memory;
mod through;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub use memory::{RelayMemory, UdpTimeouts};
pub use through::through;

use crate::protocol::{Family, Protocol};

/// A relay's listening port.
pub type RelayPort = (Family, Protocol, u16);

/// The relays of a node.
pub type Relays = BTreeMap<RelayPort, Relay>;

/// The backends of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Relay {
    /// The service port; relays of one service port share affinity.
    pub name: String,
    /// Backends of new connections, sorted.
    pub to: Vec<SocketAddr>,
    /// Backends that may keep existing UDP associations, and TCP connections if `fate` is set.
    pub serving: Vec<SocketAddr>,
    /// How long TCP connections to other backends are kept; `None`: for good.
    pub fate: Option<Duration>,
    /// The affinity timeout; `None` without affinity.
    pub affinity: Option<Duration>,
    /// The Service whose ports share affinity, by the addresses of backends; `None`: the service port has its own.
    pub clients: Option<String>,
    /// The listening address; `None` for all.
    pub address: Option<IpAddr>,
}

/// The prefix of a relay's comment line.
pub const LINE: &str = "# relay ";

impl Relay {
    /// Parses the text after [`LINE`]: protocol, port or address and port, service port, `to` and `serving` with
    /// backends, `affinity` with seconds, `clients` with a Service, `fate` with [`fate`]'s words.
    pub fn parse(text: &str) -> Result<(Protocol, u16, Relay), String> {
        let mut words = text.split(' ');
        let protocol = match words.next() {
            Some("tcp") => Protocol::TCP,
            Some("udp") => Protocol::UDP,
            other => return Err(format!("{:?} is not relayed", other.unwrap_or_default())),
        };
        let port = words.next().unwrap_or_default();
        let (address, port) = match port.parse::<SocketAddr>() {
            Ok(at) => (Some(at.ip()), at.port()),
            Err(_) => (None, port.parse().map_err(|_| format!("{port:?} is no port"))?),
        };
        let mut relay = Relay { name: words.next().unwrap_or_default().to_owned(), address, ..Relay::default() };
        let mut title = "";
        for word in words {
            let address = || word.parse::<SocketAddr>().map_err(|_| format!("{word:?} is no address with a port"));
            match (title, word) {
                (_, "to" | "serving" | "affinity" | "clients" | "fate") => title = word,
                ("to", _) => relay.to.push(address()?),
                ("serving", _) => relay.serving.push(address()?),
                ("affinity", _) => {
                    let seconds = word.parse().map_err(|_| format!("{word:?} is no number of seconds"))?;
                    relay.affinity = Some(Duration::from_secs(seconds));
                }
                ("clients", _) => relay.clients = Some(word.to_owned()),
                ("fate", _) => relay.fate = fate(word)?,
                _ => return Err(format!("{word:?} is not understood")),
            }
        }
        relay.to.sort_unstable();
        Ok((protocol, port, relay))
    }
}

/// Parses `keep`, `reset` or `drain=30s`: how long connections to a lost endpoint are kept; `None`: for good.
pub fn fate(text: &str) -> Result<Option<Duration>, String> {
    match text {
        "keep" => Ok(None),
        "reset" => Ok(Some(Duration::ZERO)),
        _ => {
            let seconds = text.strip_prefix("drain=").and_then(|rest| rest.strip_suffix('s')?.parse().ok());
            seconds.map(|seconds| Some(Duration::from_secs(seconds))).ok_or_else(|| format!("{text:?} is no fate"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relay_lines_are_parsed() {
        let fated = Relay::parse("tcp 61000 default/web to 10.0.0.1:80 serving 10.0.0.1:80 fate drain=30s").unwrap().2;
        assert_eq!((fated.fate, fated.serving.len()), (Some(Duration::from_secs(30)), 1));
        let line =
            "udp 61529 default/dns:a to 10.0.0.2:53 10.0.0.1:53 serving 10.0.0.3:53 affinity 60 clients default/dns";
        let (protocol, port, relay) = Relay::parse(line).unwrap();
        assert_eq!((protocol, port, relay.name.as_str()), (Protocol::UDP, 61_529, "default/dns:a"));
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!((relay.to, relay.serving), (vec![at("10.0.0.1:53"), at("10.0.0.2:53")], vec![at("10.0.0.3:53")]));
        assert_eq!((relay.affinity, relay.clients.as_deref()), (Some(Duration::from_secs(60)), Some("default/dns")));
        assert_eq!(Relay::parse("tcp 1 default/web").unwrap().2.to, []);
        let (_, port, relay) = Relay::parse("tcp [::1]:30080 default/web to [fd00::1]:80").unwrap();
        assert_eq!((port, relay.address), (30_080, Some("::1".parse().unwrap())));
        for wrong in ["sctp 1 x", "tcp x x", "tcp 1 x 10.0.0.1:1", "tcp 1 x to nobody", "tcp 1 x affinity long"] {
            assert!(Relay::parse(wrong).is_err(), "{wrong}");
        }
    }
}
