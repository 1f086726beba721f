//! The frontend from outside: real sockets, and a client written by hand.

mod abuse;
mod backing;
mod commands;
mod concurrency;
mod options;
mod support;
mod tls;
