use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus::Error;

use crate::metrics::AtScrape;

/// The number of invalid objects. An API object counts once per version, a manifest's fault once while it lasts.
#[derive(Debug, Clone, Default)]
pub struct SkippedObjects(Arc<AtomicU64>);

impl SkippedObjects {
    pub fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn metric(&self) -> Result<AtScrape, Error> {
        let skipped = self.clone();
        let help = "Objects that were skipped because they break the rules of the API";
        AtScrape::total("svcproxy_skipped_objects_total", help, move || skipped.total())
    }
}
