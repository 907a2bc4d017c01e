//! Labs of `svclab up`, and commands for them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::support::{eventually, finish};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The limit of a command on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

fn svclab(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svclab"));
    command.args(args).stdin(Stdio::null()).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    command
}

fn run(args: &[&str]) -> Output {
    finish(svclab(args), LIMIT)
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether a program is installed; CI requires it.
fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    assert!(found || std::env::var_os("CI").is_none(), "there is no {program}");
    if !found {
        eprintln!("NOT RUN: there is no {program}");
    }
    found
}

/// A running lab with a unique name: other tests' labs are up at the same time.
struct Up {
    child: Child,
    name: String,
    banner: String,
}

impl Up {
    /// Starts a lab; `None`: this machine cannot run labs.
    fn start(args: &[&str]) -> Option<Up> {
        let unique = std::thread::current().name().unwrap_or("test").replace(':', "");
        let name = format!("{unique}-{}", std::process::id());
        let mut command = svclab(&[&["up", "--name", &name], args].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut banner = String::new();
        while !banner.contains(" pcap ") {
            let Some(line) = lines.next() else {
                let code = child.wait().unwrap().code();
                assert!(code == Some(3) && std::env::var_os("CI").is_none(), "svclab up ended: {code:?}");
                return None;
            };
            banner.push_str(&format!("{}\n", line.unwrap()));
        }
        Some(Up { child, name, banner })
    }

    fn exec(&self, place: &str, command: &[&str]) -> Output {
        run(&[&["exec", "--name", &self.name, place, "--"], command].concat())
    }

    fn said(&self, place: &str, command: &[&str]) -> String {
        let output = self.exec(place, command);
        assert!(output.status.success(), "{command:?}: {:?} {}{}", output.status, out(&output), err(&output));
        out(&output)
    }

    fn kubectl(&self, args: &str) -> Output {
        let line: Vec<&str> = ["kubectl"].into_iter().chain(args.split(' ')).collect();
        self.exec("node/node-a", &line)
    }

    fn kubectl_said(&self, args: &str) -> String {
        let output = self.kubectl(args);
        assert!(output.status.success(), "kubectl {args}: {}{}", out(&output), err(&output));
        out(&output)
    }

    fn cluster_ip(&self) -> String {
        let line = self.banner.lines().find(|line| line.contains("service/default/")).expect("a service");
        let address = line.split_whitespace().find(|word| word.starts_with("10.96."));
        address.unwrap_or_else(|| panic!("{line}")).to_owned()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

#[test]
fn an_echo_server_answers_curl() {
    if !has("curl") {
        return;
    }
    let Some(lab) = Up::start(&["hairpin"]) else { return };
    let url = format!("http://{}/", lab.cluster_ip());
    let answer = lab.said("node/node-b", &["curl", "-sS", &url]);
    assert!(answer.starts_with("default/web on node-a answered at 10.244.1.2:8080; it saw you as "), "{answer}");
    assert_eq!(answer.lines().count(), 1, "{answer}");
    let json = lab.said("pod/web", &["curl", "-sS", "-H", "Accept: application/json", &url]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["server"], &json["node"]), (&"default/web".into(), &"node-a".into()), "{json}");
    assert!(json["peer"].as_str().unwrap().starts_with("10.244.1.1:"), "hairpin: {json}");

    let twice = lab.exec("node/node-b", &["curl", "-sSv", &url, &format!("{url}again")]);
    assert_eq!(out(&twice).matches("default/web").count(), 2, "{}", err(&twice));
    assert!(err(&twice).contains("Re-using existing connection"), "{}", err(&twice));
    let head = lab.said("node/node-b", &["curl", "-sSI", &url]);
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("content-length: "), "{head}");
    let post = lab.said("node/node-b", &["curl", "-sS", "-d", "hello", &url]);
    assert!(post.starts_with("default/web on node-a"), "{post}");
    let raw = format!("exec 3<>/dev/tcp/{}/80; printf 'GET / HTTP/9\\r\\n\\r\\n' >&3; cat <&3", lab.cluster_ip());
    let bad = lab.said("node/node-b", &["bash", "-c", &raw]);
    assert!(bad.starts_with("HTTP/1.1 400 Bad Request"), "{bad}");
}

#[test]
fn the_banner_lists_the_cluster_and_its_commands_work() {
    let Some(lab) = Up::start(&["hairpin"]) else { return };
    let banner = &lab.banner;
    for part in [
        "is up in iptables mode",
        "  node/node-a  172.18.0.2  pods in 10.244.1.0/24\n",
        "  pod/default/web  10.244.1.2  8080/TCP  on node-a\n",
        "  service/default/web  LoadBalancer  10.96.",
        "external IP 198.51.100.7; load balancer 203.0.113.",
    ] {
        assert!(banner.contains(part), "{part}: {banner}");
    }
    for (verb, said) in [(" curl ", "default/web on node-a"), (" probe ", "10 of 10 answered"), (" logs ", "")] {
        if verb == " curl " && !has("curl") {
            continue;
        }
        let line = banner.lines().find(|line| line.contains(verb)).unwrap_or_else(|| panic!("{verb}: {banner}"));
        let mut pasted = Command::new("sh");
        pasted.args(["-c", line]).stdin(Stdio::null()).current_dir("/");
        let output = finish(pasted, LIMIT);
        assert!(output.status.success() && out(&output).contains(said), "{line}: {}{}", out(&output), err(&output));
    }
}

#[test]
fn exec_has_the_exit_status_of_the_command() {
    let Some(lab) = Up::start(&["hairpin"]) else { return };
    for (place, name) in [("node/node-b", "node-b"), ("pod/web", "web")] {
        let seen = lab.said(place, &["sh", "-c", "cat /proc/sys/kernel/hostname; echo $HOSTNAME"]);
        assert_eq!(seen, format!("{name}\n{name}\n"));
    }
    for (command, status, says) in [
        (&["/proc/nowhere/program"][..], 127, "node/node-a: /proc/nowhere/program: No such file"),
        (&["no-such-program"], 127, "no-such-program"),
        (&["/etc/passwd"], 126, "Permission denied"),
        (&["sh", "-c", "kill -TERM $$"], 143, ""),
        (&["sh", "-c", "exit 7"], 7, ""),
    ] {
        let output = lab.exec("node/node-a", command);
        assert_eq!(output.status.code(), Some(status), "{command:?}: {}", err(&output));
        assert!(err(&output).contains(says), "{command:?}: {}", err(&output));
    }
}

#[test]
fn down_ends_a_lab_by_its_name() {
    let Some(mut first) = Up::start(&["hairpin"]) else { return };
    let same = run(&["up", "hairpin", "--name", &first.name]);
    assert_eq!(same.status.code(), Some(2), "{}", err(&same));
    assert!(err(&same).contains(&format!("a lab {} is up already", first.name)), "{}", err(&same));
    let other_name = format!("{}-other", first.name);
    let mut other = svclab(&["up", "clusterip", "--mode", "nftables", "--name", &other_name]);
    let mut other = other.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the other lab is up", || {
        out(&run(&["ps"])).contains(&other_name) || other.try_wait().unwrap().is_some()
    });
    let listed = out(&run(&["ps"]));
    let row = |name: &str| {
        let line = listed.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("NAME"), ["NAME", "SCENARIO", "MODE", "AGE", "PID"]);
    let (own, others) = (row(&first.name), row(&other_name));
    assert_eq!(own[1..3], ["scenarios/hairpin.yaml", "iptables"], "{listed}");
    assert_eq!((own[4].as_str(), others[2].as_str()), (first.child.id().to_string().as_str(), "nftables"), "{listed}");

    let which = run(&["exec", "node/node-a", "--", "true"]);
    assert_eq!(which.status.code(), Some(2), "{}", err(&which));
    for part in [first.name.as_str(), &other_name, "choose with --name"] {
        assert!(err(&which).contains(part), "{}", err(&which));
    }
    let down = run(&["down", &first.name]);
    assert_eq!((down.status.code(), out(&down)), (Some(0), format!("{} is down\n", first.name)), "{}", err(&down));
    assert_eq!(first.child.try_wait().unwrap().and_then(|status| status.code()), Some(0), "it is gone, in order");
    let gone = first.exec("node/node-a", &["true"]);
    assert!(gone.status.code() == Some(2) && err(&gone).contains(&first.name), "{}", err(&gone));
    assert!(run(&["down", &other_name]).status.success());
    assert!(other.wait().unwrap().success());
}

#[test]
fn probe_logs_and_pcap_show_answers_log_lines_and_packets() {
    let Some(lab) = Up::start(&["hairpin"]) else { return };
    let probe = |to: &str, more: &[&str]| {
        let probe = ["probe", "--name", &lab.name, "--from", "pod/web", "--to", to];
        run(&[&probe[..], more].concat())
    };
    let answered = probe("service/web:80", &["--count", "5"]);
    assert_eq!(answered.status.code(), Some(0), "{}", err(&answered));
    let text = out(&answered);
    assert!(text.contains(":80/TCP: 5 of 5 answered\n  ×5  default/web  node-a  saw 10.244.1.1 ×5\n"), "{text}");
    let refused = probe("pod/web:1", &["--count", "2"]);
    assert_eq!(refused.status.code(), Some(1), "{}", err(&refused));
    assert!(out(&refused).contains("0 of 2 answered\n  ×2  refused"), "{}", out(&refused));
    let unknown = probe("service/nothing", &[]);
    assert!(unknown.status.code() == Some(2) && err(&unknown).contains("default/web"), "{}", err(&unknown));

    let logs = run(&["logs", "--name", &lab.name, "node-b"]);
    assert!(logs.status.success() && !out(&logs).is_empty(), "{}", err(&logs));
    let all = out(&run(&["logs", "--name", &lab.name]));
    assert!(all.contains("node-a: ") && all.contains("node-c: "), "{all}");
    let nowhere = run(&["logs", "--name", &lab.name, "node-z"]);
    assert!(nowhere.status.code() == Some(2) && err(&nowhere).contains("node-a, node-b"), "{}", err(&nowhere));

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.pcap");
    let listen = |more: &[&str]| {
        let pcap = ["pcap", "--name", &lab.name, "pod/web", "--interface", "eth0", "--count", "3"];
        let mut command = svclab(&[&pcap[..], more].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut complaints = BufReader::new(child.stderr.take().unwrap()).lines();
        assert_eq!(complaints.next().unwrap().unwrap(), "listening in pod/default/web; ctrl-c ends it");
        assert!(probe("service/web", &["--count", "1"]).status.success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        out(&output)
    };
    let lines = listen(&[]);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.contains(" eth0 out 10.244.1.2:") && lines.contains(":80 TCP [S]"), "{lines}");
    assert_eq!(listen(&["--write", file.to_str().unwrap()]), "");
    let captured = std::fs::read(&file).unwrap();
    assert_eq!(captured[..4], 0xa1b2_c3d4_u32.to_ne_bytes());
    assert!(captured.len() > 24 + 3 * (16 + 20 + 40), "{}", captured.len());
}

#[test]
fn up_uses_the_mode_and_the_proxy_of_its_flags() {
    let directory = tempfile::tempdir().unwrap();
    let proxy = std::env::var_os("SVCPROXY").map(PathBuf::from);
    let proxy = proxy.unwrap_or_else(|| Path::new(env!("CARGO_BIN_EXE_svclab")).with_file_name("svcproxy"));
    let file = directory.path().join("proxy.yaml");
    let description = format!(
        "name: by-the-book\ncommand: [{}, --config, '{{config}}', '--hostname-override={{node}}']\n",
        proxy.display()
    );
    std::fs::write(&file, description).unwrap();
    let Some(lab) = Up::start(&["hairpin", "--mode", "nftables", "--proxy", file.to_str().unwrap()]) else { return };
    assert!(lab.banner.contains("is up in nftables mode"), "{}", lab.banner);
    let rules = lab.said("node/node-a", &["nft", "list", "tables"]);
    assert!(rules.contains("kube-proxy") || rules.contains("svcproxy"), "{rules}");
    let probe = run(&["probe", "--name", &lab.name, "--from", "node/node-b", "--to", "service/web"]);
    assert!(probe.status.success(), "{}{}", out(&probe), err(&probe));
    let wrong = run(&["up", "kill-mid-sync", "--mode", "userspace"]);
    assert!(wrong.status.code() == Some(2) && err(&wrong).contains("kill-mid-sync is for "), "{}", err(&wrong));
}

/// A pod as a client of the API writes it.
const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"late","labels":{"app":"web"}},"spec":{"nodeName":"node-c","containers":[{"name":"web","image":"any","ports":[{"containerPort":8080}]}]}}"#;

#[test]
fn a_pod_applied_to_the_api_runs_until_it_is_deleted() {
    if !has("curl") {
        return;
    }
    let Some(lab) = Up::start(&["hairpin"]) else { return };
    let call = |method: &str, path: &str, body: &str| {
        let script = format!(
            "token=$(grep -o '\"token\": \"[^\"]*' $KUBECONFIG | cut -d '\"' -f 4); \
             curl -sSk -X {method} -H \"Authorization: Bearer $token\" -H 'Content-Type: application/json' \
             https://127.0.0.1:6443{path} {}",
            if body.is_empty() { String::new() } else { format!("-d '{body}'") }
        );
        let said = lab.said("node/node-a", &["sh", "-c", &script]);
        serde_json::from_str::<serde_json::Value>(&said).unwrap_or_else(|_| panic!("{method} {path}: {said}"))
    };
    let pods = "/api/v1/namespaces/default/pods";
    let made = call("POST", pods, POD);
    assert_eq!(made["status"]["phase"], "Pending", "nobody has built it yet: {made}");
    assert!(made["status"]["podIP"].is_null(), "{made}");
    let state = || call("GET", &format!("{pods}/late"), "")["status"].clone();
    eventually("the pod runs", || state()["phase"] == "Running");
    assert_eq!(state()["podIP"], "10.244.3.2", "{}", state());
    let slices = || call("GET", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", "").to_string();
    assert!(slices().contains("10.244.3.2"), "{}", slices());
    let host = lab.said("pod/late", &["sh", "-c", "cat /proc/sys/kernel/hostname; curl -sS http://10.244.3.2:8080/"]);
    assert!(host.starts_with("late\ndefault/late on node-c answered at 10.244.3.2:8080"), "{host}");
    let probe =
        || out(&run(&["probe", "--name", &lab.name, "--from", "node/node-b", "--to", "service/web", "--count", "40"]));
    eventually("both pods answer", || probe().contains("default/late") && probe().contains("40 of 40"));

    // Both pods need the node's port 9000: the second stays pending, with the reason.
    for name in ["one", "two"] {
        let spec = r#""spec":{"hostNetwork":true,"nodeName":"node-b","containers":[{"name":"c","ports":[{"containerPort":9000}]}]}"#;
        call("POST", pods, &format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}},{spec}}}"#));
        let ended = if name == "one" { "Running" } else { "is already used" };
        eventually("it has been tried", || {
            call("GET", &format!("{pods}/{name}"), "")["status"].to_string().contains(ended)
        });
    }
    assert_eq!(call("GET", &format!("{pods}/two"), "")["status"]["phase"], "Pending");
    call("DELETE", &format!("{pods}/one"), "");
    eventually("the port is free for the other", || {
        call("GET", &format!("{pods}/two"), "")["status"]["phase"] == "Running"
    });

    call("DELETE", &format!("{pods}/late"), "");
    eventually("the pod's namespace is gone", || lab.exec("pod/late", &["true"]).status.code() == Some(2));
    assert!(!slices().contains("10.244.3.2"), "{}", slices());
    eventually("the first pod answers alone", || {
        let said = probe();
        said.contains("40 of 40") && !said.contains("default/late")
    });
}

#[test]
fn kubectl_creates_scales_and_rolls_out_a_deployment() {
    if !has("kubectl") {
        return;
    }
    let Some(lab) = Up::start(&["hairpin"]) else { return };
    let create = "create deployment shop --image=shop:1 --port=8080 --replicas=2";
    lab.kubectl_said(create);
    // The same in JSON changes nothing.
    let applied = format!("kubectl {create} --dry-run=client -o yaml | kubectl apply -f -");
    let applied = lab.said("node/node-a", &["sh", "-c", &applied]);
    assert!(applied.contains("deployment.apps/shop"), "{applied}");
    lab.kubectl_said("expose deployment shop --port=80 --target-port=8080");
    lab.kubectl_said("rollout status deployment/shop --timeout=60s");
    let pods = || lab.kubectl_said("get pods -l app=shop -o jsonpath={.items[*].metadata.name}");
    let first = pods();
    assert_eq!(first.split(' ').count(), 2, "{first}");
    let answered = |count: &str| {
        let probe = ["probe", "--name", &lab.name, "--from", "pod/web", "--to", "service/shop", "--count", count];
        out(&run(&probe))
    };
    eventually("both answer", || first.split(' ').all(|pod| answered("60").contains(pod)));

    lab.kubectl_said("scale deployment/shop --replicas=4");
    lab.kubectl_said("rollout status deployment/shop --timeout=60s");
    assert_eq!(pods().split(' ').count(), 4, "{}", pods());
    assert!(first.split(' ').all(|pod| pods().contains(pod)), "the first two stay: {}", pods());
    lab.kubectl_said("scale deployment/shop --replicas=1");
    eventually("one is left", || pods().split(' ').count() == 1);
    let last = pods();
    eventually("it answers alone", || answered("20").contains(&format!("×20  default/{last}")));

    lab.kubectl_said("set image deployment/shop shop=shop:2");
    lab.kubectl_said("rollout status deployment/shop --timeout=60s");
    assert!(!pods().contains(&last) && pods().split(' ').count() == 1, "{}", pods());
    let listed = lab.kubectl_said("get deployments,replicasets");
    assert!(listed.contains("1/1") && listed.matches("replicaset.apps/shop-").count() == 2, "{listed}");

    let logs = lab.kubectl("logs web");
    assert!(!logs.status.success() && err(&logs).contains("`svclab logs NODE`"), "{}", err(&logs));
    let exec = lab.kubectl("exec web -- true");
    assert!(
        !exec.status.success() && err(&exec).contains("`svclab exec pod/default/web -- COMMAND`"),
        "{}",
        err(&exec)
    );

    lab.kubectl_said("delete deployment shop");
    eventually("its pods are gone", || pods().is_empty());
    let places = err(&lab.exec("pod/none", &["true"]));
    assert!(!places.contains("shop"), "{places}");
}
