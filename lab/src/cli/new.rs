use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use clap::Args;

use crate::exit::Exit;

const TEMPLATE: &str = include_str!("new.yaml");
const PLACE: &str = "NAME";

#[derive(Args)]
pub(super) struct NewArgs {
    /// The scenario's name, or its file. Writes NAME.yaml.
    name: PathBuf,
}

pub(super) fn new(args: &NewArgs) -> Result<u8, Exit> {
    let path = args.name.with_extension("yaml");
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let is_plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(Exit::usage(format!(
            "{}: expected a name of lower-case letters, digits and '-'",
            args.name.display()
        )));
    }
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => Exit::usage(format!("{} is there already", path.display())),
        _ => Exit::usage(format!("cannot write {}: {error}", path.display())),
    };
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
    file.write_all(TEMPLATE.replace(PLACE, name).as_bytes()).map_err(failed)?;
    println!("wrote {}; svclab run {0} runs it", path.display());
    Ok(0)
}
