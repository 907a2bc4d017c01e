//! The benchmarks: `./just bench`. Flags are criterion's, and those of [`svcbench::options`].

use anyhow::Result;
use svcbench::allocations::Counting;
use svcbench::measure::{Bench, output_directory};
use svcbench::{ladder, page, sandbox};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> Result<()> {
    // `cargo bench` says so on the command line; anything else (`cargo test --benches`) only wants to see it run.
    let is_measuring = std::env::args().any(|argument| argument == "--bench");
    sandbox::enter()?;
    let mut bench = Bench::new(output_directory()?, is_measuring);
    let left_out = ladder::run(&mut bench, false)?;
    bench.finish();
    if is_measuring { page::write(&bench, &left_out) } else { Ok(()) }
}
