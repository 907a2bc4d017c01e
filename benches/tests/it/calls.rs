//! No event costs more system calls than it did: `calls.yaml`.

use libtest_mimic::Failed;
use svcbench::calls::{COMMITTED, count, read, regressions, text};

pub fn no_event_costs_more_system_calls() -> Result<(), Failed> {
    let now = match count(&std::env::current_exe()?) {
        Ok(now) => now,
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("NOT RUN: {error:#}");
            return Ok(());
        }
        Err(error) => return Err(format!("{error:#}").into()),
    };
    let before = read(COMMITTED).map_err(|error| format!("{error:#}"))?;
    let worse = regressions(&before, &now);
    if worse.is_empty() {
        return Ok(());
    }
    Err(format!("{}\nif it must be: ./just bench --quick --update", worse.join("\n")).into())
}

pub fn a_count_that_grows_is_named_and_one_that_shrinks_is_no_fault() {
    let before = read(COMMITTED).unwrap();
    assert_eq!(read(&text(&before)).unwrap(), before, "the file reads back");
    let mut more = before.clone();
    let sizes = more.get_mut("nftables").unwrap();
    *sizes.get_mut("100x10").unwrap().get_mut("endpoint-replaced").unwrap() += 10;
    let [sentence] = &regressions(&before, &more)[..] else { unreachable!("one count") };
    assert!(sentence.starts_with("nftables 100x10 endpoint-replaced: "), "{sentence}");
    assert!(regressions(&more, &before).is_empty());
}
