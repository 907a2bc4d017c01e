//! Proxies that are to die in the middle of a sync.

use std::time::Duration;

use svclab_cluster::process::KillOnChild;

use super::error::LabError;
use super::lab::Lab;
use crate::expect::Mismatch;

/// How long a proxy may take to get to the moment that it is to die in.
const LIMIT: Duration = Duration::from_secs(30);

/// Kills that wait for their moment, by node.
pub(super) type ArmedKills = Vec<(String, KillOnChild)>;

impl Lab {
    /// Lies in wait for the proxies that the step before this one chose, as far as they run.
    pub(super) fn arm_kills(&mut self) -> ArmedKills {
        let proxies = &self.proxies;
        let armed = std::mem::take(&mut self.armed);
        let (running, rest): (Vec<_>, Vec<_>) = armed.into_iter().partition(|(node, _)| proxies.handle(node).is_some());
        self.armed = rest.into_iter().collect();
        let lay = |(node, after): (String, Duration)| {
            let kill = proxies.handle(&node)?.kill_on_child("restore", after, LIMIT);
            Some((node, kill))
        };
        running.into_iter().filter_map(lay).collect()
    }

    /// Waits until every one of them is dead; tells when it died, or that it did not.
    pub(super) async fn await_kills(&mut self, kills: ArmedKills) -> Result<(String, Vec<Mismatch>), LabError> {
        let (mut words, mut broken) = (String::new(), Vec::new());
        for (node, kill) in kills {
            match kill.moment().await {
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
