//! The frontends from outside: real sockets, raw bytes, third-party clients.

mod admin;
mod events;
mod events_nats;
mod node;
mod origins;
mod oxcache;
mod peers;
mod robustness;
mod s3_access_log;
mod s3_auth;
mod s3_cache_only;
mod s3_client_credentials;
mod s3_credentials;
mod s3_directory;
mod s3_errors;
mod s3_forward;
mod s3_kept;
mod s3_policies;
mod s3_read;
mod s3_tls;
mod s3_turns;
mod s3_write;
mod subsets;
mod support;
