mod banner;
mod microvm;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use svclab_netns::labs::{self, LabDescription};
use svclab_netns::sandbox;

use super::labs::new_name;
use crate::complete;
use crate::exit::{Exit, FAILED, UNABLE};
use crate::find;
use crate::mode::Mode;
use crate::scenario::Scenario;
use crate::scenario::run::{EvidenceLevel, KernelLab, LabError, ProxyUnderTest, RunOptions};
use crate::schedule::signals::Stop;
use crate::schedule::{Job, KernelArg, LabArgs, RunTarget, check_modes, modes, runtime, stopped, target_of_lab};

#[derive(Args)]
#[command(
    after_help = "Exit status: 0 after ctrl-c and `svclab down`, the usual ends; 143 and 129 after SIGTERM and SIGHUP; 130 after ctrl-c before the lab was up; 1 if the lab broke down, 2 wrong usage or file, 3 this machine cannot run it. In a microVM: the status of its shell, and 0 after ctrl-]."
)]
pub(super) struct UpArgs {
    /// Scenario file, or name under scenarios/; its steps are not run.
    #[arg(add = complete::scenarios())]
    pub(super) file: PathBuf,
    /// The lab's name for other commands [default: the scenario's name].
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// The mode of the proxies [default: the scenario's first mode].
    #[arg(long, value_enum, value_name = "MODE")]
    mode: Option<Mode>,
    /// The kernel: `host`; `debian-6.1`, `debian-6.12`, or the path of a kernel image with its modules: the lab is in a microVM,
    /// with a shell in it on this terminal, or one that reads commands from standard input; or `auto`: the host's, and debian-6.1
    /// where the host's lacks what the mode needs.
    #[arg(long, value_name = "KERNEL", default_value = "auto")]
    kernel: KernelArg,
    /// Where fetched packages and built images are kept [default: $SVCLAB_CACHE, or svclab in the user's cache directory].
    #[arg(long, value_name = "DIR")]
    pub(super) cache_dir: Option<PathBuf>,
    /// In a microVM: the file for the banner that the shell shows once the lab is up.
    #[arg(long, hide = true, value_name = "FILE")]
    banner: Option<PathBuf>,
    #[command(flatten)]
    pub(super) lab: LabArgs,
}

pub(super) fn up(args: &UpArgs) -> Result<u8, Exit> {
    let scenario = find::load_one(&args.file, args.lab.seed.one()?)?;
    let proxy = find::proxy(args.lab.proxy.as_deref(), args.lab.source)?;
    let job = Job { scenario: &scenario, mode: mode(args, &scenario, &proxy)?, foreign: proxy.is_foreign() };
    // Inside the sandbox the kernel is already chosen.
    if sandbox::message().is_none()
        && let RunTarget::Guest(guest) = target_of_lab(&args.kernel, &job)?
    {
        return microvm::up(args, &guest, &job, &proxy);
    }
    find::tools()?;
    // The outer process passes the name, as only it sees the user's other labs.
    let name = sandbox::message().map_or_else(|| new_name(args.name.as_deref(), &scenario.name), Ok)?;
    let _inside = sandbox::enter_with_message(Some(&name)).map_err(|error| Exit::unable(error.to_string()))?;
    let options = RunOptions {
        proxy,
        proxy_given: None,
        mode: job.mode,
        variant: scenario.variant.unwrap_or(args.lab.iptables_variant),
        source: args.lab.source,
        control_plane: None,
        patience: None,
        keep_going: false,
        measure: None,
        machine: None,
        breaks: Vec::new(),
        evidence: EvidenceLevel::Nothing,
        audit: false,
    };
    let is_up = AtomicBool::new(false);
    runtime()?.block_on(async {
        tokio::select! {
            result = serve(name, &scenario, &options, args.banner.as_deref(), &is_up) => result,
            // Ctrl-C is the usual way to end the lab.
            stop = stopped() => match stop {
                Stop::Interrupt if is_up.load(Ordering::Relaxed) => Ok(0),
                stop => Err(stop.exit()),
            },
        }
    })
}

/// Returns the mode that is asked for, or the scenario's first, of those that the proxy has if it has one of them.
fn mode(args: &UpArgs, scenario: &Scenario, proxy: &ProxyUnderTest) -> Result<Mode, Exit> {
    let asked = args.mode;
    check_modes(proxy, asked.as_slice())?;
    let modes = modes(scenario, proxy);
    let usual = modes.iter().copied().find(|mode| proxy.has(*mode)).or(modes.first().copied());
    let found = asked.map_or(usual, |asked| modes.iter().copied().find(|mode| *mode == asked));
    found.ok_or_else(|| {
        let modes: Vec<String> = modes.iter().map(Mode::to_string).collect();
        Exit::usage(format!("--mode: {} is for {}", scenario.name, modes.join(", ")))
    })
}

/// Announces the lab and answers requests until the lab fails.
async fn serve(
    name: String,
    scenario: &Scenario,
    options: &RunOptions,
    banner: Option<&Path>,
    is_up: &AtomicBool,
) -> Result<u8, Exit> {
    let unable = |error: LabError| {
        let status = if error.is_of_this_machine() { UNABLE } else { FAILED };
        Exit { status, message: error.to_string() }
    };
    let mut lab = KernelLab::start(scenario, options).await.map_err(unable)?;
    for late in lab.take_late() {
        eprintln!("svclab: expected: {}; seen: {}", late.expected, late.seen);
    }
    let about = LabDescription { name, scenario: scenario.path.display().to_string(), mode: options.mode.to_string() };
    let live = lab.open().map_err(unable)?;
    let not_said = |error: std::io::Error| Exit::unable(format!("cannot say that the lab is up: {error}"));
    is_up.store(true, Ordering::Relaxed);
    labs::announce(&about).map_err(not_said)?;
    match banner {
        None => print!("{}", banner::text(&lab, &about, banner::BannerReader::AnotherTerminal)),
        Some(file) => {
            let fresh = file.with_extension("new");
            let text = banner::text(&lab, &about, banner::BannerReader::ThisShell);
            std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, file)).map_err(not_said)?;
        }
    }
    Err(unable(live.serve(&|trouble| eprintln!("svclab: {trouble}")).await))
}
