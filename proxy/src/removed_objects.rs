//! Decides when to move the remaining objects, so that freed memory returns to the system: when as many objects were removed as
//! remain. Moving an object costs microseconds.

#[derive(Debug, Clone, Default)]
pub struct RemovedObjects(usize);

impl RemovedObjects {
    /// The memory of fewer removed objects, about 5 MB, is not worth returning.
    pub const LEAST: usize = 1000;

    pub fn count(&mut self, objects: usize) {
        self.0 += objects.max(1);
    }

    /// Whether to return memory now; if so, resets the count.
    pub fn take_due(&mut self, kept: usize) -> bool {
        let is_due = self.0 >= RemovedObjects::LEAST.max(kept);
        if is_due {
            self.0 = 0;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_after_as_many_removals_as_objects_remain() {
        for (kept, times) in [(0, 20), (1000, 20), (5000, 4), (100_000, 0)] {
            let mut removed_objects = RemovedObjects::default();
            let due = (0..20_000).filter(|_| {
                removed_objects.count(1);
                removed_objects.take_due(kept)
            });
            assert_eq!(due.count(), times, "{kept} kept");
        }
    }
}
