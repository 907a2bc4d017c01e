//! The command line: one file per subcommand. Data goes to standard output, progress and complaints to standard error.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is where the program talks to people")]

#[macro_use]
mod speak;

mod ask;
mod audit;
mod banner;
mod batch;
mod changes;
mod check;
mod collect;
mod compare;
mod conformance;
mod every_kernel;
mod every_mode;
mod every_seed;
mod exec;
mod explain;
mod find;
mod generated;
mod guest;
mod guest_steps;
mod guest_up;
mod in_microvm;
mod inside;
mod jobs;
mod kernels;
mod labs;
mod list;
mod live;
mod manual;
mod matrix;
mod new;
mod objects;
mod on_host;
mod output;
mod packet;
mod pcap;
mod place;
mod ps;
mod recorded;
mod replay;
mod run;
mod run_args;
mod runtime;
mod schema;
mod seeds;
mod simulate;
mod soak;
mod stop;
mod table;
mod up;
mod up_in_microvm;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::scenario::IptablesVariant;
use crate::scenario::run::ObjectSource;
use seeds::Seeds;

/// This program's name.
const NAME: &str = "svclab";
/// A broken promise.
const FAILED: u8 = 1;
/// Wrong usage, or a file with mistakes.
const USAGE: u8 = 2;
/// This machine cannot run it, or nothing was judged.
const UNABLE: u8 = 3;

/// A laboratory for Kubernetes service proxies: clusters of network namespaces, real traffic, a verdict.
#[derive(Parser)]
#[command(
    name = NAME,
    version = env!("SVCLAB_VERSION"),
    after_help = "Exit status: 0 all passed, 1 a failed promise, a finding or a difference, 2 wrong usage or file, 3 this machine cannot run it, or nothing was judged, 130 and 143 ended by SIGINT or SIGTERM."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run scenarios and report which promises passed and which failed.
    Run(run_args::RunArgs),
    /// Run scenarios with two proxies and tell where they differ.
    Compare(compare::CompareArgs),
    /// Judge a proxy by all scenarios and by generated clusters, and print a card: which promises it keeps in which mode.
    Conformance(conformance::ConformanceArgs),
    /// Run scenarios with several versions of a proxy, in each of their modes, and tell what each keeps.
    Matrix(matrix::MatrixArgs),
    /// Run again what a report tells of: what broke in it, or all of it if nothing did.
    Replay(replay::ReplayArgs),
    /// List the kernels that scenarios can be run on, and what each can do.
    Kernels(kernels::KernelsArgs),
    /// The first process of a microVM.
    #[command(hide = true)]
    GuestInit,
    /// Try out what this kernel can do.
    #[command(hide = true)]
    GuestProbe(kernels::ProbeArgs),
    /// Run a program in a microVM, with IPVS.
    #[command(hide = true)]
    GuestRun(guest::GuestRunArgs),
    /// Run a program that `guest-run` has brought along.
    #[command(hide = true)]
    GuestExec(guest::GuestExecArgs),
    /// Bring a lab up in a microVM, and run a shell beside it.
    #[command(hide = true)]
    GuestUp(guest_up::GuestUpArgs),
    /// Build a scenario's cluster, start the proxies, and stay up until ctrl-c.
    Up(up::UpArgs),
    /// List the labs that are up.
    Ps,
    /// End a lab that is up, and wait until it is gone.
    Down(ps::DownArgs),
    /// Run a command on a node, in a pod or on a client of a lab that is up. Exit status: the command's, 127 if there is no such
    /// program, 126 if it cannot be executed, 128 and the signal's number if a signal ended it.
    Exec(exec::ExecArgs),
    /// Send requests in a lab that is up, and tell who answered and whom it saw.
    Probe(ask::ProbeArgs),
    /// Print the logs of the proxies of a lab that is up.
    Logs(ask::LogsArgs),
    /// Show the packets that pass a node, a pod or a client of a lab that is up, or write a capture of them.
    Pcap(pcap::PcapArgs),
    /// Change objects for a long time and look at what it leaves behind: errors, memory, rules.
    Soak(soak::SoakArgs),
    /// List scenarios and what they show.
    List(list::ListArgs),
    /// Check scenarios and explain them; runs nothing.
    Check(check::CheckArgs),
    /// Write a scenario that passes, to begin with.
    New(new::NewArgs),
    /// Print the JSON Schema of scenario files, for editors.
    Schema,
    /// Print the script that completes the command line in a shell.
    Completion(manual::CompletionArgs),
    /// Write the manual pages.
    Man(manual::ManArgs),
    /// Judge every service of a real node: what Kubernetes promises against the rules that stand there.
    Audit(audit::AuditArgs),
    /// Show a packet's way through the rules: why it goes where it goes. Runs nothing, and needs no privileges.
    Explain(explain::ExplainArgs),
    /// Write what stands on this node into one archive: rules, sets, network, kernel settings and the cluster's objects. Changes
    /// nothing.
    Collect(collect::CollectArgs),
    /// Print the objects that a scenario's proxies are given at first, as a List in JSON; runs nothing.
    Objects(objects::ObjectsArgs),
}

/// What `run` and `up` have in common.
#[derive(Args, Clone)]
struct LabArgs {
    /// Which iptables the proxies use.
    #[arg(long, value_enum, default_value = "auto", value_name = "VARIANT")]
    iptables_variant: VariantArg,
    /// Where the proxies get the objects from: the lab's Kubernetes API, or a directory of manifests.
    #[arg(long, value_enum, default_value = "api", value_name = "SOURCE")]
    source: SourceArg,
    /// Decides cluster IPs and node ports that a scenario leaves open and, with --deterministic, every draw of the kernel
    /// and the proxies. A..B: each from A up to, but not including, B.
    #[arg(long, default_value = "0", value_name = "N|A..B")]
    seed: Seeds,
    /// The service proxy: a program that is started as svcproxy is; or how another's is started, as a YAML file or a command
    /// with {config}, {node}, {kubeconfig} or {mode} in it; without it $SVCPROXY, or the svcproxy beside this program.
    #[arg(long, value_name = "PROXY")]
    proxy: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum SourceArg {
    Api,
    Manifests,
}

impl From<SourceArg> for ObjectSource {
    fn from(source: SourceArg) -> Self {
        match source {
            SourceArg::Api => ObjectSource::Api,
            SourceArg::Manifests => ObjectSource::Manifests,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum VariantArg {
    /// The variant that `iptables` is on this machine.
    Auto,
    /// iptables-nft; svcproxy writes by netlink.
    Nft,
    /// iptables-nft; svcproxy writes with the commands.
    NftCommands,
    /// iptables-legacy.
    Legacy,
}

impl From<VariantArg> for IptablesVariant {
    fn from(variant: VariantArg) -> Self {
        match variant {
            VariantArg::Auto => IptablesVariant::Auto,
            VariantArg::Nft => IptablesVariant::Nft,
            VariantArg::NftCommands => IptablesVariant::NftCommands,
            VariantArg::Legacy => IptablesVariant::Legacy,
        }
    }
}

/// An end that is not success: the status and, unless everything was said already, the message.
struct Exit {
    status: u8,
    message: String,
}

impl Exit {
    fn usage(message: impl Into<String>) -> Self {
        Exit { status: USAGE, message: message.into() }
    }

    fn unable(message: impl Into<String>) -> Self {
        Exit { status: UNABLE, message: message.into() }
    }
}

/// The program. Call it before any thread exists: some commands enter namespaces of their own.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Conformance(args) => conformance::conformance(&args),
        Command::Matrix(args) => matrix::matrix(&args),
        Command::Replay(args) => replay::replay(&args),
        Command::Kernels(args) => kernels::kernels(&args),
        Command::GuestProbe(args) => kernels::probe(&args),
        Command::GuestInit => Err(Exit::usage(svclab_microvm::guest::init())),
        Command::GuestRun(args) => guest::run(&args),
        Command::GuestExec(args) => guest::exec(&args),
        Command::GuestUp(args) => guest_up::run(&args),
        Command::Up(args) => up::up(&args),
        Command::Ps => Ok(ps::ps()),
        Command::Down(args) => ps::down(&args),
        Command::Exec(args) => exec::exec(&args),
        Command::Probe(args) => ask::probe(&args),
        Command::Logs(args) => ask::logs(&args),
        Command::Pcap(args) => pcap::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::List(args) => list::list(&args),
        Command::Check(args) => check::check(&args),
        Command::New(args) => new::new(&args),
        Command::Schema => schema::print(),
        Command::Completion(args) => manual::completion(&args),
        Command::Man(args) => manual::man(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Collect(args) => collect::collect(&args),
        Command::Objects(args) => objects::objects(&args),
    };
    live::clear();
    match outcome {
        Ok(0) if !speak::all_was_written() => ExitCode::from(UNABLE),
        Ok(status) => ExitCode::from(status),
        Err(exit) => {
            if !exit.message.is_empty() {
                eprintln!("svclab: {}", exit.message);
            }
            ExitCode::from(exit.status)
        }
    }
}
