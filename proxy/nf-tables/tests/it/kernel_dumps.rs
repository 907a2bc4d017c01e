//! Each dump is of one generation while others write, although `NLM_F_DUMP_INTR` misses some changes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::support::{TABLE, comments, inside, named, refused};
use nf_tables::{Batch, NfSocket, RulePosition};

/// Runs `check` while `write` runs in bursts. A dump needs the pause between two, which lasts until the next check
/// ends.
fn read_while(mut write: impl FnMut(&mut NfSocket) + Send, mut check: impl FnMut(&mut NfSocket) -> Result<(), String>) {
    let (stop, readings) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut socket = NfSocket::open().unwrap();
            while !stop.load(Ordering::Relaxed) {
                let before = readings.load(Ordering::Relaxed);
                (0..4).for_each(|_| write(&mut socket));
                while readings.load(Ordering::Relaxed) == before && !stop.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            }
        });
        let mut socket = NfSocket::open().unwrap();
        let result = (0..250).try_for_each(|_| {
            let result = check(&mut socket);
            readings.fetch_add(1, Ordering::Relaxed);
            result
        });
        stop.store(true, Ordering::Relaxed);
        if let Err(wrong) = result {
            panic!("{wrong}");
        }
    });
}

const STAY: usize = 1000;

fn staying() {
    let mut batch = Batch::new();
    batch.add_table(TABLE).unwrap();
    batch.add_chain(TABLE, "a").unwrap();
    for at in 0..STAY {
        batch.add_rule(TABLE, "a", &named(&at.to_string())).unwrap();
    }
    NfSocket::open().unwrap().commit(&batch).unwrap();
}

fn they_stay(socket: &mut NfSocket) -> Result<(), String> {
    let seen: Vec<String> = comments(socket, "a").into_iter().map(|(_, comment)| comment).collect();
    let staying = seen.iter().filter(|comment| *comment != "goes");
    let whole = staying.eq((0..STAY).map(|at| at.to_string()).collect::<Vec<_>>().iter());
    if whole { Ok(()) } else { Err(format!("{} rules of {STAY}: {seen:?}", seen.len())) }
}

fn insert_in_front(batch: &mut Batch) {
    for _ in 0..20 {
        batch.insert_rule(TABLE, "a", RulePosition::First, &named("goes")).unwrap();
    }
}

/// A change between two datagrams of a dump can hide rules, or repeat them.
#[test]
fn a_dump_is_of_one_moment() {
    if !inside!() {
        return;
    }
    staying();
    let (mut add, mut delete) = (Batch::new(), Batch::new());
    add.set_echo(true);
    insert_in_front(&mut add);
    let write = |socket: &mut NfSocket| {
        let handles = socket.commit(&add).unwrap().handles;
        assert_eq!(handles.len(), 20);
        delete.clear();
        for (_, handle) in handles {
            delete.delete_rule(TABLE, "a", handle).unwrap();
        }
        socket.commit(&delete).unwrap();
    };
    read_while(write, they_stay);
}

/// The kernel counts uncommitted rules.
#[test]
fn a_dump_is_whole_while_others_fail() {
    if !inside!() {
        return;
    }
    staying();
    let mut batch = Batch::new();
    insert_in_front(&mut batch);
    for at in 0..2_000 {
        batch.add_chain(TABLE, &format!("never-{at}")).unwrap();
    }
    batch.delete_chain(TABLE, "absent").unwrap();
    let write = |socket: &mut NfSocket| assert_eq!(refused(&socket.commit(&batch).unwrap_err()).len(), 1);
    read_while(write, they_stay);
}

/// Each batch replaces a chain's rules.
#[test]
fn a_dump_is_of_one_generation() {
    if !inside!() {
        return;
    }
    // Dumps of one datagram and of two.
    [200, 400].into_iter().for_each(versions_of);
}

fn versions_of(rules: usize) {
    let versions = ["one", "two"].map(|version| {
        let mut batch = Batch::new();
        batch.add_table(TABLE).unwrap();
        batch.add_chain(TABLE, "v").unwrap();
        batch.flush_chain(TABLE, "v").unwrap();
        for _ in 0..rules {
            batch.add_rule(TABLE, "v", &named(version)).unwrap();
        }
        batch
    });
    NfSocket::open().unwrap().commit(&versions[0]).unwrap();
    let write = |socket: &mut NfSocket| versions.iter().for_each(|version| drop(socket.commit(version).unwrap()));
    read_while(write, |socket| {
        let seen: Vec<String> = comments(socket, "v").into_iter().map(|(_, comment)| comment).collect();
        let whole = seen.len() == rules && seen.iter().all(|version| *version == seen[0]);
        if whole { Ok(()) } else { Err(format!("{} rules: {seen:?}", seen.len())) }
    });
}

/// Each batch changes two chains.
#[test]
fn a_snapshot_is_of_one_generation() {
    if !inside!() {
        return;
    }
    let versions = ["one", "two"].map(|version| {
        let mut batch = Batch::new();
        batch.add_table(TABLE).unwrap();
        for chain in ["a", "b"] {
            batch.add_chain(TABLE, chain).unwrap();
            batch.flush_chain(TABLE, chain).unwrap();
            batch.add_rule(TABLE, chain, &named(version)).unwrap();
        }
        batch
    });
    NfSocket::open().unwrap().commit(&versions[0]).unwrap();
    let write = |socket: &mut NfSocket| versions.iter().for_each(|version| drop(socket.commit(version).unwrap()));
    read_while(write, |socket| {
        let read = socket.snapshot(|socket| {
            let mut versions = Vec::new();
            for chain in ["a", "b"].repeat(20) {
                let rules = socket.rules(TABLE, chain)?;
                versions.extend(rules.map(|rule| rule.comment().unwrap_or_default().to_owned()));
            }
            Ok((versions, socket.read_at()))
        });
        let (seen, generation) = read.unwrap();
        assert!(generation.is_some());
        let whole = seen.len() == 40 && seen.iter().all(|version| *version == seen[0]);
        if whole { Ok(()) } else { Err(format!("{seen:?}")) }
    });
}
