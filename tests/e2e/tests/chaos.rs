//! Processes are killed at random under load; afterwards every committed job has exactly one effect.
//!
//! `AE_CHAOS_KILLS` is the number of kills, `AE_CHAOS_SEED` repeats an order of kills.

use std::thread;
use std::time::{Duration, SystemTime};

use e2e::{Cluster, Database, Signal, Worker, in_background, kill};

/// Kills between two checks of the invariants.
const ROUND: u64 = 25;

struct Random(u64);

impl Random {
    /// xorshift64: good enough to choose victims, and the same everywhere.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Commits jobs and rolls others back, whatever happens to the server.
fn write(cluster: &Cluster) {
    let db = cluster.connect("chaos");
    for _ in 0..20 {
        let _ = db.try_execute("INSERT INTO job (note) SELECT 'chaos' FROM generate_series(1, 3)");
        let _ = db.try_execute("BEGIN; INSERT INTO job (note) VALUES ('never'); ROLLBACK");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Ends one process, and says which.
fn strike(cluster: &Cluster, db: &Database<'_>, random: &mut Random) -> String {
    let signal = if random.below(4) == 0 { Signal::Term } else { Signal::Kill };
    let choice = random.below(20);
    if choice == 0 {
        cluster.crash();
        cluster.start_again();
        return "Kill postmaster".to_owned();
    }
    let (victim, condition) = match choice {
        1..8 => ("executor", "backend_type = 'automation_engine executor'"),
        8..14 => ("conductor", "backend_type = 'automation_engine conductor'"),
        14 => ("launcher", "backend_type = 'automation_engine launcher'"),
        15 => ("checkpointer", "backend_type = 'checkpointer'"),
        16 => ("walwriter", "backend_type = 'walwriter'"),
        _ => ("writer", "backend_type = 'client backend' AND pid <> pg_backend_pid()"),
    };
    // A checkpointer takes SIGTERM for a server that shuts down.
    let signal = if matches!(victim, "checkpointer" | "walwriter") { Signal::Kill } else { signal };
    db.wait_until("the server accepts connections", "SELECT true");
    match db.value(&format!("SELECT pid FROM pg_stat_activity WHERE {condition} ORDER BY random() LIMIT 1")) {
        Some(pid) => {
            kill(pid.parse().expect("a process id"), signal);
            format!("{signal:?} {victim}")
        }
        None => format!("no {victim}"),
    }
}

#[test]
fn random_kills_lose_and_double_nothing() {
    let kills = number_from_environment("AE_CHAOS_KILLS").unwrap_or(200);
    let seed = number_from_environment("AE_CHAOS_SEED").unwrap_or_else(|| {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64)
    });
    println!("{kills} kills, AE_CHAOS_SEED={seed}");
    let mut random = Random(seed.max(1));

    let cluster = Cluster::build().setting("restart_after_crash", "on").setting("max_connections", "50").start();
    let db = cluster.database("chaos");
    db.open_shop();
    db.expect_work_goes_on();
    let mut struck = 0;
    while struck < kills {
        in_background(
            2,
            || write(&cluster),
            || {
                for _ in 0..ROUND.min(kills - struck) {
                    // Somewhere inside the work, not always at its beginning.
                    thread::sleep(Duration::from_millis(random.below(150)));
                    let what = strike(&cluster, &db, &mut random);
                    struck += 1;
                    println!("{struck}: {what}");
                }
            },
        );
        db.wait_until("the server accepts connections", "SELECT true");
        db.expect_each_job_done_once();
        assert!(!db.worker_pids(Worker::Launcher).is_empty());
    }
    let jobs = db.number("SELECT count(*) FROM job");
    println!("{jobs} jobs, each done once");
}
