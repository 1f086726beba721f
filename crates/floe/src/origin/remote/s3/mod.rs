//! S3 by this crate's own client: reads of any key, clients' own requests, and the queues of
//! its notifications.

mod buckets;
mod client;
mod dial;
mod forward;
mod pools;
mod queue;
mod read;
mod sign;

pub(super) use client::S3Client;
pub(super) use queue::SqsQueue;
