//! Clients that write and read the same keys, and judge each answer.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::body::{self, CELL_BYTES};
use super::history::{History, Value};
use super::mix::{Action, KEYS, Protocol, Recorded, Step, Steps};
use super::network::PROXIES;
use super::objects::{ObjectClient, Signing, node_name};
use crate::blackbox::memcached::Client;

/// Keys of a command that gets several.
const KEYS_AT_ONCE: usize = 5;

/// The time after which a client gives a request up.
const PATIENCE: Duration = Duration::from_secs(4);

/// The counts of a load.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Those with an answer.
    pub(super) operations: AtomicU64,
    pub(super) reads: AtomicU64,
    /// Attempts of each kind that began when proxies must have noticed every failure.
    pub(super) judged: [AtomicU64; KINDS.len()],
    pub(super) hits: AtomicU64,
    /// The beginning of the latest answered write of each proxy's clients, in milliseconds since
    /// the load began.
    pub(super) written_ms: [AtomicU64; PROXIES.len()],
    /// Writes that a node refused.
    pub(super) refused: AtomicU64,
    /// Attempts without an answer.
    pub(super) failed: Mutex<Vec<Failed>>,
}

/// A kind of attempt of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    /// A connection to a proxy.
    Open,
}

pub(super) const KINDS: [Kind; 3] = [Kind::Read, Kind::Write, Kind::Open];

/// An attempt without an answer.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) kind: Kind,
    pub(super) when: Instant,
    pub(super) keys: Vec<usize>,
    pub(super) proxy: SocketAddr,
    /// It began when proxies must have noticed every failure.
    pub(super) is_judged: bool,
}

/// A load on several keys.
pub(super) struct Load<'a> {
    pub(super) protocol: Protocol,
    recorded: Option<&'a Recorded>,
    pub(super) keys: usize,
    pub(super) history: History,
    pub(super) counts: Counts,
    /// Set when the load is to end.
    pub(super) ended: AtomicBool,
    /// The first wrong answer.
    pub(super) wrong: Mutex<Option<anyhow::Error>>,
    /// The node that served each object.
    pub(super) served_by: Mutex<Vec<Served>>,
    next_value: AtomicU64,
    began: Instant,
    /// Attempts that begin earlier are not judged, in milliseconds since then.
    excused_ms: AtomicU64,
}

/// An object that was read through HAProxy.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) key: usize,
    pub(super) node: String,
    pub(super) when: Instant,
}

enum Link {
    Memcached(Client),
    S3(ObjectClient),
}

/// A client of one proxy.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientOptions {
    pub(super) proxy: SocketAddr,
    /// The number of the proxy.
    pub(super) place: usize,
    pub(super) signing: Signing,
    /// It follows the recorded mix, if there is one.
    pub(super) is_recorded: bool,
    pub(super) seed: u64,
}

impl<'a> Load<'a> {
    pub(super) fn new(protocol: Protocol, recorded: Option<&'a Recorded>) -> Self {
        let keys = KEYS + recorded.map_or(0, Recorded::keys);
        Load {
            protocol,
            recorded,
            keys,
            history: History::new(keys),
            counts: Counts::default(),
            ended: AtomicBool::new(false),
            wrong: Mutex::default(),
            served_by: Mutex::default(),
            next_value: AtomicU64::new(1),
            began: Instant::now(),
            excused_ms: AtomicU64::new(0),
        }
    }

    /// A client, until the load ends or an answer is wrong.
    pub(super) fn client(&self, options: ClientOptions) {
        let recorded = self.recorded.filter(|_| options.is_recorded);
        let mut steps = Steps::new(recorded, self.protocol, options.seed);
        let mut link = None;
        while !self.ended.load(Relaxed) {
            let done = match link.take() {
                Some(mut open) => self
                    .operate(&steps.next(), &mut open, options)
                    .map(|()| Some(open)),
                None => {
                    let attempt = self.begin(Kind::Open, Vec::new(), options.proxy);
                    let opened = self.open(options).map(Some).map_err(Failure::from);
                    self.ended_as(attempt, opened)
                }
            };
            match done {
                Ok(open) => link = open,
                Err(Failure::Outage) => std::thread::sleep(Duration::from_millis(20)),
                Err(Failure::Wrong(error)) => {
                    let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
                    wrong.get_or_insert(error);
                    self.ended.store(true, Relaxed);
                }
            }
        }
    }

    /// The keys of attempts without an answer.
    pub(super) fn failed_keys(&self) -> BTreeSet<usize> {
        let failed = self.counts.failed.lock();
        let failed = failed.unwrap_or_else(PoisonError::into_inner);
        let keys = failed.iter().flat_map(|one| one.keys.iter().copied());
        keys.collect()
    }

    fn open(&self, options: ClientOptions) -> io::Result<Link> {
        let ClientOptions { proxy, signing, .. } = options;
        Ok(match self.protocol {
            Protocol::Memcached => Link::Memcached(Client::open_with_patience(proxy, PATIENCE)?),
            Protocol::S3 => Link::S3(ObjectClient::open(proxy, signing, PATIENCE)?),
        })
    }

    /// Attempts that begin in a while are not judged: proxies have yet to notice a failure, or its
    /// end.
    pub(super) fn excuse(&self, time: Duration) {
        let until = self.began.elapsed() + time;
        self.excused_ms.store(until.as_millis() as u64, Relaxed);
    }

    /// True if the clients of each proxy have had a write answered that began after `moment`.
    pub(super) fn has_written_since(&self, moment: Instant) -> bool {
        let moment = moment.saturating_duration_since(self.began).as_millis() as u64;
        let mut latest = self.counts.written_ms.iter();
        latest.all(|latest| latest.load(Relaxed) > moment)
    }

    /// Reads and writes so far that had to succeed.
    pub(super) fn judged(&self) -> [u64; 2] {
        let count = |kind: Kind| self.counts.judged[kind as usize].load(Relaxed);
        [Kind::Read, Kind::Write].map(count)
    }

    /// The time since any write was answered.
    pub(super) fn silence(&self) -> Duration {
        let latest = self.counts.written_ms.iter();
        let latest = latest.map(|latest| latest.load(Relaxed)).max();
        let latest = Duration::from_millis(latest.unwrap_or(0));
        self.began.elapsed().saturating_sub(latest)
    }

    fn written(&self, place: usize, start: Instant) {
        let began = start.saturating_duration_since(self.began).as_millis() as u64;
        self.counts.written_ms[place].fetch_max(began, Relaxed);
    }

    fn operate(&self, step: &Step, link: &mut Link, options: ClientOptions) -> Result<(), Failure> {
        let is_read = matches!(step.action, Action::Read | Action::ReadMany);
        let keys = match step.action {
            Action::ReadMany => keys_from(step.key).collect(),
            _ => vec![step.key],
        };
        let kind = if is_read { Kind::Read } else { Kind::Write };
        let attempt = self.begin(kind, keys, options.proxy);
        let start = attempt.when;
        let done = match (&mut *link, step.action) {
            (Link::Memcached(client), Action::ReadMany) => {
                self.read_many(client, step.key, start).map(|()| true)
            }
            (link, Action::Read | Action::ReadMany) => self.read(link, step, start),
            (link, Action::Write) => self.write(link, step, options.place, start).map(|()| true),
            (link, Action::Exchange) => self.exchange(link, step, options.place).map(|()| true),
            (link, Action::Delete) => self.delete(link, step.key, start).map(|()| true),
        };
        self.counts.reads.fetch_add(u64::from(is_read), Relaxed);
        let found = self.ended_as(attempt, done)?;
        self.counts.operations.fetch_add(1, Relaxed);
        if !found && step.fills {
            let filling = self.begin(Kind::Write, vec![step.key], options.proxy);
            let written = self.write(link, step, options.place, filling.when);
            self.ended_as(filling, written)?;
            self.counts.operations.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// An attempt that begins.
    fn begin(&self, kind: Kind, keys: Vec<usize>, proxy: SocketAddr) -> Failed {
        let when = Instant::now();
        let excused = Duration::from_millis(self.excused_ms.load(Relaxed));
        let is_judged = when.duration_since(self.began) > excused;
        self.counts.judged[kind as usize].fetch_add(u64::from(is_judged), Relaxed);
        Failed {
            kind,
            when,
            keys,
            proxy,
            is_judged,
        }
    }

    /// Notes an attempt that has ended, if it had no answer.
    fn ended_as<T>(&self, attempt: Failed, result: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(Failure::Outage) = result {
            let failed = self.counts.failed.lock();
            failed.unwrap_or_else(PoisonError::into_inner).push(attempt);
        }
        result
    }

    fn write(
        &self,
        link: &mut Link,
        step: &Step,
        place: usize,
        start: Instant,
    ) -> Result<(), Failure> {
        let key = step.key;
        let value = self.next_value.fetch_add(1, Relaxed);
        self.history.begin(key, value);
        let bytes = body::of_value(value, step.cells);
        let is_stored = match link {
            Link::Memcached(client) => {
                self.is_done(&client.store("set", &name(key), &bytes, None)?, "STORED")?
            }
            Link::S3(client) => {
                let put = client.put(&path(key), &bytes)?;
                match put.status {
                    200 => true,
                    500.. => return Err(Failure::Outage),
                    status => return Err(wrong(anyhow!("PUT: {status}"))),
                }
            }
        };
        if is_stored {
            self.written(place, start);
            self.history.answered(key, Some(value), start);
        } else {
            self.history.refused(key, value);
        }
        Ok(())
    }

    /// Replaces a value by another one, if it is still the newest.
    fn exchange(&self, link: &mut Link, step: &Step, place: usize) -> Result<(), Failure> {
        let (key, start) = (step.key, Instant::now());
        let Link::Memcached(client) = link else {
            return Ok(());
        };
        let Some(item) = client.get(&name(key))? else {
            return Ok(());
        };
        let old = whole(&item.bytes)?;
        self.history.check(key, old, start).map_err(wrong)?;
        let start = Instant::now();
        let value = self.next_value.fetch_add(1, Relaxed);
        self.history.begin(key, value);
        let bytes = body::of_value(value, step.cells);
        let answer = client.store("cas", &name(key), &bytes, Some(item.cas))?;
        if matches!(answer.as_str(), "EXISTS" | "NOT_FOUND") || !self.is_done(&answer, "STORED")? {
            self.history.refused(key, value);
            return Ok(());
        }
        self.written(place, start);
        // It says that the old value was the newest until then.
        self.history.check(key, old, start).map_err(wrong)?;
        self.history.answered(key, Some(value), start);
        Ok(())
    }

    /// Reads a few keys by one command.
    fn read_many(&self, client: &mut Client, key: usize, start: Instant) -> Result<(), Failure> {
        let keys: Vec<usize> = (0..KEYS_AT_ONCE).map(|step| (key + step) % KEYS).collect();
        let names: Vec<String> = keys.iter().map(|&key| name(key)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for (place, item) in client.get_many(&names)? {
            let value = whole(&item.bytes)?;
            self.history
                .check(keys[place], value, start)
                .map_err(wrong)?;
        }
        Ok(())
    }

    fn delete(&self, link: &mut Link, key: usize, start: Instant) -> Result<(), Failure> {
        let Link::Memcached(client) = link else {
            return Ok(());
        };
        let answer = client.delete(&name(key))?;
        if answer == "NOT_FOUND" || self.is_done(&answer, "DELETED")? {
            self.history.answered(key, None, start);
        }
        Ok(())
    }

    /// The answer to a write of memcached: it was done, or refused by a node.
    fn is_done(&self, answer: &str, done: &str) -> Result<bool, Failure> {
        match answer {
            answer if answer == done => Ok(true),
            refused if refused.contains("owns this key") || refused.contains("not confirmed") => {
                self.counts.refused.fetch_add(1, Relaxed);
                Ok(false)
            }
            failed if failed.starts_with("SERVER_ERROR") => Err(Failure::Outage),
            other => Err(wrong(anyhow!("an answer to a write: {other:?}"))),
        }
    }

    /// Reads a key or a range of it. False if there is no value.
    fn read(&self, link: &mut Link, step: &Step, start: Instant) -> Result<bool, Failure> {
        let (key, cells) = (step.key, &step.range);
        let found = match link {
            Link::Memcached(client) => client.get(&name(key))?.map(|item| item.bytes),
            Link::S3(client) => {
                let range = (cells.end != u32::MAX).then(|| {
                    let byte = |cell: u32| cell as usize * CELL_BYTES;
                    format!("bytes={}-{}", byte(cells.start), byte(cells.end) - 1)
                });
                let expected = if range.is_some() { 206 } else { 200 };
                let get = client.get(&path(key), range)?;
                self.note_server(key, start, get.header("x-floe-node"));
                match get.status {
                    status if status == expected => Some(get.body),
                    404 if !self.history.has_value(key, start) => None,
                    404 => return Err(wrong(anyhow!("object {key} is missing"))),
                    500.. => return Err(Failure::Outage),
                    status => return Err(wrong(anyhow!("GET: {status}"))),
                }
            }
        };
        let Some(bytes) = found else {
            return Ok(false);
        };
        self.counts.hits.fetch_add(1, Relaxed);
        let value = body::value_of(&bytes, cells.start, cells.end).map_err(wrong)?;
        self.history.check(key, value, start).map_err(wrong)?;
        Ok(true)
    }

    fn note_server(&self, key: usize, when: Instant, node: Option<&str>) {
        if let Some(node) = node {
            let served = self.served_by.lock();
            served.unwrap_or_else(PoisonError::into_inner).push(Served {
                key,
                node: node_name(node).to_owned(),
                when,
            });
        }
    }
}

enum Failure {
    /// No answer, or one that says so.
    Outage,
    /// An answer that no cache may give.
    Wrong(anyhow::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => wrong(anyhow!("a malformed answer: {error}")),
            _ => Failure::Outage,
        }
    }
}

fn wrong(error: anyhow::Error) -> Failure {
    Failure::Wrong(error)
}

/// The keys of one command, of which `key` is the first one.
fn keys_from(key: usize) -> impl Iterator<Item = usize> {
    (0..KEYS_AT_ONCE).map(move |step| (key + step) % KEYS)
}

/// A key's name in memcached.
pub(super) fn name(key: usize) -> String {
    format!("key:{key}:value")
}

fn path(key: usize) -> String {
    format!("/bucket/folder-{}/object-{key}", key % 7)
}

/// The value that all bytes are of.
fn whole(bytes: &[u8]) -> Result<Value, Failure> {
    body::value_of(bytes, 0, u32::MAX).map_err(wrong)
}
