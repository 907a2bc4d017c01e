//! State and checks shared by the lab's own API and the relay.

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
    pub(super) fn check_available(&self) -> Result<(), ApiError> {
        match self.shared.inspect(|state| state.faults.refusal) {
            Some(ServerRefusal::Unavailable) => Err(ApiError::unavailable()),
            _ => Ok(()),
        }
    }

    pub(super) fn check_token<B>(&self, request: &Request<B>) -> Result<(), ApiError> {
        match &self.tokens {
            Some(tokens) if !tokens.allow(header(request, AUTHORIZATION)) => Err(ApiError::unauthorized()),
            _ => Ok(()),
        }
    }
}
