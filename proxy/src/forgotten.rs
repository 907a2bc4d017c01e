//! When it is worth while to give memory back. To move what is kept costs some microseconds for each, so it is done only after as many
//! were forgotten.

/// Counts what was forgotten since memory was last given back.
#[derive(Debug, Clone, Default)]
pub struct Forgotten(usize);

impl Forgotten {
    /// With fewer it is not worth while: some 5 MB.
    pub const LEAST: usize = 1000;

    /// So many objects of common size were forgotten.
    pub fn count(&mut self, objects: usize) {
        self.0 += objects.max(1);
    }

    /// Whether it is time to give memory back, where so many are `kept`; if so, the count begins anew.
    pub fn take_due(&mut self, kept: usize) -> bool {
        let is_due = self.0 >= Forgotten::LEAST.max(kept);
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
    fn memory_is_given_back_once_for_as_many_as_are_kept() {
        for (kept, times) in [(0, 20), (1000, 20), (5000, 4), (100_000, 0)] {
            let mut forgotten = Forgotten::default();
            let due = (0..20_000).filter(|_| {
                forgotten.count(1);
                forgotten.take_due(kept)
            });
            assert_eq!(due.count(), times, "{kept} kept");
        }
    }
}
