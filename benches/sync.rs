//! Rule count against sync time.
fn main() {}
