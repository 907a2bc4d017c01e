use prometheus::IntGauge;

/// Pending changes; dropped when the last family has synced.
#[derive(Debug)]
pub struct Pending([(IntGauge, i64); 2]);

impl Pending {
    pub(super) fn new(changes: [(&IntGauge, u64); 2]) -> Pending {
        Pending(changes.map(|(gauge, count)| {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            gauge.add(count);
            (gauge.clone(), count)
        }))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.iter().for_each(|(gauge, count)| gauge.sub(*count));
    }
}
