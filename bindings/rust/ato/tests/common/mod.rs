// SPDX-License-Identifier: BSD-3-Clause
#![allow(dead_code)]
use std::{env, path::PathBuf, process};

/// A folder of a test's own, removed at its end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        Self::of(env::temp_dir(), name)
    }
    pub fn of(top: PathBuf, name: &str) -> Self {
        let folder = top.join(format!("ato-rust-{name}-{}", process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// This program as another process, which runs the ignored test `name` with ATO_CHILD set.
pub fn child(name: &str, argument: &std::path::Path) -> process::Child {
    let mut command = process::Command::new(env::current_exe().unwrap());
    command.args(["--ignored", "--exact", name]).env("ATO_CHILD", argument);
    command.stdout(process::Stdio::null()).spawn().unwrap()
}

/// What such a test was given; nothing if it was not started by child().
pub fn argument() -> Option<PathBuf> {
    env::var_os("ATO_CHILD").map(PathBuf::from)
}
