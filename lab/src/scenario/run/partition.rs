//! Cuts nodes off, reconnects them, and impairs their links.

use std::time::Instant;

use svclab_netns::netem::Impairment;

use super::error::LabError;
use super::lab::KernelLab;
use crate::scenario::execute::StepOutcome;

impl KernelLab {
    /// Cuts nodes off, first from the API, so that no event passes.
    pub(super) async fn partition(&mut self, nodes: &[String]) -> Result<StepOutcome, LabError> {
        self.proxies.set_backs_off();
        for node in nodes {
            self.feed.cut_off(node, true)?;
            self.cluster.cut_off(node, true).await?;
            self.cut_off.insert(node.clone());
        }
        Ok(StepOutcome::new(nodes.join(", "), []))
    }

    /// Reconnects nodes and waits until their proxies have caught up.
    pub(super) async fn heal(&mut self, nodes: &[String]) -> Result<StepOutcome, LabError> {
        let since = Instant::now();
        for node in nodes {
            self.cluster.cut_off(node, false).await?;
            self.feed.cut_off(node, false)?;
            self.cut_off.remove(node);
        }
        let late = self.applied(since).await?;
        Ok(StepOutcome::new(format!("{}; version {}", nodes.join(", "), self.store.version()), late))
    }

    pub(super) async fn impair(&mut self, nodes: &[String], how: &Impairment) -> Result<StepOutcome, LabError> {
        for node in nodes {
            self.cluster.impair(node, Some(how)).await?;
        }
        Ok(StepOutcome::new(format!("{}: {how}", nodes.join(", ")), []))
    }

    pub(super) async fn repair(&mut self, nodes: &[String]) -> Result<StepOutcome, LabError> {
        for node in nodes {
            self.cluster.impair(node, None).await?;
        }
        Ok(StepOutcome::new(nodes.join(", "), []))
    }
}
