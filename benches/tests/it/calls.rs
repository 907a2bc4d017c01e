//! No event has more system calls than in `calls.yaml`.

use libtest_mimic::Failed;
use svcbench::calls::{FILE, count};
use svcbench::count_file::CountTable;

pub fn no_event_costs_more_system_calls() -> Result<(), Failed> {
    let now = match count(&std::env::current_exe()?) {
        Ok(now) => now,
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("NOT RUN: {error:#}");
            return Ok(());
        }
        Err(error) => return Err(format!("{error:#}").into()),
    };
    let before = FILE.read().map_err(|error| format!("{error:#}"))?;
    let worse = FILE.regressions(&before, &now);
    if worse.is_empty() {
        return Ok(());
    }
    Err(format!("{}\nif it must be: ./just bench --quick --update", worse.join("\n")).into())
}

pub fn a_count_that_grows_is_a_regression_and_one_that_shrinks_is_not() {
    let before: CountTable<u64> = FILE.read().unwrap();
    assert_eq!(FILE.parse(&FILE.text(&before)).unwrap(), before, "the file reads back");
    let mut more = before.clone();
    let sizes = more.get_mut("nftables").unwrap();
    *sizes.get_mut("100x10").unwrap().get_mut("endpoint-replaced").unwrap() += 10;
    let [sentence] = &FILE.regressions(&before, &more)[..] else { unreachable!("one count") };
    assert!(sentence.starts_with("nftables 100x10 endpoint-replaced: "), "{sentence}");
    assert!(FILE.regressions(&more, &before).is_empty());
}
