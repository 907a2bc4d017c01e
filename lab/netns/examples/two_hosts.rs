//! Connects two hosts: `cargo run -p svclab-netns --example two_hosts`, without root.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::net::{IpAddr, SocketAddr};

use svclab_netns::links::VethEnd;
use svclab_netns::mac::{self, LinkEnd};
use svclab_netns::namespace::{Isolation, Namespace};
use svclab_netns::{sandbox, sockets};

const ETH0: u32 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    sandbox::enter()?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(connect())
}

async fn connect() -> Result<(), Box<dyn Error>> {
    let [near, far]: [IpAddr; 2] = ["192.0.2.1".parse()?, "192.0.2.2".parse()?];
    let a = Namespace::create("a", Isolation::Network).await?;
    let b = Namespace::create("b", Isolation::Network).await?;
    let end = |address| VethEnd { name: "eth0", index: ETH0, mac: mac::of(address, LinkEnd::Host) };
    a.add_veth(&end(near), None, &end(far), &b).await?;
    a.links().add_address(ETH0, "192.0.2.1/24".parse()?, false).await?;
    b.links().add_address(ETH0, "192.0.2.2/24".parse()?, false).await?;

    // A socket belongs to the namespace in which it is created.
    let to = SocketAddr::new(far, 80);
    let listener = sockets::listen(&b, to).await?;
    let socket = a.run(move || sockets::tcp(to)).await??;
    let (connected, accepted) = tokio::try_join!(socket.connect(to), listener.accept())?;
    println!("a connected to {}; b saw {}", connected.peer_addr()?, accepted.1);
    Ok(())
}
