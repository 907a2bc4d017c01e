//! `/metrics/slis` (KEP-3466; k8s.io/component-base `metrics/prometheus/slis`). As in kube-proxy, the only check is
//! `ping`, by `/healthz` on the metrics port.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{Error, Gauge, IntCounterVec, IntGaugeVec, Opts, Registry};

/// The metrics of `/metrics/slis`, in a registry of their own.
#[derive(Debug)]
pub struct Slis {
    registry: Registry,
    healthcheck: IntGaugeVec,
    healthchecks: IntCounterVec,
}

impl Slis {
    pub fn new() -> Result<Slis, Error> {
        let healthcheck = IntGaugeVec::new(
            Opts::new("kubernetes_healthcheck", "The last result of a health check: 1 is well"),
            &["name", "type"],
        )?;
        let help = "The results of health checks so far";
        let healthchecks =
            IntCounterVec::new(Opts::new("kubernetes_healthchecks_total", help), &["name", "status", "type"])?;
        let start = Gauge::new("process_start_time_seconds", "When the process started, in seconds since 1970")?;
        start.set(process_start().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()));
        let registry = Registry::new();
        registry.register(Box::new(healthcheck.clone()))?;
        registry.register(Box::new(healthchecks.clone()))?;
        registry.register(Box::new(start))?;
        Ok(Slis { registry, healthcheck, healthchecks })
    }

    pub fn pinged(&self) {
        self.healthcheck.with_label_values(&["ping", "healthz"]).set(1);
        self.healthchecks.with_label_values(&["ping", "success", "healthz"]).inc();
    }

    pub fn text(&self) -> Result<String, Error> {
        super::text_of(&self.registry)
    }
}

/// Returns the current time if the kernel does not provide the start.
pub fn process_start() -> SystemTime {
    let families = ProcessCollector::for_self().collect();
    let family = families.iter().find(|family| family.name() == "process_start_time_seconds");
    let seconds = family.and_then(|family| family.get_metric().first()).map(|metric| metric.get_gauge().get_value());
    let started = seconds.filter(|seconds| *seconds > 0.0).and_then(|s| Duration::try_from_secs_f64(s).ok());
    started.map_or_else(SystemTime::now, |since| UNIX_EPOCH + since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_health_check_counts() {
        let slis = Slis::new().unwrap();
        assert!(!slis.text().unwrap().contains("kubernetes_healthcheck"), "nothing asked");
        slis.pinged();
        slis.pinged();
        let text = slis.text().unwrap();
        for line in [
            r#"kubernetes_healthcheck{name="ping",type="healthz"} 1"#,
            r#"kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 2"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
        }
        assert!(text.contains("\nprocess_start_time_seconds 1"), "{text}");
    }

    #[test]
    fn the_process_start_is_recent() {
        let since = process_start().elapsed().unwrap();
        assert!(since < Duration::from_secs(24 * 3600), "{since:?}");
    }
}
