//! No bytes from the API, files or the kernel cause a panic, and no list removes its objects. Feeds nearly valid inputs
//! to `proxy/fuzz`'s entry points.

use proptest::prelude::*;
use serde_json::Value;
use svcproxy::fuzzing;

use crate::support::protobuf;

/// A mutation of an input. Positions are in 65,536ths of its length.
#[derive(Debug, Clone)]
enum Spoil {
    Flip(u16, u8),
    Cut(u16),
    Drop(u16, u8),
    Repeat(u16, u8, u8),
    Insert(u16, Vec<u8>),
}

impl Spoil {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        let place = |at: u16| usize::from(at) * length / 65_536;
        let end = |at: u16, count: u8| (place(at) + usize::from(count)).min(length);
        match self {
            Spoil::Flip(at, with) => {
                if let Some(byte) = bytes.get_mut(place(*at)) {
                    *byte ^= with;
                }
            }
            Spoil::Cut(at) => bytes.truncate(place(*at)),
            Spoil::Drop(at, count) => drop(bytes.drain(place(*at)..end(*at, *count))),
            Spoil::Repeat(at, count, times) => {
                let piece = bytes[place(*at)..end(*at, *count)].repeat(usize::from(*times));
                bytes.splice(place(*at)..place(*at), piece);
            }
            Spoil::Insert(at, what) => drop(bytes.splice(place(*at)..place(*at), what.iter().copied())),
        }
    }
}

fn spoil() -> impl Strategy<Value = Spoil> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..8),
        prop::sample::select(vec![
            "null",
            "{}",
            "[",
            "\"",
            "-1",
            "1e999",
            "\n",
            "\\ud800",
            "&a *a",
            "!!binary x",
            "\u{0}"
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    prop_oneof![
        (any::<u16>(), any::<u8>()).prop_map(|(at, with)| Spoil::Flip(at, with)),
        any::<u16>().prop_map(Spoil::Cut),
        (any::<u16>(), any::<u8>()).prop_map(|(at, count)| Spoil::Drop(at, count)),
        (any::<u16>(), any::<u8>(), 0..8_u8).prop_map(|(at, count, times)| Spoil::Repeat(at, count, times)),
        (any::<u16>(), piece).prop_map(|(at, what)| Spoil::Insert(at, what)),
    ]
}

fn inputs(seeds: &'static [&'static [u8]]) -> impl Strategy<Value = Vec<u8>> {
    let spoilt = (prop::sample::select(seeds), prop::collection::vec(spoil(), 0..6)).prop_map(|(seed, spoils)| {
        let mut bytes = seed.to_vec();
        spoils.iter().for_each(|spoil| spoil.apply(&mut bytes));
        bytes
    });
    prop_oneof![8 => spoilt, 1 => prop::collection::vec(any::<u8>(), 0..400)]
}

const API: &[&[u8]] = &[
    br#"{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","namespace":"b","uid":"1"},"spec":{"type":"LoadBalancer","clusterIP":"10.96.0.1","ports":[{"port":80,"nodePort":30080}],"sessionAffinity":"ClientIP"},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}]}"#,
    br#"{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","namespace":"b","labels":{"kubernetes.io/service-name":"a"}},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true},"hints":{"forZones":[{"name":"a"}]}}],"ports":[{"port":80}]}]}"#,
    br#"{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1","metadata":{"name":"a","namespace":"b","uid":"1","resourceVersion":"8"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":80}]}}}
{"type":"DELETED","object":{"kind":"Service","apiVersion":"v1","metadata":{"name":"a","namespace":"b","uid":"2"}}}
{"type":"ERROR","object":{"kind":"Status","code":410}}
{"type":"BOOKMARK","object":{"kind":"Node","apiVersion":"v1","metadata":{"resourceVersion":"9"}}}"#,
    br#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"a","expirationTimestamp":"2999-01-01T00:00:00Z","clientCertificateData":"a","clientKeyData":"b"}}"#,
];

/// [`API`]'s lists and events, in protobuf.
fn protobuf_seeds() -> &'static [&'static [u8]] {
    let lists = API[..2].iter().map(|list| protobuf::answer(&serde_json::from_slice(list).unwrap()));
    let events = serde_json::Deserializer::from_slice(API[2]).into_iter::<Value>();
    let events: Vec<u8> = events.flat_map(|event| protobuf::frame(&event.unwrap())).collect();
    lists.chain([events]).map(|seed| &*seed.leak()).collect::<Vec<_>>().leak()
}

/// The message of a state file.
fn state_file_seeds() -> &'static [&'static [u8]] {
    let mut seed = Vec::new();
    protobuf::bytes(&mut seed, 1, b"n1");
    protobuf::bytes(&mut seed, 2, &[7; 32]);
    for (list, number, kind) in [(0, 5, "Service"), (1, 6, "EndpointSlice")] {
        let list: Value = serde_json::from_slice(API[list]).unwrap();
        protobuf::bytes(&mut seed, number, &protobuf::message(kind, &list["items"][0]));
    }
    vec![&*seed.leak()].leak()
}

const MANIFEST: &[&[u8]] = &[
    b"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  clusterIP: 10.96.0.1\n  ports:\n  - {name: a, port: 80, nodePort: 30080}\n---\napiVersion: v1\nkind: List\nitems:\n- &a {apiVersion: v1, kind: Node, metadata: {name: n}, spec: {podCIDR: 10.0.0.0/24}}\n- *a\n",
    API[0],
    API[1],
];

const KUBECONFIG: &[&[u8]] = &[b"apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- {name: c, cluster: {server: 'https://10.0.0.1', certificate-authority-data: aGVsbG8K}}\nusers:\n- name: u\n  user:\n    exec: {apiVersion: client.authentication.k8s.io/v1, command: x, args: [a], env: [{name: A, value: b}]}\ncontexts:\n- {name: c, context: {cluster: c, user: u}}\n"];

const CONFIGURATION: &[&[u8]] = &[b"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\nclusterCIDR: 10.244.0.0/16\nnodePortAddresses: [primary]\nconntrack: {maxPerCore: 0, tcpEstablishedTimeout: 24h0m0s}\niptables: {minSyncPeriod: 1s, masqueradeBit: 14}\nfeatureGates: {A: true}\n"];

/// `nlmsghdr`s with an `nfgenmsg` or a generic header, and nested attributes.
const NETLINK: &[&[u8]] = &[
    // A set of nf_tables on which the crate's decoder panicked; found by the fuzzer.
    &[
        40, 0, 0, 0, 9, 10, 23, 181, 0, 168, 162, 218, 0, 38, 254, 0, 255, 255, 0, 247, 20, 0, 17, 0, 24, 255, 10, 181,
        24, 0, 0, 0, 4, 45, 0, 67, 0, 0, 0, 0, 255, 255, 5, 255, 255, 0, 0, 0, 1, 10, 17, 61, 0, 0, 0, 0, 4, 0, 0, 0,
        0,
    ],
    &[
        48, 0, 0, 0, 0, 1, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 28, 0, 1, 0x80, 8, 0, 1, 0, 2, 0, 0, 0, 8, 0, 3,
        0, 10, 0, 0, 1, 6, 0, 4, 0, 0, 80, 0, 0, 20, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ],
    &[20, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 254, 255, 255, 255],
    &[
        76, 0, 0, 0, 0, 1, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 52, 0, 1, 0x80, 20, 0, 1, 0x80, 8, 0, 1, 0, 10, 0,
        0, 1, 8, 0, 2, 0, 10, 0, 0, 2, 28, 0, 2, 0x80, 5, 0, 1, 0, 17, 0, 0, 0, 6, 0, 2, 0, 0, 53, 0, 0, 6, 0, 3, 0, 0,
        53, 0, 0, 4, 0, 3, 0,
    ],
];

const DUMP: &[&[u8]] = &[
    b"# Generated by iptables-save\n*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n[1:2] -A KUBE-SERVICES -d 10.96.0.1/32 -p udp -m udp --dport 53 -j KUBE-SVC-A\nCOMMIT\n*filter\n:INPUT DROP [0:0]\nCOMMIT\n",
    &[0; 400],
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn answers_of_the_api(bytes in inputs(API)) {
        fuzzing::api(&bytes);
    }

    #[test]
    fn answers_of_the_api_in_protobuf(bytes in inputs(protobuf_seeds())) {
        fuzzing::protobuf(&bytes);
    }

    #[test]
    fn state_files(bytes in inputs(state_file_seeds())) {
        fuzzing::state_file(&bytes);
    }

    #[test]
    fn manifests(bytes in inputs(MANIFEST)) {
        fuzzing::manifest(&bytes);
    }

    #[test]
    fn kubeconfigs(bytes in inputs(KUBECONFIG)) {
        fuzzing::kubeconfig(&bytes);
    }

    #[test]
    fn configurations(bytes in inputs(CONFIGURATION)) {
        fuzzing::configuration(&bytes);
    }

    #[test]
    fn answers_of_the_kernel(bytes in inputs(NETLINK)) {
        fuzzing::netlink(&bytes);
    }

    #[test]
    fn dumps_of_rules(bytes in inputs(DUMP)) {
        fuzzing::dump(&bytes);
    }
}
