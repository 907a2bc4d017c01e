//! The tested proxy: svcproxy, or another project's proxy with a description file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use semver::Version;
use serde::Deserialize;
use serde_json::{Value, json};
use svclab_apiserver::objects::family_name;
use svclab_audit::owner::ProxyTables;
use svclab_cluster::process::ProcessSpec;
use svclab_netns::sandbox::WHOLE_MACHINE;

pub use self::command::Placeholders;
use self::excuse::Excuses;
use self::names::Keys;
pub(super) use self::ready::HEALTH;
pub use self::ready::Ready;
use self::versioned_mode::VersionedMode;

use crate::mode::Mode;
use crate::report::TestedProxy;
use crate::scenario::Scenario;
use crate::scenario::file::{RuleFamily, nft_table};
use crate::scenario::values::TimeSpan;
use crate::shipped::{self, SCENARIOS};

mod command;
mod excuse;
mod names;
mod ready;
mod versioned_mode;

#[derive(Debug, Clone)]
pub enum ProxyUnderTest {
    /// svcproxy, which reports applied versions.
    Own(PathBuf),
    /// Another project's proxy: only traffic shows what it has applied.
    Foreign(Box<ForeignProxy>),
}

impl ProxyUnderTest {
    pub fn is_foreign(&self) -> bool {
        matches!(self, ProxyUnderTest::Foreign(_))
    }

    /// Whether the proxy has the mode, by its description if it has one.
    pub fn has(&self, mode: Mode) -> bool {
        match self {
            ProxyUnderTest::Own(_) => mode != Mode::Other,
            ProxyUnderTest::Foreign(foreign) => foreign.has(mode),
        }
    }

    /// `given`: the value of `--proxy`.
    pub fn tested(&self, given: Option<String>) -> TestedProxy {
        match self {
            ProxyUnderTest::Own(_) => TestedProxy { name: "svcproxy".to_owned(), version: None, given },
            ProxyUnderTest::Foreign(foreign) => {
                let version = foreign.version().map(Version::to_string);
                TestedProxy { name: foreign.name.clone(), version, given }
            }
        }
    }
}

/// A proxy's description. Commands and variables may use `{node}`, `{kubeconfig}`, `{config}` and `{mode}`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignProxy {
    pub name: String,
    pub command: Vec<String>,
    /// Empty: kube-proxy's modes.
    #[serde(default)]
    modes: Vec<VersionedMode>,
    /// The address families that the proxy programs; `None`: both.
    families: Option<Vec<RuleFamily>>,
    /// The tables of nftables that are the proxy's, in every mode, each `FAMILY NAME`; `None`: those of kube-proxy in
    /// nftables mode.
    tables: Option<Vec<String>>,
    version: Option<Vec<String>>,
    #[serde(skip)]
    found: Option<Version>,
    pub init: Option<Vec<String>>,
    /// Environment variables for the proxy and its other commands.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub ready: Ready,
    #[serde(default, rename = "startTimeout")]
    start_timeout: Option<TimeSpan>,
    pub cleanup: Option<Vec<String>>,
    /// A merge patch (RFC 7396) for the lab's KubeProxyConfiguration.
    pub config: Option<Value>,
    #[serde(default, deserialize_with = "excuse::read")]
    excused: Excuses,
    /// Known broken promises, with reasons.
    #[serde(default, rename = "excusedPromises", deserialize_with = "excuse::read_promises")]
    excused_promises: Excuses,
}

#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ProxyFileError {
    pub path: String,
    pub problem: String,
}

impl ForeignProxy {
    pub fn read(path: &Path) -> Result<ForeignProxy, ProxyFileError> {
        ForeignProxy::read_with(path, None)
    }

    /// Like [`ForeignProxy::read`], but looks up programs in `first` before `PATH`.
    pub fn read_with(path: &Path, first: Option<&Path>) -> Result<ForeignProxy, ProxyFileError> {
        let wrong = |problem: String| ProxyFileError { path: path.display().to_string(), problem };
        let text = crate::input::InputFiles::default().text(path).map_err(|error| wrong(error.to_string()))?;
        let proxy: ForeignProxy =
            serde_saphyr::from_str(&text).map_err(|error| wrong(crate::scenario::plain_message(&error)))?;
        let keys = Keys::of(&text);
        proxy.check_excused(&keys).and_then(|()| keys.check_config()).map_err(wrong)?;
        proxy.checked(first, &keys).map_err(wrong)
    }

    /// Reads what an audit needs of a description: the proxy's mode, if it names one only, and its tables. Its programs need
    /// not exist.
    pub fn read_for_audit(path: &Path) -> Result<(Option<Mode>, ProxyTables), ProxyFileError> {
        let wrong = |problem: String| ProxyFileError { path: path.display().to_string(), problem };
        let text = crate::input::InputFiles::default().text(path).map_err(|error| wrong(error.to_string()))?;
        let mut proxy: ForeignProxy =
            serde_saphyr::from_str(&text).map_err(|error| wrong(crate::scenario::plain_message(&error)))?;
        proxy.check_tables().map_err(wrong)?;
        let mode = match proxy.modes.as_slice() {
            [only] => Some(only.mode),
            _ => None,
        };
        Ok((mode, proxy.audited_tables()))
    }

    pub fn from_command(text: &str) -> Result<ForeignProxy, ProxyFileError> {
        let wrong = |problem: String| ProxyFileError { path: "--proxy".to_owned(), problem };
        let command = shlex::split(text).ok_or_else(|| wrong(format!("{text}: a quote is not closed")))?;
        let program = command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
        ForeignProxy::of(program.to_string_lossy().into_owned(), command).checked(None, &Keys::default()).map_err(wrong)
    }

    pub fn is_command(text: &str) -> bool {
        command::has_places(text)
    }

    fn of(name: String, command: Vec<String>) -> ForeignProxy {
        ForeignProxy {
            name,
            command,
            modes: Vec::new(),
            families: None,
            tables: None,
            version: None,
            found: None,
            init: None,
            env: BTreeMap::new(),
            ready: Ready::default(),
            start_timeout: None,
            cleanup: None,
            config: None,
            excused: Excuses::new(),
            excused_promises: Excuses::new(),
        }
    }

    fn commands(&mut self) -> impl Iterator<Item = (&'static str, &mut Vec<String>)> {
        let ready = match &mut self.ready {
            Ready::Command(command) => Some(command),
            Ready::Url { .. } | Ready::Marker => None,
        };
        let optional = [
            ("version", self.version.as_mut()),
            ("init", self.init.as_mut()),
            ("ready.command", ready),
            ("cleanup", self.cleanup.as_mut()),
        ];
        let optional = optional.into_iter().filter_map(|(key, command)| Some((key, command?)));
        [("command", &mut self.command)].into_iter().chain(optional)
    }

    pub fn process(&self, command: &[String], places: &Placeholders) -> ProcessSpec {
        let mut argv = command.iter().map(|part| command::fill(part, places));
        let program = argv.next().unwrap_or_default().into();
        let env = self.env.iter().map(|(name, value)| (name.clone(), command::fill(value, places)));
        ProcessSpec { program, args: argv.collect(), env: env.collect() }
    }

    pub fn programs(&self) -> Vec<String> {
        let mut programs: Vec<String> =
            self.clone().commands().filter_map(|(_, command)| command.first().cloned()).collect();
        programs.sort();
        programs.dedup();
        programs
    }

    /// A misspelt name would excuse nothing. A microVM lacks the user's own scenarios, and its host has checked the names.
    fn check_excused(&self, keys: &Keys) -> Result<(), String> {
        if std::env::var_os(WHOLE_MACHINE).is_some() {
            return Ok(());
        }
        let is_own = |name: &str| {
            let here = std::env::current_dir().unwrap_or_default();
            here.ancestors().any(|folder| folder.join(SCENARIOS).join(name).with_extension("yaml").is_file())
        };
        let known: Vec<&str> = shipped::scenario_names().collect();
        let unknown = self.excused.keys().find(|name| !known.contains(&name.as_str()) && !is_own(name));
        let Some(name) = unknown else { return Ok(()) };
        let place = keys.place(&["excused", name]);
        Err(format!("{place}excused.{name}: there is no such scenario{}", names::meant(name, &known)))
    }

    /// Checks the description, resolves programs and asks for the version.
    fn checked(mut self, first: Option<&Path>, keys: &Keys) -> Result<ForeignProxy, String> {
        self.commands().try_for_each(|(key, command)| command::check(key, command, first))?;
        if self.families.as_ref().is_some_and(Vec::is_empty) {
            return Err("families: expected ipv4, ipv6 or both".to_owned());
        }
        self.check_tables()?;
        if self.start_timeout.is_some_and(|span| span.0.is_zero()) {
            return Err("startTimeout: expected more than 0s".to_owned());
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(format!("{}env: {name:?} cannot be an environment variable", keys.place(&["env", name])));
            }
            let place = keys.place(&["env", name]);
            command::check_places(&format!("{place}env.{name}"), value)?;
        }
        match &self.version {
            Some(version) => {
                let printed = command::output(version).map_err(|problem| format!("version: {problem}"))?;
                let found = excuse::version_in(&printed);
                let none = || format!("version: {}: found no version in {:?}", version.join(" "), printed.trim());
                self.found = Some(found.ok_or_else(none)?);
            }
            None => {
                if let Some(VersionedMode { mode, .. }) = self.modes.iter().find(|has| has.versions.is_some()) {
                    return Err(format!(
                        "modes: `versions` of {mode} goes with `version`, a command that prints the proxy's version"
                    ));
                }
                let all = [("excused", &self.excused), ("excusedPromises", &self.excused_promises)];
                let mut all = all.into_iter().flat_map(|(key, excuses)| excuses.iter().map(move |one| (key, one)));
                if let Some((key, (name, _))) = all.find(|(_, (_, excuse))| excuse.asks_for_the_version()) {
                    return Err(format!(
                        "{key}.{name}: `versions` goes with `version`, a command that prints the proxy's version"
                    ));
                }
            }
        }
        Ok(self)
    }

    fn check_tables(&mut self) -> Result<(), String> {
        for table in self.tables.iter_mut().flatten() {
            *table = nft_table(table).map_err(|expected| format!("tables: {table}: {expected}"))?;
        }
        Ok(())
    }

    pub fn audited_tables(&self) -> ProxyTables {
        self.tables.as_deref().and_then(ProxyTables::named).unwrap_or_default()
    }

    /// Returns how long the proxy may take to get ready, however idle it is; `None`: as long as the lab waits for any proxy.
    pub fn start_timeout(&self) -> Option<Duration> {
        self.start_timeout.map(|span| span.0)
    }

    pub fn tables(&self) -> Option<&[String]> {
        self.tables.as_deref()
    }

    pub fn title(&self) -> String {
        self.found.as_ref().map_or_else(|| self.name.clone(), |version| format!("{} {version}", self.name))
    }

    pub fn version(&self) -> Option<&Version> {
        self.found.as_ref()
    }

    pub fn has(&self, mode: Mode) -> bool {
        let version = self.found.as_ref();
        self.modes.is_empty() && mode != Mode::Other
            || self.modes.iter().any(|other| other.mode == mode && other.is_in(version))
    }

    /// Returns why a scenario is not run.
    pub fn excuse(&self, scenario: &Scenario, mode: Mode) -> Option<String> {
        self.excuse_of(&scenario.name, mode).or_else(|| {
            let families = self.families.as_ref()?;
            let is_its =
                |range: &&IpNet| families.iter().any(|family| (*family == RuleFamily::Ipv4) == range.addr().is_ipv4());
            let other = scenario.cluster.service_cidrs.iter().find(|range| !is_its(range))?;
            Some(format!("{} programs no {}", self.name, family_name(other.addr())))
        })
    }

    fn excuse_of(&self, scenario: &str, mode: Mode) -> Option<String> {
        let version = self.found.as_ref();
        if !self.has(mode) {
            let who = if self.modes.iter().any(|has| has.mode == mode) { self.title() } else { self.name.clone() };
            return Some(format!("{who} has no {mode} mode"));
        }
        self.excused.get(scenario)?.reason(mode, version).map(str::to_owned)
    }

    pub fn excused_promises(&self, mode: Mode) -> BTreeMap<String, String> {
        let version = self.found.as_ref();
        let reason = |excuse: &excuse::ExcuseEntry| excuse.reason(mode, version).map(str::to_owned);
        self.excused_promises.iter().filter_map(|(promise, excuse)| Some((promise.clone(), reason(excuse)?))).collect()
    }

    pub fn configuration(&self, own: &Value) -> Value {
        let mut config = json!({
            // kube-proxy exits if it may not set these sysctls, which only the host's namespace may; zero leaves them
            // unchanged.
            "conntrack": {
                "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
            },
        });
        json_patch::merge(&mut config, own);
        if let Some(overlay) = &self.config {
            json_patch::merge(&mut config, overlay);
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_overrides_the_configuration() {
        let own = json!({
            "clusterCIDR": "10.244.0.0/16",
            "clientConnection": { "kubeconfig": "/k" },
            "iptables": { "masqueradeBit": 3, "minSyncPeriod": "1ms" },
            "conntrack": { "tcpEstablishedTimeout": "3000ms" },
        });
        let overlay = json!({ "iptables": { "syncPeriod": "1m" }, "clusterCIDR": null });
        let proxy = ForeignProxy { config: Some(overlay), ..ForeignProxy::of("x".into(), vec!["/bin/true".into()]) };
        let expected = json!({
            "clientConnection": { "kubeconfig": "/k" },
            "iptables": { "masqueradeBit": 3, "minSyncPeriod": "1ms", "syncPeriod": "1m" },
            "conntrack": {
                "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "3000ms", "tcpCloseWaitTimeout": "0s",
            },
        });
        assert_eq!(proxy.configuration(&own), expected);
    }

    #[test]
    fn a_wrong_description_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.yaml");
        for (text, says) in [
            ("name: x\ncommand: []\n", "command: expected a program"),
            ("name: x\ncommand: [/proc/nowhere]\n", "no program /proc/nowhere"),
            ("name: x\ncommand: [/bin/sh, '{nodes}']\n", "{nodes} is none of {node}"),
            ("name: x\ncommands: [/bin/sh]\n", "commands"),
            ("name: x\ncommand: [/bin/sh]\nmodes: [netfilter]\n", "netfilter"),
            ("name: x\ncommand: [/bin/sh]\nmodes: [othre]\n", "ipvs, nftables, userspace, other"),
            ("name: x\ncommand: [/bin/sh]\nmodes: [{mode: ipvs, since: '1.8'}]\n", "unknown field `since`"),
            ("name: x\ncommand: [/bin/sh]\nmodes: [{mode: ipvs, versions: '>=1.8'}]\n", "`versions` of ipvs goes with"),
            ("name: x\ncommand: [/bin/sh]\ninit: []\n", "init: expected a program"),
            ("name: x\ncommand: [/bin/sh]\nready: {command: [/proc/nowhere]}\n", "ready.command: there is no program"),
            ("name: x\ncommand: [/bin/sh]\nfamilies: [ipv5]\n", "ipv5"),
            ("name: x\ncommand: [/bin/sh]\nfamilies: []\n", "families: expected ipv4, ipv6 or both"),
            ("name: x\ncommand: [/bin/sh]\ntables: [my-proxy]\n", "tables: my-proxy: expected a family (ip, "),
            ("name: x\ncommand: [/bin/sh]\nstartTimeout: 90\n", "expected a time such as 300ms"),
            ("name: x\ncommand: [/bin/sh]\nstartTimeout: 0s\n", "startTimeout: expected more than 0s"),
            ("name: x\ncommand: [/bin/sh]\nready: soon\n", "expected `marker`"),
            ("name: x\ncommand: [/bin/sh]\nenv: {A: '{pod}'}\n", "line 3: env.A: {pod} is none of"),
            (
                "name: x\ncommand: [/bin/sh]\nenv:\n  A: x\n  B: '{nod}'\n",
                "line 5: env.B: {nod} is none of {node}, {kubeconfig}, {config}, {mode}: did you mean `{node}`?",
            ),
            (
                "name: x\ncommand: [/bin/sh]\nconfig: {ipvs: {shceduler: rr}}\n",
                "line 3: config.ipvs.shceduler: a KubeProxyConfiguration has no such field: did you mean `scheduler`?",
            ),
            ("name: x\ncommand: [/bin/sh]\nenv: {'A=B': c}\n", "\"A=B\" cannot be an environment variable"),
            ("name: x\ncommand: [/bin/sh]\nversion: [sh, -c, 'echo new']\n", "found no version in \"new\""),
            ("name: x\ncommand: [/bin/sh]\nversion: [sh, -c, 'exit 3']\n", "version: "),
            (
                "name: x\ncommand: [/bin/sh]\nexcused:\n  hairpin: it cannot\n  flsh: it looks every 30 s\n",
                "line 5: excused.flsh: there is no such scenario: did you mean `flush`?",
            ),
            (
                "name: x\ncommand: [/bin/sh]\nexcused: {flush: {reason: x, versions: '<2'}}\n",
                "excused.flush: `versions`",
            ),
            (
                "name: x\ncommand: [/bin/sh]\nexcused: {flush: {reason: x, version: '<2'}}\n",
                "excused.flush: expected a reason",
            ),
            (
                "name: x\ncommand: [/bin/sh]\nexcusedPromises: {flush: it cannot}\n",
                "excusedPromises.flush: there is no such promise",
            ),
            (
                "name: x\ncommand: [/bin/sh]\nexcusedPromises: {hairpin: {reason: x, versions: '<2'}}\n",
                "excusedPromises.hairpin: `versions`",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = ForeignProxy::read(&path).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("p.yaml"), "{error}");
        }
    }

    #[test]
    fn shipped_descriptions_excuse_existing_scenarios() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let read = |file: &Path| -> ForeignProxy {
            let text = std::fs::read_to_string(file).unwrap();
            serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        };
        for file in std::fs::read_dir(root.join("proxies")).unwrap() {
            let mut proxy = read(&file.unwrap().path());
            for name in proxy.excused.keys() {
                let is_one = |folder: &str| root.join(folder).join(name).with_extension("yaml").is_file();
                assert!(is_one("../scenarios") || is_one("../scenarios/microvm"), "{name}");
            }
            for (key, command) in proxy.commands() {
                assert_eq!(command.iter().try_for_each(|part| command::check_places(key, part)), Ok(()));
            }
        }
        let mut proxy = read(&root.join("proxies/kube-proxy.yaml"));
        assert_eq!(proxy.excuse_of("hairpin", Mode::Userspace).as_deref(), Some("kube-proxy has no userspace mode"));
        assert_eq!(proxy.excuse_of("hairpin", Mode::Iptables), None);
        let mut at = |minor: u64, scenario: &str, mode: Mode| {
            proxy.found = Some(Version::new(1, minor, 0));
            proxy.excuse_of(scenario, mode).unwrap_or_default()
        };
        for (minor, scenario, mode, why) in [
            (36, "localhost-nodeport-nftables", Mode::Nftables, "never answer on loopback addresses"),
            (37, "localhost-nodeport-nftables", Mode::Nftables, "the gate KubeProxyNFTablesLocalhostNodePorts only"),
            (37, "no-masquerade", Mode::Iptables, "KEP-6246"),
            (39, "hairpin", Mode::Ipvs, ""),
            (40, "hairpin", Mode::Ipvs, "kube-proxy 1.40.0 has no ipvs mode"),
            (30, "hairpin", Mode::Nftables, "kube-proxy 1.30.0 has no nftables mode"),
        ] {
            let found = at(minor, scenario, mode);
            assert!(found.contains(why) && found.is_empty() == why.is_empty(), "{minor} {scenario}: {found:?}");
        }
        assert!(!read(&root.join("proxies/cilium.yaml")).has(Mode::Nftables));
        assert!(read(&root.join("proxies/cilium.yaml")).has(Mode::Other));
    }

    #[test]
    fn a_scenario_of_a_family_that_the_proxy_lacks_is_excused() {
        let excuse = |families: Option<Vec<RuleFamily>>, scenario: &str| {
            let proxy = ForeignProxy { families, ..ForeignProxy::of("x".into(), vec!["/bin/true".into()]) };
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios").join(scenario).with_extension("yaml");
            proxy.excuse(&crate::find::load_all(&[path], 0).unwrap()[0], Mode::Iptables).unwrap_or_default()
        };
        for (families, scenario, why) in [
            (None, "dual-stack", ""),
            (Some(vec![RuleFamily::Ipv4]), "hairpin", ""),
            (Some(vec![RuleFamily::Ipv4]), "dual-stack", "x programs no IPv6"),
            (Some(vec![RuleFamily::Ipv4]), "ipv6", "x programs no IPv6"),
            (Some(vec![RuleFamily::Ipv6]), "hairpin", "x programs no IPv4"),
            (Some(vec![RuleFamily::Ipv6]), "ipv6", ""),
            (Some(vec![RuleFamily::Ipv6, RuleFamily::Ipv4]), "dual-stack", ""),
        ] {
            assert_eq!(excuse(families, scenario), why, "{scenario}");
        }
    }

    #[test]
    fn excuses_depend_on_the_version() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.yaml");
        let at = |version: &str| {
            let text = format!(
                "name: x\ncommand: [/bin/sh]\nversion: [sh, -c, 'echo Kubernetes v{version}']\n\
                 modes: [ipvs, {{mode: nftables, versions: '>=1.31'}}]\nexcused: {{flush: {{reason: it waits, versions: '<1.31'}}}}\n"
            );
            std::fs::write(&path, text).unwrap();
            ForeignProxy::read(&path).unwrap()
        };
        assert_eq!(at("1.30.5").excuse_of("flush", Mode::Ipvs).as_deref(), Some("it waits"));
        assert_eq!(at("1.36.2").excuse_of("flush", Mode::Ipvs), None);
        assert_eq!(at("1.36.2").title(), "x 1.36.2");
        assert_eq!(at("1.30.5").excuse_of("hairpin", Mode::Nftables).as_deref(), Some("x 1.30.5 has no nftables mode"));
        assert_eq!(at("1.36.2").excuse_of("hairpin", Mode::Nftables), None);
    }

    #[test]
    fn a_command_line_describes_a_proxy() {
        let text = "sh -c 'exec true' --config={config} --node={node}";
        assert!(ForeignProxy::is_command(text) && !ForeignProxy::is_command("./kube-proxy.yaml"));
        let proxy = ForeignProxy::from_command(text).unwrap();
        assert_eq!(proxy.name, "sh");
        assert_eq!(proxy.command[1..], ["-c", "exec true", "--config={config}", "--node={node}"]);
        for (text, says) in [
            ("sh 'x {node}", "a quote is not closed"),
            ("no-such-program {node}", "there is no program no-such-program"),
            ("sh {node} {pod}", "{pod} is none of {node}"),
        ] {
            let error = ForeignProxy::from_command(text).unwrap_err().to_string();
            assert!(error.starts_with("--proxy: ") && error.contains(says), "{error}");
        }
    }
}
