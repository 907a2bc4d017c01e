use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Error, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use super::Requests;
use super::requests::{DURATIONS, RequestMetrics, SIZES};

#[derive(Default)]
pub(super) struct RegistryBuilder(Registry);

type Registered<T> = Result<T, Error>;

impl RegistryBuilder {
    fn add<T: Collector + Clone + 'static>(&self, made: T) -> Registered<T> {
        self.0.register(Box::new(made.clone()))?;
        Ok(made)
    }

    pub(super) fn counter(&self, name: &str, help: &str) -> Registered<IntCounter> {
        self.add(IntCounter::new(name, help)?)
    }

    pub(super) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Registered<IntCounterVec> {
        self.add(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> Registered<IntGauge> {
        self.add(IntGauge::new(name, help)?)
    }

    pub(super) fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Registered<IntGaugeVec> {
        self.add(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    /// Registers a gauge of seconds since 1970.
    pub(super) fn times(&self, name: &str, help: &str, labels: &[&str]) -> Registered<GaugeVec> {
        self.add(GaugeVec::new(Opts::new(name, help), labels)?)
    }

    pub(super) fn histograms(
        &self,
        name: &str,
        help: &str,
        buckets: Vec<f64>,
        labels: &[&str],
    ) -> Registered<HistogramVec> {
        self.add(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels)?)
    }

    pub(super) fn requests(&self) -> Registered<Requests> {
        let labels = &["host", "verb"][..];
        let durations = |name, help| self.histograms(name, help, DURATIONS.to_vec(), labels);
        let sizes = |name, help| self.histograms(name, help, SIZES.to_vec(), labels);
        Ok(Requests::new(RequestMetrics {
            results: self.counters(
                "rest_client_requests_total",
                "Requests to the API server, by status code, method and host",
                &["code", "host", "method"],
            )?,
            duration: durations(
                "rest_client_request_duration_seconds",
                "Duration of requests to the API server, without watches",
            )?,
            sent: sizes("rest_client_request_size_bytes", "Size of requests to the API server, without watches")?,
            received: sizes(
                "rest_client_response_size_bytes",
                "Unpacked size of answers of the API server, without watches",
            )?,
            throttled: durations(
                "rest_client_rate_limiter_duration_seconds",
                "Time that requests wait for clientConnection.qps and burst",
            )?,
        }))
    }

    pub(super) fn finish(self) -> Registered<Registry> {
        self.0.register(Box::new(ProcessCollector::for_self()))?;
        self.gauges("kubernetes_build_info", "Which program this is; always 1", &BUILD.map(|(label, _)| label))?
            .with_label_values(&BUILD.map(|(_, value)| value))
            .set(1);
        Ok(self.0)
    }
}

/// kube-proxy's labels, except those that only make sense for Go programs.
const BUILD: [(&str, &str); 5] = [
    ("compiler", "rustc"),
    ("git_version", concat!("v", env!("CARGO_PKG_VERSION"))),
    ("major", env!("CARGO_PKG_VERSION_MAJOR")),
    ("minor", env!("CARGO_PKG_VERSION_MINOR")),
    ("platform", PLATFORM),
];

/// Go's name of the platform, as in kube-proxy's label.
const PLATFORM: &str = if cfg!(target_arch = "x86_64") {
    "linux/amd64"
} else if cfg!(target_arch = "aarch64") {
    "linux/arm64"
} else {
    "linux"
};
