//! Tests that run inside the server, each in a transaction that is rolled back. `automation.drain()` routes and runs
//! what the test itself has written, so no worker takes part.
mod capture;
mod definitions;
mod executor;
mod plans;
mod server_numbers;
mod state_parity;

use pgrx::prelude::*;

/// A watched table `orders` and a table `effect` for steps to write to.
pub fn shop() {
    run("CREATE TABLE orders (id int PRIMARY KEY, status text, total numeric, note text)");
    run("CREATE TABLE effect (place serial, order_id int, what text, who text DEFAULT current_user)");
    run("SELECT automation.watch_table('orders')");
}

pub fn run(sql: &str) {
    if let Err(error) = Spi::run(sql) {
        panic!("{sql}: {error}");
    }
}

pub fn text(sql: &str) -> Option<String> {
    Spi::get_one::<String>(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

pub fn number(sql: &str) -> i64 {
    Spi::get_one::<i64>(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).unwrap_or_else(|| panic!("{sql}: null"))
}
