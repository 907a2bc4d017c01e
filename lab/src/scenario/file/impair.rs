//! `impair:` delays or loses packets on their way to a node.

use schemars::JsonSchema;
use serde::Deserialize;
use svclab_netns::netem::Impairment;

use crate::scenario::values::{NodeChoice, OneOrMany, Share, TimeSpan};

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImpairFile {
    /// A node, a list of nodes, or `all`.
    pub node: OneOrMany<NodeChoice>,
    /// How long each packet is delayed; default `0s`.
    pub delay: Option<TimeSpan>,
    /// The most that is added to or taken from the `delay`, uniformly; at most the `delay`; default `0s`.
    pub jitter: Option<TimeSpan>,
    /// The share of packets that are lost, such as `10%`; default 0.
    pub loss: Option<Share>,
    /// The share of packets that arrive twice; default 0.
    pub duplicate: Option<Share>,
    /// The share of packets that are sent without the `delay`; default 0.
    pub reorder: Option<Share>,
}

impl ImpairFile {
    pub fn impairment(&self) -> Impairment {
        let span = |span: Option<TimeSpan>| span.map(|span| span.0).unwrap_or_default();
        let share = |share: Option<Share>| share.map(|share| share.0).unwrap_or_default();
        Impairment {
            delay: span(self.delay),
            jitter: span(self.jitter),
            loss: share(self.loss),
            duplicate: share(self.duplicate),
            reorder: share(self.reorder),
        }
    }

    pub(super) fn mistake(&self) -> Option<&'static str> {
        let impairment = self.impairment();
        if impairment == Impairment::default() {
            Some("impair: expected at least one of delay, loss and duplicate")
        } else if impairment.jitter > impairment.delay {
            Some("impair.jitter: expected at most the `delay`, which it adds to or takes from")
        } else if impairment.reorder > 0.0 && impairment.delay.is_zero() {
            Some("impair.reorder: expected a `delay`, which reordered packets skip")
        } else {
            None
        }
    }
}
