mod answer;
mod pods;

use tokio::net::UnixListener;

use super::error::LabError;
use super::lab::KernelLab;
use pods::BuiltPods;

pub struct LiveLab<'a> {
    lab: &'a KernelLab,
    listener: UnixListener,
    pods_built: BuiltPods,
}

impl KernelLab {
    /// Opens the control socket. New pods stay pending in the API until they run.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn open(&self) -> Result<LiveLab<'_>, LabError> {
        Ok(LiveLab { listener: answer::listen()?, pods_built: self.hold_pods(), lab: self })
    }
}

impl LiveLab<'_> {
    /// Runs until an error, which it returns. `tell` gets warnings.
    pub async fn serve(self, tell: &dyn Fn(&str)) -> LabError {
        tokio::select! {
            error = self.lab.follow_pods(self.pods_built, tell) => error,
            error = self.lab.answer(&self.listener) => error,
        }
    }
}
