//! End-to-end tests: a real cluster, real workers.
