fn main() -> std::process::ExitCode {
    svclab::cli::main()
}
