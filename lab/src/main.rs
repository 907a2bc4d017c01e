//! `svclab`: see the library.

fn main() -> std::process::ExitCode {
    svclab::cli::main()
}
