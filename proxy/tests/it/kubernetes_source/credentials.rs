use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use svcproxy::source::{Access, KubernetesSource, SourceReports};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::kubernetes_source::api::{NODES, SERVICES, SLICES, ScriptedApi};
use crate::kubernetes_source::support::{CapturedLog, access, by, next, reported, service, timing, until};

struct Authority {
    pem: String,
    acceptor: TlsAcceptor,
}

fn authority() -> Authority {
    authority_speaking(&["h2", "http/1.1"])
}

/// The protocols are offered in the TLS handshake.
fn authority_speaking(protocols: &[&str]) -> Authority {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::default();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "test authority");
    let ca = parameters.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(parameters, key);
    let server_key = rcgen::KeyPair::generate().unwrap();
    let server = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let server = server.signed_by(&server_key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der()));
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_no_client_auth().with_single_cert(vec![server.der().clone()], key).unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Authority { pem: ca.pem(), acceptor: TlsAcceptor::from(Arc::new(config)) }
}

fn kubeconfig(directory: &Path, api: &ScriptedApi, ca: &str, token: &str) -> PathBuf {
    let path = directory.join("kubeconfig");
    std::fs::write(directory.join("ca.pem"), ca).unwrap();
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("https://{}", api.address), "certificate-authority": "ca.pem"}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(&path, text.to_string()).unwrap();
    path
}

#[tokio::test]
async fn each_access_error_is_one_log_line_and_needs_no_restart() {
    let (log, _guard) = CapturedLog::start();
    let (right, wrong) = (authority(), authority());
    let api = ScriptedApi::start(Some(right.acceptor.clone())).await;
    api.put(SERVICES, service("a", 80));
    api.world.lock().unwrap().token = Some("secret".to_owned());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    let mut source =
        KubernetesSource::start(by(Access::new(Some(path.clone()), None)), "n1", &timing(), &SourceReports::default());
    let warned = |text: &str| {
        let lines = log.lines();
        let count = lines.iter().filter(|line| line.starts_with("WARN") && line.contains(text)).count();
        assert!(count < 2, "{lines:#?}");
        count == 1
    };
    let none = format!("cannot use the kubeconfig {}: No such file", path.display());
    until("no kubeconfig", || warned(&none)).await;
    // A wrong token, because authority and token are separate files that change one after the other.
    kubeconfig(directory.path(), &api, &wrong.pem, "stale");
    until("wrong authority", || warned("its certificate is not trusted: invalid peer certificate")).await;
    kubeconfig(directory.path(), &api, &right.pem, "stale");
    until("wrong token", || warned("does not accept the proxy's credentials (401)")).await;
    let tries = api.asked("list", SERVICES).0;
    until("several tries", || api.asked("list", SERVICES).0 > tries + 3).await;
    kubeconfig(directory.path(), &api, &right.pem, "secret");
    assert_eq!(reported(&next(&mut source).await), ["default/a 80"]);
    until("the recovery", || log.lines().iter().any(|line| line.contains("answers again"))).await;
    let lines = log.lines();
    assert_eq!(lines.iter().filter(|line| line.starts_with("WARN")).count(), 3, "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("secret") || line.contains("stale")), "a token in the log");
}

/// A server has a TLS handshake and buffers for each connection of each node.
#[tokio::test]
async fn all_requests_share_a_connection_if_the_server_speaks_http_2() {
    for (protocols, connections) in [(&["h2", "http/1.1"][..], 1), (&["http/1.1"], 3)] {
        let authority = authority_speaking(protocols);
        let mut api = ScriptedApi::start(Some(authority.acceptor)).await;
        api.put(SERVICES, service("a", 80));
        let directory = tempfile::tempdir().unwrap();
        let path = kubeconfig(directory.path(), &api, &authority.pem, "token");
        let access = by(Access::new(Some(path), None));
        let mut source = KubernetesSource::start(access, "n1", &timing(), &SourceReports::default());
        assert_eq!(reported(&next(&mut source).await), ["default/a 80"]);
        for (round, port) in [(1, 81), (2, 82)] {
            let all = || [SERVICES, SLICES, NODES].iter().all(|kind| api.asked("watch", kind).0 >= round);
            until("all watches", all).await;
            api.put(SERVICES, service("a", port));
            assert_eq!(reported(&next(&mut source).await), [format!("default/a {port}")]);
            assert_eq!(api.world.lock().unwrap().connections, round * connections, "{protocols:?}");
            // Breaks all connections; the old listener is gone when its task was run once more.
            api.down();
            tokio::task::yield_now().await;
            api.up().await;
        }
    }
}

/// As in the kubeconfigs of k3s: files, or base64 in the kubeconfig itself.
#[tokio::test]
async fn a_client_certificate_is_shown() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::default();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = parameters.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(parameters, key);
    let signed = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        (certificate, key)
    };
    let ((server, server_key), (client, client_key)) = (signed("127.0.0.1"), signed("svcproxy"));
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der()));
    let config = config.with_client_cert_verifier(verifier).with_single_cert(vec![server.der().clone()], private);
    let api = ScriptedApi::start(Some(TlsAcceptor::from(Arc::new(config.unwrap())))).await;
    api.put(SERVICES, service("a", 80));

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    std::fs::write(directory.path().join("client.pem"), client.pem()).unwrap();
    std::fs::write(directory.path().join("client.key"), client_key.serialize_pem()).unwrap();
    let base64 = |text: &str| data_encoding::BASE64.encode(text.as_bytes());
    let data = json!({"client-certificate-data": base64(&client.pem()),
        "client-key-data": base64(&client_key.serialize_pem())});
    let files = json!({"client-certificate": "client.pem", "client-key": "client.key"});
    let trusted = json!({"certificate-authority-data": base64(&ca.pem())});
    for (user, authority, is_accepted) in [
        (&files, &trusted, true),
        (&data, &trusted, true),
        (&data, &json!({"insecure-skip-tls-verify": true}), true),
        (&json!({}), &trusted, false),
    ] {
        let mut cluster = authority.clone();
        cluster["server"] = format!("https://{}", api.address).into();
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(&path, text.to_string()).unwrap();
        let (log, _guard) = CapturedLog::start();
        let access = by(Access::new(Some(path.clone()), None));
        let mut source = KubernetesSource::start(access, "n1", &timing(), &SourceReports::default());
        if is_accepted {
            assert_eq!(reported(&next(&mut source).await), ["default/a 80"], "{text}");
        } else {
            until("the refusal", || log.lines().iter().any(|line| line.starts_with("WARN"))).await;
            assert_eq!(api.asked("list", SERVICES).0, 3, "{:?}", log.lines());
        }
    }
}

#[tokio::test]
async fn credentials_that_hang_stop_nothing_else() {
    let (log, _guard) = CapturedLog::start();
    let api = ScriptedApi::start(None).await;
    api.put(SERVICES, service("a", 80));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    let write = |script: &str| {
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
            "env": [{"name": "PASSWORD", "value": "swordfish"}], "interactiveMode": "Never"});
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", api.address)}}],
            "users": [{"name": "u", "user": {"exec": exec}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(&path, text.to_string()).unwrap();
    };
    let answer = directory.path().join("answer");
    nix::unistd::mkfifo(&answer, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // The plugin sleeps in open(2) until it is answered.
    write(&format!("echo $$ >> {0}/pids; cat {0}/answer", directory.path().display()));
    let connector = by(Access::new(Some(path.clone()), None)).with_patience(Duration::from_secs(1));
    let mut source = KubernetesSource::start(connector, "n1", &timing(), &SourceReports::default());
    // The test has one thread, which the plugin must not block.
    let late = "no credentials after 1s: the credential plugin sh takes that long";
    until("the complaint", || log.lines().iter().any(|line| line.contains(late))).await;
    write("exit 7");
    std::fs::write(&answer, "swordfish").unwrap();
    let wrong = "the credential plugin sh: its answer is no ExecCredential";
    until("the wrong answer", || log.lines().iter().any(|line| line.contains(wrong))).await;
    let started = std::fs::read_to_string(directory.path().join("pids")).unwrap();
    assert_eq!(started.lines().count(), 1, "one at a time: {started}");
    api.world.lock().unwrap().token = Some("swordfish".to_owned());
    write(r#"echo '{"kind": "ExecCredential", "status": {"token": "'$PASSWORD'"}}'"#);
    assert_eq!(reported(&next(&mut source).await), ["default/a 80"]);
    let lines = log.lines();
    assert!(!lines.iter().any(|line| line.contains("swordfish")), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("WARN")).count(), 2, "one line each: {lines:#?}");
}

#[tokio::test]
async fn a_server_that_is_not_kubernetes_is_one_log_line() {
    let (log, _guard) = CapturedLog::start();
    let api = ScriptedApi::start(None).await;
    api.world.lock().unwrap().refuse = Some(("", 404));
    let _source = KubernetesSource::start(access(&api), "n1", &timing(), &SourceReports::default());
    until("many tries", || [SERVICES, SLICES, NODES].iter().all(|path| api.asked("list", path).0 > 5)).await;
    let lines = log.lines();
    assert_eq!(lines.len(), 3, "one for each kind: {lines:#?}");
    assert!(lines.iter().all(|line| line.contains("(404): is it an API server")), "{lines:#?}");
}
