//! A lab for interactive use: pods that `kubectl` creates run in the cluster, and the control socket answers requests.

mod answer;
mod pods;

use tokio::net::UnixListener;

use super::error::LabError;
use super::lab::KernelLab;
use pods::BuiltPods;

pub struct LiveLab<'a> {
    lab: &'a KernelLab,
    listener: UnixListener,
    standing: BuiltPods,
}

impl KernelLab {
    /// Opens the control socket. New pods stay pending in the API until they run.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn open(&self) -> Result<LiveLab<'_>, LabError> {
        Ok(LiveLab { listener: answer::listen()?, standing: self.hold_pods(), lab: self })
    }
}

impl LiveLab<'_> {
    /// Serves until an error, which is returned. `tell` gets warnings.
    pub async fn serve(self, tell: &dyn Fn(&str)) -> LabError {
        tokio::select! {
            error = self.lab.follow_pods(self.standing, tell) => error,
            error = self.lab.answer(&self.listener) => error,
        }
    }
}
