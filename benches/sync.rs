//! The benchmarks: `./just bench`. Flags are criterion's, and those of [`BenchOptions`].

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use svcbench::allocations::Counting;
use svcbench::measure::{Bench, output_directory};
use svcbench::options::BenchOptions;
use svcbench::subject::as_proxy;
use svcbench::{client_view, control_plane, counts, guest, ladder, packets, page, sandbox};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> Result<ExitCode> {
    match as_proxy().map(Ok).or_else(guest::role) {
        Some(code) => code,
        None => run().map(|()| ExitCode::SUCCESS),
    }
}

fn run() -> Result<()> {
    #[cfg(target_arch = "x86_64")]
    if std::env::args().nth(1).as_deref() == Some(svcbench::calls::INSIDE) {
        return svcbench::calls::inside();
    }
    let Some(options) = sandbox::inside()? else {
        let (options, rest) = BenchOptions::take(std::env::args_os().skip(1))?;
        return if options.quick { quick(options.update) } else { sandbox::enter(&options, &rest) };
    };
    // `cargo bench` passes --bench. `cargo test --benches` only checks that everything runs.
    let is_measuring = std::env::args().any(|argument| argument == "--bench");
    let mut bench = Bench::new(output_directory()?, is_measuring);
    let runtime = tokio::runtime::Runtime::new().context("start a runtime for the lab")?;
    if let Some(choice) = &options.control_plane {
        let proxies = client_view::MeasuredProxy::all(&options.proxies)?;
        return runtime.block_on(control_plane::run(choice, &proxies, options.update));
    }
    let mut left_out = Vec::new();
    if options.proxies.is_empty() {
        left_out.extend(ladder::run(&mut bench, options.large)?);
        left_out.extend(guest::run(&mut bench)?);
        left_out.extend(packets::run(&mut bench, &runtime, options.large)?);
    }
    left_out.extend(client_view::run(&mut bench, &runtime, &options.proxies, options.large)?);
    bench.finish();
    if is_measuring { page::write(&bench, &left_out) } else { Ok(()) }
}

fn quick(update: bool) -> Result<()> {
    let now = counts::count()?;
    #[cfg(target_arch = "x86_64")]
    let calls = {
        use svcbench::calls;
        let now = calls::count(&std::env::current_exe().context("find this program's own path")?)?;
        if update {
            calls::FILE.write(&now)?;
        }
        calls::FILE.regressions(&calls::FILE.read()?, &now)
    };
    // `calls` reads x86-64 registers.
    #[cfg(not(target_arch = "x86_64"))]
    let calls = Vec::new();
    if update {
        return counts::FILE.write(&now);
    }
    let before = counts::FILE.read()?;
    let worse = [counts::FILE.regressions(&before, &now), calls].concat();
    let better = counts::FILE.improvements(&before, &now);
    let mut text: String = better.iter().map(|line| format!("better: {line}\n")).collect();
    if worse.is_empty() {
        text.push_str(if better.is_empty() {
            "every count is what it was\n"
        } else {
            "to keep it so: --quick --update\n"
        });
    }
    std::io::stdout().write_all(text.as_bytes()).context("print the comparison")?;
    if !worse.is_empty() {
        bail!("{} counts have grown:\n{}\nif it must be: ./just bench --quick --update", worse.len(), worse.join("\n"));
    }
    Ok(())
}
