//! Sets SVCPROXY_VERSION for the compiler.

mod version;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=version.rs");
    version::emit("SVCPROXY", false);
}
