/// Another proxy serves a Service with this label
/// (<https://kubernetes.io/docs/reference/labels-annotations-taints/#servicekubernetesioservice-proxy-name>).
pub const LABEL_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// A Service with this label has no cluster IP to proxy
/// (<https://kubernetes.io/docs/reference/labels-annotations-taints/#servicekubernetesioheadless>).
pub const LABEL_HEADLESS: &str = "service.kubernetes.io/headless";
/// The Service of a slice (<https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetesioservice-name>).
pub const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";
