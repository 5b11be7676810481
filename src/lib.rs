//! automation_engine: the Postgres shell around `automation_core`.
#![allow(unsafe_code)]
use pgrx::prelude::*;

::pgrx::pg_module_magic!();
