//! `svcproxy`
fn main() {}
