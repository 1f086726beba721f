//! S3 by this crate's own client: reads of any key, and clients' own requests.

mod buckets;
mod client;
mod dial;
mod forward;
mod read;
mod sign;

pub(super) use client::S3Client;
