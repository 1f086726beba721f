//! The memcached frontend from outside: real sockets, raw bytes, and the real
//! memcached beside it.

mod classic;
mod differential;
mod limits;
mod meta;
mod pipeline;
mod pressure;
mod support;
mod tls;
