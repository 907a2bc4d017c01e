# What there is to do here. `./just` makes sure that this file can be run; CI calls the same recipes, word for word.
# Written for just 1.21 and later (the oldest that a distribution packages).

set positional-arguments

lab := env_var_or_default("CARGO_TARGET_DIR", "target") / "debug/svclab"

dist := env_var_or_default("CARGO_TARGET_DIR", "target") / "dist"
machine := if arch() == "aarch64" { "arm64" } else { "amd64" }

# List the recipes.
[private]
default:
    @just --list --unsorted

# Run one scenario: a name under scenarios/ (hairpin, seeds/web) or a file; flags go to `svclab run`.
[no-exit-message]
scenario NAME *FLAGS: build
    @"{{ lab }}" run "$@"

# Run every scenario and go on after a red one; flags go to `svclab run`, such as --iptables-variant legacy.
[no-exit-message]
scenarios *FLAGS: build
    @"{{ lab }}" run --keep-going "$@" scenarios/*.yaml scenarios/seeds/*.yaml

# Run every scenario with each version of upstream's kube-proxy in DIR (DIR/v1.36.2/kube-proxy), in each mode, as root: a table, and
# target/upstream.json. `.ci/kube-proxy-releases DIR 1.36` fetches them; flags go to `svclab matrix`, such as --mode iptables.
[no-exit-message]
upstream DIR *FLAGS: build
    @"{{ lab }}" matrix --json "$(dirname "$(dirname "{{ lab }}")")/upstream.json" "$@"

# Any other command of the lab: `./just lab up hairpin`, `./just lab exec pod/web -- ip addr`, `./just lab check FILE`.
[no-exit-message]
lab *ARGS: build
    @"{{ lab }}" "$@"

# Format, clippy and the quick tests of the packages that were changed: a minute or so.
check:
    .ci/check

# Run the tests: all, or those whose names contain a NAME (only their packages are compiled); --full: those of the night as well.
test *ARGS:
    @.ci/test "$@"

# Break rendered rules in every way of a catalogue, and print which properties and which scenarios notice (docs/properties.md).
# With --scenarios: run every wrong proxy of the catalogue against the scenarios, and write docs/mutants.md (--missing, --simulate, ID).
mutants *ARGS:
    #!/bin/sh
    set -eu
    if [ "${1:-}" = --scenarios ]; then
        shift
        cargo build --quiet -p svcproxy -p svclab
        exec cargo run --quiet -p svclab-kernel-properties --example wrong_proxies -- "$@"
    fi
    cargo run --quiet -p svclab-properties --example mutants
    cargo run --quiet -p svclab-kernel-properties --example scenario_mutants scenarios/*.yaml scenarios/microvm/*.yaml scenarios/seeds/*.yaml

# Measure syncs and packets (10 to 15 minutes); a filter, --quick, --large, --proxy FILE or criterion's flags: docs/benchmarks.md.
bench *ARGS:
    cargo bench -p svcbench --bench sync -- "$@"

# Everything that judges the text: formatting, clippy, rustdoc, shell, licences (the last two where the tools are).
lint:
    cargo fmt --all --check
    .ci/features
    cargo clippy --workspace --all-targets -- -D warnings
    cargo clippy -p svclab-image-tests --all-targets --features docker -- -D warnings
    cargo check --quiet -p svclab-apiserver --no-default-features
    RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' cargo doc --quiet --workspace --no-deps --document-private-items
    if command -v shellcheck >/dev/null; then shellcheck just install.sh .ci/* .github/action/*; else echo 'lint: no shellcheck here (Debian package shellcheck)' >&2; fi
    if command -v cargo-deny >/dev/null; then cargo deny check licenses bans sources; else echo 'lint: no cargo-deny here (cargo install cargo-deny --locked)' >&2; fi

# Build the fuzzers (a C++ compiler builds libFuzzer).
fuzz-check:
    cargo build --manifest-path proxy/fuzz/Cargo.toml --target-dir target/fuzz

# Run a fuzzer for SECONDS: api, protobuf, manifest, kubeconfig, configuration, netlink, dump or state_file. By the flags of cargo-fuzz, with a stable compiler.
fuzz NAME SECONDS="60":
    #!/bin/sh
    set -eu
    # Build scripts must not be built with these flags: they are for the named target alone.
    host=$(rustc -vV | sed -n 's/^host: //p')
    coverage='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters'
    coverage="$coverage -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
    RUSTFLAGS="--cfg fuzzing $coverage -Ccodegen-units=1 -Cdebug-assertions" cargo build --release --target "$host" \
        --manifest-path proxy/fuzz/Cargo.toml --target-dir target/fuzz --bin "$1"
    mkdir -p "target/fuzz/corpus/$1"
    "target/fuzz/$host/release/$1" -max_total_time="${2:-60}" -timeout=10 -artifact_prefix=target/fuzz/ "target/fuzz/corpus/$1"

# Format the Rust sources.
fmt:
    cargo fmt --all

# Build the documentation of the workspace's own crates.
doc:
    cargo doc --workspace --no-deps
    @echo "target/doc/svcproxy/index.html"

# Build the site of docs/ into target/book with mdBook (cargo install mdbook --locked).
book:
    mdbook build docs

# Build both programs. The lab starts the svcproxy that lies beside it.
build:
    cargo build -p svcproxy -p svclab --bins

# Build both programs as they are shipped, static and optimised as a whole: target/dist (10 minutes). TARGET is a Rust target.
dist *TARGET:
    .ci/dist "$@"

# Make container images of the programs that are shipped, without a registry: archives in target/dist for `docker load` and the like.
image: dist
    .ci/image "{{ dist }}/{{ machine }}/svcproxy" "{{ dist }}/svcproxy-image-{{ machine }}.tar"
    .ci/image "{{ dist }}/{{ machine }}/svcproxy" "{{ dist }}/svcproxy-legacy-image-{{ machine }}.tar" legacy
    .ci/image "{{ dist }}/{{ machine }}/svclab" "{{ dist }}/svclab-image-{{ machine }}.tar" auditor

# Run the images in real containers (root; starts a Docker daemon of its own where none answers); ARGS select tests.
[no-exit-message]
image-test *ARGS: image
    @.ci/image-test "{{ dist }}" "{{ machine }}" "$@"

# Install what is missing (the door, ./just, has done it by the time this runs) and say what is used.
setup:
    @just --version
    @iptables -V
    @ip -V
