// SPDX-License-Identifier: BSD-3-Clause
//! Finds libato by pkg-config or, with the feature `vendored`, compiles it from `libato/`.
use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).map_or(false, |found| found == value);
    if !is("CARGO_CFG_TARGET_ARCH", "x86_64") || !is("CARGO_CFG_TARGET_OS", "linux") {
        panic!("libato needs x86-64 and Linux");
    }
    if env::var_os("DOCS_RS").is_none() {
        // docs.rs has no libato, and links nothing.
        library();
    }
}

/// The ABI may change with each version before 1.0.
#[cfg(not(feature = "vendored"))]
fn library() {
    let found = pkg_config::Config::new().range_version("0.1.0".."0.2.0").probe("libato");
    if let Err(error) = found {
        panic!("no libato 0.1 (install it, set PKG_CONFIG_PATH, or use the feature \"vendored\"): {error}");
    }
}

/// As the meson.build files of libato do: a static library, with the sources of some modules compiled with flags of their own.
#[cfg(feature = "vendored")]
fn library() {
    const OWN_FLAGS: [(&str, &[&str]); 4] = [
        ("reflection/media/copy_avx2.c", &["-mavx2"]),
        ("reflection/media/copy_avx512.c", &["-mavx512f", "-mbmi", "-mbmi2"]),
        ("reflection/media/rtm.c", &["-mrtm"]),
        ("lib/api/run.c", &["-fexceptions"]),
    ];
    let top = std::path::Path::new("libato"); // cc keeps apart objects of one name only where paths are relative
    let mut sources = Vec::new();
    for folder in ["reflection", "lib"] {
        println!("cargo:rerun-if-changed=libato/{folder}");
        for module in std::fs::read_dir(top.join(folder)).unwrap() {
            let module = module.unwrap().path();
            if module.is_dir() && !module.ends_with("lib/sqlite") && !module.ends_with("lib/run") {
                let files = std::fs::read_dir(module).unwrap().map(|file| file.unwrap().path());
                sources.extend(files.filter(|file| file.extension().map_or(false, |e| e == "c")));
            }
        }
    }
    sources.sort();
    let compiler = |flags: &[&str]| {
        let mut build = cc::Build::new();
        build.include(top).include(top.join("include")).opt_level(3).warnings(false);
        build.define("_GNU_SOURCE", None).define("NDEBUG", None);
        for flag in [&["-std=gnu17", "-fno-strict-aliasing", "-fvisibility=hidden"], flags].concat() {
            build.flag(flag);
        }
        build
    };
    sources.retain(|source| !OWN_FLAGS.iter().any(|(name, _)| source.ends_with(name)));
    compiler(&[]).files(sources).compile("ato");
    for (name, flags) in OWN_FLAGS {
        compiler(flags).file(top.join(name)).compile(&format!("ato_{}", name.replace(['/', '.'], "_")));
    }
    println!("cargo:rustc-link-lib=rt"); // shm_open() before glibc 2.34
}
