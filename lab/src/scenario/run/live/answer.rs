use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_saphyr::Spanned;
use svclab_netns::sandbox::WORK_DIR;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::super::error::LabError;
use super::super::lab::KernelLab;
use crate::control::{ControlReply, ControlRequest, ProbeRequest, ProbeResult, SOCKET, ServerAnswers};
use crate::expect::OutcomeTally;
use crate::scenario::file::{ProbeFile, ProtocolFile};
use crate::scenario::resolve;
use crate::scenario::values::spanned;

const LONGEST: u64 = 1 << 16;
const AT_A_TIME: usize = 16;
const MOST: usize = 1_000_000;
const LOOK: Duration = Duration::from_millis(100);

pub(super) fn listen() -> Result<UnixListener, LabError> {
    let path = Path::new(WORK_DIR).join(SOCKET);
    let bound = UnixListener::bind(&path);
    let listener = bound.and_then(|listener| {
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        Ok(listener)
    });
    listener.map_err(|source| LabError::Directory { path, source })
}

impl KernelLab {
    pub(super) async fn answer(&self, listener: &UnixListener) -> LabError {
        let mut asking = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    if let Ok((stream, _)) = accepted {
                        asking.push(self.serve_client(stream));
                    }
                }
                // A disconnected client does not affect others.
                Some(_) = asking.next() => {}
            }
        }
    }

    async fn serve_client(&self, stream: UnixStream) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        (&mut stream).take(LONGEST).read_line(&mut line).await?;
        let mut stream = stream.into_inner();
        match serde_json::from_str(&line) {
            Ok(ControlRequest::Probe(request)) => {
                let probed = self.probe(&request).await;
                reply(&mut stream, &probed.map_or_else(ControlReply::Error, ControlReply::ProbeResult)).await
            }
            Ok(ControlRequest::Logs { node, follow }) => self.send_logs(&mut stream, node.as_deref(), follow).await,
            Err(error) => reply(&mut stream, &ControlReply::Error(format!("not understood: {error}"))).await,
        }
    }

    async fn probe(&self, request: &ProbeRequest) -> Result<ProbeResult, String> {
        if !(1..=MOST).contains(&request.count) {
            return Err(format!("--count {}: expected 1 to {MOST}", request.count));
        }
        let mut file = ProbeFile::plain(&parsed(&request.from)?, &parsed(&request.to)?);
        file.via = request.via.clone().map(spanned);
        file.protocol = request.udp.then_some(ProtocolFile::Udp);
        let patience = Duration::from_millis(request.patience);
        let aimed = self.store.read(|store| resolve::aim(store, &file, patience));
        let (probe, route) = aimed.map_err(|problem| problem.message)?;
        let in_words = |error: &dyn std::error::Error| error.to_string();
        if route.is_none() {
            self.cluster.check_lb_health(probe.to.ip()).await;
        }
        self.route(route.as_ref(), true).await.map_err(|error| in_words(&error))?;
        let sent = self.cluster.probe_many(vec![probe.clone(); request.count], AT_A_TIME).await;
        self.route(route.as_ref(), false).await.map_err(|error| in_words(&error))?;
        let tally = OutcomeTally::of(&sent.map_err(|error| in_words(&error))?);
        let pods = self.cluster.spec().pods;
        let node_of = |server: &str| {
            let pod = pods.iter().find(|pod| format!("{}/{}", pod.namespace, pod.name) == server);
            pod.map(|pod| pod.node.clone()).unwrap_or_default()
        };
        let answered = tally.servers.iter().map(|(server, count)| ServerAnswers {
            node: node_of(server),
            server: server.clone(),
            count: *count,
            saw: tally.seen_by.get(server).cloned().unwrap_or_default(),
        });
        let to = format!("{}/{}", probe.to, probe.protocol);
        Ok(ProbeResult { to, answered: answered.collect(), failures: tally.failures })
    }

    async fn send_logs(&self, stream: &mut UnixStream, node: Option<&str>, follow: bool) -> io::Result<()> {
        let all = self.nodes();
        if let Some(unknown) = node.filter(|node| !all.iter().any(|known| known == node)) {
            let text = format!("there is no node {unknown:?} (there is: {})", all.join(", "));
            return reply(stream, &ControlReply::Error(text)).await;
        }
        let nodes: Vec<String> = node.map_or(all, |node| vec![node.to_owned()]);
        let prefix = |name: &str| if node.is_some() { String::new() } else { format!("{name}: ") };
        let mut seen = vec![0; nodes.len()];
        loop {
            for (name, seen) in nodes.iter().zip(&mut seen) {
                let Some(proxy) = self.proxies.handle(name) else { continue };
                let (now, lines) = proxy.log_since(*seen);
                *seen = now;
                for line in lines {
                    reply(stream, &ControlReply::Line(format!("{}{line}", prefix(name)))).await?;
                }
            }
            if !follow {
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                // The client sends nothing more: readable means disconnected.
                _ = stream.readable() => return Ok(()),
            }
        }
    }
}

async fn reply(stream: &mut UnixStream, reply: &ControlReply) -> io::Result<()> {
    stream.write_all(format!("{}\n", serde_json::to_string(reply)?).as_bytes()).await
}

fn parsed<T: FromStr<Err = String>>(text: &str) -> Result<Spanned<T>, String> {
    text.parse().map(spanned)
}
