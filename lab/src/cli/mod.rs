//! The command line: one module per subcommand. Data goes to standard output, progress and complaints to standard
//! error.

mod ask;
mod audit;
mod check;
mod collect;
mod compare;
mod conformance;
mod exec;
mod explain;
mod guest;
mod guest_up;
mod kernels;
mod labs;
mod list;
mod manual;
mod matrix;
mod merge;
mod new;
mod objects;
mod pcap;
mod ps;
mod reach;
mod replay;
mod run;
mod schema;
mod soak;
mod table;
mod up;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::console::{self, progress};
use crate::exit::{Exit, UNABLE};
use crate::schedule::{NAME, RunArgs, abilities};

/// A laboratory for Kubernetes service proxies: clusters of network namespaces, real traffic, a verdict.
#[derive(Parser)]
#[command(
    name = NAME,
    version = env!("SVCLAB_VERSION"),
    after_help = "Exit status: 0 all passed, 1 a failed promise, a finding or a difference, 2 wrong usage or file, 3 this machine cannot run it, or nothing was judged, 130 and 143 ended by SIGINT or SIGTERM."
)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Run scenarios and report which promises passed and which failed.
    Run(Box<RunArgs>),
    /// Run scenarios as another process of svclab orders.
    #[command(hide = true)]
    RunOrder(run::RunOrderArgs),
    /// Run scenarios with two proxies and report the differences.
    Compare(compare::CompareArgs),
    /// Judge a proxy by all scenarios and by generated clusters, and print a card: which promises it keeps in which mode.
    Conformance(conformance::ConformanceArgs),
    /// Run scenarios with several versions of a proxy, in each of their modes, and report which promises each version keeps.
    Matrix(matrix::MatrixArgs),
    /// Make one report out of the JSON reports of all shards of a run, a matrix or a card, and name what is missing.
    Merge(merge::MergeArgs),
    /// Re-run the failed scenarios of a report, or all of them if none failed.
    Replay(replay::ReplayArgs),
    /// List the kernels that scenarios can be run on, and what each can do.
    Kernels(kernels::KernelsArgs),
    /// The first process of a microVM.
    #[command(hide = true)]
    GuestInit,
    /// Probe what this kernel can do.
    #[command(hide = true)]
    GuestProbe(kernels::ProbeArgs),
    /// Run a program in a microVM, with IPVS.
    #[command(hide = true)]
    GuestRun(guest::GuestRunArgs),
    /// Run a program of the image that `guest-run` made.
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
    /// Send requests in a lab that is up, and report which pod answered and which client address it saw.
    Probe(ask::ProbeArgs),
    /// Print the logs of the proxies of a lab that is up.
    Logs(ask::LogsArgs),
    /// Show the packets that pass a node, a pod or a client of a lab that is up, or write a capture of them.
    Pcap(pcap::PcapArgs),
    /// Change objects for a long time and check what that leaves behind: errors, memory, rules.
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
    /// Judge every service of a real node: compare the node's rules with what Kubernetes promises.
    Audit(audit::AuditArgs),
    /// Show a packet's way through the rules: why it goes where it goes. Runs nothing, and needs no privileges.
    Explain(explain::ExplainArgs),
    /// Show which callers reach which services, as a table. Runs nothing, and needs no privileges.
    Reach(reach::ReachArgs),
    /// Write the state of this node into one archive: rules, sets, network, kernel settings and the cluster's objects. Changes
    /// nothing.
    Collect(collect::CollectArgs),
    /// Print the initial objects of a scenario's cluster, as a List in JSON; runs nothing.
    Objects(objects::ObjectsArgs),
}

/// The name by which kubectl finds a plugin on the PATH.
const PLUGIN: &str = "kubectl-svclab";

/// Usage lines name the command as it was called: `svclab`, or `kubectl svclab`.
fn parsed() -> Cli {
    let program = std::env::args_os().next().unwrap_or_default();
    let mut command = Cli::command();
    if Path::new(&program).file_name().is_some_and(|name| name == PLUGIN) {
        command = command.bin_name(PLUGIN.replace('-', " "));
    }
    Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
}

/// Runs the command line. No thread may exist: some commands enter their own namespaces.
pub fn main() -> ExitCode {
    // Answers a shell that asks for completions, and ends.
    manual::answer_shell();
    let outcome = match parsed().command {
        CliCommand::Run(args) => crate::schedule::run(&args),
        CliCommand::RunOrder(args) => run::run_order(&args),
        CliCommand::Compare(args) => compare::compare(&args),
        CliCommand::Conformance(args) => conformance::conformance(&args),
        CliCommand::Matrix(args) => matrix::matrix(&args),
        CliCommand::Merge(args) => merge::run(&args),
        CliCommand::Replay(args) => replay::replay(&args),
        CliCommand::Kernels(args) => kernels::kernels(&args),
        CliCommand::GuestProbe(args) => abilities::probe(&args.file),
        CliCommand::GuestInit => Err(Exit::usage(svclab_microvm::guest::init())),
        CliCommand::GuestRun(args) => guest::run(&args),
        CliCommand::GuestExec(args) => guest::exec(&args),
        CliCommand::GuestUp(args) => guest_up::run(&args),
        CliCommand::Up(args) => up::up(&args),
        CliCommand::Ps => Ok(ps::ps()),
        CliCommand::Down(args) => ps::down(&args),
        CliCommand::Exec(args) => exec::exec(&args),
        CliCommand::Probe(args) => ask::probe(&args),
        CliCommand::Logs(args) => ask::logs(&args),
        CliCommand::Pcap(args) => pcap::run(&args),
        CliCommand::Soak(args) => soak::run(&args),
        CliCommand::List(args) => list::list(&args),
        CliCommand::Check(args) => check::check(&args),
        CliCommand::New(args) => new::new(&args),
        CliCommand::Schema => schema::print(),
        CliCommand::Completion(args) => manual::completion(&args),
        CliCommand::Man(args) => manual::man(&args),
        CliCommand::Audit(args) => audit::run(&args),
        CliCommand::Explain(args) => explain::explain(&args),
        CliCommand::Reach(args) => reach::run(&args),
        CliCommand::Collect(args) => collect::collect(&args),
        CliCommand::Objects(args) => objects::objects(&args),
    };
    progress::clear();
    match outcome {
        Ok(0) if !console::all_was_written() => ExitCode::from(UNABLE),
        Ok(status) => ExitCode::from(status),
        Err(exit) => {
            if !exit.message.is_empty() {
                // Messages quote files of nodes.
                eprintln!("svclab: {}", svclab_sim::render::printable(&exit.message));
            }
            ExitCode::from(exit.status)
        }
    }
}
