//! `impair:` what happens to packets on their way to a node.

use schemars::JsonSchema;
use serde::Deserialize;
use svclab_netns::netem::Impairment;

use crate::scenario::values::{NodeChoice, OneOrMany, Share, Span};

/// Whose packets, and what happens to them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImpairFile {
    pub node: OneOrMany<NodeChoice>,
    pub delay: Option<Span>,
    pub jitter: Option<Span>,
    pub loss: Option<Share>,
    pub duplicate: Option<Share>,
    pub reorder: Option<Share>,
}

impl ImpairFile {
    /// What is meant.
    ///
    /// # Errors
    /// A sentence, where it makes no sense.
    pub fn meant(&self) -> Result<Impairment, String> {
        let span = |span: Option<Span>| span.map(|span| span.0).unwrap_or_default();
        let share = |share: Option<Share>| share.map(|share| share.0).unwrap_or_default();
        let meant = Impairment {
            delay: span(self.delay),
            jitter: span(self.jitter),
            loss: share(self.loss),
            duplicate: share(self.duplicate),
            reorder: share(self.reorder),
        };
        let problem = if meant == Impairment::default() {
            "impair: expected at least one of delay, loss and duplicate"
        } else if meant.jitter > meant.delay {
            "impair.jitter: expected at most the `delay`, of which it takes away or to which it adds"
        } else if meant.reorder > 0.0 && meant.delay.is_zero() {
            "impair.reorder: expected a `delay`, which these packets do not wait for"
        } else {
            return Ok(meant);
        };
        Err(problem.to_owned())
    }
}
