//! The installer, packages, GitHub Action and workflows.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap()
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn release(folder: &Path) {
    for program in ["svcproxy", "svclab"] {
        script(&folder.join(program), &format!("#!/bin/sh\necho {program} 0.1.0\n"));
    }
    let make = "for a in amd64 arm64; do
        tar czf svcproxy_0.1.0_linux_$a.tar.gz svcproxy svclab
        tar czf svcproxy_0.1.0_linux_${a}_debug.tar.gz svcproxy
    done
    rm svcproxy svclab
    sha256sum -- *.tar.gz >SHA256SUMS";
    assert!(Command::new("sh").args(["-ec", make]).current_dir(folder).status().unwrap().success());
}

fn install(from: &str, to: &Path) -> Output {
    Command::new("sh").arg(root().join("install.sh")).args(["--from", from, "--to"]).arg(to).output().unwrap()
}

fn installed(to: &Path) -> Vec<String> {
    let entries = to.read_dir().into_iter().flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

#[test]
fn the_installer_accepts_a_matching_checksum() {
    let (directory, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    release(directory.path());
    let folder = directory.path().display().to_string();
    for from in [folder.clone(), format!("{folder}/"), format!("file://{folder}")] {
        let target = to.path().join("not yet there");
        let output = install(&from, &target);
        assert!(output.status.success(), "{from}: {}", said(&output));
        assert_eq!(installed(&target), ["svclab", "svcproxy"]);
        assert!(
            said(&output).contains("svclab 0.1.0") && said(&output).contains("is not in PATH"),
            "{}",
            said(&output)
        );
        fs::remove_dir_all(target).unwrap();
    }
}

#[test]
fn the_installer_refuses_a_changed_archive() {
    let (directory, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (folder, from) = (directory.path(), directory.path().display().to_string());
    release(folder);
    fs::write(to.path().join("svcproxy"), "the one before").unwrap();
    let refused = |what: &str, expected: &str| {
        let output = install(&from, to.path());
        assert_eq!(output.status.code(), Some(1), "{what}: {}", said(&output));
        assert!(said(&output).contains(expected), "{what}: {}", said(&output));
        assert_eq!(installed(to.path()), ["svcproxy"], "{what}");
        assert_eq!(fs::read_to_string(to.path().join("svcproxy")).unwrap(), "the one before", "{what}");
    };
    let sums = fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
    for archive in ["svcproxy_0.1.0_linux_amd64.tar.gz", "svcproxy_0.1.0_linux_arm64.tar.gz"] {
        let mut bytes = fs::read(folder.join(archive)).unwrap();
        bytes.push(0);
        fs::write(folder.join(archive), bytes).unwrap();
    }
    refused("an archive with a byte more", "nothing is installed");
    fs::write(folder.join("SHA256SUMS"), sums.replace("_linux_a", "_linux_b")).unwrap();
    refused("no archive for this machine", "names no archive");
    fs::write(folder.join("SHA256SUMS"), sums.repeat(2)).unwrap();
    refused("two of them", "names several archives");
    fs::remove_file(folder.join("SHA256SUMS")).unwrap();
    refused("no sums", "cannot fetch SHA256SUMS");
    let output = install("ftp://example.org/x", to.path());
    assert!(said(&output).contains("no address that can be fetched"), "{}", said(&output));
}

/// Downloads over HTTP; a missing file is an error, and an error page is no archive.
#[test]
fn the_installer_downloads() {
    if Command::new("curl").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "curl is missing");
        eprintln!("SKIPPED: there is no curl here");
        return;
    }
    let (directory, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    release(directory.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let folder = directory.path().to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut request, mut buffer) = (Vec::new(), [0; 1024]);
            while !request.ends_with(b"\r\n\r\n") {
                let read = stream.read(&mut buffer).unwrap();
                request.extend_from_slice(&buffer[..read]);
            }
            let request = String::from_utf8(request).unwrap();
            let path = request.split(' ').nth(1).unwrap();
            let file = path.strip_prefix("/v0.1.0/").and_then(|name| fs::read(folder.join(name)).ok());
            let (status, body) = file.map_or(("404 Not Found", b"not here".to_vec()), |body| ("200 OK", body));
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
        }
    });
    let output = install(&format!("{address}/v0.1.0"), to.path());
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(installed(to.path()), ["svclab", "svcproxy"]);
    let output = install(&format!("{address}/v0.2.0"), &to.path().join("other"));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("cannot fetch SHA256SUMS"), "{}", said(&output));
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(root().join(path)).unwrap()).unwrap()
}

#[test]
fn the_action_passes_its_inputs_to_the_lab() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir_all(at("svclab")).unwrap();
    script(&at("svclab/svclab"), "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 1\n");
    fs::write(at("own.yaml"), "name: own\n").unwrap();
    let run = |inputs: &[(&str, &str)]| {
        let mut command = Command::new(root().join(".github/action/run"));
        command
            .env("GITHUB_ACTION_PATH", root())
            .env("RUNNER_TEMP", directory.path())
            .env("GITHUB_OUTPUT", at("output"));
        let output = command.envs(inputs.iter().copied()).current_dir(directory.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "the lab's status is the step's: {}", said(&output));
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let value = |words: &[String], flag: &str| {
        let found: Vec<String> = words.windows(2).filter(|pair| pair[0] == flag).map(|pair| pair[1].clone()).collect();
        found
    };
    let words = run(&[("PROXY", "my proxy.yaml"), ("SCENARIOS", "hairpin own.yaml"), ("MODES", "iptables nftables")]);
    assert_eq!(value(&words, "--mode"), ["iptables", "nftables"]);
    assert_eq!(value(&words, "--proxy"), ["my proxy.yaml"]);
    let scenarios = root().join("scenarios");
    assert_eq!(words[words.len() - 2..], [scenarios.join("hairpin.yaml").display().to_string(), "own.yaml".to_owned()]);
    let reports = fs::read_to_string(at("output")).unwrap();
    let reports = reports.trim().strip_prefix("reports=").unwrap().to_owned();
    assert!(Path::new(&reports).is_dir());
    for flag in ["--junit", "--json", "--html", "--markdown", "--bundle"] {
        assert!(value(&words, flag)[0].starts_with(&reports), "{words:?}");
    }

    fs::write(Path::new(&reports).join("summary.md"), "# svcproxy\n").unwrap();
    run(&[("GITHUB_STEP_SUMMARY", at("summary").to_str().unwrap())]);
    assert_eq!(fs::read_to_string(at("summary")).unwrap(), "# svcproxy\n");

    let words = run(&[("SHARD", "3/16"), ("SCENARIOS", "hairpin")]);
    assert_eq!((words[0].as_str(), value(&words, "--shard")), ("run", vec!["3/16".to_owned()]));
    fs::create_dir_all(at("reports/shard-1")).unwrap();
    fs::write(at("reports/shard-1/report.json"), "{}").unwrap();
    let words = run(&[("MERGE", "reports")]);
    assert_eq!((words[0].as_str(), words[words.len() - 1].as_str()), ("merge", "reports/shard-1/report.json"));

    fs::write(at("reports/shard-1/card.json"), "{}").unwrap();
    let words = run(&[("CONFORMANCE", "true"), ("MERGE", "reports")]);
    assert_eq!((words[0].as_str(), words[words.len() - 1].as_str()), ("merge", "reports/shard-1/card.json"));
    let words = run(&[("CONFORMANCE", "true"), ("PROXY", "own.yaml"), ("SCENARIOS", "hairpin"), ("SHARD", "1/2")]);
    assert_eq!((words[0].as_str(), value(&words, "--proxy")), ("conformance", vec!["own.yaml".to_owned()]));
    assert!(!words.contains(&"--junit".to_owned()) && !words.contains(&"--keep-going".to_owned()), "{words:?}");

    let all = run(&[("CONFORMANCE", "false")]);
    let files = |path: &Path| {
        path.read_dir()
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|e| e == "yaml"))
            .count()
    };
    assert_eq!(all.iter().filter(|word| word.ends_with(".yaml")).count(), files(&scenarios));
    assert!(!all.contains(&"--mode".to_owned()) && !all.contains(&"--proxy".to_owned()), "{all:?}");
}

#[test]
fn the_action_installs_from_its_input_or_its_own_release() {
    let (directory, temp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    release(directory.path());
    let bin = temp.path().join("bin");
    fs::create_dir(&bin).unwrap();
    // Commands that the step would run on a runner.
    for command in ["sudo", "iptables-nft-restore", "ip", "conntrack", "nft", "ipset"] {
        script(&bin.join(command), "#!/bin/sh\nexit 0\n");
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let step = |inputs: &[(&str, &str)]| {
        let mut command = Command::new(root().join(".github/action/install"));
        command.env("GITHUB_ACTION_PATH", root()).env("RUNNER_TEMP", temp.path()).env("PATH", &path);
        command.envs(inputs.iter().copied()).output().unwrap()
    };
    let output = step(&[("FROM", directory.path().to_str().unwrap())]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(installed(&temp.path().join("svclab")), ["svclab", "svcproxy"]);

    let output = step(&[("REPOSITORY", "owner/repository"), ("REF", "main")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("there is no release called 'main'"));
    let server = ("GITHUB_SERVER_URL", "http://127.0.0.1:1");
    let output = step(&[server, ("REPOSITORY", "owner/repository"), ("REF", "v0.1.0")]);
    let expected = "cannot fetch SHA256SUMS from http://127.0.0.1:1/owner/repository/releases/download/v0.1.0";
    assert!(said(&output).contains(expected), "{}", said(&output));
}

/// Declared inputs are used, used inputs are declared, and steps are executable files.
#[test]
fn the_actions_steps_use_all_inputs() {
    let action = yaml("action.yml");
    let declared: BTreeSet<&str> = action["inputs"].as_object().unwrap().keys().map(String::as_str).collect();
    assert!(action["inputs"].as_object().unwrap().values().all(|input| input["description"].is_string()));
    let text = fs::read_to_string(root().join("action.yml")).unwrap();
    let read = text.split("${{ inputs.").skip(1).map(|rest| rest.split(' ').next().unwrap());
    assert_eq!(read.collect::<BTreeSet<_>>(), declared);
    assert_eq!(action["runs"]["using"], "composite");
    for step in action["runs"]["steps"].as_array().unwrap() {
        let Some(run) = step["run"].as_str() else { continue };
        assert_eq!(step["shell"], "bash");
        let file = run.trim_matches('"').strip_prefix("$GITHUB_ACTION_PATH/").unwrap();
        let mode = fs::metadata(root().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{file}");
        let script = fs::read_to_string(root().join(file)).unwrap();
        for variable in step["env"].as_object().unwrap().keys() {
            assert!(
                script.contains(&format!("${{{variable}")) || script.contains(&format!("${variable}")),
                "{file}: {variable}"
            );
        }
    }
}

/// Shards and merge of the workflow give the action's inputs, and the merge finds the shards' reports.
#[test]
fn the_workflow_of_shards_merges_all_of_them() {
    let (workflow, action) = (yaml(".github/workflows/shards.yml"), yaml("action.yml"));
    let steps = |job: &str| workflow["jobs"][job]["steps"].as_array().unwrap().clone();
    let with = |job: &str, uses: &str| {
        let step =
            steps(job).into_iter().rev().find(|step| step["uses"].as_str().is_some_and(|one| one.starts_with(uses)));
        step.unwrap()["with"].clone()
    };
    for job in ["shard", "merge"] {
        for input in with(job, "./").as_object().unwrap().keys() {
            assert!(action["inputs"][input].is_object(), "{job}: {input}");
        }
    }
    let numbers = workflow["jobs"]["shard"]["strategy"]["matrix"]["number"].as_array().unwrap();
    assert!(numbers.iter().enumerate().all(|(at, number)| *number == at + 1), "{numbers:?}");
    let shard = with("shard", "./");
    assert_eq!(shard["shard"], "${{ matrix.number }}/${{ strategy.job-total }}");
    let reports = with("merge", "actions/download-artifact");
    assert_eq!((&shard["artifact"], &reports["pattern"]), (&"shard-${{ matrix.number }}".into(), &"shard-*".into()));
    assert_eq!(reports["path"], with("merge", "./")["merge"]);
}

/// Foreign actions are pinned; scripts and recipes in workflows exist.
#[test]
fn workflows_name_existing_scripts_and_recipes() {
    let just = fs::read_to_string(root().join("Justfile")).unwrap();
    for name in ["ci", "release", "shards"]
        .map(|name| format!(".github/workflows/{name}.yml"))
        .iter()
        .chain([&"action.yml".to_owned()])
    {
        let file = name.as_str();
        let workflow = yaml(file);
        let mut steps: Vec<&Value> = workflow["runs"]["steps"].as_array().into_iter().flatten().collect();
        for (name, job) in workflow["jobs"].as_object().into_iter().flatten() {
            if let Some(needed) = job["needs"].as_str() {
                assert!(workflow["jobs"][needed].is_object(), "{file}: {name} needs {needed}");
            }
            if let Some(uses) = job["uses"].as_str() {
                let called = yaml(uses.strip_prefix("./").unwrap());
                assert!(called["on"].as_object().unwrap().contains_key("workflow_call"), "{uses}");
            } else {
                assert!(job["timeout-minutes"].is_u64() || name == "publish", "{file}: {name}");
            }
            steps.extend(job["steps"].as_array().into_iter().flatten());
        }
        assert!(!steps.is_empty());
        for step in steps {
            // The action of this repository is tested above.
            if let Some(uses) = step["uses"].as_str().filter(|uses| *uses != "./") {
                let (_, commit) = uses.split_once('@').unwrap();
                assert!(commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{file}: {uses}");
            }
            for word in
                step["run"].as_str().unwrap_or_default().split_whitespace().filter(|word| word.starts_with(".ci/"))
            {
                assert!(root().join(word).is_file(), "{file}: {word}");
            }
            if let Some((_, recipe)) = step["run"].as_str().and_then(|run| run.split_once("./just ")) {
                let recipe = recipe.split_whitespace().next().unwrap();
                assert!(just.lines().any(|line| line.split([' ', ':']).next() == Some(recipe)), "{file}: {recipe}");
            }
        }
    }
}

#[test]
fn the_packages_name_existing_files() {
    for (folder, package) in [("proxy", "svcproxy"), ("lab", "svclab")] {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        let assets: Vec<&str> =
            manifest.lines().filter_map(|line| line.trim().strip_prefix("[\"")?.split('"').next()).collect();
        // .ci/dist puts stripped programs there.
        assert!(assets.contains(&format!("target/release/packed/{package}").as_str()), "{assets:?}");
        assert!(
            assets.iter().all(|asset| !asset.starts_with("target/") || asset.starts_with("target/release/packed/"))
        );
        for asset in assets.iter().filter(|asset| !asset.starts_with("target/")) {
            let path = root().join(folder).join(asset.replace("*.md", "audit.md"));
            assert!(path.is_file(), "{folder}: {asset}");
        }
    }
    let proxy = fs::read_to_string(root().join("proxy/Cargo.toml")).unwrap();
    assert!(proxy.contains("unit-scripts = \"../deploy\"") && root().join("deploy/svcproxy.service").is_file());
}

#[test]
fn files_have_the_version_of_the_program() {
    let version = env!("CARGO_PKG_VERSION");
    for file in ["CHANGELOG.md", "docs/migration.md", "docs/install.md", "deploy/base/kustomization.yaml"] {
        assert!(fs::read_to_string(root().join(file)).unwrap().contains(version), "{file}");
    }
}
