// SPDX-License-Identifier: BSD-3-Clause
//! rusqlite through libato's VFS: a transaction needs no journal and, but on a disk, no system call; after a kill or a power cut it is
//! there wholly or not at all.
//!
//! ```text
//! rusqlite-example FILE [EXTENSION]
//! ```
//!
//! EXTENSION is the path of `libato_sqlite`, where the linker does not find it by its name.
use rusqlite::{Connection, LoadExtensionGuard, OpenFlags, Result};

/// Registers the VFS, for all connections of the process from now on. Call it once, before the databases are opened.
fn register(extension: &str) -> Result<()> {
    let connection = Connection::open_in_memory()?;
    // SAFETY: the extension is libato's, and no SQL that is not trusted runs while extensions may be loaded.
    unsafe {
        let _guard = LoadExtensionGuard::new(&connection)?;
        connection.load_extension(extension, None::<&str>)
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().expect("usage: rusqlite-example FILE [EXTENSION]");
    register(&arguments.next().unwrap_or_else(|| "libato_sqlite".into()))?;

    let mut connection = Connection::open_with_flags_and_vfs(file, OpenFlags::default(), "ato")?;
    connection
        .execute_batch("CREATE TABLE IF NOT EXISTS visits(name TEXT PRIMARY KEY, times INTEGER) WITHOUT ROWID")?;
    let transaction = connection.transaction()?;
    for name in ["one", "two", "one"] {
        transaction.execute("INSERT INTO visits VALUES(?1, 1) ON CONFLICT DO UPDATE SET times = times + 1", [name])?;
    }
    transaction.commit()?; // durable
    let mut statement = connection.prepare("SELECT name, times FROM visits ORDER BY name")?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
    for row in rows {
        let (name, times) = row?;
        println!("{name} {times}");
    }
    let stat: String = connection.query_row("PRAGMA ato_stat", [], |row| row.get(0))?;
    println!("{stat}");
    Ok(())
}
