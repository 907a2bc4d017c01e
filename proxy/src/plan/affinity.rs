//! Whether the ports of a Service remember clients together.

use std::fmt;

use super::flow_fate::NOT_ALLOWED;
use crate::config::{Config, Mode};
use crate::model::ServiceAnnotation;
use crate::state::endpoints::Endpoint;
use crate::state::service::ServicePort;

/// Why an annotation has no effect on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AcrossPortsIgnored {
    NotAllowed,
    Ipvs,
    NoAffinity,
    /// Two endpoints of a port have one address, so an address does not tell which of them a client has reached.
    SharedAddress,
}

impl fmt::Display for AcrossPortsIgnored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AcrossPortsIgnored::NotAllowed => NOT_ALLOWED,
            AcrossPortsIgnored::Ipvs => {
                "IPVS mode remembers clients by address and port of a Service: the kernel keeps them in each virtual server"
            }
            AcrossPortsIgnored::NoAffinity => "the Service has no sessionAffinity: ClientIP",
            AcrossPortsIgnored::SharedAddress => {
                "two endpoints of one port have the same address, so this port remembers its clients on its own"
            }
        })
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AcrossPortsPolicy {
    ignored: Option<AcrossPortsIgnored>,
}

impl AcrossPortsPolicy {
    pub fn of(config: &Config) -> AcrossPortsPolicy {
        let by_mode = (config.mode == Mode::Ipvs).then_some(AcrossPortsIgnored::Ipvs);
        let is_allowed = config.annotations.contains(&ServiceAnnotation::AffinityAcrossPorts);
        AcrossPortsPolicy { ignored: by_mode.or((!is_allowed).then_some(AcrossPortsIgnored::NotAllowed)) }
    }

    /// Returns whether a service port remembers clients with the other ports of its Service, and why the annotation is
    /// ignored. Counts endpoints that are not ready, too: a choice that depended on their state would forget clients
    /// whenever it changed.
    pub fn decide(&self, port: &ServicePort, endpoints: &[Endpoint]) -> (bool, Option<AcrossPortsIgnored>) {
        if !port.affinity_across_ports {
            return (false, None);
        }
        let by_service = port.affinity.is_none().then_some(AcrossPortsIgnored::NoAffinity);
        let ignored = self.ignored.or(by_service);
        let ignored = ignored.or_else(|| shares_address(endpoints).then_some(AcrossPortsIgnored::SharedAddress));
        (ignored.is_none(), ignored)
    }
}

fn shares_address(endpoints: &[Endpoint]) -> bool {
    let mut addresses: Vec<_> = endpoints.iter().map(|endpoint| endpoint.address).collect();
    addresses.sort_unstable();
    addresses.windows(2).any(|two| matches!(two, [one, other] if one.ip() == other.ip() && one != other))
}
