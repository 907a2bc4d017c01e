//! Counts requests to the API server in a layer of its client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::{Request, Response};
use prometheus::IntCounterVec;
use tower_layer::Layer;
use tower_service::Service;

/// Shared by all clients. The default counts nothing.
#[derive(Debug, Clone, Default)]
pub struct Requests(Option<IntCounterVec>);

impl Requests {
    pub(super) fn new(counter: IntCounterVec) -> Requests {
        Requests(Some(counter))
    }

    /// Returns the layer. Install it outside the one that adds the host to requests.
    pub fn to(&self, host: &str) -> RequestsTo {
        RequestsTo { requests: self.clone(), host: host.into() }
    }

    pub(super) fn count(&self, code: &str, host: &str, method: &str) {
        if let Some(counter) = &self.0 {
            counter.with_label_values(&[code, host, method]).inc();
        }
    }
}

/// Shared by all watches. The default counts nothing.
#[derive(Debug, Clone, Default)]
pub struct ApiFailures(Option<IntCounterVec>);

impl ApiFailures {
    pub(super) fn new(counter: IntCounterVec) -> ApiFailures {
        ApiFailures(Some(counter))
    }

    pub(crate) fn count(&self, resource: &str, reason: &str) {
        if let Some(counter) = &self.0 {
            counter.with_label_values(&[resource, reason]).inc();
        }
    }
}

#[derive(Debug, Clone)]
pub struct RequestsTo {
    requests: Requests,
    host: Arc<str>,
}

impl<S> Layer<S> for RequestsTo {
    type Service = CountRequests<S>;

    fn layer(&self, inner: S) -> CountRequests<S> {
        CountRequests { inner, counter: self.clone() }
    }
}

#[derive(Debug, Clone)]
pub struct CountRequests<S> {
    inner: S,
    counter: RequestsTo,
}

impl<S, A, B> Service<Request<A>> for CountRequests<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let method = request.method().clone();
        let RequestsTo { requests, host } = self.counter.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            // client-go's label for a request without an answer.
            let code = answer.as_ref().map_or_else(|_| "<error>".to_owned(), |a| a.status().as_str().to_owned());
            requests.count(&code, &host, method.as_str());
            answer
        })
    }
}
