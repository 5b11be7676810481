//! What holds for all inputs, tried on random ones.

#[path = "properties/automations.rs"]
mod automations;
#[path = "properties/gates.rs"]
mod gates;
#[path = "properties/generate.rs"]
mod generate;
#[path = "properties/language.rs"]
mod language;
#[path = "properties/messages.rs"]
mod messages;
#[path = "properties/schedule.rs"]
mod schedule;
#[path = "properties/values.rs"]
mod values;

/// How many cases to try; `PROPERTY_FACTOR=100` tries a hundred times as many.
fn cases(usual: u32) -> proptest::test_runner::Config {
    let factor = std::env::var("PROPERTY_FACTOR").ok().and_then(|f| f.parse().ok()).unwrap_or(1);
    proptest::test_runner::Config { cases: usual * factor, failure_persistence: None, ..Default::default() }
}
