//! Runs measurements, which can fail, with criterion.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};

use crate::results::{Detail, PointId};

pub trait Points {
    /// Measures a point; `once` returns its time and details. Returns false if the command line does not select it.
    fn point(&mut self, id: &PointId, once: &mut dyn FnMut() -> Result<(Duration, Detail)>) -> Result<bool>;
}

pub struct Bench {
    criterion: Criterion,
    output: PathBuf,
    /// The beginning of the run. Older results are marked.
    pub began: SystemTime,
    is_measuring: bool,
}

impl Points for Bench {
    fn point(&mut self, id: &PointId, once: &mut dyn FnMut() -> Result<(Duration, Detail)>) -> Result<bool> {
        self.run(id, None, |iterations| {
            let (mut sum, mut details) = (Duration::ZERO, Vec::new());
            for _ in 0..iterations {
                let (took, detail) = once()?;
                sum += took;
                details.push(detail);
            }
            Ok((sum, details))
        })
    }
}

impl Bench {
    /// Saves results under `output`, and takes criterion's flags from the command line.
    pub fn new(output: PathBuf, is_measuring: bool) -> Bench {
        let criterion = Criterion::default()
            .sample_size(10)
            .warm_up_time(Duration::from_millis(100))
            .measurement_time(Duration::from_millis(500))
            .without_plots()
            .output_directory(&output.join("criterion"))
            .configure_from_args();
        Bench { criterion, output, began: SystemTime::now(), is_measuring }
    }

    pub fn output(&self) -> &Path {
        &self.output
    }

    /// Measures `many`, which repeats its work a number of times. `throughput` is that of one repetition.
    pub fn rate(
        &mut self,
        id: &PointId,
        throughput: Throughput,
        mut many: impl FnMut(u64) -> Result<Duration>,
    ) -> Result<bool> {
        self.run(id, Some(throughput), |iterations| Ok((many(iterations)?, Vec::new())))
    }

    /// Like [`Bench::rate`]; the result is the time of one repetition.
    pub fn time_of_one(&mut self, id: &PointId, mut many: impl FnMut(u64) -> Result<Duration>) -> Result<bool> {
        self.run(id, None, |iterations| Ok((many(iterations)?, Vec::new())))
    }

    fn run(
        &mut self,
        id: &PointId,
        throughput: Option<Throughput>,
        mut work: impl FnMut(u64) -> Result<(Duration, Vec<Detail>)>,
    ) -> Result<bool> {
        let (mut details, mut ran) = (Vec::new(), false);
        let criterion = &mut self.criterion;
        let measured = catch_unwind(AssertUnwindSafe(|| {
            let mut benchmarks = criterion.benchmark_group(&id.group);
            benchmarks.sampling_mode(SamplingMode::Flat);
            if let Some(throughput) = throughput {
                benchmarks.throughput(throughput);
            }
            benchmarks.bench_function(BenchmarkId::new(&id.series, &id.value), |bencher| {
                ran = true;
                bencher.iter_custom(|iterations| match work(iterations) {
                    Ok((took, more)) => {
                        details.extend(more);
                        // Criterion divides by the time, which must not be zero.
                        took.max(Duration::from_nanos(1))
                    }
                    // Unwinds through criterion, which would save a result otherwise.
                    Err(error) => resume_unwind(Box::new(error)),
                });
            });
            benchmarks.finish();
        }));
        if let Err(thrown) = measured {
            let error = thrown.downcast::<anyhow::Error>().unwrap_or_else(|other| resume_unwind(other));
            return Err(error.context(format!("{} of {} with {}", id.group, id.value, id.series)));
        }
        if let Some(detail) = Detail::median(details).filter(|_| ran && self.is_measuring) {
            detail.write(&self.output, id)?;
        }
        Ok(ran)
    }

    pub fn finish(&self) {
        self.criterion.final_summary();
    }
}

pub fn output_directory() -> Result<PathBuf> {
    let program = std::env::current_exe().context("find this program's own path")?;
    // target/<profile>/deps/<program>
    let target = program.ancestors().nth(3).context("this program does not lie in a target directory")?;
    let output = target.join("bench");
    fs::create_dir_all(&output).with_context(|| format!("make {}", output.display()))?;
    Ok(output)
}

pub fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = Instant::now();
    let value = work()?;
    Ok((value, start.elapsed()))
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_failed_measurement_is_an_error_and_saves_no_result() {
        let output = std::env::temp_dir().join(format!("svcbench-measure-{}", std::process::id()));
        let criterion =
            Criterion::default().sample_size(10).without_plots().output_directory(&output.join("criterion"));
        let moment = Duration::from_millis(1);
        let criterion = criterion.warm_up_time(moment).measurement_time(10 * moment);
        let mut bench = Bench { criterion, output: output.clone(), began: SystemTime::now(), is_measuring: true };
        let apply = Detail { apply: Some(moment), ..Detail::default() };
        let [good, bad] = ["good", "bad"].map(|series| PointId::new("group", series, "10x10"));
        assert!(bench.point(&good, &mut || Ok((moment, apply))).unwrap());
        let mut times = 0;
        let error = bench.point(&bad, &mut || {
            times += 1;
            if times > 3 { bail!("the fourth fails") } else { Ok((moment, apply)) }
        });
        let error = format!("{:#}", error.unwrap_err());
        assert_eq!(error, "group of 10x10 with bad: the fourth fails");
        let saved = |place: &str, id: &PointId| output.join(place).join(&id.group).join(&id.series).exists();
        assert!(saved("criterion", &good) && saved("details", &good));
        assert!(!saved("criterion", &bad) && !saved("details", &bad));
        assert_eq!(times, 4, "nothing runs after a failure");
        fs::remove_dir_all(output).unwrap();
    }
}
