#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| svcproxy::fuzzing::state_file(bytes));
