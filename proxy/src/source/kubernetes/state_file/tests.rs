//! Whatever a crash, another program or a clock leaves: a state file is whole, or ignored.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use prost::bytes::Bytes;

use super::disk::{self, DiskError};
use super::format::{self, FormatError, SavedState};
use super::objects::EncodedObjects;
use super::{ClusterIdentity, Origin};
use crate::model::{Change, ObjectKey};

/// The file that the process of this test writes until it is killed.
const WRITES: &str = "SVCPROXY_TEST_WRITES";
const KILLS: usize = 25;

fn service(name: &str, port: u16) -> Change {
    let object = serde_json::json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": port}]},
    });
    let key = ObjectKey { namespace: "default".into(), name: name.into() };
    Change::Service(key, Some(std::sync::Arc::new(serde_json::from_value(object).unwrap())))
}

/// Returns a state that tells its number by its time, its size and its ports.
fn state(number: u16) -> SavedState {
    let mut objects = EncodedObjects::default();
    for name in 0..=number % 100 {
        objects.apply(&service(&format!("web-{name}"), number.max(1)));
    }
    let origin = Origin { node: "n1".into(), cluster: ClusterIdentity([7; 32]) };
    let confirmed = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(number));
    SavedState { origin, confirmed, objects, refused: 0 }
}

fn read(path: &Path) -> Option<SavedState> {
    Some(format::decode(disk::read(path).unwrap()?.into()).unwrap())
}

#[test]
fn a_killed_writer_leaves_a_whole_file() {
    if let Some(path) = std::env::var_os(WRITES) {
        let path = Path::new(&path);
        // The next process continues behind the last state that was read.
        let last =
            read(path).map_or(0, |last| last.confirmed.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs());
        for number in u16::try_from(last).unwrap()..u16::MAX {
            disk::replace(path, &format::encode(&state(number))).unwrap();
        }
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let (mut last, mut changed) = (SystemTime::UNIX_EPOCH, 0);
    for round in 0..KILLS {
        let this = std::thread::current().name().unwrap().to_owned();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([&this, "--exact"])
            .env(WRITES, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while read(&path).is_none_or(|file| file.confirmed == last) && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        // Other moments of a write in each round.
        std::thread::sleep(Duration::from_micros(371 * round as u64));
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success());
        let file = read(&path).unwrap();
        let number = file.confirmed.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(file, state(u16::try_from(number).unwrap()));
        assert!(file.confirmed >= last, "an older state is back");
        changed += usize::from(file.confirmed > last);
        last = file.confirmed;
    }
    assert!(changed > KILLS / 2, "{changed} of {KILLS} processes wrote");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn a_write_that_breaks_off_anywhere_changes_nothing(number in 0u16..1000, written in 0.0..=1.0f64) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        disk::replace(&path, &format::encode(&state(number))).unwrap();
        let next = format::encode(&state(number + 1));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let part = &next[..(next.len() as f64 * written) as usize];
        fs::write(disk::beside(&path), part).unwrap();
        prop_assert_eq!(read(&path), Some(state(number)));
        disk::replace(&path, &next).unwrap();
        prop_assert_eq!(read(&path), Some(state(number + 1)));
        prop_assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_damaged_file_is_refused(number in 0u16..1000, at in any::<prop::sample::Index>(), bit in 0u8..8, is_cut in any::<bool>()) {
        let mut file = format::encode(&state(number));
        prop_assert_eq!(&format::decode(file.clone().into()), &Ok(state(number)));
        let at = at.index(file.len());
        if is_cut {
            file.truncate(at);
        } else {
            file[at] ^= 1 << bit;
        }
        prop_assert!(format::decode(file.into()).is_err());
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), is_signed in any::<bool>()) {
        // With a right checksum, too.
        let mut file = format::encode(&SavedState { objects: EncodedObjects::default(), ..state(0) });
        if is_signed {
            use sha2::Digest;
            let digest = sha2::Sha256::digest(&bytes);
            file.truncate(16);
            file.extend_from_slice(&digest);
        } else {
            file.clear();
        }
        file.extend(bytes);
        let _ = format::decode(file.into());
    }

    #[test]
    fn the_difference_turns_one_state_into_the_other(before in prop::collection::vec((0u8..12, 1u16..4), 0..12), now in prop::collection::vec((0u8..12, 1u16..4), 0..12)) {
        let objects = |of: &[(u8, u16)]| {
            let (mut given, mut objects) = (EncodedObjects::default(), EncodedObjects::default());
            for (name, port) in of {
                given.apply(&service(&name.to_string(), *port));
            }
            // With the defaults that the API's objects have.
            assert!(given.since(&EncodedObjects::default()).iter().all(|change| objects.apply(change)));
            objects
        };
        let (mut before, now) = (objects(&before), objects(&now));
        let changes = now.since(&before);
        let all_differ = changes.iter().all(|change| before.apply(change));
        prop_assert!(all_differ, "an unchanged object is in the difference");
        prop_assert_eq!(before, now);
    }
}

#[test]
fn other_files_are_told_apart() {
    let file = format::encode(&state(3));
    let decoded = |bytes: &[u8]| format::decode(Bytes::copy_from_slice(bytes)).err();
    assert_eq!(decoded(b"apiVersion: v1\n"), Some(FormatError::Foreign));
    assert_eq!(decoded(b""), Some(FormatError::Foreign));
    let newer = [&file[..15], &[2], &file[16..]].concat();
    assert_eq!(decoded(&newer), Some(FormatError::Version(2)));
    assert_eq!(decoded(&[&file[..], b"x"].concat()), Some(FormatError::Checksum));
    assert_eq!(decoded(&file[..20]), Some(FormatError::Checksum));
}

#[test]
fn only_a_file_of_this_user_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let fault = || disk::read(&path).unwrap_err();
    assert!(disk::read(&path).unwrap().is_none(), "there is none yet");
    disk::replace(&path, b"x").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(disk::read(&path).unwrap().unwrap(), b"x");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    assert!(matches!(fault(), DiskError::WritableByOthers { mode: 0o620, .. }), "{}", fault());
    fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(matches!(fault(), DiskError::Irregular));
    fs::remove_file(&path).unwrap();
    fs::File::create(&path).and_then(|file| file.set_len(super::LARGEST + 1)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(fault(), DiskError::TooLarge(_)));
    fs::remove_file(&path).unwrap();
    // A link that another user has put beside the file leads nowhere.
    std::os::unix::fs::symlink(directory.path().join("victim"), disk::beside(&path)).unwrap();
    disk::replace(&path, b"y").unwrap();
    assert!(!directory.path().join("victim").exists());
    let missing = directory.path().join("no/state");
    assert_eq!(disk::replace(&missing, b"z").unwrap_err().kind(), std::io::ErrorKind::NotFound);
}
