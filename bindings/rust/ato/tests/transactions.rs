// SPDX-License-Identifier: BSD-3-Clause
mod common;
use ato::{Error, Mapping, TransactionOptions};
use common::{argument, child, Folder};
use std::{panic, thread, time::Duration};

fn number(m: &Mapping, offset: u64) -> u64 {
    u64::from_le_bytes(m.read_array(offset).unwrap())
}

/// Moves 1 from one of 16 accounts to another, each on a page of its own.
fn transfers(m: &Mapping, times: u64, seed: u64) {
    let mut state = seed;
    for _ in 0..times {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let (from, to) = ((state >> 33) % 16 * 4096, (state >> 40) % 16 * 4096);
        ato::run(|tx| {
            let a = u64::from_le_bytes(tx.read_array(m, from)?).wrapping_sub(1);
            tx.write(m, from, &a.to_le_bytes())?;
            let b = u64::from_le_bytes(tx.read_array(m, to)?).wrapping_add(1);
            tx.write(m, to, &b.to_le_bytes())
        })
        .unwrap();
    }
}

fn sum(m: &Mapping) -> u64 {
    let all: ato::Result<u64> = ato::run(|tx| {
        (0..16).try_fold(0, |sum: u64, i| Ok(sum.wrapping_add(u64::from_le_bytes(tx.read_array(m, i * 4096)?))))
    });
    all.unwrap()
}

#[test]
fn the_sum_of_all_accounts_stays_whatever_threads_and_processes_do() {
    let folder = Folder::new("sum");
    let path = folder.path("data");
    let m = Mapping::open(&path, 16 * 4096).unwrap();
    let mut other = child("transferring_child", &path);
    thread::scope(|s| {
        (1..4).for_each(|seed| {
            drop(s.spawn({
                let m = &m;
                move || transfers(m, 200, seed)
            }))
        });
        (0..100).for_each(|_| assert_eq!(sum(&m), 0));
    });
    assert!(other.wait().unwrap().success());
    assert_eq!(sum(&m), 0);
    assert!((0..16).any(|i| number(&m, i * 4096) != 0));
    assert_eq!(number(&m, 8), 200, "of the child");
}

#[test]
#[ignore = "the other process"]
fn transferring_child() {
    let m = Mapping::open(argument().expect("a child"), 16 * 4096).unwrap();
    transfers(&m, 200, 77);
    m.write(8, &200u64.to_le_bytes()).unwrap();
}

#[test]
fn without_a_commit_it_has_no_effect() {
    let folder = Folder::new("without");
    let m = Mapping::open(folder.path("data"), 8192).unwrap();
    let mut tx = TransactionOptions::default().begin().unwrap();
    tx.write(&m, 0, b"dropped").unwrap();
    tx.set_size(&m, 100_000).unwrap();
    assert_eq!(tx.size(&m).unwrap(), 100_000);
    assert_eq!(&tx.read_array(&m, 0).unwrap(), b"dropped");
    drop(tx);
    let failed: Result<(), _> = ato::run(|tx| {
        tx.write(&m, 0, b"an error")?;
        Err(Box::<dyn std::error::Error>::from("mine"))
    });
    assert_eq!(failed.unwrap_err().to_string(), "mine");
    let panicked = panic::catch_unwind(|| {
        ato::run(|tx| -> ato::Result<()> {
            tx.write(&m, 0, b"a panic")?;
            panic::resume_unwind(Box::new("out of it"))
        })
    });
    assert!(panicked.is_err());
    assert_eq!((m.read_array(0).unwrap(), m.size().unwrap()), ([0; 8], 8192));
    m.write(0, b"nothing holds the page").unwrap();
    m.unmap().unwrap();
}

#[test]
fn a_refused_one_runs_again_also_if_its_function_says_that_all_is_well() {
    let folder = Folder::new("refused");
    let m = Mapping::open(folder.path("data"), 8192).unwrap();
    let mut runs = 0;
    ato::run(|tx| {
        runs += 1;
        let _: [u8; 1] = tx.read_array(&m, 0)?;
        if runs < 3 {
            m.write(0, &[runs])?; // a plain write of the thread itself counts as one of others
        }
        let _ = tx.write(&m, 4096, &[runs]);
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!((runs, m.read_array(4096).unwrap()), (3, [3]));
}

#[test]
fn it_gives_up_when_its_time_is_over() {
    let folder = Folder::new("gives-up");
    let m = Mapping::open(folder.path("data"), 8192).unwrap();
    let mut holder = TransactionOptions::default().begin().unwrap();
    holder.write(&m, 0, b"held").unwrap();
    let options = TransactionOptions { tries: Duration::from_millis(20), ..Default::default() };
    thread::scope(|s| {
        let tried = s.spawn(|| options.run(|tx| tx.write(&m, 0, b"mine")));
        assert!(tried.join().unwrap().unwrap_err().is_again());
        // A transaction that goes on in another thread.
        s.spawn(move || holder.commit().unwrap());
    });
    assert_eq!(&m.read_array(0).unwrap(), b"held");
}

#[test]
fn appends_of_threads_lose_nothing() {
    let folder = Folder::new("appends");
    std::fs::write(folder.path("data"), "").unwrap();
    let m = &Mapping::open(folder.path("data"), 0).unwrap();
    let append = |byte: u8| {
        ato::run(|tx| {
            let end = tx.size(m)?;
            tx.set_size(m, end + 100)?;
            tx.write(m, end, &[byte; 100])
        })
        .unwrap()
    };
    thread::scope(|s| (1..=4).for_each(|byte| drop(s.spawn(move || (0..50).for_each(|_| append(byte))))));
    let mut all = vec![0; 20_000];
    m.read(0, &mut all).unwrap();
    assert_eq!(m.size().unwrap(), 20_000);
    assert!(all.chunks(100).all(|record| record.iter().all(|byte| *byte == record[0])));
    assert!((1..=4).all(|byte| all.iter().filter(|found| **found == byte).count() == 5000));
}
