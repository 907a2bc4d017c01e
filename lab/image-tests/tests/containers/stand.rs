//! The surroundings of the proxy's container: a node's network namespace, two backends and a client in containers of their own,
//! and the lab's API on the node's loopback address.
//!
//!     client 172.18.0.9 ── 172.18.0.2 node 10.244.1.1 ── 10.244.1.11 backend-1
//!                                                     ── 10.244.1.12 backend-2

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures_util::StreamExt;
use svclab_apiserver::objects::{Store, StoreOptions, parse_manifests};
use svclab_apiserver::{ApiServer, Kubeconfig, ServeOptions, SharedStore, Tls, Tokens};
use svclab_netns::foreign_namespace::in_network;
use svclab_spec::{ClusterSpec, Cni, NodeSpec};
use testcontainers::bollard::{Docker, body_full, query_parameters};
use testcontainers::core::client::docker_client_instance;
use testcontainers::core::{AccessMode, ExecCommand, Host, Mount};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, ContainerRequest, GenericImage, ImageExt};

use super::keeper::PROC;

pub const SERVICE: &str = "10.96.0.10:80";
pub const NODE_PORT: &str = "172.18.0.2:30080";
/// The node's addresses towards pods and clients.
pub const NODE_ADDRESSES: [&str; 2] = ["10.244.1.1", "172.18.0.2"];
const PATIENCE: Duration = Duration::from_secs(30);
const NODE: &str = "node-a";
/// The API's name in the hosts file of the node's container: tests the static program's name resolution.
const API_HOST: &str = "api.test";
const API: &str = "127.0.0.1:6443";

const MANIFESTS: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30080}]
";

/// Files that `./just image-test` builds.
pub struct Files {
    pub program: PathBuf,
    pub peer: PathBuf,
    pub images: [PathBuf; 3],
}

impl Files {
    pub fn from_environment() -> anyhow::Result<Files> {
        let file = |name: &str| {
            let path =
                std::env::var_os(name).with_context(|| format!("{name} is not set: ./just image-test sets it"))?;
            std::fs::canonicalize(&path).with_context(|| format!("{name}={}", path.display()))
        };
        let images = ["IMAGE_TEST_ALONE", "IMAGE_TEST_LEGACY", "IMAGE_TEST_LAB"];
        let images = [file(images[0])?, file(images[1])?, file(images[2])?];
        Ok(Files { program: file("IMAGE_TEST_PROGRAM")?, peer: file("IMAGE_TEST_PEER")?, images })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageMode {
    pub name: &'static str,
    pub image: &'static str,
    pub flags: &'static [&'static str],
}

/// All modes except IPVS, which few kernels have; scenarios test it in a microVM.
pub const WAYS: [ImageMode; 4] = [
    ImageMode { name: "iptables", image: "svcproxy", flags: &["--proxy-mode=iptables"] },
    ImageMode { name: "nftables", image: "svcproxy", flags: &["--proxy-mode=nftables"] },
    ImageMode { name: "userspace", image: "svcproxy", flags: &["--proxy-mode=userspace"] },
    ImageMode {
        name: "legacy",
        image: "svcproxy-legacy",
        flags: &["--proxy-mode=iptables", "--iptables-variant=legacy"],
    },
];

pub type Container = ContainerAsync<GenericImage>;

/// Dropping the stand removes its containers.
pub struct Stand {
    files: Files,
    docker: Docker,
    way: ImageMode,
    tag: String,
    network: File,
    node: Container,
    /// The endpoints of the service.
    pub backends: [Container; 2],
    /// A client outside of the cluster.
    pub client: Container,
    api: ApiServer,
    folder: tempfile::TempDir,
}

impl Stand {
    /// Starts all but the proxy, and writes kernel settings as the DaemonSet's init container does.
    pub async fn new(way: ImageMode) -> anyhow::Result<Stand> {
        let files = Files::from_environment()?;
        let docker = docker_client_instance().await?;
        let tag = load(&docker, &files).await?;
        let peer = |words: &[&str]| peer(&files, &tag, words);
        let node = peer(&["wait"]).with_hostname(NODE).with_host(API_HOST, Host::Addr([127, 0, 0, 1].into()));
        let node = node.start().await?;
        let backends = [
            peer(&["serve", "backend-1", "0.0.0.0:8080"]).start().await?,
            peer(&["serve", "backend-2", "0.0.0.0:8080"]).start().await?,
        ];
        let client = peer(&["wait"]).start().await?;
        let path = network_of(&docker, &node).await?;
        let network = File::open(&path)?;
        for (number, backend) in (1..).zip(&backends) {
            wire_pod(&path, &network_of(&docker, backend).await?, number)?;
        }
        wire_client(&path, &network_of(&docker, &client).await?)?;
        in_network(&network, || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))??;
        let folder = tempfile::tempdir()?;
        let api = serve_api(&network, folder.path())?;
        let stand = Stand { files, docker, way, tag, network, node, backends, client, api, folder };
        stand.select(&["10.244.1.11", "10.244.1.12"])?;
        let prepare = inside(&path).arg(&stand.files.program).args(way.flags).arg("--init-only").output()?;
        ensure!(prepare.status.success(), "--init-only: {}", String::from_utf8_lossy(&prepare.stderr));
        Ok(stand)
    }

    pub fn docker(&self) -> &Docker {
        &self.docker
    }

    pub fn way(&self) -> ImageMode {
        self.way
    }

    pub fn image(&self) -> String {
        format!("{}:{}", self.way.image, self.tag)
    }

    pub fn select(&self, addresses: &[&str]) -> anyhow::Result<()> {
        let endpoints: String = addresses
            .iter()
            .map(|address| format!("- {{addresses: [{address}], nodeName: {NODE}, conditions: {{ready: true}}}}\n"))
            .collect();
        let slice = format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web-1, labels: {{kubernetes.io/service-name: web}}}}\n\
             addressType: IPv4\nports: [{{name: http, port: 8080, protocol: TCP}}]\nendpoints:\n{endpoints}"
        );
        self.api.store().write(|store| apply(store, &slice))
    }

    /// Configures the proxy as in the DaemonSet: on the node's network, read-only, with two capabilities.
    pub fn proxy(&self) -> ContainerRequest<GenericImage> {
        self.with_rights(
            &["NET_ADMIN", "NET_RAW"],
            &["--kubeconfig=/etc/svcproxy/kubeconfig", "--hostname-override=node-a"],
        )
    }

    /// Configures a proxy on the node's network.
    pub fn with_rights(&self, rights: &[&str], arguments: &[&str]) -> ContainerRequest<GenericImage> {
        let arguments = arguments.iter().chain(self.way.flags).copied().chain(["--cluster-cidr=10.244.0.0/16"]);
        self.on_node(self.way.image, rights, arguments)
    }

    /// Configures svclab as in the auditor's DaemonSet, without the capability BPF, which Docker 20.10 does not know.
    pub fn lab(&self, arguments: &[&str]) -> ContainerRequest<GenericImage> {
        self.on_node("svclab", &["NET_ADMIN", "NET_RAW"], arguments.iter().copied())
    }

    fn on_node<'a>(
        &self,
        image: &str,
        rights: &[&str],
        arguments: impl Iterator<Item = &'a str>,
    ) -> ContainerRequest<GenericImage> {
        let kubeconfig = self.folder.path().display().to_string();
        let network = format!("container:{}", self.node.id());
        let mut request = GenericImage::new(image, self.tag.as_str())
            .with_cmd(arguments)
            .with_mount(Mount::bind_mount(kubeconfig, "/etc/svcproxy").with_access_mode(AccessMode::ReadOnly))
            .with_readonly_rootfs(true)
            .with_cap_drop("ALL")
            .with_security_opt("no-new-privileges")
            .with_host_config_modifier(move |host| {
                host.network_mode = Some(network.clone());
                host.publish_all_ports = None;
                host.port_bindings = None;
            });
        if self.way.name == "legacy" {
            // All legacy iptables commands of the node share this lock.
            let lock = self.folder.path().join("xtables.lock").display().to_string();
            request = request.with_mount(Mount::bind_mount(lock, "/run/xtables.lock"));
        }
        rights.iter().fold(request, |request, right| request.with_cap_add(*right))
    }

    /// Starts the proxy; returns once the rules are written.
    pub async fn start_proxy(&self) -> anyhow::Result<Container> {
        let proxy = self.proxy().start().await?;
        let synced = self.eventually("the proxy says that it is well", || self.is_healthy().then_some(())).await;
        match synced {
            Ok(()) => Ok(proxy),
            Err(error) => bail!("{error:#}; it says\n{}", log(&proxy).await?),
        }
    }

    fn is_healthy(&self) -> bool {
        let asked = in_network(&self.network, || -> std::io::Result<String> {
            let mut stream = TcpStream::connect("127.0.0.1:10256")?;
            stream.set_read_timeout(Some(Duration::from_secs(3)))?;
            stream.write_all(b"GET /healthz HTTP/1.0\r\nHost: node\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        });
        asked.is_ok_and(|answer| answer.is_ok_and(|answer| answer.split(' ').nth(1) == Some("200")))
    }

    pub async fn ask(&self, from: &Container, address: &str, times: u32) -> anyhow::Result<Vec<String>> {
        let mut asked = from.exec(ExecCommand::new(["/peer", "ask", address, &times.to_string()])).await?;
        let answers = String::from_utf8(asked.stdout_to_vec().await?)?;
        Ok(answers.lines().map(str::to_owned).collect())
    }

    /// Starts a client that calls the service without end, in the other client's network.
    pub async fn load(&self) -> anyhow::Result<Load> {
        let network = format!("container:{}", self.client.id());
        let request = peer(&self.files, &self.tag, &["load", SERVICE]).with_host_config_modifier(move |host| {
            host.network_mode = Some(network.clone());
            host.publish_all_ports = None;
            host.port_bindings = None;
        });
        let load = Load { container: request.start().await? };
        load.goes_on(self).await?;
        Ok(load)
    }

    pub async fn eventually<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(seen) = look() {
                return Ok(seen);
            }
            ensure!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the proxy's rules in all tables of nftables and legacy iptables.
    pub async fn rules(&self) -> anyhow::Result<Vec<String>> {
        let network = network_of(&self.docker, &self.node).await?;
        let mut rules = Vec::new();
        for command in [&["nft", "list", "ruleset"][..], &["iptables-legacy-save"], &["ip6tables-legacy-save"]] {
            let output = inside(&network).args(command).output()?;
            ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let is_ours = |line: &&str| line.contains("KUBE-") || line.contains("kube-proxy");
            rules.extend(text.lines().filter(is_ours).map(without_counts));
        }
        Ok(rules)
    }
}

pub struct Load {
    container: Container,
}

impl Load {
    pub async fn answers(&self) -> anyhow::Result<Vec<String>> {
        let text = String::from_utf8(self.container.stdout_to_vec().await?)?;
        // Ignores the last line if it is incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        Ok(whole.lines().map(str::to_owned).collect())
    }

    /// Waits for fifty more answers; returns the answers since the call.
    pub async fn goes_on(&self, stand: &Stand) -> anyhow::Result<Vec<String>> {
        let before = self.answers().await?.len();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answers = self.answers().await?;
            if answers.len() >= before + 50 {
                return Ok(answers[before..].to_vec());
            }
            ensure!(Instant::now() < deadline, "the client of {} has ended: {answers:?}", stand.image());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn failures(&self) -> anyhow::Result<Vec<String>> {
        let answers = self.answers().await?;
        ensure!(answers.len() > 100, "{answers:?}");
        Ok(answers.into_iter().filter(|answer| answer.contains("failed")).collect())
    }
}

fn without_counts(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().filter(|word| !word.starts_with('[')).collect();
    let is_count = |at: usize| {
        words[at].bytes().all(|byte| byte.is_ascii_digit()) && at > 0 && ["packets", "bytes"].contains(&words[at - 1])
    };
    (0..words.len()).filter(|at| !is_count(*at)).map(|at| words[at]).collect::<Vec<_>>().join(" ")
}

pub async fn log(container: &Container) -> anyhow::Result<String> {
    let written = [container.stdout_to_vec().await?, container.stderr_to_vec().await?].concat();
    Ok(String::from_utf8_lossy(&written).into_owned())
}

pub async fn process_file(docker: &Docker, container: &Container, name: &str) -> anyhow::Result<PathBuf> {
    let state = docker.inspect_container(container.id(), None).await?.state.context("no state")?;
    let pid = state.pid.filter(|pid| *pid > 0).context("the container has ended")?;
    let proc = std::env::var_os(PROC).context("no daemon is kept")?;
    Ok(Path::new(&proc).join(pid.to_string()).join(name))
}

async fn network_of(docker: &Docker, container: &Container) -> anyhow::Result<PathBuf> {
    process_file(docker, container, "ns/net").await
}

fn peer(files: &Files, tag: &str, words: &[&str]) -> ContainerRequest<GenericImage> {
    GenericImage::new("svcproxy", tag)
        .with_entrypoint("/peer")
        .with_cmd(words.iter().copied())
        .with_mount(Mount::bind_mount(files.peer.display().to_string(), "/peer").with_access_mode(AccessMode::ReadOnly))
        .with_host_config_modifier(|host| host.network_mode = Some("none".to_owned()))
}

/// Loads the images; returns their tag.
async fn load(docker: &Docker, files: &Files) -> anyhow::Result<String> {
    let mut tag = None;
    for archive in &files.images {
        let body = body_full(std::fs::read(archive)?.into());
        let loaded = docker.import_image(query_parameters::ImportImageOptions::default(), body, None);
        let lines: Vec<String> = loaded
            .map(|line| line.map(|line| line.stream.unwrap_or_default()))
            .collect::<Vec<_>>()
            .await
            .into_iter()
            .collect::<Result<_, _>>()?;
        let said = lines.concat();
        let (_, name) =
            said.trim().rsplit_once("Loaded image: ").with_context(|| format!("{}: {said}", archive.display()))?;
        tag = name.rsplit_once(':').map(|(_, tag)| tag.to_owned());
    }
    tag.context("an image without a tag")
}

fn inside(network: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", network.display()));
    command
}

fn ip(network: &Path, words: &str) -> anyhow::Result<()> {
    let output = inside(network).arg("ip").args(words.split(' ')).output().context("cannot start nsenter")?;
    ensure!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Connects a pod by a point-to-point link, as kindnet and Calico do.
fn wire_pod(node: &Path, pod: &Path, number: u8) -> anyhow::Result<()> {
    ip(node, &format!("link add pod{number} type veth peer name eth0 netns {}", pod.display()))?;
    ip(node, &format!("addr add 10.244.1.1/32 dev pod{number}"))?;
    ip(node, &format!("link set pod{number} up"))?;
    ip(node, &format!("route add 10.244.1.1{number}/32 dev pod{number}"))?;
    ip(pod, &format!("addr add 10.244.1.1{number}/32 dev eth0"))?;
    ip(pod, "link set eth0 up")?;
    ip(pod, "route add 10.244.1.1 dev eth0 scope link")?;
    ip(pod, "route add default via 10.244.1.1")
}

fn wire_client(node: &Path, client: &Path) -> anyhow::Result<()> {
    ip(node, &format!("link add eth0 type veth peer name eth0 netns {}", client.display()))?;
    ip(node, "addr add 172.18.0.2/24 dev eth0")?;
    ip(node, "link set eth0 up")?;
    // Without any route, the node's own calls of Services end before the first rule.
    ip(node, "route add default via 172.18.0.9")?;
    ip(client, "addr add 172.18.0.9/24 dev eth0")?;
    ip(client, "link set eth0 up")?;
    ip(client, "route add default via 172.18.0.2")
}

/// Serves the API with TLS and a token; writes the proxy's kubeconfig.
fn serve_api(network: &File, folder: &Path) -> anyhow::Result<ApiServer> {
    let node = NodeSpec {
        name: NODE.to_owned(),
        zone: None,
        addresses: vec!["172.18.0.2".parse()?],
        extra_addresses: vec![],
        pod_cidrs: vec!["10.244.1.0/24".parse()?],
    };
    let spec = ClusterSpec {
        cni: Cni::PointToPoint,
        node_network: vec!["172.18.0.0/24".parse()?],
        cluster_cidrs: vec!["10.244.0.0/16".parse()?],
        service_cidrs: vec!["10.96.0.0/16".parse()?],
        nodes: vec![node],
        ..ClusterSpec::default()
    };
    let mut store = Store::new(spec, StoreOptions { seed: 0, max_endpoints_per_slice: 100, vip_ranges: vec![] });
    apply(&mut store, MANIFESTS)?;
    let (tls, tokens) = (Tls::generate(&[API_HOST.to_owned()])?, Tokens::new(0, [NODE.to_owned()]));
    let kubeconfig = Kubeconfig {
        server: format!("https://{API_HOST}:{}", API.parse::<SocketAddr>()?.port()),
        client: NODE.to_owned(),
        token: tokens.of(NODE).map(str::to_owned),
        ca_pem: Some(tls.ca_pem().to_owned()),
    };
    kubeconfig.write(&folder.join("kubeconfig"))?;
    File::create(folder.join("xtables.lock"))?;
    let listener = in_network(network, || TcpListener::bind(API))??;
    let options = ServeOptions { tokens: Some(tokens), tls: Some(tls), ..ServeOptions::default() };
    Ok(ApiServer::start(SharedStore::new(store), [listener], options)?)
}

fn apply(store: &mut Store, manifests: &str) -> anyhow::Result<()> {
    let documents = parse_manifests(manifests).map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
    for document in documents {
        store.apply(document.object)?;
    }
    Ok(())
}
