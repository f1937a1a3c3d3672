//! Real servers for the tests. Each test starts what it needs and stops it by its process id.
#![allow(dead_code, reason = "each test binary uses its own part of the support")]

pub mod api;
pub mod binary;
pub mod books;
pub mod certificates;
pub mod checker;
pub mod connect_proxy;
pub mod console;
pub mod contacts_api;
pub mod daemon;
pub mod digest_messages;
pub mod echo_receiver;
pub mod eventually;

pub mod contact_receiver;
pub mod grant_notices;
pub mod grants;
pub mod ledger;
pub mod mail_server;
pub mod name_server;
pub mod notifier;
pub mod outbox;
pub mod outbox_loops;
pub mod partition;
pub mod proxy;
pub mod raised_notices;
pub mod receivers;
pub mod recorded_usage;
pub mod redis_cluster;
pub mod redis_server;
pub mod redis_server_client;
pub mod redis_users;
pub mod scripted_server;
pub mod sentinel_service;
pub mod stream_model;
pub mod streams;
pub mod surviving;
pub mod table;
pub mod tls_flood;
pub mod traffic;
pub mod usual_usage;
pub mod webhook_receiver;
pub mod xread_reply;
