//! Counts what is asked of the API server: a layer of its client.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::{Request, Response};
use prometheus::IntCounterVec;
use tower_layer::Layer;
use tower_service::Service;

/// The counter; shared by all clients. The default one counts nothing.
#[derive(Debug, Clone, Default)]
pub struct Requests(Option<IntCounterVec>);

impl Requests {
    pub(super) fn new(counter: IntCounterVec) -> Requests {
        Requests(Some(counter))
    }

    pub(super) fn count(&self, code: &str, host: &str, method: &str) {
        if let Some(counter) = &self.0 {
            counter.with_label_values(&[code, host, method]).inc();
        }
    }
}

impl<S> Layer<S> for Requests {
    type Service = CountRequests<S>;

    fn layer(&self, inner: S) -> CountRequests<S> {
        CountRequests { inner, requests: self.clone() }
    }
}

/// A client's service that counts.
#[derive(Debug, Clone)]
pub struct CountRequests<S> {
    inner: S,
    requests: Requests,
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
        let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let requests = self.requests.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            // client-go's word where there is no answer at all.
            let code = answer.as_ref().map_or_else(|_| "<error>".to_owned(), |a| a.status().as_str().to_owned());
            requests.count(&code, &host, method.as_str());
            answer
        })
    }
}
