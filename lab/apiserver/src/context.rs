//! What every request needs, and the checks that the lab's own API and a relay share.

use hyper::Request;
use hyper::header::AUTHORIZATION;

use super::auth::Tokens;
use super::error::ApiError;
use super::faults::ServerRefusal;
use super::response::header;
use super::shared::SharedStore;
use super::watch::WatchTimes;

pub(super) struct ServerContext {
    pub(super) shared: SharedStore,
    pub(super) tokens: Option<Tokens>,
    pub(super) times: WatchTimes,
}

impl ServerContext {
    /// Answers 503 while the fault "unavailable" is active.
    pub(super) fn check_available(&self) -> Result<(), ApiError> {
        match self.shared.look(|state| state.faults.refusal) {
            Some(ServerRefusal::Unavailable) => Err(ApiError::unavailable()),
            _ => Ok(()),
        }
    }

    /// Answers 401 to a request without a known token, if the server has tokens at all.
    pub(super) fn check_token<B>(&self, request: &Request<B>) -> Result<(), ApiError> {
        match &self.tokens {
            Some(tokens) if !tokens.allow(header(request, AUTHORIZATION)) => Err(ApiError::unauthorized()),
            _ => Ok(()),
        }
    }
}
