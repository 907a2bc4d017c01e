use std::io::{self, BufWriter, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use svclab_snapshot::Snapshot;
use svclab_snapshot::archive::{ArchiveError, Manifest};
use svclab_snapshot::collect::{CollectOptions, collect as gather};
use svclab_snapshot::redact::RedactionKey;

use crate::exit::Exit;
use crate::schedule::runtime;

#[derive(Args)]
pub(super) struct CollectArgs {
    /// The archive to write, a tar; `-` is standard output: `ssh NODE svclab collect - > node.tar`.
    file: PathBuf,
    /// The kubeconfig for the Kubernetes API [default: $KUBECONFIG, ~/.kube/config, the proxy's, the pod's service account].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The name of this node's Node object [default: $NODE_NAME, the proxy's --hostname-override, or the Node with this host's
    /// name or one of its addresses].
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// The proxy's KubeProxyConfiguration [default: what the proxy answers, its file, or its ConfigMap].
    #[arg(long, value_name = "FILE")]
    proxy_config: Option<PathBuf>,
    /// Replace names by hashes with a random key: docs/collect.md says which names.
    #[arg(long)]
    redact: bool,
    /// Timeout of each tool, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    tool_deadline: u64,
    /// Timeout of the collection, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3600))]
    deadline: u64,
    /// Largest size of the archive, in MiB; parts that do not fit are left out.
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1000))]
    max_size: u64,
}

pub(super) fn collect(args: &CollectArgs) -> Result<u8, Exit> {
    let to_output = args.file == Path::new("-");
    if to_output && io::stdout().is_terminal() {
        return Err(Exit::usage("a tar is nothing for a terminal: redirect standard output, or name a file"));
    }
    if !nix::unistd::geteuid().is_root() {
        eprintln!("svclab: not root: rules and sets cannot be read, the rest is collected");
    }
    let key = args.redact.then(RedactionKey::random).transpose();
    let key = key.map_err(|error| Exit::unable(format!("--redact: cannot read /dev/urandom: {error}")))?;
    let runtime = runtime()?;
    let mut snapshot = runtime.block_on(gather(&options(args)));
    // Does not wait for reads from a hanging mount.
    runtime.shutdown_background();
    if let Some(key) = key {
        snapshot.redact(&key);
    }
    let written = if to_output { to_stdout(&snapshot) } else { to_file(&snapshot, &args.file) };
    written.map_err(|error| Exit::unable(error.to_string()))?;
    eprint!("{}", summary(&snapshot.manifest()));
    Ok(0)
}

fn options(args: &CollectArgs) -> CollectOptions {
    CollectOptions {
        kubeconfig: args.kubeconfig.clone(),
        node_name: args.node_name.clone(),
        proxy_config: args.proxy_config.clone(),
        tool_deadline: Duration::from_secs(args.tool_deadline),
        deadline: Duration::from_secs(args.deadline),
        max_size: args.max_size << 20,
    }
}

fn to_stdout(snapshot: &Snapshot) -> Result<(), ArchiveError> {
    // A closed pipe (`| head`) is no error.
    let unread = |error: &ArchiveError| matches!(error, ArchiveError::Write { source, .. } if source.kind() == io::ErrorKind::BrokenPipe);
    snapshot
        .write(BufWriter::new(io::stdout().lock()))
        .or_else(|error| if unread(&error) { Ok(()) } else { Err(error) })
}

/// Writes the file atomically, readable by its owner only.
fn to_file(snapshot: &Snapshot, path: &Path) -> Result<(), ArchiveError> {
    let failed = |source: io::Error| ArchiveError::Write { path: path.display().to_string(), source };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    snapshot.write(BufWriter::new(&file))?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn summary(manifest: &Manifest) -> String {
    let mut text = format!("{}, kernel {}, {}\n", manifest.host, manifest.kernel, manifest.taken);
    if let Some(node) = &manifest.node_name {
        text += &format!("node {node}\n");
    }
    for entry in &manifest.entries {
        text += &format!("  {:<28} {:>10}  {}\n", entry.path, size(entry.size), entry.source);
    }
    for unread in &manifest.unread {
        text += &format!("  {:<28} {:>10}  {}\n", unread.what, "not read", unread.why);
    }
    text
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}
