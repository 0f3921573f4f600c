// SPDX-License-Identifier: BSD-3-Clause
//! The declarations agree with the headers: a C compiler prints sizes, offsets and constants.
use ato_sys::*;
use std::{fmt::Write, fs, path::Path, process::Command};

fn offset<T, F>(of: &T, field: &F) -> usize {
    field as *const F as usize - of as *const T as usize
}

/// (what C has to say, as an expression; the value here)
fn expected() -> Vec<(String, i128)> {
    let mut all = Vec::new();
    macro_rules! layout {
        ($($name:ident, $c:literal: $($field:ident)*;)*) => { $({
            let value = $name::default();
            all.push((format!("sizeof({})", $c), std::mem::size_of::<$name>() as i128));
            $(all.push((format!("offsetof({}, {})", $c, stringify!($field)), offset(&value, &value.$field) as i128));)*
        })* };
    }
    layout! {
        ato_options, "struct ato_options": struct_size read_policy domain format flags max_size reflection_dir guard_offset guard_plain
            guard_bytes log_dir log_bytes snapshot_bytes relaxed_ms;
        ato_unmap_options, "struct ato_unmap_options": struct_size mode threads progress progress_arg guard_plain;
        ato_tx_options, "struct ato_tx_options": struct_size flags wait_ms max_bytes run_ms;
        ato_stat, "struct ato_stat": struct_size domain format read_policy size slices_in_reflection reflection_bytes writes bytes_written
            reads bytes_read bytes_to_media flips commits_single commits_rtm commits_journal rtm_aborts deployed_slices read_retries
            guard_offset guard_bytes guard_plain;
        ato_promise, "struct ato_promise": number end;
    }
    let iov = ato_iovec { dst: std::ptr::null_mut(), src: std::ptr::null(), n: 0 };
    all.push(("sizeof(struct ato_iovec)".into(), std::mem::size_of_val(&iov) as i128));
    all.push(("offsetof(struct ato_iovec, src)".into(), offset(&iov, &iov.src) as i128));
    macro_rules! constants {
        ($($name:ident)*) => { $(all.push((stringify!($name).into(), $name as i128));)* };
    }
    constants! {
        ATO_READ_DEFAULT ATO_READ_LAZY ATO_READ_GATHER ATO_READ_EAGER ATO_DOMAIN_AUTO ATO_DOMAIN_PMEM ATO_DOMAIN_EADR ATO_DOMAIN_DISK
        ATO_DOMAIN_PROCESS ATO_FORMAT_DEFAULT ATO_FORMAT_DENSE ATO_FORMAT_SPARSE ATO_FORMAT_LOG ATO_UNMAP_FAST ATO_UNMAP_SPATIAL
        ATO_UNMAP_DISCARD ATO_LOG_ERROR ATO_LOG_WARNING ATO_LOG_INFO PROT_READ PROT_WRITE MAP_SHARED MS_ASYNC MS_SYNC SEEK_END SEEK_DATA
        EIO EAGAIN EFAULT EINVAL
        ATO_NO_RTM ATO_PREFER_FILE ATO_PREFER_REFLECTION ATO_EPOCHS ATO_BORROW_FD ATO_ANY_FILE_SYSTEM ATO_NO_FAULT_HANDLER ATO_PLAIN
        ATO_MASK_FIRST ATO_RELAXED ATO_PLAIN_STORES ATO_EAGER ATO_SKIP_EQUAL ATO_TX_READ_COMMITTED ATO_TX_EARLY ATO_SHARED_MAX
    }
    all
}

#[test]
fn sizes_offsets_and_constants_are_those_of_the_headers() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("libato");
    let folder = std::env::temp_dir().join(format!("ato-layout-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut source: String =
        "#include <ato_engine.h>\n#include <errno.h>\n#include <stddef.h>\n#include <stdio.h>\n#include <unistd.h>\nint main(void)\n{\n"
            .into();
    for (expression, _) in expected() {
        writeln!(&mut source, "    printf(\"%lld\\n\", (long long)({expression}));").unwrap();
    }
    fs::write(folder.join("layout.c"), source + "}\n").unwrap();
    let compiled = Command::new("cc")
        .arg("-D_GNU_SOURCE")
        .arg("-I")
        .arg(top.join("include"))
        .arg("-o")
        .args([folder.join("layout"), folder.join("layout.c")])
        .status()
        .unwrap();
    assert!(compiled.success());
    let said = String::from_utf8(Command::new(folder.join("layout")).output().unwrap().stdout).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let said: Vec<i128> = said.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(said.len(), expected().len());
    for ((expression, here), said) in expected().iter().zip(said) {
        assert_eq!(*here, said, "{expression}");
    }
}

#[test]
fn each_function_that_the_library_exports_is_declared_and_linked() {
    let map = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("libato/lib/libato.map")).unwrap();
    let declared = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let exported: Vec<_> = map.split_whitespace().filter(|word| word.starts_with("ato_")).collect();
    assert!(exported.len() > 40);
    for name in &exported {
        assert!(declared.contains(&format!("pub fn {}(", name.trim_end_matches(';'))), "{name}");
    }
    assert_eq!(declared.matches("pub fn ato_").count(), exported.len());
    // SAFETY: a constant string.
    assert_eq!(unsafe { std::ffi::CStr::from_ptr(ato_version()) }.to_str(), Ok(VERSION));
}
