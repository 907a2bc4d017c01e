use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use clap::Args;

use super::config_flags::ConfigFlags;
use super::flagz;
use crate::config::{Config, Mode, Variant, WriterChoice};
use crate::kubeproxy_config::{
    self, ClientConnectionConfiguration, ConfigError, FIELDS, GoDuration, HEALTHZ_PORT, KubeProxyConfiguration,
    LoadedConfig, METRICS_PORT,
};
use crate::model::ServiceSelection;
use crate::mutants;
use crate::source::Access;

#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    #[error("{flag}: {problem}")]
    Flag { flag: String, problem: String },
    #[error(transparent)]
    File(#[from] ConfigError),
}

impl UsageError {
    fn flag(flag: impl Into<String>, problem: impl Into<String>) -> UsageError {
        UsageError::Flag { flag: flag.into(), problem: problem.into() }
    }
}

#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// Configuration file (KubeProxyConfiguration); most other flags are ignored then
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Reject a configuration file with unknown or repeated fields instead of warning
    #[arg(long)]
    pub config_strict: bool,
    /// Directory of Kubernetes manifests (Services, EndpointSlices, Nodes), watched for changes
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    /// Address of the API server, instead of the kubeconfig's
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,
    /// Deprecated: port of /healthz where its address has none; 0: no /healthz
    #[arg(long, value_name = "PORT", hide_short_help = true)]
    pub healthz_port: Option<u16>,
    /// Deprecated: port of /metrics where its address has none; 0: no /metrics
    #[arg(long, value_name = "PORT", hide_short_help = true)]
    pub metrics_port: Option<u16>,
    /// Count the traffic of each service port in iptables and nftables mode: of all Services, or of those in the list
    /// NAMESPACE/NAME,… with * for any characters
    #[arg(long, value_name = "SERVICES", num_args = 0..=1, require_equals = true, default_missing_value = "*/*")]
    pub service_counters: Option<ServiceSelection>,
    /// Which iptables commands
    #[arg(long, value_enum, default_value = "auto")]
    pub iptables_variant: Variant,
    /// How to write the tables of iptables
    #[arg(long, value_enum, default_value = "auto")]
    pub iptables_writer: WriterChoice,
    /// IPVS mode: how long a removed backend keeps its connections
    #[arg(long, value_name = "TIME", default_value = "15m")]
    pub ipvs_drain_limit: GoDuration,
    /// Be a wrong proxy, for tests of svclab's scenarios: `proxy/src/mutants`
    #[cfg(debug_assertions)]
    #[arg(long, value_name = "ID", hide = true)]
    pub mutant: Option<String>,
    #[command(flatten)]
    pub config_flags: ConfigFlags,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ObjectOrigin {
    Manifests(PathBuf),
    Kubernetes(Access, ClientConnectionConfiguration),
}

impl fmt::Display for ObjectOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectOrigin::Manifests(directory) => write!(f, "manifests in {}", directory.display()),
            ObjectOrigin::Kubernetes(access, _) => f.write_str(&access.describe()),
        }
    }
}

#[derive(Debug)]
pub struct ResolvedSettings {
    pub configuration: KubeProxyConfiguration,
    pub config: Config,
    pub file: Option<LoadedConfig>,
    pub flags: BTreeMap<String, String>,
    pub warnings: Vec<String>,
}

/// Fields of `iptables` whose flags also set those of `nftables`.
const ALSO_NFTABLES: [&str; 4] = ["masqueradeAll", "masqueradeBit", "syncPeriod", "minSyncPeriod"];

const IGNORED_NAMED: usize = 20;

/// As in kube-proxy, these flags override the configuration file.
fn overrides_file(path: &str) -> bool {
    path == "hostnameOverride" || path.starts_with("logging.")
}

impl Settings {
    pub fn resolve(&self) -> Result<ResolvedSettings, UsageError> {
        self.resolve_in(None)
    }

    pub fn resolve_in(&self, mode: Option<Mode>) -> Result<ResolvedSettings, UsageError> {
        let file = self.config.as_deref().map(kubeproxy_config::read).transpose()?;
        let mut warnings = file.as_ref().map_or_else(|| Ok(Vec::new()), |file| self.ignored_field_warnings(file))?;
        let mut configuration = self.configuration(file.as_ref(), &mut warnings)?;
        if let Some(mode) = mode {
            configuration.mode = mode.to_string();
        }
        let named = |problem: kubeproxy_config::FieldProblem| match &file {
            Some(file) if !self.config_flags.0.contains_key(&*problem.field) || !overrides_file(&problem.field) => {
                file.problem(&problem.field, problem.problem).into()
            }
            _ => UsageError::flag(flag_of(&problem.field), problem.problem),
        };
        let node_name = node_name(&configuration.hostname_override)?;
        if !configuration.hostname_override.is_empty() {
            configuration.hostname_override.clone_from(&node_name);
        }
        let mut config = kubeproxy_config::config(&configuration, node_name).map_err(named)?;
        config.variant = self.iptables_variant;
        config.writer = self.iptables_writer;
        if config.writer == WriterChoice::Netlink && config.variant == Variant::Legacy {
            let problem = "netlink writes the tables of the nft variant only, and --iptables-variant is legacy";
            return Err(UsageError::flag("--iptables-writer", problem));
        }
        config.service_counters.clone_from(&self.service_counters);
        if config.service_counters.is_some() && !matches!(config.mode, Mode::Iptables | Mode::Nftables) {
            let problem = format!("counts by rules of iptables and nftables mode, and the mode is {}", config.mode);
            return Err(UsageError::flag("--service-counters", problem));
        }
        config.ipvs.drain_limit = self
            .ipvs_drain_limit
            .positive_or_zero()
            .ok_or_else(|| UsageError::flag("--ipvs-drain-limit", format!("{} is negative", self.ipvs_drain_limit)))?;
        warnings.extend(kubeproxy_config::without_effect(&configuration));
        mutants::config(&mut config);
        Ok(ResolvedSettings { configuration, config, file, flags: flagz::flags(self), warnings })
    }

    /// Returns the wrong proxy that the flag `--mutant` of debug builds names.
    #[cfg(debug_assertions)]
    pub fn mutant(&self) -> Result<Option<&'static mutants::Mutant>, UsageError> {
        let unknown = |id: &String| UsageError::flag("--mutant", format!("{id} is not in the catalogue"));
        self.mutant.as_ref().map(|id| mutants::find(id).ok_or_else(|| unknown(id))).transpose()
    }

    fn ignored_field_warnings(&self, file: &LoadedConfig) -> Result<Vec<String>, UsageError> {
        if let Some(first) = file.ignored.first().filter(|_| self.config_strict) {
            return Err(first.clone().into());
        }
        let named = file.ignored.iter().take(IGNORED_NAMED);
        let mut warnings: Vec<String> = named.map(|one| format!("{one} (an error with --config-strict)")).collect();
        if let Some(more) = file.ignored.len().checked_sub(IGNORED_NAMED).filter(|more| *more > 0) {
            warnings.push(format!("{}: {more} more fields are ignored", file.file));
        }
        Ok(warnings)
    }

    fn configuration(
        &self,
        file: Option<&LoadedConfig>,
        warnings: &mut Vec<String>,
    ) -> Result<KubeProxyConfiguration, UsageError> {
        let bind_address =
            self.config_flags.0.get("bindAddress").and_then(serde_json::Value::as_str).unwrap_or_default();
        let mut configuration =
            file.map_or_else(|| KubeProxyConfiguration::bound_to(bind_address), |file| file.configuration.clone());
        let decides = |path: &str| file.is_none() || overrides_file(path);
        for (path, value) in self.config_flags.0.iter().filter(|(path, _)| decides(path)) {
            configuration = configuration.with(path, value.clone()).map_err(|e| UsageError::flag(flag_of(path), e))?;
            if let Some(same) = ALSO_NFTABLES.iter().find(|same| path.strip_prefix("iptables.") == Some(**same)) {
                let path = format!("nftables.{same}");
                configuration =
                    configuration.with(&path, value.clone()).map_err(|e| UsageError::flag(flag_of(&path), e))?;
            }
        }
        let Some(file) = file else {
            self.deprecated_ports(&mut configuration, warnings);
            return Ok(configuration);
        };
        let mut ignored: Vec<String> =
            self.config_flags.0.keys().filter(|path| !decides(path)).map(|path| flag_of(path)).collect();
        ignored.extend(self.healthz_port.map(|_| "--healthz-port".to_owned()));
        ignored.extend(self.metrics_port.map(|_| "--metrics-port".to_owned()));
        if !ignored.is_empty() {
            warnings.push(format!("{} ignored: with --config, {} decides", ignored.join(", "), file.file));
        }
        Ok(configuration)
    }

    fn deprecated_ports(&self, configuration: &mut KubeProxyConfiguration, warnings: &mut Vec<String>) {
        let ports = [
            ("healthz", self.healthz_port, HEALTHZ_PORT, &mut configuration.healthz_bind_address),
            ("metrics", self.metrics_port, METRICS_PORT, &mut configuration.metrics_bind_address),
        ];
        for (name, port, default, address) in ports {
            if port.is_some() {
                warnings.push(format!("--{name}-port is deprecated: use --{name}-bind-address"));
            }
            *address = match port.unwrap_or(default) {
                0 => String::new(),
                port => kubeproxy_config::with_port(address, port),
            };
        }
    }

    pub fn origin(&self, resolved: &ResolvedSettings) -> Result<ObjectOrigin, UsageError> {
        let connection = &resolved.configuration.client_connection;
        let kubeconfig = (!connection.kubeconfig.is_empty()).then(|| PathBuf::from(&connection.kubeconfig));
        let master = self.master.clone().filter(|master| !master.is_empty());
        let of_api = kubeconfig.is_some() || master.is_some();
        match &self.manifests {
            Some(_) if of_api => Err(UsageError::flag(
                "--manifests",
                "only one source of objects is allowed: leave out --kubeconfig and --master (in the file: \
                 clientConnection.kubeconfig), or --manifests",
            )),
            Some(_) if resolved.config.state_file.is_some() => Err(UsageError::flag(
                "--manifests",
                "leave out --state-file (in the file: stateFile.path): it keeps what the API said",
            )),
            Some(directory) => Ok(ObjectOrigin::Manifests(directory.clone())),
            None if of_api || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
                Ok(ObjectOrigin::Kubernetes(Access::new(kubeconfig, master), connection.clone()))
            }
            None => Err(UsageError::flag(
                "--kubeconfig",
                "set the source of objects: --kubeconfig FILE, --master URL or --manifests DIR (this is no pod of a \
                 cluster: KUBERNETES_SERVICE_HOST is not set)",
            )),
        }
    }
}

/// Returns the flag that sets the field, or the field's path if no flag does.
fn flag_of(path: &str) -> String {
    let path = if path.starts_with("featureGates.") { "featureGates" } else { path };
    let flag = FIELDS.iter().find(|field| field.path == path).and_then(|field| field.flag);
    flag.map_or_else(|| path.to_owned(), |(flag, _)| format!("{}{flag}", if flag.len() == 1 { "-" } else { "--" }))
}

fn node_name(config_flags: &str) -> Result<String, UsageError> {
    let host = || nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let name = if config_flags.is_empty() { host() } else { Some(config_flags.to_owned()) };
    // kube-proxy also lower-cases node names.
    let name = name.map(|name| name.trim().to_lowercase()).filter(|name| !name.is_empty());
    name.ok_or_else(|| {
        UsageError::flag(
            "--hostname-override",
            "give this node's name in Kubernetes (the host has none that could be used)",
        )
    })
}
