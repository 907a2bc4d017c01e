//! `svclab`
fn main() {}
