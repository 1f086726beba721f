//! `cargo xtask attack`: hostile clients and foreign files against the real
//! binary. Each scenario was a vulnerability once; the server must reject the
//! attack, and keep serving other clients.

mod crowds;
mod files;
mod s3;

use anyhow::Result;

use crate::blackbox::scenario::{self, Options, Scenario, passed};

const SCENARIOS: &[Scenario] = &[
    ("a presigned upload turned into a copy", |p| {
        passed(s3::presigned_copy(p))
    }),
    ("signatures of version 2", |p| passed(s3::old_signatures(p))),
    ("a presigned URL of more than a week", |p| {
        passed(s3::long_presign(p))
    }),
    ("HTTP/1.1 with no host or two", |p| {
        passed(s3::host_headers(p))
    }),
    ("deletes whose conditions do not hold", |p| {
        passed(s3::conditional_deletes(p))
    }),
    ("uploads by HTML forms", |p| passed(s3::form_uploads(p))),
    ("uploads that send one byte", |p| {
        passed(s3::stalled_uploads(p))
    }),
    ("an origin that redirects to the metrics port", |p| {
        passed(s3::redirects(p))
    }),
    ("idle connections to health and metrics", |p| {
        passed(crowds::idle_admin(p))
    }),
    ("idle connections to S3", |p| passed(crowds::idle_s3(p))),
    ("memcached sets that are announced only", |p| {
        passed(crowds::announced_sets(p))
    }),
    ("memcached clients that read nothing", |p| {
        passed(crowds::silent_readers(p))
    }),
    ("SIGTERM among busy memcached clients", |p| {
        passed(crowds::busy_stop(p))
    }),
    ("SIGHUP", |p| passed(crowds::hang_up(p))),
    ("an open door to the network", |p| {
        passed(crowds::open_to_the_network(p))
    }),
    ("foreign files in place of the cache", |p| {
        passed(files::foreign_files(p))
    }),
    ("foreign data behind a hole", |p| {
        passed(files::behind_a_hole(p))
    }),
    ("paths that are no files", |p| passed(files::no_files(p))),
    ("a damaged file of tiny objects", |p| {
        passed(files::damaged_tiny(p))
    }),
    ("a damaged first superblock", |p| {
        passed(files::damaged_superblock(p))
    }),
];

/// Runs all attacks, even after a failure.
pub fn run(options: &Options) -> Result<()> {
    scenario::run("attack", SCENARIOS, options)
}
