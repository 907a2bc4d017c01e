#[path = "../../examples/manual.rs"]
mod example;

use clap::CommandFactory;
use svcproxy::cli::Cli;

#[test]
fn every_flag_is_in_the_manual_and_in_the_completions() {
    let directory = tempfile::tempdir().unwrap();
    example::write(directory.path()).unwrap();
    let read = |file: &str| std::fs::read_to_string(directory.path().join(file)).unwrap();
    // roff writes a dash as `\-`; fish has names without dashes.
    let page = read("man/svcproxy.1").replace("\\-", "-");
    let [bash, zsh, fish] = ["svcproxy", "_svcproxy", "svcproxy.fish"].map(|file| read(&format!("completions/{file}")));
    let command = Cli::command();
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let flags: Vec<&str> = shown.filter_map(|argument| argument.get_long()).collect();
    assert!(flags.len() > 60, "{}", flags.len());
    for flag in flags {
        for (text, written) in [
            (&page, format!("--{flag}")),
            (&bash, format!("--{flag}")),
            (&zsh, format!("--{flag}")),
            (&fish, format!("-l {flag}")),
        ] {
            assert!(text.contains(&written), "{written} is not in {text:.40}");
        }
    }
    let render = read("man/svcproxy-render.1").replace("\\-", "-");
    assert!(render.contains("--manifests") && render.contains("without touching the kernel"), "{render}");
}
