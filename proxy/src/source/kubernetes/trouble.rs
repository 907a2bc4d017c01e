//! Logs failures of the API server: one line per class of failure while it lasts, and one when all watches work again.
//! A proxy without its API server for hours must not fill the node's disk.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kube::core::Status;
use tracing::{info, warn};

use super::super::object::Kind;
use super::super::problem::one_line;
use super::access::AccessError;
use super::reflect::Failure;
use crate::metrics::ApiFailures;

/// Failures by how an operator fixes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    /// Kubeconfig or service account.
    Access,
    /// Files or a plugin that do not respond.
    Hanging,
    /// The proxy's token or certificate.
    Credentials,
    /// Lacking permission.
    Forbidden(Kind),
    /// The server does not know the path.
    Unserved(Kind),
    /// The server's certificate.
    Certificate,
    /// Connection refused.
    Refused,
    /// No route, or no answer.
    Unreachable,
    /// The server answers with an error.
    Server,
    /// Not the Kubernetes API.
    Nonsense,
    TooLarge,
    /// The server does not know the version of its own list.
    Versions,
    /// Watches end at once.
    Watches,
}

impl Sort {
    /// The metric's label.
    fn label(self) -> &'static str {
        match self {
            Sort::Access => "access",
            Sort::Hanging => "hanging",
            Sort::Credentials => "credentials",
            Sort::Forbidden(_) => "forbidden",
            Sort::Unserved(_) => "unserved",
            Sort::Certificate => "certificate",
            Sort::Refused => "refused",
            Sort::Unreachable => "unreachable",
            Sort::Server => "server",
            Sort::Nonsense => "nonsense",
            Sort::TooLarge => "too_large",
            Sort::Versions => "versions",
            Sort::Watches => "watches",
        }
    }
}

/// The consequence of missing ServiceCIDRs.
const WITHOUT_SERVICE_CIDRS: &str =
    "services go on, and unused addresses of their ranges are not dropped; asking again now and then";

/// The failures of all watches.
#[derive(Debug)]
pub(super) struct Trouble {
    server: String,
    failures: ApiFailures,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failing: BTreeMap<Kind, Sort>,
    reported: BTreeSet<Sort>,
    /// Optional kinds that the server does not serve or forbids.
    lacking: BTreeMap<Kind, Sort>,
    since: Option<Instant>,
}

impl Trouble {
    /// `server`: the API server's name in messages.
    pub(super) fn new(server: String, failures: ApiFailures) -> Trouble {
        Trouble { server, failures, state: Mutex::default() }
    }

    /// Records a failed watch.
    pub(super) fn report(&self, kind: Kind, failure: &Failure) {
        let (sort, sentence) = sort(kind, failure);
        self.failures.count(plural(kind), sort.label());
        if !kind.is_needed() && failure.is_absence() {
            self.answers(kind);
            if self.lacks(kind, sort) {
                warn!("Kubernetes API ({}): {sentence}; {}", self.server, WITHOUT_SERVICE_CIDRS);
            }
            return;
        }
        if self.fails(kind, sort) {
            warn!("Kubernetes API ({}): {sentence}; going on with what is known, and trying again", self.server);
        }
    }

    /// Records a working watch.
    pub(super) fn recovered(&self, kind: Kind) {
        self.answers(kind);
        if self.lock().lacking.remove(&kind).is_some() {
            info!("Kubernetes API ({}): {} are watched now", self.server, plural(kind));
        }
    }

    fn answers(&self, kind: Kind) {
        if let Some(since) = self.works(kind) {
            info!(after = ?since.elapsed(), "Kubernetes API ({}): answers again", self.server);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether to log it.
    fn lacks(&self, kind: Kind, sort: Sort) -> bool {
        self.lock().lacking.insert(kind, sort) != Some(sort)
    }

    /// Returns whether to log it.
    fn fails(&self, kind: Kind, sort: Sort) -> bool {
        let mut state = self.lock();
        state.since.get_or_insert_with(Instant::now);
        state.failing.insert(kind, sort);
        state.reported.insert(sort)
    }

    /// Returns the start of the outage if this ends it.
    fn works(&self, kind: Kind) -> Option<Instant> {
        let mut state = self.lock();
        state.failing.remove(&kind)?;
        if !state.failing.is_empty() {
            return None;
        }
        state.reported.clear();
        state.since.take()
    }
}

/// The class of a failure, and the beginning of its log line.
fn sort(kind: Kind, failure: &Failure) -> (Sort, String) {
    let said = || one_line(&failure.to_string());
    match failure {
        Failure::Api(error) => connection(error),
        Failure::Refused { status, .. } => refused(kind, status),
        Failure::Access(AccessError::Late { .. }) => (Sort::Hanging, failure.to_string()),
        Failure::Access(_) => (Sort::Access, failure.to_string()),
        Failure::Nonsense(_) => (Sort::Nonsense, said()),
        Failure::TooLarge(_) | Failure::Smaller => (Sort::TooLarge, said()),
        Failure::Expired(_) => (Sort::Versions, said()),
        Failure::ShortWatches => (Sort::Watches, said()),
        Failure::Late(_) | Failure::Closed | Failure::Broken(_) => (Sort::Unreachable, said()),
    }
}

/// Classifies an HTTP error.
fn refused(kind: Kind, status: &Status) -> (Sort, String) {
    let said = one_line(&status.message);
    let kinds = plural(kind);
    match status.code {
        401 => (
            Sort::Credentials,
            "does not accept the proxy's credentials (401): renew its token or certificate".to_owned(),
        ),
        403 => (Sort::Forbidden(kind), format!("does not let the proxy list and watch {kinds} (403): {said}")),
        404 if !kind.is_needed() => {
            (Sort::Unserved(kind), format!("does not serve {kinds} (404), as Kubernetes does from 1.33 on"))
        }
        404 => (
            Sort::Unserved(kind),
            format!("does not serve {kinds} (404): is it an API server of Kubernetes 1.21 or newer?"),
        ),
        // What Go's servers answer to HTTP on a TLS port.
        400 if said.contains("HTTP request to an HTTPS server") => {
            (Sort::Server, format!("speaks TLS, and its address begins with http:// (400): {said}"))
        }
        code => (Sort::Server, format!("answers with an error ({code}): {said}")),
    }
}

/// Classifies a failed connection.
fn connection(error: &kube::Error) -> (Sort, String) {
    let innermost = one_line(&innermost(error).to_string());
    match error {
        kube::Error::Auth(_) => (Sort::Credentials, format!("no credentials to show: {innermost}")),
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => (Sort::Nonsense, innermost),
        _ if innermost.contains("certificate") => {
            (Sort::Certificate, format!("its certificate is not trusted: {innermost}"))
        }
        _ if is_refused(error) => (Sort::Refused, "nothing listens there (connection refused)".to_owned()),
        _ => (Sort::Unreachable, format!("cannot be reached: {innermost}")),
    }
}

fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Node => "Nodes",
        Kind::Service => "Services",
        Kind::EndpointSlice => "EndpointSlices",
        Kind::ServiceCidr => "ServiceCIDRs",
    }
}

fn causes(error: &kube::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let outermost: &(dyn Error + 'static) = error;
    std::iter::successors(Some(outermost), |&error| error.source())
}

/// The most specific cause.
fn innermost(error: &kube::Error) -> &(dyn Error + 'static) {
    causes(error).last().unwrap_or(error)
}

fn is_refused(error: &kube::Error) -> bool {
    let io = |cause: &(dyn Error + 'static)| cause.downcast_ref::<io::Error>().map(io::Error::kind);
    causes(error).any(|cause| io(cause) == Some(io::ErrorKind::ConnectionRefused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sort_of_failure_is_told_once_until_all_is_well() {
        let trouble = Trouble::new("x".to_owned(), ApiFailures::default());
        assert!(trouble.fails(Kind::Service, Sort::Refused));
        assert!(!trouble.fails(Kind::EndpointSlice, Sort::Refused), "the other watches fail in the same way");
        assert!(!trouble.fails(Kind::Service, Sort::Refused));
        assert!(trouble.fails(Kind::Service, Sort::Certificate));
        assert!(trouble.works(Kind::Service).is_none(), "EndpointSlices still fail");
        assert!(trouble.works(Kind::EndpointSlice).is_some());
        assert!(trouble.works(Kind::EndpointSlice).is_none(), "reported already");
        assert!(trouble.fails(Kind::Service, Sort::Refused));
    }

    #[test]
    fn answers_are_told_in_words_that_help() {
        let api = |code: u16, message: &str| {
            let mut status = kube::core::Status::failure(message, "x");
            status.code = code;
            sort(Kind::Service, &Failure::Refused { status: status.boxed(), after: None })
        };
        assert_eq!(api(401, "Unauthorized").0, Sort::Credentials);
        let (sort_403, text) = api(403, "user \"x\" cannot\nlist");
        assert_eq!(sort_403, Sort::Forbidden(Kind::Service));
        assert_eq!(text, "does not let the proxy list and watch Services (403): user \"x\" cannot\\nlist");
        assert_eq!(api(404, "").0, Sort::Unserved(Kind::Service));
        assert_eq!(api(503, "etcd").1, "answers with an error (503): etcd");
        assert_eq!(sort(Kind::Node, &Failure::Nonsense("<html>".into())).0, Sort::Nonsense);
    }
}
