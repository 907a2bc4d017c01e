use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::{Location, Spanned};

use crate::scenario::error::Problem;
use crate::scenario::values::PodRef;

/// The most copies of a pod: each is a network namespace with a thread.
const MOST_COPIES: usize = 10_000;

/// `scale:` adds or removes copies of a pod or of a Service.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaleFile {
    /// The pod to copy; either this or `service`.
    #[schemars(with = "Option<PodRef>")]
    pub pod: Option<Spanned<PodRef>>,
    /// The Service to copy; either this or `pod`.
    #[schemars(with = "Option<PodRef>")]
    pub service: Option<Spanned<PodRef>>,
    /// The number of copies with the original, at most 10000.
    pub to: usize,
}

impl ScaleFile {
    pub(super) fn mistake(&self) -> Option<Problem> {
        let (at, message) = match (&self.pod, &self.service) {
            (Some(original), None) | (None, Some(original)) if self.to > MOST_COPIES => {
                (original.referenced, format!("scale.to: expected at most {MOST_COPIES} copies"))
            }
            (Some(_), None) | (None, Some(_)) => return None,
            _ => (Location::UNKNOWN, "scale: expected either a `pod` or a `service`".to_owned()),
        };
        Some(Problem::new(at, message))
    }
}
