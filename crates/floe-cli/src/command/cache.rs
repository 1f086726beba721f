//! `floe cache`: lists, warms, purges and pins the cached objects of a running server.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead as _, BufReader, IsTerminal as _};
use std::num::NonZeroU32;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use floe::object::Purge;
use floe_core::ByteSize;
use floe_server::control::{
    CachedObject, CachedState, REQUEST_BYTES_MAX, Reply, Request, WarmObject,
};
use serde::Serialize;
use serde_json::json;

use super::control::{Client, unexpected};
use crate::args::CacheAction;
use crate::failure::Failure;
use crate::output;

/// Objects of a page.
const PAGE_OBJECTS: usize = 500;

/// Objects that a request warms.
const WARM_OBJECTS: usize = 64;

/// Sets of objects that a request purges.
const PURGE_SETS: usize = 256;

/// Bytes of names that a request carries, which JSON makes up to six times as long.
const NAME_BYTES: usize = REQUEST_BYTES_MAX / 8;

pub(super) fn run(client: &Client, action: &CacheAction, json: bool) -> Result<(), Failure> {
    match action {
        CacheAction::Ls {
            objects,
            after,
            rate,
        } => {
            let (bucket, prefix) = bucket_and(objects)?;
            list(client, bucket, prefix, after.clone(), *rate, json)
        }
        CacheAction::Warm {
            objects,
            manifest,
            rate,
            after,
        } => {
            let mut warming = Warming::new(client, *rate, json);
            match (objects, manifest) {
                (Some(objects), _) => {
                    let (bucket, prefix) = bucket_and(objects)?;
                    warming.prefix(bucket, prefix, after.clone())?;
                }
                (None, Some(manifest)) => warming.manifest(manifest)?,
                // clap requires one of them.
                (None, None) => {}
            }
            warming.finish()
        }
        CacheAction::Purge {
            objects,
            prefixes,
            buckets,
            all,
        } => {
            let mut sets = Vec::new();
            for name in objects {
                let (bucket, key) = bucket_and(name)?;
                if key.is_empty() {
                    return Err(Failure::usage(format!("{name} names no object"))
                        .cure("write BUCKET/KEY, or --bucket for a whole bucket"));
                }
                let (bucket, key) = (bucket.to_owned(), key.to_owned());
                sets.push(Purge::Object { bucket, key });
            }
            for name in prefixes {
                let (bucket, prefix) = bucket_and(name)?;
                let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
                sets.push(Purge::Prefix { bucket, prefix });
            }
            sets.extend(buckets.iter().map(|bucket| Purge::Bucket {
                bucket: bucket.clone(),
            }));
            sets.extend(all.then_some(Purge::All));
            purge(client, sets, json)
        }
        CacheAction::Pin { objects, cap } => {
            let (bucket, prefix) = bucket_and(objects)?;
            let request = Request::Pin {
                bucket: bucket.to_owned(),
                prefix: prefix.to_owned(),
                cap: *cap,
            };
            pins(client, &request, json)
        }
        CacheAction::Unpin { objects } => {
            let (bucket, prefix) = bucket_and(objects)?;
            unpin(client, bucket, prefix, json)
        }
        CacheAction::Pins => pins(client, &Request::Pins, json),
    }
}

/// Prints the pins of the reply.
fn pins(client: &Client, request: &Request, json: bool) -> Result<(), Failure> {
    let pins = match client.call(request)? {
        Reply::Pins(pins) => pins,
        other => return Err(unexpected(&other)),
    };
    let mut text = String::new();
    for pin in pins {
        if json {
            text.push_str(&line(&pin)?);
            continue;
        }
        let (kept, cap) = (output::size(pin.kept_bytes), output::size(pin.cap_bytes));
        let name = format!("{}/{}", pin.bucket, pin.prefix);
        text.push_str(&format!("{kept:>10} {cap:>10} {}\n", name.escape_debug()));
    }
    output::print(&text)
}

fn unpin(client: &Client, bucket: &str, prefix: &str, json: bool) -> Result<(), Failure> {
    let request = Request::Unpin {
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
    };
    match client.call(&request)? {
        Reply::Unpinned { was_pinned: true } => {}
        Reply::Unpinned { was_pinned: false } => {
            return Err(
                Failure::usage(format!("there is no pin of `{bucket}/{prefix}`"))
                    .cure("`floe cache pins` lists the pins"),
            );
        }
        other => return Err(unexpected(&other)),
    }
    match json {
        true => output::print_json(&json!({ "unpinned": format!("{bucket}/{prefix}") })),
        false => output::print(&format!("{bucket}/{prefix} is no longer pinned\n")),
    }
}

/// Splits `BUCKET/REST`, with or without `s3://`.
fn bucket_and(name: &str) -> Result<(&str, &str), Failure> {
    let path = name.strip_prefix("s3://").unwrap_or(name);
    let (bucket, rest) = path.split_once('/').unwrap_or((path, ""));
    match bucket.is_empty() {
        true => Err(Failure::usage(format!("`{name}` names no bucket"))
            .cure("write BUCKET/KEY or BUCKET/PREFIX")),
        false => Ok((bucket, rest)),
    }
}

fn purge(client: &Client, sets: Vec<Purge>, json: bool) -> Result<(), Failure> {
    let mut purged = 0;
    let mut sets = VecDeque::from(sets);
    while !sets.is_empty() {
        let batch = take_batch(&mut sets, PURGE_SETS, |set| match set {
            Purge::All => 0,
            Purge::Bucket { bucket } => bucket.len(),
            Purge::Prefix {
                bucket,
                prefix: rest,
            }
            | Purge::Object { bucket, key: rest } => bucket.len() + rest.len(),
        });
        match client.call(&Request::Purge { sets: batch })? {
            Reply::Purged { sets } => purged += sets,
            other => return Err(unexpected(&other)),
        }
    }
    match json {
        true => output::print_json(&json!({ "purged": purged })),
        false => output::print(&format!("{purged} purged\n")),
    }
}

/// Takes the first items, as many as a request can carry, and at least one.
fn take_batch<T>(items: &mut VecDeque<T>, most: usize, bytes: impl Fn(&T) -> usize) -> Vec<T> {
    let mut batch = Vec::new();
    let mut total = 0;
    while batch.len() < most
        && let Some(item) = items.front()
        && (batch.is_empty() || total + bytes(item) <= NAME_BYTES)
    {
        total += bytes(item);
        batch.extend(items.pop_front());
    }
    batch
}

/// Calls `each` with the pages of the origin's objects, and what is cached of them.
fn pages(
    client: &Client,
    bucket: &str,
    prefix: &str,
    (mut after, most): (Option<String>, usize),
    mut each: impl FnMut(Vec<CachedObject>, bool) -> Result<(), Failure>,
) -> Result<(), Failure> {
    loop {
        let request = Request::Cached {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            after: after.clone(),
            most,
        };
        let (objects, is_last) = match client.call(&request)? {
            Reply::Cached { objects, is_last } => (objects, is_last),
            other => return Err(unexpected(&other)),
        };
        let last = objects.last().map(|object| object.key.clone());
        if last.is_some() && last <= after {
            return Err(
                Failure::environment("the origin does not continue its listing")
                    .because(format!("it lists {last:?} after {after:?}")),
            );
        }
        each(objects, is_last)?;
        after = last;
        if is_last || after.is_none() {
            return Ok(());
        }
    }
}

fn list(
    client: &Client,
    bucket: &str,
    prefix: &str,
    after: Option<String>,
    rate: Option<NonZeroU32>,
    json: bool,
) -> Result<(), Failure> {
    let mut text = String::new();
    let most = rate.map_or(PAGE_OBJECTS, |rate| PAGE_OBJECTS.min(rate.get() as usize));
    pages(client, bucket, prefix, (after, most), |objects, is_last| {
        let pause = match rate {
            Some(rate) if !is_last => Duration::from_secs(objects.len() as u64) / rate.get(),
            _ => Duration::ZERO,
        };
        text.clear();
        for object in objects {
            match json {
                true => text.push_str(&line(&object)?),
                false => {
                    let CachedObject {
                        key,
                        size,
                        cached_bytes,
                        state,
                        ..
                    } = &object;
                    let state = match state {
                        CachedState::None => "-",
                        CachedState::Part => "part",
                        CachedState::Whole => "whole",
                        CachedState::Stale => "stale",
                    };
                    let (size, cached) = (output::size(*size), output::size(*cached_bytes));
                    text.push_str(&format!(
                        "{size:>10} {cached:>10} {state:<5} {}\n",
                        key.escape_debug()
                    ));
                }
            }
        }
        output::print(&text)?;
        thread::sleep(pause);
        Ok(())
    })
}

/// `value` as a line of JSON.
fn line(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::bug("the result has no JSON form").because(error))?;
    Ok(text + "\n")
}

/// Warms objects, a batch at a time, and reports.
struct Warming<'a> {
    client: &'a Client,
    rate: Option<ByteSize>,
    json: bool,
    report: Report,
    shown: Instant,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    objects: u64,
    fetched_bytes: u64,
    failed: u64,
}

impl<'a> Warming<'a> {
    fn new(client: &'a Client, rate: ByteSize, json: bool) -> Self {
        Warming {
            client,
            rate: (rate.bytes() > 0).then_some(rate),
            json,
            report: Report::default(),
            shown: Instant::now(),
        }
    }

    /// Warms the objects of the origin with a prefix that are not cached whole.
    fn prefix(&mut self, bucket: &str, prefix: &str, after: Option<String>) -> Result<(), Failure> {
        let client = self.client;
        pages(
            client,
            bucket,
            prefix,
            (after, PAGE_OBJECTS),
            |objects, _| {
                let last = objects.last().map(|object| object.key.clone());
                let (whole, missing): (Vec<_>, Vec<_>) = objects
                    .into_iter()
                    .partition(|object| object.state == CachedState::Whole);
                self.report.objects += whole.len() as u64;
                self.batches(
                    bucket,
                    missing.into_iter().map(|object| object.key).collect(),
                )?;
                self.show(last.as_deref());
                Ok(())
            },
        )
    }

    /// Warms the objects of a file of lines `BUCKET/KEY`.
    fn manifest(&mut self, path: &Path) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            Failure::environment(format!("cannot read `{}`", path.display())).because(error)
        };
        let input: Box<dyn io::Read> = match path == Path::new("-") {
            true => Box::new(io::stdin()),
            false => Box::new(fs::File::open(path).map_err(failed)?),
        };
        let mut bucket_of_batch = String::new();
        let mut keys = VecDeque::new();
        for name in BufReader::new(input).lines() {
            let name = name.map_err(failed)?;
            if name.is_empty() {
                continue;
            }
            let (bucket, key) = bucket_and(&name)?;
            if bucket != bucket_of_batch || keys.len() == WARM_OBJECTS {
                self.batches(&bucket_of_batch, std::mem::take(&mut keys))?;
                self.show(None);
                bucket_of_batch = bucket.to_owned();
            }
            keys.push_back(key.to_owned());
        }
        self.batches(&bucket_of_batch, keys)
    }

    fn batches(&mut self, bucket: &str, keys: VecDeque<String>) -> Result<(), Failure> {
        let mut left: VecDeque<WarmObject> = keys.into_iter().map(WarmObject::from).collect();
        while !left.is_empty() {
            let objects = take_batch(&mut left, WARM_OBJECTS, |object| object.key.len());
            let begun = Instant::now();
            let request = Request::Warm {
                bucket: bucket.to_owned(),
                objects,
                most_bytes: self.rate.map_or(u64::MAX, ByteSize::bytes),
            };
            let warmed = match self.client.call(&request)? {
                Reply::Warmed(warmed) => warmed,
                other => return Err(unexpected(&other)),
            };
            let mut fetched = 0;
            for object in warmed.into_iter().rev() {
                fetched += object.fetched_bytes;
                if let Some(error) = object.error {
                    self.report.failed += 1;
                    eprintln!("{bucket}/{}: {error}", object.key.escape_debug());
                } else if object.is_done {
                    self.report.objects += 1;
                } else {
                    left.push_front(WarmObject::from(&object));
                }
            }
            self.report.fetched_bytes += fetched;
            if let Some(rate) = self.rate {
                let due = Duration::from_secs_f64(fetched as f64 / rate.bytes() as f64);
                thread::sleep(due.saturating_sub(begun.elapsed()));
            }
            self.show(None);
        }
        Ok(())
    }

    /// Shows progress each second, and the last key of a finished page, from which the command
    /// can be continued.
    fn show(&mut self, last: Option<&str>) {
        let is_due = self.shown.elapsed() >= Duration::from_secs(1);
        if self.json || !io::stderr().is_terminal() || !is_due {
            return;
        }
        self.shown = Instant::now();
        let last = last.map(|key| format!(" up to {}", key.escape_debug()));
        eprintln!("{}{}", self.report.text(), last.unwrap_or_default());
    }

    fn finish(self) -> Result<(), Failure> {
        match self.json {
            true => output::print_json(&self.report)?,
            false => output::print(&format!("{}\n", self.report.text()))?,
        }
        match self.report.failed {
            0 => Ok(()),
            failed => Err(Failure::environment(format!(
                "{failed} objects were not warmed"
            ))),
        }
    }
}

impl Report {
    fn text(&self) -> String {
        let Report {
            objects,
            fetched_bytes,
            failed,
        } = self;
        let fetched = output::size(*fetched_bytes);
        let failed = match failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        format!("{objects} objects are warm, {fetched} fetched{failed}")
    }
}
