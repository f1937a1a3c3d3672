//! Real parts for the tests. Each test starts what it needs and stops it by its process id.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of the support")]

pub mod binary;
pub mod redis_server;
