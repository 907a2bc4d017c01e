//! A lab that is up for people: what `kubectl` writes happens in the cluster, and questions from other terminals are answered.

mod answer;
mod pods;

use tokio::net::UnixListener;

use super::error::LabError;
use super::lab::Lab;
use pods::Standing;

/// A lab that hears questions and takes what the API is told.
pub struct Live<'a> {
    lab: &'a Lab,
    listener: UnixListener,
    standing: Standing,
}

impl Lab {
    /// Opens the lab for people; from now on a new pod waits in the API until it stands.
    ///
    /// # Errors
    /// When the socket for questions cannot be made.
    pub fn open(&self) -> Result<Live<'_>, LabError> {
        Ok(Live { listener: answer::listen()?, standing: self.hold_pods(), lab: self })
    }
}

impl Live<'_> {
    /// Serves until something of it does not work any more, which is what comes back; `tell` gets what goes wrong on the way.
    pub async fn serve(self, tell: &dyn Fn(&str)) -> LabError {
        tokio::select! {
            error = self.lab.keep_pods(self.standing, tell) => error,
            error = self.lab.answer(&self.listener) => error,
        }
    }
}
