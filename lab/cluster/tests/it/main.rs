#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking and prints what it measured"
)]

mod balancer;
mod cluster;
mod sandbox;
mod support;

fn main() {
    if let Some(place) = std::env::args().skip_while(|arg| arg != "--enter").nth(1) {
        return sandbox::enter_place(&place);
    }
    let cases: Vec<_> = [balancer::CASES, cluster::CASES, sandbox::CASES].into_iter().flatten().collect();
    support::main(&cases);
}
