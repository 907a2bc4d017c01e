//! The files named in "How to add a match or an expression" exist.

use std::path::Path;

#[test]
fn every_file_of_the_list_exists() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let module = std::fs::read_to_string(source.join("rules/matches/mod.rs")).unwrap();
    let comment = module.lines().take_while(|line| line.starts_with("//!"));
    let list: Vec<&str> = comment.skip_while(|line| !line.starts_with("//! # How to add a match")).collect();
    let text = list.join("\n");
    let files: Vec<&str> = text.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs")).collect();
    assert!(files.len() >= 10, "{files:?}");
    for file in files {
        assert!(source.join(file).is_file(), "{file}");
    }
}
