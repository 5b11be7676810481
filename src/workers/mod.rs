//! The background processes: which one is started when, and how they wake each other.
pub mod careful;
pub mod conductor;
pub mod courier;
pub mod courier_keeper;
pub mod executor;
mod freeze;
pub mod launcher;
pub mod pool;
pub mod processes;
mod put_off;
pub mod quiesce;
pub mod txn;
