//! No event costs more system calls than it did: `calls.yaml`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stderr, reason = "what was not run is said")]

#[cfg(not(target_arch = "x86_64"))]
fn main() {}

#[cfg(target_arch = "x86_64")]
fn main() {
    use libtest_mimic::{Arguments, Trial};
    use svcbench::calls::{COMMITTED, INSIDE, count, inside, read, regressions, text};

    if std::env::args().nth(1).as_deref() == Some(INSIDE) {
        return inside().unwrap();
    }
    let arguments = Arguments::from_args();
    let grown = || {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let now = match count(&program) {
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
    };
    let named = || {
        let before = read(COMMITTED).unwrap();
        assert_eq!(read(&text(&before)).unwrap(), before, "the file reads back");
        let mut more = before.clone();
        let sizes = more.get_mut("nftables").unwrap();
        *sizes.get_mut("100x10").unwrap().get_mut("endpoint-replaced").unwrap() += 10;
        let [sentence] = &regressions(&before, &more)[..] else { unreachable!("one count") };
        assert!(sentence.starts_with("nftables 100x10 endpoint-replaced: "), "{sentence}");
        assert!(regressions(&more, &before).is_empty());
        Ok(())
    };
    let trials = vec![
        Trial::test("no_event_costs_more_system_calls", grown),
        Trial::test("a_count_that_grows_is_named_and_one_that_shrinks_is_no_fault", named),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}
