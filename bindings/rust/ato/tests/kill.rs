// SPDX-License-Identifier: BSD-3-Clause
//! A process is killed in the midst of writes: each record is whole, and what it said to be durable is there.
mod common;
use ato::{Flags, Mapping, Options};
use common::{argument, Folder};
use std::{env, fs, io::Read, io::Write, os::unix::io::FromRawFd, process, thread, time::Duration};

const RECORD: usize = 10_000; // on three or four pages
const PLACES: u64 = 4;

fn place(i: u64) -> u64 {
    100 + i % PLACES * 3 * 4096
}

fn record(i: u64) -> Vec<u8> {
    i.to_le_bytes().iter().copied().cycle().take(RECORD).collect()
}

#[test]
fn after_a_kill_each_record_is_whole_and_none_is_lost() {
    let (disk, memory) = (Folder::new("kill"), Folder::of("/dev/shm".into(), "kill"));
    for round in 0..30 {
        let path = if round % 2 == 0 { &disk } else { &memory }.path("data");
        let mut writer = process::Command::new(env::current_exe().unwrap());
        writer.args(["--ignored", "--exact", "writing_child", "--nocapture"]).env("ATO_CHILD", &path);
        let mut writer = writer.stderr(process::Stdio::piped()).stdout(process::Stdio::null()).spawn().unwrap();
        let mut said = writer.stderr.take().unwrap();
        let mut first = [0; 8];
        said.read_exact(&mut first).unwrap(); // it is at work
        thread::sleep(Duration::from_micros(round * 997 % 5000));
        writer.kill().unwrap();
        writer.wait().unwrap();
        let mut rest = Vec::new();
        said.read_to_end(&mut rest).unwrap();
        let last = rest.chunks_exact(8).last().unwrap_or(&first);
        let durable = u64::from_le_bytes(last.try_into().unwrap());

        let m = Options { keep_reflection: true, ..Options::default() }.open(&path).unwrap();
        let mut newest = 0;
        for i in 0..PLACES {
            let mut found = vec![0; RECORD];
            m.read(place(i), &mut found).unwrap();
            let number = u64::from_le_bytes(found[..8].try_into().unwrap());
            assert!(found == record(number), "round {round}: the record {number} at {} is torn", place(i));
            newest = newest.max(number);
        }
        assert!(newest == durable || newest == durable + 1, "round {round}: {durable} was durable, {newest} is there");
        let mut counts = [[0; 8]; 2];
        m.read(0, &mut counts[0]).unwrap();
        m.read(99 * 4096, &mut counts[1]).unwrap();
        assert_eq!(counts[0], counts[1], "round {round}: half of a transaction");
    }
}

/// Writes records, by one call or by another, and says each number when it is durable.
#[test]
#[ignore = "the process that is killed"]
fn writing_child() {
    let m = Mapping::open(argument().expect("a child"), 100 * 4096).unwrap();
    // SAFETY: the descriptor is open, and stays so.
    let mut pipe = unsafe { fs::File::from_raw_fd(2) };
    let mut i = (0..PLACES).map(|i| u64::from_le_bytes(m.read_array(place(i)).unwrap())).max().unwrap();
    loop {
        i += 1;
        let bytes = record(i);
        match i % 3 {
            0 => m.write(place(i), &bytes).unwrap(),
            1 => {
                let (a, b) = bytes.split_at(5000);
                m.writev(&[(place(i), a), (place(i) + 5000, b)], Flags::default()).unwrap()
            }
            _ => ato::run(|tx| {
                tx.write(&m, 0, &i.to_le_bytes())?;
                tx.write(&m, place(i), &bytes)?;
                tx.write(&m, 99 * 4096, &i.to_le_bytes())
            })
            .unwrap(),
        }
        if pipe.write_all(&i.to_le_bytes()).is_err() {
            return;
        }
    }
}
