use std::process::Command;

use crate::support::{TABLE, comments, inside, named, refused, this_test};
use nf_tables::{
    BaseChain, Batch, ChainPolicy, CommitError, Element, ElementValue, Family, MapData, NfHook, NfSocket, NfVerdict,
    Operation, Rule, RulePosition, SetSpec, Table, counter, verdict,
};
use nix::libc;

fn jump(chain: &str) -> Rule {
    let mut rule = Rule::new();
    rule.counter().verdict(NfVerdict::Jump(chain));
    rule
}

fn chains(socket: &mut NfSocket) -> Vec<String> {
    socket.chains(Family::Ipv4).unwrap().map(|chain| chain.name.to_owned()).collect()
}

#[test]
fn a_refused_operation_is_named_and_leaves_nothing() {
    if !inside!() {
        return;
    }
    let mut socket = NfSocket::open().unwrap();
    let mut batch = Batch::new();
    batch.add_table(TABLE).unwrap();
    batch.add_chain(TABLE, "a").unwrap();
    let in_the_middle = batch.add_rule(TABLE, "a", &jump("absent")).unwrap();
    batch.add_chain(TABLE, "b").unwrap();
    let another = batch.add_rule(TABLE, "nowhere", &named("x")).unwrap();
    batch.add_rule(TABLE, "a", &jump("b")).unwrap();
    let error = socket.commit(&batch).unwrap_err();
    assert_eq!(refused(&error), [(in_the_middle.0, libc::ENOENT), (another.0, libc::ENOENT)]);
    assert!(chains(&mut socket).is_empty(), "nothing of it is there");
    assert_eq!(socket.tables(Family::Ipv4).unwrap().count(), 0);
    assert!(
        error.to_string().contains("refuses 2 of the batch's operations, the first of them operation 2: "),
        "{error}"
    );

    for (first, last) in [(true, false), (false, true), (true, true)] {
        batch.clear();
        batch.add_table(TABLE).unwrap();
        let mut expected = Vec::new();
        if first {
            batch.clear();
            expected.push((batch.delete_chain(TABLE, "absent").unwrap().0, libc::ENOENT));
        }
        batch.add_table(Table::new(Family::Ipv6, "t")).unwrap();
        if last {
            expected.push((batch.delete_chain(TABLE, "absent").unwrap().0, libc::ENOENT));
        }
        assert_eq!(refused(&socket.commit(&batch).unwrap_err()), expected);
    }
    batch.clear();
    batch.delete_table(TABLE).unwrap();
    assert_eq!(refused(&socket.commit(&batch).unwrap_err()), [(0, libc::ENOENT)]);

    // The same batch without the error.
    batch.clear();
    batch.add_table(TABLE).unwrap();
    batch.add_chain(TABLE, "a").unwrap();
    batch.add_chain(TABLE, "b").unwrap();
    batch.add_rule(TABLE, "a", &jump("b")).unwrap();
    socket.commit(&batch).unwrap();
    assert_eq!(chains(&mut socket), ["a", "b"]);
    batch.clear();
    batch.delete_chain(TABLE, "b").unwrap();
    assert_eq!(refused(&socket.commit(&batch).unwrap_err()), [(0, libc::EBUSY)], "something jumps there");
}

#[test]
fn a_circle_of_jumps_is_refused() {
    if !inside!() {
        return;
    }
    let mut socket = NfSocket::open().unwrap();
    let mut batch = Batch::new();
    batch.add_table(TABLE).unwrap();
    let hook = BaseChain { kind: "filter", hook: NfHook::Output, priority: 0, policy: Some(ChainPolicy::Accept) };
    batch.add_base_chain(TABLE, "output", &hook).unwrap();
    for chain in ["a", "b"] {
        batch.add_chain(TABLE, chain).unwrap();
    }
    batch.add_rule(TABLE, "output", &jump("a")).unwrap();
    batch.add_rule(TABLE, "a", &jump("b")).unwrap();
    socket.commit(&batch).unwrap();
    batch.clear();
    batch.add_chain(TABLE, "c").unwrap();
    let closing = batch.add_rule(TABLE, "b", &jump("a")).unwrap();
    let refused = refused(&socket.commit(&batch).unwrap_err());
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].0, closing.0);
    assert!([libc::EMLINK, libc::ELOOP].contains(&refused[0].1), "{refused:?}");
    assert_eq!(chains(&mut socket).len(), 3);
}

#[test]
fn a_generation_that_is_over_asks_for_a_restart() {
    if !inside!() {
        return;
    }
    let (mut socket, mut other) = (NfSocket::open().unwrap(), NfSocket::open().unwrap());
    let mut batch = Batch::new();
    let before = socket.generation().unwrap();
    batch.set_generation(Some(before));
    batch.add_table(TABLE).unwrap();
    let made = socket.commit(&batch).unwrap().generation.unwrap();
    assert_ne!(made, before);
    assert_eq!(other.generation().unwrap(), made, "a commit reports the generation that it made");
    let error = socket.commit(&batch).unwrap_err();
    assert!(matches!(error, CommitError::Restart), "{error:?}");

    batch.clear();
    batch.set_generation(Some(made));
    batch.add_chain(TABLE, "mine").unwrap();
    let mut foreign = Batch::new();
    foreign.add_chain(TABLE, "foreign").unwrap();
    other.commit(&foreign).unwrap();
    let error = socket.commit(&batch).unwrap_err();
    assert!(matches!(error, CommitError::Restart), "{error:?}");
    assert_eq!(chains(&mut socket), ["foreign"], "nothing of it is there");
    batch.set_generation(Some(socket.generation().unwrap()));
    socket.commit(&batch).unwrap();
    assert_eq!(chains(&mut socket), ["foreign", "mine"]);
    assert_eq!(socket.commit(&Batch::new()).unwrap().generation, None, "nothing was sent");
}

#[test]
fn a_batch_fits_or_is_reported_as_too_large() {
    if !inside!() {
        return;
    }
    let mut socket = NfSocket::open().unwrap();
    let limit = socket.largest_batch();
    let mut batch = Batch::new();
    batch.add_table(TABLE).unwrap();
    batch.add_chain(TABLE, "a").unwrap();
    // 40,000 bytes: a large batch of few messages.
    let mut rule = Rule::new();
    rule.counter().raw("counter", &[&[0x41, 0x9c, 0xff, 0x3f], &[0; 40_000 - 4 + 1][..], &[0; 3]].concat());
    let mut before = batch.checkpoint();
    while batch.len() <= limit {
        before = batch.checkpoint();
        batch.add_rule(TABLE, "a", &rule).unwrap();
    }
    match socket.commit(&batch).unwrap_err() {
        CommitError::TooLarge { bytes, limit: reported } => assert_eq!((bytes, reported), (batch.len(), limit)),
        other => panic!("{other:?}"),
    }
    assert!(chains(&mut socket).is_empty());
    batch.rollback(before);
    // A chain's name fills the batch to the last byte.
    let padded = |batch: &mut Batch, bytes: usize| {
        let rest = bytes - batch.len() - 20 - 8 - 4;
        batch.add_chain(TABLE, &"x".repeat(rest - 1))
    };
    while limit - batch.len() > 240 {
        batch.add_chain(TABLE, &"y".repeat(99)).unwrap();
    }
    padded(&mut batch, limit / 4 * 4).unwrap();
    assert_eq!(batch.len(), limit / 4 * 4);
    socket.commit(&batch).unwrap();
    assert!(chains(&mut socket).len() > 1);
}

#[test]
fn rules_go_where_they_are_put() {
    if !inside!() {
        return;
    }
    let mut socket = NfSocket::open().unwrap();
    let mut batch = Batch::new();
    batch.add_table(TABLE).unwrap();
    batch.add_chain_with(TABLE, "a", b"of ours").unwrap();
    batch.set_echo(true);
    let second = batch.add_rule(TABLE, "a", &named("2")).unwrap();
    batch.set_echo(false);
    batch.add_rule(TABLE, "a", &named("4")).unwrap();
    batch.insert_rule(TABLE, "a", RulePosition::First, &named("1")).unwrap();
    let handles = socket.commit(&batch).unwrap().handles;
    let (operation, handle) = *handles.last().unwrap();
    assert_eq!(operation, second);
    assert_eq!(handles.iter().map(|(operation, _)| *operation).collect::<Vec<_>>(), [Operation(0), second]);
    assert_eq!(comments(&mut socket, "a").iter().find(|(_, comment)| comment == "2").unwrap().0, handle);

    batch.clear();
    batch.insert_rule(TABLE, "a", RulePosition::After(handle), &named("3")).unwrap();
    batch.insert_rule(TABLE, "a", RulePosition::Before(handle), &named("1½")).unwrap();
    socket.commit(&batch).unwrap();
    let rules = comments(&mut socket, "a");
    assert_eq!(rules.iter().map(|(_, comment)| &comment[..]).collect::<Vec<_>>(), ["1", "1½", "2", "3", "4"]);

    batch.clear();
    batch.delete_rule(TABLE, "a", rules[0].0).unwrap();
    batch.replace_rule(TABLE, "a", rules[2].0, &jump("b")).unwrap();
    let absent = batch.delete_rule(TABLE, "a", 9999).unwrap();
    assert_eq!(refused(&socket.commit(&batch).unwrap_err()), [(1, libc::ENOENT), (absent.0, libc::ENOENT)]);
    batch.clear();
    batch.add_chain(TABLE, "b").unwrap();
    batch.delete_rule(TABLE, "a", rules[0].0).unwrap();
    batch.replace_rule(TABLE, "a", rules[2].0, &jump("b")).unwrap();
    socket.commit(&batch).unwrap();
    let seen: Vec<_> = comments(&mut socket, "a").into_iter().map(|(_, comment)| comment).collect();
    assert_eq!(seen, ["1½", "", "3", "4"]);
    let rules = socket.rules(TABLE, "a").unwrap();
    let led: Vec<_> = rules.map(|rule| verdict(rule.expressions).is_some()).collect();
    assert_eq!(led, [false, true, false, false]);

    let chain = socket.chain(TABLE, "a").unwrap().unwrap();
    assert_eq!((chain.uses, chain.user_data, chain.base), (4, &b"of ours"[..], None));
    assert_eq!(socket.chain(TABLE, "b").unwrap().unwrap().uses, 1, "the jump");
    assert_eq!(socket.chain(TABLE, "c").unwrap(), None);
    assert_eq!(socket.chain(Table::new(Family::Ipv6, "t"), "a").unwrap(), None);
    assert_eq!(socket.rules(TABLE, "c").unwrap().count(), 0);

    batch.clear();
    batch.flush_chain(TABLE, "a").unwrap();
    batch.delete_chain(TABLE, "b").unwrap();
    socket.commit(&batch).unwrap();
    assert!(comments(&mut socket, "a").is_empty());
    assert_eq!(chains(&mut socket), ["a"]);
}

#[test]
fn a_counter_is_read_where_it_was_set() {
    if !inside!() {
        return;
    }
    let mut socket = NfSocket::open().unwrap();
    let mut batch = Batch::new();
    batch.add_table(TABLE).unwrap();
    batch.add_chain(TABLE, "a").unwrap();
    batch.add_rule(TABLE, "a", Rule::new().counter_from(7, 420)).unwrap();
    socket.commit(&batch).unwrap();
    let rule = socket.rules(TABLE, "a").unwrap().next().unwrap();
    let counted = counter(rule.expressions).unwrap();
    assert_eq!((counted.packets, counted.bytes), (7, 420));
}

#[test]
fn elements_are_added_read_and_deleted_in_any_number() {
    if !inside!() {
        return;
    }
    let mut socket = NfSocket::open().unwrap();
    let keys: Vec<[u8; 16]> = (0..5000u32)
        .map(|n| {
            let fields = [n.to_be_bytes(), [6, 0, 0, 0], [0, 80, 0, 0], (n % 10).to_ne_bytes()];
            fields.concat().try_into().unwrap()
        })
        .collect();
    let map = SetSpec {
        name: "endpoints",
        key_length: 16,
        fields: &[4, 1, 2, 4],
        data: Some(MapData::Value { kind: 7, length: 4 }),
        size: Some(6000),
        user_data: b"kept",
        ..SetSpec::default()
    };
    let mut batch = Batch::new();
    batch.add_table(TABLE).unwrap();
    batch.add_set(TABLE, &map).unwrap();
    let added = batch
        .add_elements(TABLE, map.name, keys.iter().map(|key| Element::to(key, ElementValue::Data(&key[..4]))))
        .unwrap();
    assert_eq!(added, Some(Operation(2)));
    assert!(batch.messages() > 5, "{}", batch.messages());
    socket.commit(&batch).unwrap();

    let set = socket.sets(TABLE).unwrap().next().unwrap();
    assert_eq!((set.name, set.key_length, set.size, set.user_data), (map.name, 16, Some(6000), map.user_data));
    assert_eq!(set.data, map.data);
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for element in socket.elements(TABLE, map.name).unwrap() {
        assert_eq!(element.value, Some(ElementValue::Data(&element.key[..4])));
        seen.push(element.key.to_vec());
    }
    seen.sort();
    assert_eq!(seen, keys);

    // The refusal has the operation's number, in whichever message the key is.
    for wrong in [0, 2500, 4999] {
        batch.clear();
        let value =
            |at: usize| if at == wrong { [9, 9, 9, 9] } else { [keys[at][0], keys[at][1], keys[at][2], keys[at][3]] };
        let values: Vec<[u8; 4]> = (0..keys.len()).map(value).collect();
        let elements = || keys.iter().zip(&values).map(|(key, value)| Element::to(key, ElementValue::Data(value)));
        batch.add_elements(TABLE, map.name, elements()).unwrap();
        assert_eq!(refused(&socket.commit(&batch).unwrap_err()), [(0, libc::EEXIST)], "{wrong}");
        batch.clear();
        batch.add_chain(TABLE, "x").unwrap();
        batch.add_elements(TABLE, map.name, elements()).unwrap();
        assert_eq!(refused(&socket.commit(&batch).unwrap_err()), [(1, libc::EEXIST)], "{wrong}");
    }
    batch.clear();
    batch.delete_elements(TABLE, map.name, keys[1..].iter().map(|key| Element::new(key))).unwrap();
    socket.commit(&batch).unwrap();
    assert_eq!(
        socket.elements(TABLE, map.name).unwrap().map(|e| e.key.to_vec()).collect::<Vec<_>>(),
        [keys[0].to_vec()]
    );
    batch.clear();
    assert_eq!(batch.add_elements(TABLE, map.name, []), Ok(None));
    assert!(batch.is_empty());
    batch.flush_set(TABLE, map.name).unwrap();
    socket.commit(&batch).unwrap();
    assert_eq!(socket.elements(TABLE, map.name).unwrap().count(), 0);
    batch.clear();
    batch.delete_set(TABLE, map.name).unwrap();
    socket.commit(&batch).unwrap();
    assert_eq!(socket.sets(TABLE).unwrap().count(), 0);
    assert_eq!(socket.elements(TABLE, map.name).unwrap().count(), 0, "no such set");
}

#[test]
fn elements_lead_to_verdicts_and_go_after_a_time() {
    if !inside!() {
        return;
    }
    let mut socket = NfSocket::open().unwrap();
    let map = SetSpec { name: "v", key_type: 7, key_length: 4, data: Some(MapData::Verdict), ..SetSpec::default() };
    let aging = SetSpec { name: "s", key_type: 7, key_length: 4, timeout: Some(600_000), ..SetSpec::default() };
    let verdicts = [
        NfVerdict::Accept,
        NfVerdict::Drop,
        NfVerdict::Continue,
        NfVerdict::Return,
        NfVerdict::Jump("a"),
        NfVerdict::Goto("a"),
    ];
    let mut batch = Batch::new();
    batch.add_table(TABLE).unwrap();
    batch.add_chain(TABLE, "a").unwrap();
    batch.add_set(TABLE, &map).unwrap();
    batch.add_set(TABLE, &aging).unwrap();
    let keys: Vec<[u8; 4]> = (0..6u8).map(|n| [10, 0, 0, n]).collect();
    let elements = keys.iter().zip(verdicts).map(|(key, verdict)| Element::to(key, ElementValue::Verdict(verdict)));
    batch.add_elements(TABLE, "v", elements).unwrap();
    let own = Element { timeout: Some(60_000), user_data: b"x", ..Element::new(&keys[0]) };
    batch.add_elements(TABLE, "s", [own, Element::new(&keys[1])]).unwrap();
    socket.commit(&batch).unwrap();

    let mut seen: Vec<_> =
        socket.elements(TABLE, "v").unwrap().map(|e| (e.key.to_vec(), format!("{:?}", e.value))).collect();
    seen.sort();
    let expected = keys.iter().zip(verdicts);
    assert_eq!(
        seen,
        expected.map(|(k, v)| (k.to_vec(), format!("{:?}", Some(ElementValue::Verdict(v))))).collect::<Vec<_>>()
    );
    let sets: Vec<_> = socket.sets(TABLE).unwrap().map(|set| (set.name.to_owned(), set.data, set.timeout)).collect();
    assert_eq!(sets, [("v".to_owned(), Some(MapData::Verdict), None), ("s".to_owned(), None, Some(600_000))]);
    let mut aged: Vec<_> = socket
        .elements(TABLE, "s")
        .unwrap()
        .map(|e| (e.key[3], e.timeout.unwrap_or(600_000), e.user_data.to_vec(), e.expires.unwrap()))
        .collect();
    aged.sort();
    assert_eq!((aged[0].1, &aged[0].2[..], aged[1].1), (60_000, &b"x"[..], 600_000));
    assert!(aged[0].3 <= 60_000 && aged[1].3 <= 600_000);
}

/// Beyond the receive buffer the kernel drops answers; the socket reports the received ones and stays usable.
#[test]
fn answers_that_were_lost_do_not_hide_a_refusal() {
    if !inside!() {
        return;
    }
    let mut socket = NfSocket::open().unwrap();
    let mut batch = Batch::new();
    batch.add_table(TABLE).unwrap();
    for handle in 0..60_000 {
        batch.delete_rule(TABLE, "a", handle).unwrap();
    }
    let refusals = refused(&socket.commit(&batch).unwrap_err());
    assert_eq!(refusals[0], (1, libc::ENOENT));
    assert!(refusals.len() > 100, "{}", refusals.len());
    batch.clear();
    batch.add_table(TABLE).unwrap();
    socket.commit(&batch).unwrap();
    assert_eq!(socket.tables(Family::Ipv4).unwrap().map(|table| table.name.to_owned()).collect::<Vec<_>>(), ["t"]);
}

#[test]
fn without_the_capability_nothing_is_changed() {
    const WITHOUT: &str = "NF_TABLES_TEST_WITHOUT";
    if std::env::var_os(WITHOUT).is_some() {
        let mut batch = Batch::new();
        batch.add_table(TABLE).unwrap();
        let error = NfSocket::open().unwrap().commit(&batch).unwrap_err();
        assert!(matches!(error, CommitError::NotPermitted), "{error:?}");
        return;
    }
    if !inside!() {
        return;
    }
    // Runs in a child of the user namespace that owns the network namespace.
    let mut command = Command::new("unshare");
    command.arg("-U").arg(std::env::current_exe().unwrap()).args(["--exact", this_test!(), "--nocapture"]);
    assert!(command.env(WITHOUT, "1").status().unwrap().success());
}
