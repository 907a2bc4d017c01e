//! Writes svcproxy's manual pages and shell completions: `cargo run -p svcproxy --example manual -- DIRECTORY`.

use std::path::Path;
use std::{fs, io};

use clap::CommandFactory;
use clap_complete::Shell;
use svcproxy::cli::Cli;

const NAME: &str = "svcproxy";
const SHELLS: [(Shell, &str); 3] =
    [(Shell::Bash, "svcproxy"), (Shell::Zsh, "_svcproxy"), (Shell::Fish, "svcproxy.fish")];

#[allow(dead_code, reason = "a test has the rest of this file as a module")]
fn main() -> io::Result<()> {
    let directory = std::env::args_os().nth(1);
    let directory = directory.ok_or_else(|| io::Error::other("expected the directory to write to"))?;
    write(Path::new(&directory))
}

/// Writes `man/svcproxy.1`, a page per subcommand, and `completions/FILE` per shell.
pub fn write(directory: &Path) -> io::Result<()> {
    let (man, completions) = (directory.join("man"), directory.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(Cli::command(), &man)?;
    for (shell, file) in SHELLS {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
        fs::write(completions.join(file), script)?;
    }
    Ok(())
}
