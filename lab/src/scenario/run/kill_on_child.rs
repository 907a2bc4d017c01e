use std::time::Duration;

use svclab_cluster::process::KillOnChild;

use super::error::LabError;
use super::lab::KernelLab;
use crate::expect::Mismatch;

/// The limit for the start of the restore.
const LIMIT: Duration = Duration::from_secs(30);

pub(super) type ArmedKills = Vec<(String, KillOnChild)>;

impl KernelLab {
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
