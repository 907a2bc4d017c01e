use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::modes::{AffinityScope, Balancing};
use crate::rules::{Reason, Rule};
use crate::service::{FrontendKind, ServicePortName};
use crate::world::PodName;

/// One in `of` connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    pub of: u32,
}

impl Share {
    pub fn probability(self) -> f64 {
        1.0 / f64::from(self.of)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1/{}", self.of)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PromisedReply {
    From(SocketAddr),
    /// The reply has the endpoint's own source address, which the client does not accept, because it bypasses the node
    /// that translated the request.
    AsymmetricReply(SocketAddr),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    pub address: SocketAddr,
    pub pod: Option<PodName>,
    /// `None`: the [`Balancing`] has no shares.
    pub share: Option<Share>,
    pub masqueraded: bool,
    pub sees: BTreeSet<IpAddr>,
    pub reply: PromisedReply,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromisedAffinity {
    /// The time after which a silent client's entry expires.
    pub timeout: Duration,
    pub scope: AffinityScope,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub service: ServicePortName,
    pub frontend: FrontendKind,
    pub node: String,
    /// The source address at `node`; the key of session affinity.
    pub client: IpAddr,
    /// Sorted by address.
    pub backends: Vec<Backend>,
    pub balancing: Balancing,
    pub affinity: Option<PromisedAffinity>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromisedVerdict {
    Deliver(Delivery),
    Drop,
    /// A TCP reset or ICMP port unreachable.
    Reject,
    /// Drop or reject: no documentation says which.
    Refuse,
    /// No service: destination and source stay.
    Untouched,
    /// The documentation is silent or contradictory.
    Undefined,
}

impl PromisedVerdict {
    pub fn backends(&self) -> Option<&[Backend]> {
        match self {
            PromisedVerdict::Deliver(delivery) => Some(&delivery.backends),
            PromisedVerdict::Drop | PromisedVerdict::Reject | PromisedVerdict::Refuse => Some(&[]),
            PromisedVerdict::Untouched | PromisedVerdict::Undefined => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    pub verdict: PromisedVerdict,
    pub because: Vec<Reason>,
}

impl Promise {
    pub fn rests_on(&self, rule: Rule) -> bool {
        self.because.iter().any(|reason| reason.rule == rule)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if let Some(pod) = &self.pod {
            write!(f, " ({pod})")?;
        }
        if let Some(share) = self.share {
            write!(f, " {share}")?;
        }
        let sees: Vec<String> = self.sees.iter().map(ToString::to_string).collect();
        write!(f, ", sees {}", sees.join(" or "))?;
        match self.reply {
            PromisedReply::From(_) => Ok(()),
            PromisedReply::AsymmetricReply(from) => write!(f, ", answer comes from {from}"),
        }
    }
}

impl fmt::Display for PromisedVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PromisedVerdict::Deliver(delivery) => {
                let backends: Vec<String> = delivery.backends.iter().map(ToString::to_string).collect();
                write!(f, "deliver to {}", backends.join("; "))
            }
            PromisedVerdict::Drop => f.write_str("drop"),
            PromisedVerdict::Reject => f.write_str("reject"),
            PromisedVerdict::Refuse => f.write_str("drop or reject"),
            PromisedVerdict::Untouched => f.write_str("not a service"),
            PromisedVerdict::Undefined => f.write_str("undefined"),
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the oracle says {} because", self.verdict)?;
        self.because.iter().try_for_each(|reason| write!(f, "\n  {reason}"))
    }
}
