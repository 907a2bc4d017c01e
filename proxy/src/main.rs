fn main() -> std::process::ExitCode {
    svcproxy::cli::main()
}
