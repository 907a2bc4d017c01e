use std::collections::HashMap;
use std::fmt;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, Error, GaugeVec, Opts};

use super::reading::{BackgroundReading, PATIENCE};

/// Per sample the label values, in the labels' order, and the value.
pub type Samples = Vec<(Vec<String>, f64)>;

pub struct AtScrape {
    metrics: Vec<MetricDescription>,
    read: Box<dyn Fn() -> Vec<Samples> + Send + Sync>,
}

struct MetricDescription {
    kind: MetricKind,
    desc: Desc,
    options: Opts,
    labels: Vec<String>,
}

#[derive(Clone, Copy)]
enum MetricKind {
    Counter,
    Gauge,
}

impl AtScrape {
    /// `read` returns each metric's samples, in the order of the metrics.
    pub fn new(read: impl Fn() -> Vec<Samples> + Send + Sync + 'static) -> AtScrape {
        AtScrape { metrics: Vec::new(), read: Box::new(read) }
    }

    pub fn total(name: &str, help: &str, read: impl Fn() -> u64 + Send + Sync + 'static) -> Result<AtScrape, Error> {
        AtScrape::new(move || vec![vec![(Vec::new(), as_value(read()))]]).counter(name, help, &[])
    }

    /// For a `read` that may hang: after 4 seconds a scrape uses the previous samples.
    pub fn slow(read: impl Fn() -> Vec<Samples> + Send + Sync + 'static) -> AtScrape {
        let reading = BackgroundReading::new(read, PATIENCE);
        AtScrape::new(move || reading.samples())
    }

    pub fn counter(self, name: &str, help: &str, labels: &[&str]) -> Result<AtScrape, Error> {
        self.with(MetricKind::Counter, name, help, labels)
    }

    pub fn gauge(self, name: &str, help: &str, labels: &[&str]) -> Result<AtScrape, Error> {
        self.with(MetricKind::Gauge, name, help, labels)
    }

    fn with(mut self, kind: MetricKind, name: &str, help: &str, labels: &[&str]) -> Result<AtScrape, Error> {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        let desc = Desc::new(name.to_owned(), help.to_owned(), labels.clone(), HashMap::new())?;
        self.metrics.push(MetricDescription { kind, desc, options: Opts::new(name, help), labels });
        Ok(self)
    }
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus' values are floating-point numbers")]
pub(crate) fn as_value(count: u64) -> f64 {
    count as f64
}

impl MetricDescription {
    fn family(&self, samples: Samples) -> Result<Vec<MetricFamily>, Error> {
        let labels: Vec<&str> = self.labels.iter().map(String::as_str).collect();
        Ok(match self.kind {
            MetricKind::Counter => {
                let counters = CounterVec::new(self.options.clone(), &labels)?;
                for (values, value) in samples {
                    counters.get_metric_with_label_values(&values)?.inc_by(value);
                }
                counters.collect()
            }
            MetricKind::Gauge => {
                let gauges = GaugeVec::new(self.options.clone(), &labels)?;
                for (values, value) in samples {
                    gauges.get_metric_with_label_values(&values)?.set(value);
                }
                gauges.collect()
            }
        })
    }
}

impl Collector for AtScrape {
    fn desc(&self) -> Vec<&Desc> {
        self.metrics.iter().map(|metric| &metric.desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let families = self.metrics.iter().zip((self.read)()).map(|(metric, samples)| metric.family(samples));
        // The text format cannot represent a metric without samples.
        families.filter_map(Result::ok).flatten().filter(|family| !family.get_metric().is_empty()).collect()
    }
}

impl fmt::Debug for AtScrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.metrics.iter().map(|metric| &metric.desc.fq_name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn samples_are_read_at_each_scrape() {
        let samples = |value: f64| vec![(vec!["x".to_owned()], value)];
        let read = AtScrape::new(move || vec![samples(3.0), samples(7.5), Vec::new()]);
        let read = read.counter("a_total", "A.", &["l"]).unwrap().gauge("b", "B.", &["l"]).unwrap();
        let metrics = Metrics::new(&[]).unwrap();
        metrics.register(read.gauge("c", "C.", &["l"]).unwrap()).unwrap();
        let text = metrics.text().unwrap();
        let block = "# HELP a_total A.\n# TYPE a_total counter\na_total{l=\"x\"} 3\n# HELP b B.\n# TYPE b gauge\nb{l=\"x\"} 7.5\n";
        assert!(text.starts_with(block), "{text}");
        assert!(!text.contains("# TYPE c "), "{text}");
    }
}
