//! Steps that cut nodes off and let them in again, and those that impair the way to them.

use std::time::Instant;

use svclab_netns::netem::Impairment;

use super::error::LabError;
use super::lab::Lab;
use crate::scenario::execute::Seen;

impl Lab {
    /// Cuts nodes off from everybody, the API included. The API first: what it would tell must not slip through.
    pub(super) async fn partition(&mut self, nodes: &[String]) -> Result<Seen, LabError> {
        for node in nodes {
            self.feed.cut_off(node, true)?;
            self.cluster.cut_off(node, true).await?;
            self.cut_off.insert(node.clone());
        }
        Ok(Seen::new(nodes.join(", "), []))
    }

    /// Lets nodes in again and waits until their proxies have caught up.
    pub(super) async fn heal(&mut self, nodes: &[String]) -> Result<Seen, LabError> {
        let since = Instant::now();
        for node in nodes {
            self.cluster.cut_off(node, false).await?;
            self.feed.cut_off(node, false)?;
            self.cut_off.remove(node);
        }
        let late = self.applied(since).await?;
        Ok(Seen::new(format!("{}; version {}", nodes.join(", "), self.store.version()), late))
    }

    /// Has what is sent to nodes impaired.
    pub(super) async fn impair(&mut self, nodes: &[String], how: &Impairment) -> Result<Seen, LabError> {
        for node in nodes {
            self.cluster.impair(node, Some(how)).await?;
        }
        Ok(Seen::new(format!("{}: {how}", nodes.join(", ")), []))
    }

    /// Has it no longer so.
    pub(super) async fn repair(&mut self, nodes: &[String]) -> Result<Seen, LabError> {
        for node in nodes {
            self.cluster.impair(node, None).await?;
        }
        Ok(Seen::new(nodes.join(", "), []))
    }
}
