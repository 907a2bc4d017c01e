//! Rule count against sync time in iptables mode, IPv4: `./just bench`.
//!
//! Four groups over a ladder of cluster sizes: `render` is the proxy's own work (plan, render, difference, text) with
//! no kernel behind it; `apply` is the same with the iptables commands, in a network namespace of its own. `full` is
//! the first sync of a node, `one` the sync after one endpoint of one service was replaced.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use criterion::{BenchmarkId, Criterion, SamplingMode};
use svcbench::results::{Point, read_median_ms, table};
use svcbench::silent::Silent;
use svcbench::{cluster, plot, sandbox};
use svcproxy::config::{Config, NodeAddresses, Variant};
use svcproxy::kernel::iptables::{Commands, Iptables};
use svcproxy::mode::iptables::family::FamilyProxy;
use svcproxy::model::Family;
use svcproxy::source::Change;

/// Services in the cluster, smallest first.
const LADDER: [u32; 4] = [10, 100, 1000, 5000];

/// The largest cluster for the nft variant: `iptables-nft-restore` 1.8.9 takes over five minutes for the next one.
const NFT_UP_TO: u32 = 1000;

const VARIANTS: [(&str, Variant, u32); 2] = [("legacy", Variant::Legacy, u32::MAX), ("nft", Variant::Nft, NFT_UP_TO)];

fn main() -> Result<()> {
    // `cargo bench` says so on the command line; anything else (`cargo test --benches`) only wants to see it run.
    let measuring = env::args().any(|argument| argument == "--bench");
    sandbox::enter()?;
    let output = output_directory()?;
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_secs(1))
        .without_plots()
        .output_directory(&output.join("criterion"))
        .configure_from_args();
    let mut done = Vec::new();
    render(&mut criterion, &mut done)?;
    let left_out = apply(&mut criterion, &mut done)?;
    criterion.final_summary();
    if measuring { report(&output, done, &left_out) } else { Ok(()) }
}

/// `bench/` in the target directory that this program was built into.
fn output_directory() -> Result<PathBuf> {
    let program = env::current_exe().context("find this program's own path")?;
    // target/<profile>/deps/<program>
    let target = program.ancestors().nth(3).context("this program does not lie in a target directory")?;
    let output = target.join("bench");
    fs::create_dir_all(&output).with_context(|| format!("make {}", output.display()))?;
    Ok(output)
}

/// A benchmark that was run: group, series, services.
type Done = (&'static str, &'static str, u32);

fn proxy<K: Iptables>(kernel: K, changes: &[Change]) -> FamilyProxy<K> {
    let mut proxy = FamilyProxy::new(Config::for_node("node-1"), Family::V4, kernel);
    proxy.set_addresses(&NodeAddresses::default());
    proxy.apply(changes);
    proxy
}

/// Replaces one endpoint, and times the sync that follows.
fn time_one<K: Iptables>(proxy: &mut FamilyProxy<K>, services: u32, generation: &mut u32) -> Result<Duration> {
    *generation += 1;
    let change = cluster::one_endpoint_changed(services / 2, *generation);
    let start = Instant::now();
    proxy.apply([&change]);
    let report = proxy.sync()?;
    let elapsed = start.elapsed();
    ensure!(!report.full && report.rules > 0, "a changed endpoint must make a partial sync that sends something");
    Ok(elapsed)
}

/// Measures `once`, which times itself. Criterion has no word for a run that fails: after a failure nothing is run any
/// more, and the failure is returned in place of the figures.
fn measure(
    criterion: &mut Criterion,
    done: &mut Vec<Done>,
    (group, series, services): Done,
    mut once: impl FnMut() -> Result<Duration>,
) -> Result<()> {
    let mut failure = None;
    let mut ran = false;
    let mut benchmarks = criterion.benchmark_group(group);
    benchmarks.sampling_mode(SamplingMode::Flat);
    benchmarks.bench_function(BenchmarkId::new(series, services), |bencher| {
        ran = true;
        bencher.iter_custom(|iterations| {
            let mut sum = Duration::ZERO;
            for _ in 0..iterations {
                match if failure.is_none() { once() } else { break } {
                    Ok(elapsed) => sum += elapsed,
                    Err(error) => failure = Some(error),
                }
            }
            // Criterion divides by it.
            sum.max(Duration::from_nanos(1))
        });
    });
    benchmarks.finish();
    if ran && failure.is_none() {
        done.push((group, series, services));
    }
    failure.map_or(Ok(()), Err)
}

fn render(criterion: &mut Criterion, done: &mut Vec<Done>) -> Result<()> {
    for services in LADDER {
        let changes = cluster::changes(services);
        let mut proxy = proxy(Silent::default(), &changes);
        measure(criterion, done, ("render-full", "alone", services), || {
            proxy.require_full_sync();
            let start = Instant::now();
            proxy.sync()?;
            Ok(start.elapsed())
        })?;
        proxy.sync()?;
        let mut generation = 0;
        measure(criterion, done, ("render-one", "alone", services), || {
            time_one(&mut proxy, services, &mut generation)
        })?;
    }
    Ok(())
}

/// Measures with the commands, and tells which points had to be left out.
fn apply(criterion: &mut Criterion, done: &mut Vec<Done>) -> Result<Vec<String>> {
    let mut left_out = Vec::new();
    for (name, variant, up_to) in VARIANTS {
        for services in LADDER {
            if services > up_to {
                let why = "iptables-nft-restore 1.8.9 takes over five minutes for it";
                left_out.push(format!("{name} with {services} services: {why}"));
                continue;
            }
            apply_point(criterion, done, (name, variant), services)
                .with_context(|| format!("{services} services with iptables-{name}"))?;
        }
    }
    Ok(left_out)
}

fn apply_point(
    criterion: &mut Criterion,
    done: &mut Vec<Done>,
    (name, variant): (&'static str, Variant),
    services: u32,
) -> Result<()> {
    let changes = cluster::changes(services);
    let in_fresh_network = || -> Result<FamilyProxy<Commands>> {
        sandbox::fresh_network()?;
        Ok(proxy(Commands::find(Family::V4, variant)?, &changes))
    };
    measure(criterion, done, ("apply-full", name, services), || {
        let mut proxy = in_fresh_network()?;
        let start = Instant::now();
        proxy.sync()?;
        Ok(start.elapsed())
    })?;
    let mut standing = None;
    let mut generation = 0;
    measure(criterion, done, ("apply-one", name, services), || {
        if standing.is_none() {
            let mut proxy = in_fresh_network()?;
            proxy.sync()?;
            standing = Some(proxy);
        }
        let proxy = standing.as_mut().context("a standing proxy")?;
        time_one(proxy, services, &mut generation)
    })
}

/// Prints and keeps the table, and draws the plot, of the benchmarks that were run.
fn report(output: &Path, done: Vec<Done>, left_out: &[String]) -> Result<()> {
    let mut points = Vec::new();
    for (group, series, services) in done {
        let median_ms = read_median_ms(&output.join("criterion"), group, series, services)?;
        points.push(Point { group: group.into(), series: series.into(), services, median_ms });
    }
    let mut rules = Vec::new();
    for services in LADDER.into_iter().filter(|services| points.iter().any(|point| point.services == *services)) {
        let mut proxy = proxy(Silent::default(), &cluster::changes(services));
        proxy.sync()?;
        rules.push((services, proxy.kernel().rules));
    }
    let text = format!(
        "Median sync times, {} endpoints for each service, IPv4:\n\n{}\nLeft out:\n- {}\n",
        cluster::ENDPOINTS,
        table(&points, &rules),
        left_out.join("\n- ")
    );
    let (table_file, plot_file) = (output.join("sync.md"), output.join("sync.svg"));
    fs::write(&table_file, &text).with_context(|| format!("write {}", table_file.display()))?;
    let svg = plot::svg("Median sync time, 10 endpoints for each service", &points);
    fs::write(&plot_file, svg).with_context(|| format!("write {}", plot_file.display()))?;
    let text = format!("{text}\n{}\n{}\n", table_file.display(), plot_file.display());
    std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()).context("print the table")
}
