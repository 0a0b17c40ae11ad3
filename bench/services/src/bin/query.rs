//! A server on threads over jemalloc, which answers the number of a region with the result of a SQL query.
//!
//! SQLite is written in C and allocates from the C library; Rust allocates the results of its queries.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;

use rusqlite::{Connection, Result};

#[global_allocator]
static ALLOC: plimsoll::Alloc<plimsoll::stats::backend::Jemalloc> = plimsoll::Alloc::jemalloc();

/// 100,000 rows in 1,000 regions.
const TABLE: &str = "\
    CREATE TABLE items (name TEXT, region INTEGER, total INTEGER);
    WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 99999)
        INSERT INTO items SELECT 'item ' || n, n % 1000, n * 7919 % 10007 FROM numbers;
    CREATE INDEX regions ON items (region);";

const QUERY: &str = "SELECT name, total FROM items WHERE region = ?1 ORDER BY total DESC LIMIT 20";

fn main() {
    let port = plimsoll_bench_services::start();
    let database = Connection::open_in_memory().expect("SQLite is linked");
    database.execute_batch(TABLE).expect("the SQL is valid");
    let database = &Mutex::new(database);
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("it is free");
    std::thread::scope(|scope| {
        for stream in listener.incoming().flatten() {
            scope.spawn(move || serve(&stream, database));
        }
    });
}

fn serve(mut stream: &TcpStream, database: &Mutex<Connection>) {
    let _ = stream.set_nodelay(true);
    for line in BufReader::new(stream).lines().map_while(|line| line.ok()) {
        let answer = answer(&line, database).expect("the SQL is valid");
        let _ = stream.write_all(answer.as_bytes());
    }
}

fn answer(region: &str, database: &Mutex<Connection>) -> Result<String> {
    let database = database.lock().expect("no holder panics");
    let mut statement = database.prepare_cached(QUERY)?;
    let rows = statement.query_map([region.parse().unwrap_or(-1_i64)], |row| {
        let (name, total): (String, i64) = (row.get(0)?, row.get(1)?);
        Ok(format!("{name}: {total}"))
    })?;
    Ok(rows.collect::<Result<Vec<_>>>()?.join(", ") + "\n")
}
