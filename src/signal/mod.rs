//! How processes tell each other that there is work: shared memory, the wake-up at commit, the run that each executor
//! executes. Hints only: tables hold the truth, and after a crash everything here is rebuilt.
pub mod at_commit;
pub mod executor_slot;
pub mod id_counter;
pub mod running;
pub mod shmem;
