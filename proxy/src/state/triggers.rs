//! When what a change of endpoints follows from has happened: the beginning of network programming's duration.

use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::model::ObjectKey;

/// The EndpointSlice controller's word for when the pod or Service changed that led to this version of a slice
/// (<https://kubernetes.io/docs/reference/labels-annotations-taints/#endpoints-last-change-trigger-time>).
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// As long as no sync succeeds they add up; later ones of so many say nothing new.
const MOST: usize = 10_000;

/// Trigger times of changes that are not in the kernel yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Triggers {
    since: Option<Timestamp>,
    waiting: Vec<(ObjectKey, Timestamp)>,
}

impl Triggers {
    /// Earlier times do not count; none does before this is called: that the proxy was not there is no delay of its.
    pub(super) fn count_since(&mut self, since: Timestamp) {
        self.since = Some(since);
    }

    /// A slice changed.
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

    /// A slice is gone: its last trigger time is in the past.
    pub(super) fn gone(&mut self, key: &ObjectKey) {
        self.waiting.retain(|(slice, _)| slice != key);
    }

    /// Those that wait.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Timestamp> + use<> {
        std::mem::take(&mut self.waiting).into_iter().map(|(_, time)| time)
    }
}
