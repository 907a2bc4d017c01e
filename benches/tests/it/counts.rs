//! No count is larger than in `counts.yaml`.

use svcbench::count_file::CountTable;
use svcbench::counts::{EventCounts, FILE, count};

pub fn no_count_has_grown() {
    let (before, now) = (FILE.read().unwrap(), count().unwrap());
    let worse = FILE.regressions(&before, &now);
    assert!(worse.is_empty(), "{}\nif it must be: ./just bench --quick --update", worse.join("\n"));
}

/// The messages and allocations of a change do not depend on the size of the cluster.
pub fn a_change_costs_the_same_in_a_larger_cluster() {
    let counts = count().unwrap();
    for (mode, sizes) in counts.iter().filter(|(_, sizes)| sizes.len() > 1) {
        let of_services = ["endpoint-added", "service-added", "last-endpoint-goes", "first-endpoint-comes"];
        let of_services = of_services.into_iter().filter(|_| mode == "nftables");
        for event in ["nothing-changed", "endpoint-replaced", "udp-endpoint-replaced"].into_iter().chain(of_services) {
            let [small, large] = ["100x10", "1000x10"].map(|size| sizes[size][event]);
            let alike = |line| [("x".to_owned(), [("y".to_owned(), [("z".to_owned(), line)].into())].into())].into();
            let grown = FILE.regressions(&alike(small), &alike(large));
            assert!(grown.is_empty(), "{mode}, {event}: {grown:?}");
        }
    }
}

pub fn a_count_that_grows_is_a_regression_and_one_that_shrinks_is_not() {
    let before: CountTable<EventCounts> = FILE.read().unwrap();
    assert_eq!(FILE.parse(&FILE.text(&before)).unwrap(), before, "the file reads back");
    assert!(FILE.regressions(&before, &before).is_empty());
    let changed = |from: &str, to: &str| FILE.parse(&FILE.committed.replacen(from, to, 1)).unwrap();
    let more = changed("restores: 1,", "restores: 2,");
    let [sentence] = &FILE.regressions(&before, &more)[..] else { unreachable!("one count") };
    assert!(sentence.ends_with("restores is 2, not 1"), "{sentence}");
    assert!(FILE.regressions(&more, &before).is_empty());
    assert_eq!(FILE.improvements(&more, &before).len(), 1);
    let other = changed("first-sync", "second-sync");
    assert_eq!(FILE.regressions(&before, &other).len(), 2, "a line that goes and one that comes");
}
