// SPDX-License-Identifier: BSD-3-Clause
mod common;
use ato::{Domain, Flags, Mapping, Options, ReadPolicy};
use common::Folder;
use std::{fs, io, sync::atomic::Ordering::Relaxed, thread, time::Duration};

const EACCES: i32 = 13;
const EFAULT: i32 = 14;
const EINVAL: i32 = 22;

#[test]
fn what_was_written_is_read_and_is_in_the_file_afterwards() {
    let folder = Folder::new("written");
    let path = folder.path("data");
    let m = Mapping::open(&path, 10_000).unwrap();
    assert_eq!(m.size().unwrap(), 10_000);
    m.write(4090, b"on two pages").unwrap();
    m.write_with(0, b"eager", Flags::EAGER | Flags::SKIP_EQUAL).unwrap();
    m.write(8192, &[7; 100]).unwrap();
    m.copy(4090, 9000, 12).unwrap();
    m.writev(&[(100, b"one"), (200, b""), (300, b"two")], Flags::default()).unwrap();
    assert_eq!(&m.read_array(9000).unwrap(), b"on two pages");
    assert_eq!(m.read_array(8291).unwrap(), [7, 0]);
    assert!(m.stat().unwrap().writes >= 5);
    m.deploy(0, 10_000).unwrap();
    m.deploy(4096, 904).unwrap();
    m.sync().unwrap();
    m.set_size(9500).unwrap();
    m.unmap().unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 9500);
    assert_eq!((&bytes[..5], &bytes[100..103], &bytes[300..303]), (&b"eager"[..], &b"one"[..], &b"two"[..]));
}

#[test]
fn a_range_outside_is_an_error_that_never_reaches_another_mapping() {
    let folder = Folder::new("outside");
    let small = Options { size: 4096, max_size: 4096, ..Options::default() };
    let maps: Vec<_> = (0..3).map(|i| small.open(folder.path(&format!("{i}"))).unwrap()).collect();
    for m in &maps {
        let mut byte = [0];
        for offset in [4096, 1 << 30, 2 << 30, 3 << 30, 1 << 62, u64::MAX, u64::MAX - (1 << 30) + 1] {
            assert_eq!(m.read(offset, &mut byte).unwrap_err().errno(), EFAULT, "{offset}");
            assert_eq!(m.write(offset, b"x").unwrap_err().errno(), EFAULT, "{offset}");
            assert_eq!(m.copy(0, offset, 1).unwrap_err().errno(), EFAULT, "{offset}");
            assert_eq!(ato::run(|tx| tx.write(m, offset, b"x")).unwrap_err().errno(), EFAULT, "{offset}");
        }
        let error = m.write(4095, b"xy").unwrap_err();
        assert_eq!((error.errno(), &*error.to_string()), (EFAULT, "2 bytes at 4095 are not within the file"));
        assert_eq!(m.copy(0, 0, usize::MAX).unwrap_err().errno(), EFAULT);
        m.write(4096, b"").unwrap();
        m.read(4096, &mut []).unwrap();
    }
}

#[test]
fn errors_carry_the_number_and_the_sentence() {
    let folder = Folder::new("errors");
    let path = folder.path("data");
    Mapping::open(&path, 4096).unwrap().unmap().unwrap();
    let reader = Options { read_only: true, ..Options::default() }.open(&path).unwrap();
    let error = reader.write(0, b"x").unwrap_err();
    assert_eq!(error.errno(), EACCES);
    assert_eq!(error.to_string(), "the mapping is for reading only");
    let error = io::Error::from(error);
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert!(error.to_string().len() > 10);
    let error = Mapping::open(folder.path("no/such"), 1).unwrap_err();
    assert!(error.errno() == 2 && error.to_string().contains("no/such"), "{error}");
    let options = [Options::default(), Options { read_only: true, ..Options::default() }];
    for error in options.map(|options| options.open(folder.path("typo")).unwrap_err()) {
        assert!(error.errno() == 2 && !folder.path("typo").exists(), "{error}");
    }
    let zero = Options { log_dir: Some("a\0b".into()), ..Options::default() };
    assert_eq!(zero.open(&path).unwrap_err().errno(), EINVAL);
    assert_eq!(Mapping::open(folder.path("."), 1).unwrap_err().errno(), 21);
}

#[test]
fn a_fast_unmap_keeps_what_was_written_for_the_next_map() {
    let folder = Folder::new("fast");
    let path = folder.path("data");
    let fast = Options { size: 4096, keep_reflection: true, ..Options::default() };
    fast.open(&path).unwrap().write(10, b"kept").unwrap();
    assert_eq!(&Mapping::open(&path, 0).unwrap().read_array(10).unwrap(), b"kept");
}

#[test]
fn options_reach_the_library() {
    let folder = Folder::of("/dev/shm".into(), "options");
    let options = Options {
        size: 8192,
        domain: Some(Domain::Pmem),
        read_policy: Some(ReadPolicy::Gather),
        sparse: true,
        relaxed: Some(Duration::from_millis(5)),
        reflection_dir: Some(folder.path("elsewhere")),
        ..Options::default()
    };
    let m = options.open(folder.path("data")).unwrap();
    m.write(0, b"x").unwrap();
    let stat = m.stat().unwrap();
    assert_eq!((stat.domain, stat.read_policy, stat.format), (1, 2, 2));
    assert!(fs::read_dir(folder.path("elsewhere")).unwrap().count() >= 2);
    let other = Options { domain: Some(Domain::Process), ..options };
    assert_eq!(other.open(folder.path("data")).unwrap_err().errno(), 18);
    m.unmap().unwrap();
    for wrong in [
        Options { log_bytes: 1, ..Options::default() },
        Options { relaxed: Some(Duration::from_secs(7200)), ..Options::default() }, // at most an hour
    ] {
        assert_eq!(wrong.open(folder.path("data")).unwrap_err().errno(), EINVAL);
    }
}

#[test]
fn a_file_that_another_program_cut_is_an_error_and_no_crash() {
    let folder = Folder::of("/dev/shm".into(), "cut");
    let path = folder.path("data");
    let m = Mapping::open(&path, 1 << 20).unwrap();
    m.write(500_000, b"there").unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    m.read(0, &mut vec![0; 1 << 20]).unwrap_err(); // without the library's handler: SIGBUS
}

#[test]
fn a_file_grows_up_to_its_max_size() {
    let folder = Folder::new("grows");
    let m = Options { size: 100, max_size: 3 << 30, ..Options::default() }.open(folder.path("data")).unwrap();
    m.set_size(2 << 30).unwrap();
    m.write((2 << 30) - 1, b"x").unwrap();
    assert_eq!(m.set_size((3 << 30) + 1).unwrap_err().errno(), 28);
    m.set_size(4096).unwrap();
}

#[test]
fn threads_never_see_half_of_a_write() {
    let folder = Folder::new("threads");
    let m = &Mapping::open(folder.path("data"), 20_000).unwrap();
    thread::scope(|s| {
        for byte in 1..=2 {
            s.spawn(move || (0..300).for_each(|_| m.write(100, &[byte; 9000]).unwrap()));
        }
        for _ in 0..2 {
            s.spawn(move || {
                for _ in 0..300 {
                    let record: [u8; 9000] = m.read_array(100).unwrap();
                    assert!(record.iter().all(|byte| *byte == record[0]));
                }
            });
        }
    });
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let folder = Folder::new("snapshot");
    let m = Mapping::open(folder.path("data"), 10_000).unwrap();
    m.write(5000, b"before").unwrap();
    let snapshot = m.snapshot().unwrap();
    m.write(5000, b"after.").unwrap();
    m.set_size(20_000).unwrap();
    assert_eq!(snapshot.size(), 10_000);
    let mut bytes = [1; 100];
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                let mut bytes = [0; 6];
                assert_eq!(snapshot.read(5000, &mut bytes).unwrap(), 6);
                assert_eq!(&bytes, b"before");
            });
        }
    });
    assert_eq!(snapshot.read(9950, &mut bytes).unwrap(), 50);
    assert_eq!(snapshot.read(10_000, &mut bytes).unwrap(), 0);
    assert_eq!(snapshot.read(u64::MAX, &mut bytes).unwrap_or(0), 0);
    assert_eq!(snapshot.read(0, &mut []).unwrap(), 0);
}

#[test]
fn what_is_forgotten_keeps_the_mapping() {
    let folder = Folder::new("forgotten");
    let m = Mapping::open(folder.path("data"), 4096).unwrap();
    std::mem::forget(m.snapshot().unwrap());
    assert_eq!(m.unmap().unwrap_err().errno(), 16);
}

#[test]
fn plain_stores_are_there_when_they_are_committed() {
    let folder = Folder::new("plain");
    let path = folder.path("data");
    let plain = Options { size: 20_000, ..Options::default() }.open_plain(&path).unwrap();
    plain.commit().unwrap(); // of the size
    let words = unsafe { plain.words() }.unwrap();
    assert_eq!(words.len(), 2500);
    words[0].store(1, Relaxed);
    words[2400].store(2, Relaxed);
    assert_eq!(plain.read_array(0).unwrap(), [0; 8]); // what is committed
    plain.commit_range(19_200, 8).unwrap();
    assert_eq!(plain.read_array(19_200).unwrap(), 2u64.to_le_bytes());
    plain.discard().unwrap();
    assert_eq!((words[0].load(Relaxed), words[2400].load(Relaxed)), (0, 2));
    words[1].store(3, Relaxed);
    plain.commit_relaxed().unwrap();
    words[1].store(4, Relaxed);
    assert_eq!(plain.write(0, b"x").unwrap_err().errno(), EINVAL);
    plain.unmap().unwrap(); // forgets the 4
    assert_eq!(&fs::read(&path).unwrap()[8..16], &3u64.to_le_bytes());
}

#[test]
fn a_commit_has_all_that_was_stored_before_it_began() {
    let folder = Folder::new("commits");
    let path = folder.path("data");
    let plain = &Options { size: 8 * 4096, ..Options::default() }.open_plain(&path).unwrap();
    plain.commit().unwrap();
    // The first word is stored before the last one: no commit has it smaller.
    thread::scope(|s| {
        let storing = s.spawn(|| {
            let words = unsafe { plain.words() }.unwrap();
            for i in 1..=20_000 {
                words[0].store(i, Relaxed);
                words[4095].store(i, Relaxed);
            }
        });
        while !storing.is_finished() {
            plain.commit().unwrap();
            let (mut first, mut last) = ([0; 8], [0; 8]);
            ato::run(|tx| {
                tx.read(plain, 0, &mut first)?;
                tx.read(plain, 8 * 4095, &mut last)
            })
            .unwrap();
            let (first, last) = (u64::from_le_bytes(first), u64::from_le_bytes(last));
            assert!(first == last || first == last + 1, "{first} {last}");
        }
    });
}

#[test]
fn the_versions_agree() {
    let meson = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../meson.build");
    let build = fs::read_to_string(meson).unwrap();
    let version = build.split("version: '").nth(1).unwrap().split('\'').next().unwrap();
    assert_eq!(version, env!("CARGO_PKG_VERSION"), "ato's Cargo.toml");
    assert_eq!(version, ato_sys::VERSION, "ato-sys's Cargo.toml");
    assert_eq!(version, ato::version(), "libato");
    let range = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../ato-sys/build.rs")).unwrap();
    let (major, minor) = version.rsplit_once('.').unwrap().0.split_once('.').unwrap();
    let next = minor.parse::<u32>().unwrap() + 1;
    assert!(range.contains(&format!("\"{major}.{minor}.0\"..\"{major}.{next}.0\"")), "what pkg-config may find");
}
