mod packet_line;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

use clap::Args;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use svclab_netns::capture::{Capture, CapturedPacket, LONGEST};
use svclab_netns::{enter, pcap};

use super::exec;
use super::labs::LabChoice;
use crate::complete;
use crate::exit::Exit;
use packet_line::line;

#[derive(Args)]
pub(super) struct PcapArgs {
    /// Where to listen: node/NAME, pod/NAME, pod/NAMESPACE/NAME, client/NAME, or just the name.
    #[arg(add = complete::places())]
    place: String,
    #[command(flatten)]
    lab: LabChoice,
    /// Write a capture for Wireshark and tcpdump instead of a line for each packet; `-` is standard output.
    #[arg(long, short = 'w', value_name = "FILE")]
    write: Option<PathBuf>,
    /// The only interface to listen to, for example eth0.
    #[arg(long, short = 'i', value_name = "INTERFACE")]
    interface: Option<String>,
    /// End after so many packets.
    #[arg(long, short = 'c', value_name = "NUMBER")]
    count: Option<usize>,
}

enum PacketSink {
    Lines,
    Capture(Box<dyn Write>),
}

impl PacketSink {
    /// Opens the output. Must run before entering the machine, which has another file system.
    fn open(args: &PcapArgs) -> Result<PacketSink, Exit> {
        let mut file: Box<dyn Write> = match &args.write {
            None => return Ok(PacketSink::Lines),
            Some(path) if path.as_os_str() == "-" => {
                if io::stdout().is_terminal() {
                    return Err(Exit::usage("--write -: a capture is not for a terminal; pipe it into a program"));
                }
                Box::new(io::stdout())
            }
            Some(path) => {
                let refused = |error| Exit::usage(format!("cannot write {}: {error}", path.display()));
                Box::new(File::create(path).map_err(refused)?)
            }
        };
        file.write_all(&pcap::head(snap_length())).map_err(lost)?;
        Ok(PacketSink::Capture(file))
    }

    fn take(&mut self, packet: &CapturedPacket, interfaces: &BTreeMap<u32, String>) -> Result<(), Exit> {
        match self {
            PacketSink::Lines => {
                let unknown = packet.interface.to_string();
                let interface = interfaces.get(&packet.interface).unwrap_or(&unknown);
                writeln!(io::stdout(), "{}", line(packet, interface)).map_err(lost)
            }
            PacketSink::Capture(file) => {
                let mut record = Vec::new();
                pcap::record(&mut record, packet, snap_length());
                // One write per packet: SIGKILL must not leave half a packet.
                file.write_all(&record).and_then(|()| file.flush()).map_err(lost)
            }
        }
    }
}

fn lost(error: io::Error) -> Exit {
    // The reader closed the pipe.
    let message =
        if error.kind() == io::ErrorKind::BrokenPipe { String::new() } else { format!("the capture: {error}") };
    Exit::unable(message)
}

fn snap_length() -> u32 {
    u32::try_from(LONGEST).unwrap_or(u32::MAX).saturating_add(20)
}

pub(super) fn run(args: &PcapArgs) -> Result<u8, Exit> {
    let lab = args.lab.find()?;
    let place = exec::choose(&lab.places, &args.place).map_err(Exit::usage)?;
    let mut sink = PacketSink::open(args)?;
    let unable = |error: io::Error| Exit::unable(format!("listening in {}: {error}", place.place));
    let mut set = SigSet::empty();
    [Signal::SIGINT, Signal::SIGTERM].into_iter().for_each(|signal| set.add(signal));
    set.thread_block().map_err(|error| unable(error.into()))?;
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
    let signals = signals.map_err(|error| unable(error.into()))?;
    enter::join(place).map_err(|error| Exit::unable(error.to_string()))?;
    let capture = Capture::open().map_err(unable)?;
    let mut interfaces = interfaces();
    if let Some(wanted) = args.interface.as_ref().filter(|wanted| !interfaces.values().any(|name| name == *wanted)) {
        let known = interfaces.into_values().collect::<Vec<_>>().join(", ");
        return Err(Exit::usage(format!("{} has no interface {wanted} (there is: {known})", place.place)));
    }
    eprintln!("listening in {}; ctrl-c ends it", place.place);
    let most = args.count.unwrap_or(usize::MAX);
    let mut seen = 0;
    let mut over = false;
    while !over && seen < most {
        let mut ready =
            [PollFd::new(signals.as_fd(), PollFlags::POLLIN), PollFd::new(capture.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut ready, PollTimeout::NONE);
        // After a signal, packets that passed before it are still written.
        over = matches!(signals.read_signal(), Ok(Some(_)));
        for packet in capture.waiting().map_err(unable)? {
            if !interfaces.contains_key(&packet.interface) {
                interfaces = self::interfaces();
            }
            let name = interfaces.get(&packet.interface);
            let is_wanted = args.interface.as_ref().is_none_or(|wanted| name == Some(wanted));
            if is_wanted && seen < most {
                sink.take(&packet, &interfaces)?;
                seen += 1;
            }
        }
    }
    eprintln!("{seen} packet{}", if seen == 1 { "" } else { "s" });
    Ok(0)
}

fn interfaces() -> BTreeMap<u32, String> {
    let all = nix::net::if_::if_nameindex();
    let named = |one: &nix::net::if_::Interface| (one.index(), one.name().to_string_lossy().into_owned());
    all.map(|all| all.iter().map(named).collect()).unwrap_or_default()
}
