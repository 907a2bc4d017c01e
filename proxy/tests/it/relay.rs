use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use svcproxy::model::{Family, FlowFate, Protocol, ServicePortName};
use svcproxy::plan::BackendSet;
use svcproxy::relay::limits::RelayLimits;
use svcproxy::relay::{ListenError, Listener, RelayBackends, RelayEngine, Relays, engine, tcp, udp};
use svcproxy::testing::{held_port, port_name};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

const LONG: Duration = Duration::from_secs(3600);

fn shared(limits: RelayLimits, idle: Duration, half_closed: Duration, single: Duration) -> Arc<engine::RelayShared> {
    let udp = udp::UdpTimeouts { single, conversation: LONG };
    engine::RelayShared::new(limits, tcp::TcpTimeouts { idle, half_closed }, udp)
}

fn engine_of(limits: RelayLimits) -> RelayEngine {
    RelayEngine::new(Family::V4, shared(limits, LONG, LONG, LONG))
}

fn roomy() -> RelayLimits {
    RelayLimits { listeners: 1000, connections: 1000, associations: 1000 }
}

fn name(protocol: Protocol) -> ServicePortName {
    port_name("web", protocol)
}

fn lead(engine: &mut RelayEngine, protocol: Protocol, backends: &[SocketAddr], serving: &[SocketAddr]) {
    engine.set_backends(&name(protocol), Some(leading(backends, serving)));
}

fn leading(backends: &[SocketAddr], serving: &[SocketAddr]) -> RelayBackends {
    let mut serving = serving.to_vec();
    serving.sort_unstable();
    RelayBackends { cluster: backends.into(), serving: serving.into(), ..RelayBackends::default() }
}

fn start(engine: &mut RelayEngine, protocol: Protocol, backends: &[SocketAddr]) -> SocketAddr {
    start_service(engine, name(protocol), backends)
}

fn start_service(engine: &mut RelayEngine, name: ServicePortName, backends: &[SocketAddr]) -> SocketAddr {
    engine.set_backends(&name, Some(leading(backends, backends)));
    let listener = Listener { name, set: BackendSet::Cluster };
    let free = |port: &u16| match engine.listen(&listener, *port) {
        Ok(()) => true,
        Err(ListenError::Taken(_)) => false,
        Err(error) => panic!("{error}"),
    };
    let first = 61_000 + u16::try_from(std::process::id() % 4000).unwrap();
    let port = (first..=65_535).chain(61_000..first).find(free).unwrap();
    (Ipv4Addr::LOCALHOST, port).into()
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

async fn echo_at_the_end() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut all = Vec::new();
                if stream.read_to_end(&mut all).await.is_ok() {
                    let _ = stream.write_all(&all).await;
                }
            });
        }
    });
    address
}

async fn ask(address: SocketAddr, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    let (mut from, mut to) = stream.split();
    let sent = async {
        to.write_all(bytes).await?;
        to.shutdown().await
    };
    let mut answer = Vec::new();
    let received = from.read_to_end(&mut answer);
    let (sent, received) = tokio::join!(sent, received);
    sent?;
    received?;
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn megabytes_arrive_complete_through_a_half_closed_connection() {
    let mut engine = engine_of(roomy());
    let backend = echo_at_the_end().await;
    let address = start(&mut engine, Protocol::Tcp, &[backend]);
    let bytes: Vec<u8> =
        (0..5_000_000u32).flat_map(|number| (number ^ (number >> 7)).to_le_bytes().into_iter().take(1)).collect();
    assert!(soon("the echo", ask(address, &bytes)).await.unwrap() == bytes);
    let stats = engine.stats();
    assert_eq!(stats.bytes[0].get(), 2 * bytes.len() as u64);
    until("the connection is closed", || stats.connections.get() == 0).await;
    assert_eq!(stats.failed.get(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_of_a_service_that_share_their_clients_choose_one_address() {
    /// Answers with the listening address.
    async fn named(address: [u8; 4]) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::from(address), 0)).await.unwrap();
        let own = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.write_all(own.ip().to_string().as_bytes()).await;
            }
        });
        own
    }
    async fn answers(at: SocketAddr) -> String {
        String::from_utf8(soon("the answer", ask(at, b"")).await.unwrap()).unwrap()
    }
    let mut engine = engine_of(roomy());
    let ports = ["a", "b"].map(|port| ServicePortName { port: port.into(), ..name(Protocol::Tcp) });
    let mut listening = Vec::new();
    let mut all = Vec::new();
    for port in &ports {
        let backends = [named([127, 0, 0, 2]).await, named([127, 0, 0, 3]).await, named([127, 0, 0, 4]).await];
        listening.push(start_service(&mut engine, port.clone(), &backends));
        all.push(backends);
    }
    let set = |engine: &mut RelayEngine, port: usize, which: Range<usize>, affinity_across_ports: bool| {
        let affinity = Some(LONG);
        let backends = RelayBackends { affinity, affinity_across_ports, ..leading(&all[port][which], &[]) };
        engine.set_backends(&ports[port], Some(backends));
    };
    (0..2).for_each(|port| set(&mut engine, port, 0..3, false));
    assert_eq!(answers(listening[1]).await, "127.0.0.2", "the next turn of this port is another one's");
    (0..2).for_each(|port| set(&mut engine, port, 0..3, true));
    for number in [0, 1, 1, 0] {
        assert_eq!(answers(listening[number]).await, "127.0.0.2");
    }
    set(&mut engine, 1, 1..3, true);
    assert_eq!(answers(listening[1]).await, "127.0.0.3", "this port lacks the address");
    assert_eq!(answers(listening[0]).await, "127.0.0.3", "the last choice of any port");
    // An address that no port has any more is forgotten.
    (0..2).for_each(|port| set(&mut engine, port, 0..1, true));
    (0..2).for_each(|port| set(&mut engine, port, 0..3, true));
    let again = answers(listening[1]).await;
    assert_eq!((again.as_str(), answers(listening[0]).await), ("127.0.0.4", again.clone()));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_refusal_the_next_backend_gets_the_connection() {
    let mut engine = engine_of(roomy());
    let ((_port, dead), alive) = (held_port(), echo_at_the_end().await);
    let address = start(&mut engine, Protocol::Tcp, &[dead, alive]);
    for number in 0..20u8 {
        assert_eq!(soon("the echo", ask(address, &[number])).await.unwrap(), [number]);
    }
    assert!(engine.stats().refused.get() >= 5, "it had its turns");
    lead(&mut engine, Protocol::Tcp, &[dead], &[dead]);
    let error = soon("the end", ask(address, b"x")).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
    until("it is counted", || engine.stats().failed.get() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backends_reset_resets_the_client() {
    let mut engine = engine_of(roomy());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = start(&mut engine, Protocol::Tcp, &[listener.local_addr().unwrap()]);
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"x").await.unwrap();
    let (server, _) = soon("the connection", listener.accept()).await.unwrap();
    soon("the byte", server.peek(&mut [0])).await.unwrap();
    // Closing a socket with unread bytes resets the connection.
    drop(server);
    let error = soon("the reset", client.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_outlive_their_listener_and_end_when_idle() {
    let idle = Duration::from_millis(400);
    'again: loop {
        let mut engine = RelayEngine::new(Family::V4, shared(roomy(), idle, idle, LONG));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = start(&mut engine, Protocol::Tcp, &[listener.local_addr().unwrap()]);
        let mut client = TcpStream::connect(address).await.unwrap();
        let (mut server, _) = soon("the connection", listener.accept()).await.unwrap();
        engine.close(&Listener { name: name(Protocol::Tcp), set: BackendSet::Cluster });
        engine.set_backends(&name(Protocol::Tcp), None);
        let begin = Instant::now();
        while begin.elapsed() < 2 * idle {
            let since = Instant::now();
            let sent = client.write_all(b"x").await;
            let came = soon("the byte", server.read_exact(&mut [0])).await;
            tokio::time::sleep(idle / 8).await;
            if since.elapsed() > idle / 2 {
                continue 'again;
            }
            sent.and(came).unwrap();
        }
        let silent = Instant::now();
        let error = soon("the end", client.read(&mut [0])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert!(silent.elapsed() >= idle / 2, "{:?}", silent.elapsed());
        until("it is counted", || engine.stats().idle.get() == 1).await;
        assert_eq!(engine.stats().listeners.get(), 0);
        break;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_beyond_the_limit_fail() {
    let mut engine = engine_of(RelayLimits { listeners: 1, ..roomy() });
    let [tcp, udp] = [Protocol::Tcp, Protocol::Udp].map(|protocol| {
        engine.set_backends(&name(protocol), Some(RelayBackends::default()));
        Listener { name: name(protocol), set: BackendSet::Cluster }
    });
    engine.listen(&tcp, 0).unwrap();
    assert!(matches!(engine.listen(&udp, 0), Err(ListenError::TooMany(1))));
    engine.close(&tcp);
    engine.listen(&udp, 0).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_free_slot_connections_wait() {
    let mut engine = engine_of(RelayLimits { listeners: 20, connections: 1, associations: 1 });
    let backend = echo_at_the_end().await;
    let address = start(&mut engine, Protocol::Tcp, &[backend]);
    let first = TcpStream::connect(address).await.unwrap();
    let stats = engine.stats();
    until("the first is led", || stats.connections.get() == 1).await;
    let second = tokio::spawn(ask(address, b"second"));
    until("the second waits", || stats.full.get() == 1).await;
    assert!(!second.is_finished());
    drop(first);
    assert_eq!(soon("the second's turn", second).await.unwrap().unwrap(), b"second");
    assert_eq!(stats.full.get(), 1, "it is waited for, not asked for again and again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_with_a_silent_backend_leaves_slots_to_others() {
    let mut engine = engine_of(RelayLimits { listeners: 20, connections: 40, associations: 1 });
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let greedy = start_service(&mut engine, port_name("greedy", Protocol::Tcp), &[silent.local_addr().unwrap()]);
    let web = start_service(&mut engine, port_name("web", Protocol::Tcp), &[echo_at_the_end().await]);
    let stats = engine.stats();
    // Half of the clients wait for an answer after they have ended their direction, as `nc` does.
    let mut held = Vec::new();
    for number in 0..60 {
        let mut client = TcpStream::connect(greedy).await.unwrap();
        if number % 2 == 0 {
            client.shutdown().await.unwrap();
        }
        held.push(client);
    }
    until("all places are taken", || stats.connections.get() == 40 && stats.full.get() == 1).await;
    for number in 0..30u8 {
        assert_eq!(soon("an answer of another service", ask(web, &[number])).await.unwrap(), [number]);
    }
    assert!(stats.evicted.get() >= 1, "in the place of the greedy one's");
    let mut aborted = BTreeSet::new();
    let is_reset =
        |client: &TcpStream| client.try_read(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::ConnectionReset);
    until("who had to leave is reset: no end that looks like a success", || {
        aborted.extend((0..held.len()).filter(|index| is_reset(&held[*index])));
        aborted.len() as u64 == stats.evicted.get()
    })
    .await;
    // Closing the listener resets connections that were not accepted.
    drop((held, silent));
    until("all have ended", || stats.connections.get() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_with_all_associations_leaves_room_to_others() {
    let mut engine = engine_of(RelayLimits { listeners: 20, connections: 1, associations: 20 });
    let greedy = start_service(&mut engine, port_name("greedy", Protocol::Udp), &[udp_server().await]);
    let dns = start_service(&mut engine, port_name("dns", Protocol::Udp), &[udp_server().await]);
    let mut clients = Vec::new();
    for _ in 0..30 {
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        exchange(&client, greedy).await;
        clients.push(client);
    }
    let stats = engine.stats();
    let before = stats.evicted.get();
    let mut seen = Vec::new();
    for client in &clients[..10] {
        seen.push(exchange(client, dns).await);
    }
    assert!(stats.evicted.get() > before, "the greedy one's made room");
    for client in &clients[10..] {
        exchange(client, greedy).await;
    }
    for (client, seen) in clients[..10].iter().zip(&seen) {
        assert_eq!(exchange(client, dns).await, *seen, "the greedy one's new ones end its own old ones");
    }
    assert!(stats.associations.get() <= 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_has_two_descriptors() {
    // Other tests of this process open descriptors as well.
    let mine = |address: SocketAddr, port: u16| {
        let hex = |number: u16| format!("{number:04X}");
        let text = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let pair = |line: &&str| {
            let mut columns = line.split_whitespace().skip(1);
            let (local, remote) = (columns.next().unwrap(), columns.next().unwrap());
            let state = columns.next().unwrap();
            state == "01" && (local.ends_with(&hex(address.port())) || remote.ends_with(&hex(port)))
        };
        text.lines().skip(1).filter(pair).count()
    };
    let mut engine = engine_of(roomy());
    let backend = echo_at_the_end().await;
    let address = start(&mut engine, Protocol::Tcp, &[backend]);
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(TcpStream::connect(address).await.unwrap());
    }
    until("all are led, by two sockets each", || mine(address, backend.port()) == 40).await;
    let pipes =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let pipes: BTreeSet<_> = pipes.filter(|target| target.to_string_lossy().starts_with("pipe:")).collect();
    assert!(pipes.len() < 20, "a pipe only while bytes are on their way: {}", pipes.len());
}

async fn udp_server() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (_, from) = socket.recv_from(&mut [0; 100]).await.unwrap();
            let answer = format!("{} {}", address.port(), from.port());
            socket.send_to(answer.as_bytes(), from).await.unwrap();
        }
    });
    address
}

/// Returns the server's port, and the client port that it saw.
async fn exchange(client: &UdpSocket, address: SocketAddr) -> (u16, u16) {
    soon("an answer", async {
        client.send_to(b"?", address).await.unwrap();
        let mut buffer = [0; 100];
        let (length, from) = client.recv_from(&mut buffer).await.unwrap();
        assert_eq!(from, address, "an answer from elsewhere is none");
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let (server, seen) = text.split_once(' ').unwrap();
        (server.parse().unwrap(), seen.parse().unwrap())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_association_keeps_its_backend_and_replies_come_from_the_requested_address() {
    let mut engine = engine_of(roomy());
    let (one, other) = (udp_server().await, udp_server().await);
    let mut backends = [one, other];
    backends.sort_unstable();
    let address = start(&mut engine, Protocol::Udp, &backends);
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let first = exchange(&client, address).await;
    for _ in 0..5 {
        assert_eq!(exchange(&client, address).await, first, "the same backend sees the same port");
    }
    // A datagram to another address of this node begins another association, with the next backend.
    let elsewhere = SocketAddr::new(IpAddr::from([127, 0, 0, 2]), address.port());
    assert_ne!(exchange(&client, elsewhere).await.0, first.0);
    assert_eq!(engine.stats().associations.get(), 2);
    // An association stays with a backend that serves but is not chosen any more; it ends when the backend is removed.
    let (kept, rest): (Vec<_>, Vec<_>) = backends.iter().partition(|backend| backend.port() == first.0);
    lead(&mut engine, Protocol::Udp, &rest, &backends);
    assert_eq!(exchange(&client, address).await, first);
    lead(&mut engine, Protocol::Udp, &rest, &rest);
    assert_eq!(exchange(&client, address).await.0, rest[0].port(), "at once, {kept:?} is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_association_ends() {
    let single = Duration::from_millis(300);
    'again: loop {
        let mut engine = RelayEngine::new(Family::V4, shared(roomy(), LONG, LONG, single));
        let backend = udp_server().await;
        let address = start(&mut engine, Protocol::Udp, &[backend]);
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let first = exchange(&client, address).await;
        let begin = Instant::now();
        while begin.elapsed() < 2 * single {
            let since = Instant::now();
            let seen = exchange(&client, address).await;
            tokio::time::sleep(single / 10).await;
            if since.elapsed() > single / 2 {
                continue 'again;
            }
            assert_eq!(seen, first, "not while datagrams come");
        }
        let stats = engine.stats();
        until("it has ended", || stats.associations.get() == 0).await;
        exchange(&client, address).await;
        assert_eq!(stats.associations_total.get(), 2);
        break;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_refused_datagram_the_next_backend_gets_the_rest() {
    let mut engine = engine_of(roomy());
    let alive = udp_server().await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    }
    // Last of all, so that none of these gets its port.
    let dead = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut backends = [dead, alive];
    backends.sort_unstable();
    let address = start(&mut engine, Protocol::Udp, &backends);
    for client in clients {
        // The refused datagram is lost; the next one is not.
        let asked = async {
            while tokio::time::timeout(Duration::from_millis(200), exchange(&client, address)).await.is_err() {}
        };
        soon("an answer", asked).await;
    }
    assert!(engine.stats().refused.get() >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_room_the_oldest_associations_are_evicted() {
    let mut engine = engine_of(RelayLimits { listeners: 20, connections: 1, associations: 2 });
    let backend = udp_server().await;
    let address = start(&mut engine, Protocol::Udp, &[backend]);
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    }
    let mut seen = Vec::new();
    for client in &clients {
        seen.push(exchange(client, address).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let stats = engine.stats();
    assert_eq!((stats.associations.get(), stats.evicted.get()), (2, 1));
    assert_eq!(exchange(&clients[1], address).await, seen[1], "the second is there still");
    assert_eq!(exchange(&clients[2], address).await, seen[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_families_use_the_same_port_independently() {
    let mut engine = engine_of(roomy());
    let address = start(&mut engine, Protocol::Tcp, &[echo_at_the_end().await]);
    let mut other = RelayEngine::new(Family::V6, shared(roomy(), LONG, LONG, LONG));
    let inner = TcpListener::bind("[::1]:0").await.unwrap();
    lead(&mut other, Protocol::Tcp, &[inner.local_addr().unwrap()], &[]);
    let listener = Listener { name: name(Protocol::Tcp), set: BackendSet::Cluster };
    other.listen(&listener, address.port()).unwrap();
    assert!(matches!(engine.listen(&listener, address.port()), Err(ListenError::Taken(_))));
    let client = TcpStream::connect(("::1", address.port())).await.unwrap();
    let (_server, peer) = soon("the connection", inner.accept()).await.unwrap();
    assert!(peer.is_ipv6() && client.peer_addr().unwrap().is_ipv6());
    assert_eq!(soon("the other family", ask(address, b"x")).await.unwrap(), b"x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_listener_frees_its_port_and_keeps_connections() {
    let mut engine = RelayEngine::on(Ipv4Addr::LOCALHOST.into(), shared(roomy(), LONG, LONG, LONG));
    let backend = echo_at_the_end().await;
    let address = start(&mut engine, Protocol::Tcp, &[backend]);
    let mut open = TcpStream::connect(address).await.unwrap();
    open.write_all(b"before").await.unwrap();
    until("the connection is relayed", || engine.stats().connections.get() == 1).await;
    let other = port_name("other", Protocol::Tcp);
    engine.set_backends(&other, Some(leading(&[backend], &[])));
    let listener = |name| Listener { name, set: BackendSet::Cluster };
    for _ in 0..100 {
        let (from, to) = (listener(name(Protocol::Tcp)), listener(other.clone()));
        engine.close(&from);
        engine.listen(&to, address.port()).unwrap();
        engine.close(&to);
        engine.listen(&from, address.port()).unwrap();
    }
    assert_eq!(engine.stats().listeners.get(), 1);
    open.shutdown().await.unwrap();
    let mut all = Vec::new();
    soon("the end", open.read_to_end(&mut all)).await.unwrap();
    assert_eq!(all, b"before");
    assert_eq!(soon("an answer", ask(address, b"x")).await.unwrap(), b"x");
    engine.close(&listener(name(Protocol::Tcp)));
    assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_on_a_loopback_address_is_reached_only_there() {
    let mut engine = RelayEngine::on(Ipv4Addr::LOCALHOST.into(), shared(roomy(), LONG, LONG, LONG));
    let address = start(&mut engine, Protocol::Tcp, &[echo_at_the_end().await]);
    assert_eq!(soon("an answer", ask(address, b"x")).await.unwrap(), b"x");
    let elsewhere = SocketAddr::from(([127, 0, 0, 2], address.port()));
    assert_eq!(TcpStream::connect(elsewhere).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let udp = name(Protocol::Udp);
    lead(&mut engine, Protocol::Udp, &[address], &[]);
    // An attempt on a port of another test counts as well.
    let before = engine.stats().not_opened.get();
    let refused = engine.listen(&Listener { name: udp, set: BackendSet::Cluster }, address.port());
    assert!(matches!(refused, Err(ListenError::Refused { .. })), "there are none of UDP");
    assert_eq!(engine.stats().not_opened.get(), before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_a_lost_backend_end_as_their_fate_says() {
    let mut engine = engine_of(roomy());
    let backend = echo_at_the_end().await;
    let with = |flow_fate, serving: &[SocketAddr]| RelayBackends { flow_fate, ..leading(&[backend], serving) };
    let address = start(&mut engine, Protocol::Tcp, &[backend]);
    let connect = async || {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"x").await.unwrap();
        client
    };
    let stats = engine.stats();
    let is_open = |count: u64| stats.connections.get() == count;
    let mut kept = connect().await;
    until("it is relayed", || is_open(1)).await;
    engine.set_backends(&name(Protocol::Tcp), Some(with(FlowFate::Keep, &[])));
    engine.set_backends(&name(Protocol::Tcp), Some(with(FlowFate::Reset, &[backend])));
    let mut ended = connect().await;
    until("both are relayed", || is_open(2)).await;
    engine.set_backends(&name(Protocol::Tcp), Some(with(FlowFate::Drain(3600), &[])));
    engine.set_backends(&name(Protocol::Tcp), Some(with(FlowFate::Reset, &[backend])));
    assert!(is_open(2), "a backend that serves again keeps its connections");
    engine.set_backends(&name(Protocol::Tcp), None);
    for client in [&mut kept, &mut ended] {
        let error = soon("the reset", client.read(&mut [0])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    until("both ended", || is_open(0)).await;
}
