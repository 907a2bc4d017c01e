//! Proxies that are to die in the middle of a sync.

use std::time::Duration;

use super::lab::{Lab, StartError};
use crate::cluster::process::Ambush;
use crate::expect::Mismatch;

/// How long a proxy may take to get to the moment that it is to die in.
const LIMIT: Duration = Duration::from_secs(30);

/// Kills that wait for their moment, by node.
pub(super) type Ambushes = Vec<(String, Ambush)>;

impl Lab {
    /// Lies in wait for the proxies that the step before this one chose, as far as they run.
    pub(super) fn lie_in_wait(&mut self) -> Ambushes {
        let proxies = &self.proxies;
        let armed = std::mem::take(&mut self.armed);
        let (running, rest): (Vec<_>, Vec<_>) = armed.into_iter().partition(|(node, _)| proxies.handle(node).is_some());
        self.armed = rest.into_iter().collect();
        let lay = |(node, after): (String, Duration)| {
            let ambush = proxies.handle(&node)?.ambush("restore", after, LIMIT);
            Some((node, ambush))
        };
        running.into_iter().filter_map(lay).collect()
    }

    /// Waits until every one of them is dead; tells when it died, or that it did not.
    pub(super) async fn ambushed(&mut self, ambushes: Ambushes) -> Result<(String, Vec<Mismatch>), StartError> {
        let (mut words, mut broken) = (String::new(), Vec::new());
        for (node, ambush) in ambushes {
            match ambush.moment().await {
                Some(moment) => {
                    self.proxies.end(&node, super::proxies::SIGKILL).await?;
                    words.push_str(&format!("; {node}'s proxy was killed {moment}"));
                }
                None => {
                    let seen = format!("it did not within {} s", LIMIT.as_secs());
                    broken.push(Mismatch::new(format!("the proxy on {node} restores rules"), seen));
                }
            }
        }
        Ok((words, broken))
    }
}
