//! Thousands of random automations in a world where everything goes wrong: transactions are rolled back, processes lose
//! all they had not committed, wakes come late, twice or together. Whatever happens, each effect happens once, no wake-up
//! is lost, and once the faults stop every run ends.
//!
//! A failure names its seed: `SIMULATION_SEED=1234 cargo test -p automation_core --test simulation` plays it alone and
//! shows the automations; `SIMULATION_SEEDS=100000` plays that many.

mod actors;
mod chance;
mod checks;
mod database;
mod executor;
mod programs;

use actors::{Protocol, Simulation, Tally};

fn simulate(protocol: Protocol, seed: u64) -> Result<Tally, String> {
    Simulation::new(seed, protocol, programs::family(seed as usize)).run()
}

/// What was done, or the first seed that fails, and why.
fn simulate_all(protocol: Protocol, seeds: std::ops::Range<u64>) -> Result<Tally, (u64, String)> {
    let threads = 2;
    let outcomes: Vec<Result<Tally, (u64, String)>> = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|part| {
                let mine = seeds.clone().filter(move |seed| seed % threads == part);
                scope.spawn(move || {
                    mine.map(|seed| simulate(protocol, seed).map_err(|problem| (seed, problem)))
                        .try_fold(Tally::default(), |all, one| one.map(|one| all + one))
                })
            })
            .collect();
        parts.into_iter().map(|part| part.join().expect("a simulation panicked")).collect()
    });
    let first = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).min().cloned();
    match first {
        Some(failure) => Err(failure),
        None => Ok(outcomes.into_iter().flatten().fold(Tally::default(), |all, one| all + one)),
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn whatever_goes_wrong_effects_happen_once_and_every_run_ends() {
    if let Some(seed) = number("SIMULATION_SEED") {
        for level in 0..programs::SIZE {
            println!("{:#}", programs::document(seed as usize % programs::FAMILIES, level));
        }
        simulate(Protocol::AsDesigned, seed).unwrap_or_else(|problem| panic!("{problem}"));
        return;
    }
    let seeds = number("SIMULATION_SEEDS").unwrap_or(2000);
    match simulate_all(Protocol::AsDesigned, 0..seeds) {
        Ok(tally) => {
            println!("{tally:?}");
            assert!(tally.is_worth_it(seeds), "too little happens: {tally:?}");
        }
        Err((seed, problem)) => {
            panic!("{problem}\nplay it with SIMULATION_SEED={seed} cargo test -p automation_core --test simulation")
        }
    }
}

/// A net that catches nothing would be worth nothing: each of these mistakes is found.
#[test]
fn every_mistake_in_the_protocol_is_found() {
    for protocol in [Protocol::NoArm, Protocol::IgnoreNumber, Protocol::NoRunLock, Protocol::DropOnContention] {
        let found = simulate_all(protocol, 0..200);
        println!("{protocol:?}: {found:?}");
        assert!(found.is_err(), "{protocol:?} was not noticed");
    }
}

/// Too rare to be left to chance: of two runs that want a signal, one is about to take it and fails, and is cancelled
/// before it tries again. The other must not have given up meanwhile.
#[test]
fn a_signal_that_was_nearly_taken_is_not_lost_for_others() {
    for seed in 0..20 {
        Simulation::new(seed, Protocol::AsDesigned, programs::rivals()).rivals().expect("nothing is lost");
        let broken = Simulation::new(seed, Protocol::SkipLockedSignal, programs::rivals()).rivals();
        assert!(broken.is_err_and(|problem| problem.contains("missed")), "seed {seed}");
    }
}
