//! `svclab up` in a microVM, with a shell that reads a pipe or a terminal.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::said;
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{LocalFlags, tcgetattr};

/// The limit of an attempt: a boot and a cluster on a busy machine that fetches packages.
const LIMIT: Duration = Duration::from_secs(900);

fn svclab(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.args(args).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    command
}

fn is_unable(status: Option<i32>, output: &str) -> bool {
    let unable = status == Some(3) && output.contains("`--kernel host` needs no");
    assert!(!unable || std::env::var_os("CI").is_none(), "{output}");
    if unable {
        eprintln!("no microVM here, so this test shows nothing: {output}");
    }
    unable
}

const SCRIPT: &str = "\
uname -r
svclab ps
svclab probe --from pod/web --to service/web --count 5
svclab exec node/node-b -- ipvsadm -Ln
svclab exec pod/web -- wget -qO- http://$(svclab exec node/node-a -- sh -c 'ipvsadm -Ln' | sed -n 's/^TCP  \\(10[.]96[^ ]*\\).*/\\1/p')/
svclab logs node-a | head -1
svclab pcap pod/web --count 1 2>/run/pcap & until grep -q listening /run/pcap; do sleep 0.1; done; svclab probe --from pod/web --to service/web >/dev/null; wait
echo to-standard-error >&2
";

#[test]
fn commands_from_a_pipe_have_a_lab_on_another_kernel() {
    let mut command = svclab(&["up", "--kernel", "debian-6.1", "--mode", "ipvs", "hairpin"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The input is longer than what svclab sends to the guest at once.
    let filling: String = (0..3000).map(|number| format!("echo line {number} of many\n")).collect();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(format!("{SCRIPT}{filling}exit 7\n").as_bytes()));
    let output = child.wait_with_output().unwrap();
    let all = said(&output);
    if is_unable(output.status.code(), &all) {
        return;
    }
    assert_eq!(output.status.code(), Some(7), "the shell's: {all}");
    writer.join().unwrap().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let (answers, data) = out.split_at(out.find("line 0 of many\n").expect(&all));
    let expected: String = (0..3000).map(|number| format!("line {number} of many\n")).collect();
    assert_eq!(data, expected, "everything arrives, once and in order");
    for part in [
        "hairpin is up in ipvs mode; `exit` ends it",
        "\n6.1.",
        "scenarios/hairpin.yaml  ipvs",
        "5 of 5 answered",
        " rr\n  -> 10.244.1.2:8080",
        "default/web on node-a answered at 10.244.1.2:8080; it saw you as ",
        "svcproxy ",
        " eth0 out 10.244.1.2:",
    ] {
        assert!(answers.contains(part), "{part}: {all}");
    }
    assert!(err.starts_with("kernel: debian-6.1 in a microVM ("), "{err}");
    assert!(err.contains("\nto-standard-error\n") && !answers.contains("to-standard-error"), "{all}");
}

struct OnTerminal {
    child: Child,
    terminal: OwnedFd,
    /// Held open to read its settings.
    slave: OwnedFd,
    typed: File,
    seen: Arc<Mutex<String>>,
    /// The length of the output that `shows` has consumed.
    read: usize,
}

impl OnTerminal {
    fn start(args: &[&str]) -> OnTerminal {
        let size = Winsize { ws_row: 31, ws_col: 117, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let side = || pty.slave.try_clone().unwrap();
        let mut command = svclab(args);
        let child = command.env("TERM", "xterm").stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let seen = Arc::new(Mutex::new(String::new()));
        let (master, text) = (pty.master.try_clone().unwrap(), Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = nix::unistd::read(&master, &mut piece) {
                text.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..length]));
            }
        });
        let typed = File::from(pty.master.try_clone().unwrap());
        OnTerminal { child, terminal: pty.master, slave: pty.slave, typed, seen, read: 0 }
    }

    /// Waits for `part` and returns the new text before it. `None`: svclab has ended.
    fn shows(&mut self, part: &str) -> Option<String> {
        let end = Instant::now() + LIMIT;
        loop {
            let has_ended = self.child.try_wait().unwrap().is_some();
            let seen = self.seen.lock().unwrap().clone();
            if let Some((before, _)) = seen[self.read..].split_once(part) {
                self.read += before.len() + part.len();
                return Some(before.to_owned());
            }
            if has_ended {
                return None;
            }
            assert!(Instant::now() < end, "{part:?} does not come: {seen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn types(&mut self, text: &str) {
        self.typed.write_all(text.as_bytes()).unwrap();
    }

    /// Whether the terminal has its defaults: it edits lines and turns ctrl-c into a signal.
    fn is_plain(&self) -> bool {
        tcgetattr(&self.slave).unwrap().local_flags.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_terminal_reaches_a_shell_beside_the_lab() {
    // Without IPVS on this machine svclab chooses a microVM itself.
    let lacks_ipvs = !Path::new("/proc/net/ip_vs").exists();
    let kernel: &[&str] = if lacks_ipvs { &[] } else { &["--kernel", "debian-6.1"] };
    let mut lab = OnTerminal::start(&[&["up", "hairpin", "--mode", "ipvs", "--name", "apart"], kernel].concat());
    let prompt = "apart (debian-6.1) # ";
    let Some(banner) = lab.shows(prompt) else {
        let (status, seen) = (lab.child.wait().unwrap().code(), lab.seen.lock().unwrap().clone());
        assert!(is_unable(status, &seen), "{status:?} {seen}");
        return;
    };
    assert!(
        banner.contains("apart is up in ipvs mode") && banner.contains("\r\n  node/node-a  172.18.0.2"),
        "{banner}"
    );
    assert!(!lacks_ipvs || banner.contains("needs ipvs, which this machine's kernel lacks"), "{banner}");
    assert!(!lab.is_plain(), "keys go to the guest");
    lab.types("tty; stty size; echo $TERM\r");
    let answer = lab.shows(prompt).unwrap();
    assert!(answer.contains("/dev/pts/0\r\n31 117\r\nxterm\r\n"), "{answer:?}");
    // Resizes the terminal, as an emulator does when its window changes.
    let mut resize = Command::new("stty");
    resize.args(["rows", "25", "cols", "90"]).stdin(lab.terminal.try_clone().unwrap());
    assert!(resize.status().unwrap().success());
    lab.types("until stty size | grep '^25 90$'; do sleep 1; done\r");
    // The shell may print its prompt again when its window changes.
    lab.shows("\r\n25 90\r\n").unwrap();
    lab.shows(prompt).unwrap();
    // The command that prints is in the foreground; an earlier ctrl-c would reach the shell.
    lab.types("sh -c 'echo at work; exec sleep 98765'\r");
    lab.shows("\r\nat work\r\n").unwrap();
    lab.types("\u{3}");
    lab.shows(prompt).expect("ctrl-c ends what runs in the guest, and not the lab");
    lab.types("svclab probe --from pod/web --to service/web --count 3\r");
    lab.shows("3 of 3 answered").unwrap();
    lab.shows(prompt).unwrap();
    lab.types("\u{1d}");
    let end = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = lab.child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < end, "ctrl-] is the way out");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0));
    assert!(lab.is_plain(), "the terminal is as it was");
}
