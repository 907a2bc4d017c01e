//! Raw requests to an API server.

use hyper::{Method, Request, StatusCode};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

use crate::ControlPlaneError;

#[derive(Clone)]
pub struct ApiClient {
    client: Client,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ApiAnswer {
    pub code: u16,
    pub body: Value,
}

impl ApiAnswer {
    pub fn is_success(&self) -> bool {
        StatusCode::from_u16(self.code).is_ok_and(|code| code.is_success())
    }

    pub fn message(&self) -> String {
        self.body["message"].as_str().unwrap_or_default().to_owned()
    }

    pub fn version(&self) -> u64 {
        version_of(&self.body)
    }
}

/// Returns `metadata.resourceVersion`, or 0 without one.
pub(crate) fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl ApiClient {
    pub async fn new(kubeconfig: &str) -> Result<Self, ControlPlaneError> {
        let broken = |error: kube::config::KubeconfigError| ControlPlaneError::Answer {
            request: "the kubeconfig".to_owned(),
            answer: error.to_string(),
        };
        let kubeconfig = Kubeconfig::from_yaml(kubeconfig).map_err(broken)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(broken)?;
        let client = Client::try_from(config)?;
        Ok(ApiClient { client })
    }

    /// Sends one request with a body of type `media`.
    ///
    /// # Errors
    /// There is no answer, or it is not JSON. An answer with an error status is `Ok`.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: Option<&Value>,
    ) -> Result<ApiAnswer, ControlPlaneError> {
        let request_line = format!("{method} {path}");
        let bytes = body.map(ToString::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", media)
            .header("Accept", "application/json")
            .body(Body::from(bytes.into_bytes()))
            .map_err(|error| ControlPlaneError::Answer { request: request_line.clone(), answer: error.to_string() })?;
        let response = self.client.send(request).await?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect_bytes().await;
        let bytes = bytes?;
        let body = serde_json::from_slice(&bytes).map_err(|_| {
            let answer = String::from_utf8_lossy(&bytes).chars().take(200).collect();
            ControlPlaneError::Answer { request: request_line, answer }
        })?;
        Ok(ApiAnswer { code, body })
    }

    pub async fn get(&self, path: &str) -> Result<ApiAnswer, ControlPlaneError> {
        self.ask(Method::GET, path, "application/json", None).await
    }

    /// Reads `path` in the media type `accept`, also if the answer is an error.
    pub async fn bytes(&self, path: &str, accept: &str) -> Result<Vec<u8>, ControlPlaneError> {
        self.packed_bytes(path, accept, "gzip").await
    }

    /// As [`ApiClient::bytes`], sent in an `encoding`, such as `gzip` or `identity`. The bytes are unpacked.
    pub async fn packed_bytes(&self, path: &str, accept: &str, encoding: &str) -> Result<Vec<u8>, ControlPlaneError> {
        let request = Request::get(path).header("Accept", accept).header("Accept-Encoding", encoding);
        let request = request.body(Body::empty());
        let request = request
            .map_err(|error| ControlPlaneError::Answer { request: path.to_owned(), answer: error.to_string() })?;
        Ok(self.client.send(request).await?.into_body().collect_bytes().await?.to_vec())
    }

    /// Reads a watch until it ends; returns its lines.
    pub async fn lines(&self, path: &str) -> Result<Vec<String>, ControlPlaneError> {
        let text = self.text(path).await?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    pub(crate) async fn text(&self, path: &str) -> Result<String, ControlPlaneError> {
        let request = Request::get(path).body(Vec::new());
        let request = request
            .map_err(|error| ControlPlaneError::Answer { request: path.to_owned(), answer: error.to_string() })?;
        Ok(self.client.request_text(request).await?)
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}
