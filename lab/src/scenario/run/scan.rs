//! Every port of an address, and those that answer.

use std::collections::BTreeSet;
use std::time::Duration;

use super::lab::{Lab, StartError};
use super::step::Seen;
use crate::scenario::file::{ExpectFile, ScanFile};
use crate::scenario::resolve;

/// How long a port that is to be open may take to answer, when nobody else knocks.
const PATIENCE: Duration = Duration::from_secs(5);

impl Lab {
    /// Knocks at all of them.
    pub(super) async fn scan(&mut self, file: &ScanFile, expect: &ExpectFile) -> Result<Seen, StartError> {
        let plan = self.store.read(|store| resolve::scan(store, file, expect));
        let plan = plan.map_err(|problem| StartError::Step(problem.message))?;
        self.route(plan.route.as_ref(), true).await?;
        let open = self.cluster.scan(&plan.from, plan.address, &plan.ports, plan.patience).await?;
        let mut open: BTreeSet<u16> = open.into_iter().collect();
        // Where thousands knock, one that was heard may have been forgotten: it is asked once more, by itself.
        for port in plan.open.difference(&open.clone()) {
            open.extend(self.cluster.scan(&plan.from, plan.address, &BTreeSet::from([*port]), PATIENCE).await?);
        }
        self.route(plan.route.as_ref(), false).await?;
        let (seen, wrong) = resolve::judge_scan(&plan, &open);
        Ok(Seen::new(seen, wrong.into_iter().collect()))
    }
}
