//! When changes began, to measure network programming latency.

use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::model::ObjectKey;

/// The EndpointSlice controller sets this annotation
/// (<https://kubernetes.io/docs/reference/labels-annotations-taints/#endpoints-last-change-trigger-time>).
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// The most times that are collected while syncs fail.
const MOST: usize = 10_000;

/// Trigger times of changes that are not in the kernel yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Triggers {
    since: Option<Timestamp>,
    waiting: Vec<(ObjectKey, Timestamp)>,
}

impl Triggers {
    /// Ignores times before `since`, when the proxy was not running. Until the first call all are ignored.
    pub(super) fn count_since(&mut self, since: Timestamp) {
        self.since = Some(since);
    }

    pub(super) fn changed(&mut self, key: &ObjectKey, slice: &EndpointSlice) {
        let annotation = slice.metadata.annotations.as_ref().and_then(|all| all.get(TRIGGER_TIME));
        let time = annotation.and_then(|text| text.parse::<Timestamp>().ok());
        let counts = |time: &Timestamp| self.since.is_some_and(|since| *time > since);
        if let Some(time) = time.filter(counts)
            && self.waiting.len() < MOST
        {
            self.waiting.push((key.clone(), time));
        }
    }

    pub(super) fn gone(&mut self, key: &ObjectKey) {
        self.waiting.retain(|(slice, _)| slice != key);
    }

    pub(super) fn take(&mut self) -> impl Iterator<Item = Timestamp> + use<> {
        std::mem::take(&mut self.waiting).into_iter().map(|(_, time)| time)
    }
}
