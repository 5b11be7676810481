//! Processes are killed at random under load; afterwards every committed change has had its effects, each once and in
//! order.
//!
//! `CHAOS_N` (`AE_CHAOS_KILLS` from make) is the number of kills, 200 unless told; `AE_SEED` repeats an order of
//! victims and moments.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use e2e::invariants::{ACCOUNTS, change_sql};
use e2e::{Cluster, Database, Signal, kill};
use postgres::Client;

const WRITERS: u64 = 4;

/// Kills between two checks of the invariants.
const ROUND: u64 = 50;

/// The next kill comes after at most this many more commits: at once, under way, or well into the work.
const COMMITS_BETWEEN: u64 = 150;

struct Random(u64);

impl Random {
    /// xorshift64*: good enough to choose victims, and the same everywhere.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

fn number_from_environment(names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

fn poll() {
    thread::sleep(Duration::from_millis(2));
}

/// The outcome that the writers believe each change they tried had.
#[derive(Default)]
struct Beliefs {
    /// COMMIT was answered.
    committed: BTreeSet<u64>,
    /// COMMIT was sent and the answer lost, or not to be relied on: only the table knows.
    unknown: BTreeSet<u64>,
    /// Rolled back, or the session was gone before COMMIT was sent.
    never: BTreeSet<u64>,
}

/// One of the threads that change accounts. Its numbers go on from round to round.
struct Writer {
    number: u64,
    changes: u64,
    random: Random,
}

impl Writer {
    /// Does not wait for the disk, so a crash may take back a change whose COMMIT was answered.
    fn is_hasty(&self) -> bool {
        self.number == 0
    }
}

struct Load<'c> {
    cluster: &'c Cluster,
    stop: AtomicBool,
    commits: AtomicU64,
    beliefs: Mutex<Beliefs>,
}

impl Load<'_> {
    /// Changes accounts until told to stop, through all crashes of the server.
    fn write(&self, writer: &mut Writer) {
        while !self.stop.load(Ordering::Relaxed) {
            if let Ok(mut client) = self.cluster.connect("ledger").client()
                && (!writer.is_hasty() || client.batch_execute("SET synchronous_commit = off").is_ok())
            {
                while !self.stop.load(Ordering::Relaxed) && self.transaction(&mut client, writer).is_ok() {
                    // Leaves the processors to the engine as well.
                    poll();
                }
            }
            poll();
        }
    }

    /// One transaction of one to three changes, of which some are taken back.
    fn transaction(&self, client: &mut Client, writer: &mut Writer) -> Result<(), postgres::Error> {
        let Writer { number, changes, random } = writer;
        let (mut kept, mut never) = (Vec::new(), Vec::new());
        client.batch_execute("BEGIN")?;
        let mut account = 1 + random.below(ACCOUNTS - 2);
        for _ in 0..1 + random.below(3) {
            *changes += 1;
            let change = *changes * WRITERS + *number;
            let taken_back = random.below(8) == 0;
            let mut sql = change_sql(account, change);
            if taken_back {
                sql = format!("SAVEPOINT before; {sql}; ROLLBACK TO before");
            }
            let outcome = client.batch_execute(&sql);
            if taken_back { &mut never } else { &mut kept }.push(change);
            if let Err(error) = outcome {
                self.believe(&[], &[], &[kept, never].concat());
                return Err(error);
            }
            // The same account again, or a higher one: so writers never wait for each other in a circle.
            account += random.below(2);
        }
        if random.below(10) == 0 {
            self.believe(&[], &[], &[kept, never].concat());
            return client.batch_execute("ROLLBACK");
        }
        let outcome = client.batch_execute("COMMIT");
        match &outcome {
            Ok(()) => {
                let (committed, unknown) = if writer.is_hasty() { (vec![], kept) } else { (kept, vec![]) };
                self.believe(&committed, &unknown, &never);
                self.commits.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => self.believe(&[], &kept, &never),
        }
        outcome
    }

    fn believe(&self, committed: &[u64], unknown: &[u64], never: &[u64]) {
        let mut beliefs = self.beliefs.lock().expect("no writer panicked");
        beliefs.committed.extend(committed);
        beliefs.unknown.extend(unknown);
        beliefs.never.extend(never);
    }

    /// Checks that the table holds the changes that the writers believe to be committed.
    #[track_caller]
    fn expect_beliefs_hold(&self, db: &Database<'_>) {
        let beliefs = self.beliefs.lock().expect("no writer panicked");
        let made = db.column("SELECT change FROM made_change");
        let made: BTreeSet<u64> = made.iter().map(|change| change.parse().expect("a number")).collect();
        let lost: Vec<_> = beliefs.committed.difference(&made).collect();
        assert!(lost.is_empty(), "committed, but not there: {lost:?}");
        let risen: Vec<_> = beliefs.never.intersection(&made).collect();
        assert!(risen.is_empty(), "never committed, but there: {risen:?}");
        let known = |change: &&u64| beliefs.committed.contains(change) || beliefs.unknown.contains(change);
        let strange: Vec<_> = made.iter().filter(|change| !known(change)).collect();
        assert!(strange.is_empty(), "there, but nobody made them: {strange:?}");
        let kept = beliefs.unknown.intersection(&made).count();
        println!(
            "{} changes committed; of {} in doubt {kept} were; {} taken back",
            made.len(),
            beliefs.unknown.len(),
            beliefs.never.len()
        );
    }

    /// Waits until some more transactions have committed.
    #[track_caller]
    fn wait_for_commits(&self, more: u64) {
        let goal = self.commits.load(Ordering::Relaxed) + more;
        let began = Instant::now();
        while self.commits.load(Ordering::Relaxed) < goal {
            assert!(began.elapsed() < Duration::from_secs(60), "the writers are stuck\n{}", self.cluster.log_tail());
            poll();
        }
    }
}

/// A session that waits for a server that is down, starting or recovering.
#[track_caller]
fn session(cluster: &Cluster) -> Client {
    let began = Instant::now();
    loop {
        match cluster.connect("ledger").client() {
            Ok(client) => return client,
            Err(error) if began.elapsed() > Duration::from_secs(60) => panic!("{error}\n{}", cluster.log_tail()),
            Err(_) => poll(),
        }
    }
}

/// Chooses the process to kill: its name and how to find it. `None` is the postmaster.
fn victim(random: &mut Random) -> Option<(&'static str, &'static str)> {
    Some(match random.below(100) {
        0..35 => ("executor", "backend_type = 'automation_engine executor'"),
        35..65 => ("conductor", "backend_type = 'automation_engine conductor' AND datname = current_database()"),
        65..88 => ("writer", "backend_type = 'client backend' AND pid <> pg_backend_pid()"),
        88..91 => ("launcher", "backend_type = 'automation_engine launcher'"),
        91..94 => ("checkpointer", "backend_type = 'checkpointer'"),
        94..97 => ("walwriter", "backend_type = 'walwriter'"),
        _ => return None,
    })
}

/// Kills one process, and returns when the whole server has gone down and accepts connections again.
#[track_caller]
fn strike(cluster: &Cluster, random: &mut Random) -> &'static str {
    let Some((name, condition)) = victim(random) else {
        cluster.crash();
        cluster.start_again();
        return "postmaster";
    };
    let mut client = session(cluster);
    let sql = format!("SELECT pid FROM pg_stat_activity WHERE {condition} ORDER BY pid");
    let began = Instant::now();
    loop {
        let pids = client.query(&sql, &[]).expect("the server is up");
        if !pids.is_empty() {
            let row = &pids[random.below(pids.len() as u64) as usize];
            kill(row.get(0), Signal::Kill);
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "there is no {name}\n{}", cluster.log_tail());
        poll();
    }
    while client.batch_execute("SELECT").is_ok() {
        assert!(began.elapsed() < Duration::from_secs(60), "{name} lives on\n{}", cluster.log_tail());
        poll();
    }
    session(cluster);
    name
}

/// A run that was executing alone when its executor was killed is under suspicion: if that happens to it again,
/// the engine rightly gives it up. So such runs get their second chance before the next kill.
#[track_caller]
fn let_suspects_pass(db: &Database<'_>) {
    let suspects = db.column("SELECT id FROM automation_internal.dispatch WHERE attempt > 0");
    if !suspects.is_empty() {
        let ids = suspects.join(", ");
        let sql = format!("SELECT NOT EXISTS (SELECT FROM automation_internal.dispatch WHERE id IN ({ids}))");
        db.wait_until("runs that were in hand at the crash have ended", &sql);
    }
}

#[test]
fn random_kills_lose_and_double_nothing() {
    let kills = number_from_environment(&["CHAOS_N", "AE_CHAOS_KILLS"]).unwrap_or(200);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |time| time.as_micros() as u64);
    let seed = number_from_environment(&["AE_SEED"]).unwrap_or(now).max(1);
    println!("{kills} kills, AE_SEED={seed}");
    let mut random = Random(seed);

    let cluster = Cluster::start();
    let db = cluster.database("ledger");
    db.open_ledger();
    let load =
        Load { cluster: &cluster, stop: AtomicBool::new(false), commits: AtomicU64::new(0), beliefs: Mutex::default() };
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|number| Writer { number, changes: 0, random: Random(seed.rotate_left(number as u32 + 7) | 1) })
        .collect();
    let began = Instant::now();
    let mut struck = 0;
    while struck < kills {
        load.stop.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            let _stop = StopAtEnd(&load.stop);
            for writer in &mut writers {
                scope.spawn(|| load.write(writer));
            }
            for _ in 0..ROUND.min(kills - struck) {
                load.wait_for_commits(random.below(COMMITS_BETWEEN));
                let_suspects_pass(&db);
                let victim = strike(&cluster, &mut random);
                struck += 1;
                println!("{struck}: {victim}, {} s", began.elapsed().as_secs());
            }
        });
        db.expect_ledger_settled();
        load.expect_beliefs_hold(&db);
    }
    println!("{} s for {kills} kills", began.elapsed().as_secs());
}

/// Ends the writers also when a strike fails; otherwise the scope would wait for them for ever.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
