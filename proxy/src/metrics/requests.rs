//! Measures requests to the API server in a layer of its client, by client-go's metrics.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::{Body, Buf, Frame, SizeHint};
use hyper::{Method, Request, Response};
use prometheus::{HistogramVec, IntCounterVec};
use tower_layer::Layer;
use tower_service::Service;

/// In seconds.
pub(super) const DURATIONS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// In bytes.
pub(super) const SIZES: [f64; 11] =
    [64.0, 256.0, 512.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];

/// Shared by all clients. The default measures nothing.
#[derive(Debug, Clone, Default)]
pub struct Requests(Option<Arc<RequestMetrics>>);

#[derive(Debug)]
pub(super) struct RequestMetrics {
    pub results: IntCounterVec,
    pub duration: HistogramVec,
    pub sent: HistogramVec,
    pub received: HistogramVec,
    pub throttled: HistogramVec,
}

impl Requests {
    pub(super) fn new(metrics: RequestMetrics) -> Requests {
        Requests(Some(Arc::new(metrics)))
    }

    /// Returns the layer. Install it outside the one that adds the host to requests.
    pub fn to(&self, host: &str) -> RequestsTo {
        RequestsTo { requests: self.clone(), host: host.into() }
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

impl RequestsTo {
    pub(super) fn count(&self, code: &str, method: &Method) {
        if let Some(metrics) = &self.requests.0 {
            metrics.results.with_label_values(&[code, &self.host, method.as_str()]).inc();
        }
    }

    /// Notes how long the client's rate limit delayed a request.
    pub(crate) fn throttled(&self, method: &Method, waited: Duration) {
        self.observe(|metrics| &metrics.throttled, method, waited.as_secs_f64());
    }

    #[allow(clippy::cast_precision_loss, reason = "no body has petabytes")]
    pub(super) fn exchanged(&self, method: &Method, took: Duration, sent: u64, received: u64) {
        self.observe(|metrics| &metrics.duration, method, took.as_secs_f64());
        self.observe(|metrics| &metrics.sent, method, sent as f64);
        self.observe(|metrics| &metrics.received, method, received as f64);
    }

    fn observe(&self, histogram: fn(&RequestMetrics) -> &HistogramVec, method: &Method, value: f64) {
        if let Some(metrics) = &self.requests.0 {
            histogram(metrics).with_label_values(&[&*self.host, method.as_str()]).observe(value);
        }
    }
}

impl<S> Layer<S> for RequestsTo {
    type Service = MeasureRequests<S>;

    fn layer(&self, inner: S) -> MeasureRequests<S> {
        MeasureRequests { inner, to: self.clone() }
    }
}

#[derive(Debug, Clone)]
pub struct MeasureRequests<S> {
    inner: S,
    to: RequestsTo,
}

impl<S, A, B> Service<Request<A>> for MeasureRequests<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    A: Body,
{
    type Response = Response<MeasuredBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let is_watch = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"));
        let sent = request.body().size_hint().exact().unwrap_or_default();
        let exchange = Exchange {
            to: self.to.clone(),
            method: request.method().clone(),
            begun: Instant::now(),
            sent,
            received: 0,
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            // client-go's label for a request without an answer.
            let code = answer.as_ref().map_or_else(|_| "<error>".to_owned(), |a| a.status().as_str().to_owned());
            exchange.to.count(&code, &exchange.method);
            // As in client-go, a watch has neither a duration nor a size.
            let exchange = if is_watch { None } else { Some(exchange) };
            answer.map(|answer| answer.map(|body| MeasuredBody { body, exchange }))
        })
    }
}

/// Measures an answer until it is read or dropped.
#[derive(Debug)]
pub struct MeasuredBody<B> {
    body: B,
    exchange: Option<Exchange>,
}

#[derive(Debug)]
struct Exchange {
    to: RequestsTo,
    method: Method,
    begun: Instant,
    sent: u64,
    received: u64,
}

impl<B> Drop for MeasuredBody<B> {
    fn drop(&mut self) {
        if let Some(Exchange { to, method, begun, sent, received }) = &self.exchange {
            to.exchanged(method, begun.elapsed(), *sent, *received);
        }
    }
}

impl<B: Body + Unpin> Body for MeasuredBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let (Poll::Ready(Some(Ok(frame))), Some(exchange)) = (&frame, &mut self.exchange) {
            exchange.received += frame.data_ref().map_or(0, |data| data.remaining() as u64);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
