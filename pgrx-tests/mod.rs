//! Tests that run inside the server.
