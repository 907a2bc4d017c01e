//! What the oracle answers.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::modes::{AffinityScope, Balancing};
use crate::rules::{Reason, Rule};
use crate::service::{FrontendKind, ServicePortName};
use crate::world::PodName;

/// An exact share of the connections: one in `of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    /// How many have such a share.
    pub of: u32,
}

impl Share {
    /// As a probability.
    #[must_use]
    pub fn probability(self) -> f64 {
        1.0 / f64::from(self.of)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1/{}", self.of)
    }
}

/// What the client sees of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PromisedReply {
    /// It comes from where the client has sent to.
    From(SocketAddr),
    /// It goes past the node that translated the request, so it comes from the endpoint's own address, and the client
    /// has never heard of that: no connection.
    AsymmetricReply(SocketAddr),
}

/// An endpoint that may answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// Its address and port.
    pub address: SocketAddr,
    /// The pod that has the address, if one has.
    pub pod: Option<PodName>,
    /// Its share; `None` where [`Balancing`] has none.
    pub share: Option<Share>,
    /// Whether the source address is replaced on the way.
    pub masqueraded: bool,
    /// Source addresses that it may see.
    pub sees: BTreeSet<IpAddr>,
    /// What the client sees of its answer.
    pub reply: PromisedReply,
}

/// Session affinity, where it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromisedAffinity {
    /// How long a client may be silent.
    pub timeout: Duration,
    /// How far it reaches.
    pub scope: AffinityScope,
}

/// The packet reaches an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The service port.
    pub service: ServicePortName,
    /// By which of its addresses.
    pub frontend: FrontendKind,
    /// The node whose proxy decides.
    pub node: String,
    /// The client's address as that node sees it; what affinity is kept for.
    pub client: IpAddr,
    /// Who may answer, by address.
    pub backends: Vec<Backend>,
    /// How one is chosen.
    pub balancing: Balancing,
    /// Whether, and for how long, a client stays with its first choice.
    pub affinity: Option<PromisedAffinity>,
}

/// What happens to a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromisedVerdict {
    /// One of these endpoints gets it.
    Deliver(Delivery),
    /// Silence.
    Drop,
    /// A TCP reset, or ICMP port unreachable.
    Reject,
    /// No endpoint gets it; no document says whether the client is notified.
    Refuse,
    /// No service's business: it goes its way with its own destination and source.
    Untouched,
    /// The documentation does not say, or says two things.
    Undefined,
}

impl PromisedVerdict {
    /// Whom it may reach; `None` if that is not the proxy's business.
    #[must_use]
    pub fn backends(&self) -> Option<&[Backend]> {
        match self {
            PromisedVerdict::Deliver(delivery) => Some(&delivery.backends),
            PromisedVerdict::Drop | PromisedVerdict::Reject | PromisedVerdict::Refuse => Some(&[]),
            PromisedVerdict::Untouched | PromisedVerdict::Undefined => None,
        }
    }
}

/// A verdict and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    /// What happens.
    pub verdict: PromisedVerdict,
    /// The rules that led there, in the order of their application.
    pub because: Vec<Reason>,
}

impl Promise {
    /// Whether `rule` had a part in it.
    #[must_use]
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

/// `the oracle says … because …`, a line for each reason.
impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the oracle says {} because", self.verdict)?;
        self.because.iter().try_for_each(|reason| write!(f, "\n  {reason}"))
    }
}
