//! Tells the program its version.

mod version;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=version.rs");
    version::tell("SVCPROXY", false);
}
