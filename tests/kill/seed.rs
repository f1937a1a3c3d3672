//! The seed of a run's events and choices.

/// A new seed, or that of `QUOTABELL_TEST_SEED`, which repeats a run. A failed test shows it.
pub fn seed_of_run() -> u64 {
    let given = std::env::var("QUOTABELL_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(rand::random);
    eprintln!("QUOTABELL_TEST_SEED={seed}");
    seed
}
