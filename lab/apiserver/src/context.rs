//! State and checks shared by the lab's own API and the relay.

use hyper::Request;
use hyper::header::AUTHORIZATION;

use super::auth::Tokens;
use super::error::ApiError;
use super::faults::ServerRefusal;
use super::query::{Query, watch_list_disabled};
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

    /// Checks that a watch asks for initial events only where they are enabled.
    pub(super) fn check_watch_list(&self, query: &Query) -> Result<(), ApiError> {
        let disabled = self.shared.inspect(|state| state.faults.watch_list_disabled);
        if disabled && query.initial_events.is_some() { Err(watch_list_disabled()) } else { Ok(()) }
    }

    pub(super) fn check_token<B>(&self, request: &Request<B>) -> Result<(), ApiError> {
        match &self.tokens {
            Some(tokens) if !tokens.allow(header(request, AUTHORIZATION)) => Err(ApiError::unauthorized()),
            _ => Ok(()),
        }
    }
}
