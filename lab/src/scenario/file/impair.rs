//! `impair:` delays or loses packets on their way to a node.

use schemars::JsonSchema;
use serde::Deserialize;
use svclab_netns::netem::Impairment;

use crate::scenario::values::{NodeChoice, OneOrMany, Share, TimeSpan};

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImpairFile {
    pub node: OneOrMany<NodeChoice>,
    pub delay: Option<TimeSpan>,
    pub jitter: Option<TimeSpan>,
    pub loss: Option<Share>,
    pub duplicate: Option<Share>,
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
