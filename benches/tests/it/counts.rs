//! Nothing costs more than it did: counts against `counts.yaml`.

use svcbench::counts::{COMMITTED, count, improvements, read, regressions, text};

pub fn no_count_has_grown() {
    let (before, now) = (read(COMMITTED).unwrap(), count().unwrap());
    let worse = regressions(&before, &now);
    assert!(worse.is_empty(), "{}\nif it must be: ./just bench --quick --update", worse.join("\n"));
}

/// What did not change costs nothing: neither messages nor memory depend on the size of the cluster.
pub fn a_change_costs_the_same_in_a_larger_cluster() {
    let counts = count().unwrap();
    for (mode, sizes) in &counts {
        let of_services = ["endpoint-added", "service-added", "last-endpoint-goes", "first-endpoint-comes"];
        let of_services = of_services.into_iter().filter(|_| mode == "nftables");
        for event in ["nothing-changed", "endpoint-replaced", "udp-endpoint-replaced"].into_iter().chain(of_services) {
            let [small, large] = ["100x10", "1000x10"].map(|size| sizes[size][event]);
            let alike = |line| [("x".to_owned(), [("y".to_owned(), [("z".to_owned(), line)].into())].into())].into();
            let grown = regressions(&alike(small), &alike(large));
            assert!(grown.is_empty(), "{mode}, {event}: {grown:?}");
        }
    }
}

pub fn a_count_that_grows_is_named_and_one_that_shrinks_is_no_fault() {
    let before = read(COMMITTED).unwrap();
    assert_eq!(read(&text(&before)).unwrap(), before, "the file reads back");
    assert!(regressions(&before, &before).is_empty());
    let changed = |from: &str, to: &str| read(&COMMITTED.replacen(from, to, 1)).unwrap();
    let more = changed("restores: 1,", "restores: 2,");
    let [sentence] = &regressions(&before, &more)[..] else { unreachable!("one count") };
    assert!(sentence.ends_with("restores is 2, not 1"), "{sentence}");
    assert!(regressions(&more, &before).is_empty());
    assert_eq!(improvements(&more, &before).len(), 1);
    let other = changed("first-sync", "second-sync");
    assert_eq!(regressions(&before, &other).len(), 2, "a line that goes and one that comes");
}
