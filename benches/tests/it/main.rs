#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may panic, and prints that it did not run")]

#[cfg(target_arch = "x86_64")]
mod calls;
mod counts;

use libtest_mimic::{Arguments, Trial};
use svcbench::allocations::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A test named as the path of its function, which panics when it fails.
macro_rules! trial {
    ($module:ident::$function:ident) => {
        Trial::test(concat!(stringify!($module), "::", stringify!($function)), || {
            $module::$function();
            Ok(())
        })
    };
}

fn main() {
    #[cfg(target_arch = "x86_64")]
    if std::env::args().nth(1).as_deref() == Some(svcbench::calls::INSIDE) {
        return svcbench::calls::inside().unwrap();
    }
    let trials = vec![
        trial!(counts::no_count_has_grown),
        trial!(counts::a_change_costs_the_same_in_a_larger_cluster),
        trial!(counts::a_count_that_grows_is_a_regression_and_one_that_shrinks_is_not),
        #[cfg(target_arch = "x86_64")]
        Trial::test("calls::no_event_costs_more_system_calls", calls::no_event_costs_more_system_calls),
        #[cfg(target_arch = "x86_64")]
        trial!(calls::a_count_that_grows_is_a_regression_and_one_that_shrinks_is_not),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
