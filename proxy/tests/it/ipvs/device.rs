use super::*;

#[test]
fn a_removed_address_is_bound_again_when_the_kernel_reports_it() {
    let mut proxy = proxy(Fake::default());
    proxy.apply(&[service("web", "10.96.0.1", &json!([{ "port": 80 }]))]);
    proxy.sync().unwrap();
    let address: IpAddr = "10.96.0.1".parse().unwrap();
    let tell = |proxy: &mut IpvsProxy, of_services: &[IpAddr]| {
        let of_services = Some(of_services.to_vec());
        proxy.set_addresses(&NodeAddresses { of_services, ..NodeAddresses::default() });
    };
    tell(&mut proxy, &[address]);
    proxy.sync().unwrap();
    tell(&mut proxy, &[address, "198.51.100.1".parse().unwrap()]);
    assert!(!proxy.is_due(), "another program's is its own");
    proxy.mode().kernel().device.addresses.iter_mut().for_each(|addresses| addresses.clear());
    tell(&mut proxy, &[]);
    assert!(proxy.sync().unwrap().full);
    proxy.mode().kernel().device.addresses.iter_mut().for_each(|addresses| addresses.clear());
    tell(&mut proxy, &[]);
    assert!(proxy.sync().unwrap().full, "bound and lost between two looks");
    assert!(proxy.mode().kernel().device.addresses.iter().any(|addresses| addresses.contains_key(&address)));
}
