//! The memcached frontend from outside: real sockets, raw bytes, and the real
//! memcached for comparison.

mod classic;
mod differential;
mod limits;
mod meta;
mod pipeline;
mod pressure;
mod support;
mod tls;
