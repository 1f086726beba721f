//! Requests of a client, from their start to their end. No I/O.
//!
//! The rules that keep the law over connections that die:
//!
//! * A read or a flush without an answer is sent again.
//! * A change without an answer may land at any time until the server has ended the dead
//!   connection's requests. So its caller waits until the same change has been repeated
//!   and answered. Then its range is *fenced* for a while: no newer change of it is sent.
//!   An old request that lands late repeats what is there.
//! * A change that was answered and not flushed may be lost with the server. All of
//!   these are repeated before any other request is sent, so that a later flush covers them.
//! * Changes that overlap one in flight wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use floe_core::Tick;
use floe_device::{Completer, Counters, DeviceError, IoBuf, IoData, Operation};

use super::error::{Junk, ServerError, unanswered};
use super::handshake::Export;
use super::unflushed::{Change, Content, Unflushed};
use super::wire::{Command, REQUEST_MAGIC, flag, flags};

/// Requests in flight on one connection.
const IN_FLIGHT_MAX: usize = 64;

/// Memory of unflushed changes, beyond which changes wait. From half of it the client
/// flushes by itself.
const UNFLUSHED_BYTES_MAX: u64 = 64 << 20;

/// Changes that are looked at for one that may be sent.
const CANDIDATES_MAX: usize = 256;

/// Most pieces in which the data of a read arrives.
const PIECES_MAX: usize = 1024;

/// A connection of a session.
pub(super) type LinkId = usize;

/// An operation of a caller or of the client itself.
#[derive(Debug)]
enum Work {
    Read {
        at: u64,
        buf: IoBuf,
        completer: Completer<IoBuf>,
    },
    /// Without a completer it repeats an earlier change.
    Change {
        change: Change,
        completer: Option<Completer<()>>,
    },
    /// Without a completer it is the client's own.
    Flush { completer: Option<Completer<()>> },
}

#[derive(Debug)]
struct Waiting {
    work: Work,
    /// When the caller started it.
    since: Tick,
}

/// A request in flight.
#[derive(Debug)]
struct Sent {
    waiting: Waiting,
    link: LinkId,
    sent_at: Tick,
    /// Changes that had ended when it was sent.
    ended: u64,
    /// Ranges of a read that have arrived.
    arrived: Vec<Range<u64>>,
    error: Option<ServerError>,
}

/// A change whose answer was lost with its connection.
#[derive(Debug)]
struct Unanswered {
    completer: Completer<()>,
    operation: Operation,
    bytes: u64,
    since: Tick,
}

/// A range that must not be changed.
#[derive(Debug)]
struct Fence {
    range: Range<u64>,
    /// `None` until the changes that were in flight have been repeated.
    until: Option<Tick>,
}

/// A message to send, or the time until there may be one.
#[derive(Debug)]
pub(super) enum Next {
    Send {
        head: [u8; 28],
        payload: Option<IoData>,
    },
    /// Until something happens, or at this time.
    Wait(Option<Tick>),
}

/// The requests of a client.
#[derive(Debug)]
pub(super) struct State {
    export: Export,
    counters: Arc<Counters>,
    /// Reads and flushes.
    reads: VecDeque<Waiting>,
    changes: VecDeque<Waiting>,
    sent: BTreeMap<u64, Sent>,
    /// The name of the next request.
    cookie: u64,
    unflushed: Unflushed,
    /// Changes that have ended.
    ended: u64,
    /// Changes that a dead connection left without an answer.
    unanswered: Vec<Unanswered>,
    /// Changes to repeat, and those that have no answer yet.
    repeats: VecDeque<Change>,
    repeating: usize,
    is_open: bool,
    fences: Vec<Fence>,
    flushes_itself: bool,
    /// The failure that lost an acknowledged change: flushes fail from then on.
    lost: Option<Arc<str>>,
    /// Changes come first at every other turn.
    changes_first: bool,
}

impl State {
    /// No requests. Changes of all bytes are fenced as if a connection had just died: that
    /// of a process before this one.
    pub(super) fn new(export: Export, counters: Arc<Counters>) -> Self {
        State {
            counters,
            reads: VecDeque::new(),
            changes: VecDeque::new(),
            sent: BTreeMap::new(),
            cookie: 0,
            unflushed: Unflushed::default(),
            ended: 0,
            unanswered: Vec::new(),
            repeats: VecDeque::new(),
            repeating: 0,
            is_open: false,
            fences: vec![Fence {
                range: 0..u64::MAX,
                until: None,
            }],
            flushes_itself: false,
            lost: None,
            changes_first: false,
            export,
        }
    }

    pub(super) fn read(&mut self, at: u64, buf: IoBuf, completer: Completer<IoBuf>, since: Tick) {
        let work = Work::Read { at, buf, completer };
        self.reads.push_back(Waiting { work, since });
    }

    pub(super) fn change(&mut self, change: Change, completer: Completer<()>, since: Tick) {
        let completer = Some(completer);
        let work = Work::Change { change, completer };
        self.changes.push_back(Waiting { work, since });
    }

    pub(super) fn flush(&mut self, completer: Completer<()>, since: Tick) {
        let completer = Some(completer);
        let work = Work::Flush { completer };
        self.reads.push_back(Waiting { work, since });
    }

    /// Begins a session: connections that are new. Repeats what may be lost.
    pub(super) fn open(&mut self, now: Tick, fence: Duration) {
        self.is_open = true;
        self.repeats = self.unflushed.changes().collect();
        self.repeating = self.repeats.len();
        self.end_repeats(now, fence);
    }

    /// Ends a session: all of its connections are dead.
    pub(super) fn cut(&mut self) {
        self.is_open = false;
        self.flushes_itself = false;
        self.repeats.clear();
        for (_, sent) in std::mem::take(&mut self.sent).into_iter().rev() {
            let Waiting { work, since } = sent.waiting;
            match work {
                Work::Change { change, completer } => {
                    self.unanswered
                        .extend(completer.map(|completer| Unanswered {
                            completer,
                            operation: operation_of(&change),
                            bytes: change.range.end - change.range.start,
                            since,
                        }));
                    self.fences.push(Fence {
                        range: change.range,
                        until: None,
                    });
                }
                Work::Flush { completer: None } => {}
                work => self.reads.push_front(Waiting { work, since }),
            }
        }
    }

    /// Fails the requests that were started before `limit` and cannot be sent.
    pub(super) fn expire(&mut self, limit: Tick, why: &Arc<str>) {
        let old = |since: Tick| since <= limit;
        let queues = [&mut self.reads, &mut self.changes];
        for queue in queues {
            let (expired, rest) = std::mem::take(queue)
                .into_iter()
                .partition::<VecDeque<_>, _>(|waiting| old(waiting.since));
            *queue = rest;
            for Waiting { work, .. } in expired {
                Counters::add(&self.counters.errors, 1);
                work.fail(|operation| unanswered(operation, why));
            }
        }
        let (expired, rest) = std::mem::take(&mut self.unanswered)
            .into_iter()
            .partition(|change| old(change.since));
        self.unanswered = rest;
        self.answer(expired, Some(why));
    }

    /// When the oldest request in flight was sent.
    pub(super) fn oldest(&self) -> Option<Tick> {
        self.sent.values().map(|sent| sent.sent_at).min()
    }

    /// The next request of connection `link`, which is in flight from now on.
    pub(super) fn next(&mut self, link: LinkId, now: Tick) -> Next {
        let in_flight = self.sent.values().filter(|sent| sent.link == link).count();
        if !self.is_open || in_flight >= IN_FLIGHT_MAX {
            return Next::Wait(None);
        }
        if self.repeating > 0 {
            let repeat = self.repeats.pop_front().map(|change| Waiting {
                work: Work::Change {
                    change,
                    completer: None,
                },
                since: now,
            });
            return repeat.map_or(Next::Wait(None), |repeat| self.send(repeat, link, now));
        }
        let is_half_full = self.unflushed.bytes() >= UNFLUSHED_BYTES_MAX / 2;
        if is_half_full && !self.flushes_itself && self.lost.is_none() {
            self.flushes_itself = true;
            let work = Work::Flush { completer: None };
            return self.send(Waiting { work, since: now }, link, now);
        }
        self.changes_first = !self.changes_first;
        let next = match self.changes_first {
            true => self.next_change(now).or_else(|| self.next_read()),
            false => self.next_read().or_else(|| self.next_change(now)),
        };
        match next {
            Some(next) => self.send(next, link, now),
            None if self.changes.is_empty() => Next::Wait(None),
            None => Next::Wait(self.fences.iter().filter_map(|fence| fence.until).min()),
        }
    }

    fn next_read(&mut self) -> Option<Waiting> {
        loop {
            let next = self.reads.pop_front()?;
            match (&next.work, &self.lost) {
                (Work::Flush { .. }, Some(lost)) => {
                    Counters::add(&self.counters.errors, 1);
                    next.work.fail(|operation| unanswered(operation, lost));
                }
                _ => return Some(next),
            }
        }
    }

    fn next_change(&mut self, now: Tick) -> Option<Waiting> {
        self.fences
            .retain(|fence| fence.until.is_none_or(|until| until > now));
        if self.unflushed.bytes() >= UNFLUSHED_BYTES_MAX && self.lost.is_none() {
            return None;
        }
        let mut candidates = self.changes.iter().take(CANDIDATES_MAX);
        let at = candidates.position(|waiting| match &waiting.work {
            Work::Change { change, .. } => !self.must_wait(&change.range),
            Work::Read { .. } | Work::Flush { .. } => true,
        })?;
        self.changes.remove(at)
    }

    fn must_wait(&self, range: &Range<u64>) -> bool {
        let overlaps =
            |fence: &Fence| fence.range.start < range.end && range.start < fence.range.end;
        self.fences.iter().any(overlaps) || self.unflushed.is_changing(range)
    }

    fn send(&mut self, waiting: Waiting, link: LinkId, now: Tick) -> Next {
        let (flags, command, at, len, payload) = match &waiting.work {
            Work::Read { at, buf, .. } => {
                let in_one = self.export.is_structured && self.export.has(flags::SEND_DF);
                let flags = if in_one { flag::DF } else { 0 };
                (flags, Command::Read, *at, buf.len() as u64, None)
            }
            Work::Flush { .. } => (0, Command::Flush, 0, 0, None),
            Work::Change { change, completer } => {
                let Range { start, end } = change.range;
                let command = match change.content {
                    Content::Data(_) => Command::Write,
                    Content::Zeroes => Command::WriteZeroes,
                    Content::Discarded => Command::Trim,
                };
                let payload = change.payload().cloned();
                if completer.is_some() {
                    self.unflushed.start(change.clone());
                }
                (0, command, start, end - start, payload)
            }
        };
        self.cookie += 1;
        let mut head = [0; 28];
        head[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        head[4..6].copy_from_slice(&flags.to_be_bytes());
        head[6..8].copy_from_slice(&(command as u16).to_be_bytes());
        head[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        head[16..24].copy_from_slice(&at.to_be_bytes());
        // Requests are cut to what the server takes, which 32 bits can count.
        head[24..28].copy_from_slice(&(len as u32).to_be_bytes());
        let sent = Sent {
            waiting,
            link,
            sent_at: now,
            ended: self.ended,
            arrived: Vec::new(),
            error: None,
        };
        self.sent.insert(self.cookie, sent);
        Next::Send { head, payload }
    }

    fn sent(&mut self, link: LinkId, cookie: u64) -> Result<&mut Sent, Junk> {
        let sent = self.sent.get_mut(&cookie);
        sent.filter(|sent| sent.link == link)
            .ok_or(Junk("a reply to no request in flight"))
    }

    /// The range of a read; `None` for another request.
    pub(super) fn range_of(
        &mut self,
        link: LinkId,
        cookie: u64,
    ) -> Result<Option<Range<u64>>, Junk> {
        let sent = self.sent(link, cookie)?;
        Ok(match &sent.waiting.work {
            Work::Read { at, buf, .. } => Some(*at..*at + buf.len() as u64),
            Work::Change { .. } | Work::Flush { .. } => None,
        })
    }

    /// Announces that the bytes of `range` arrive for a read.
    pub(super) fn arrives(
        &mut self,
        link: LinkId,
        cookie: u64,
        range: Range<u64>,
    ) -> Result<(), Junk> {
        let whole = self.range_of(link, cookie)?;
        let whole = whole.ok_or(Junk("data for a request that is no read"))?;
        if range.is_empty() || range.start < whole.start || range.end > whole.end {
            return Err(Junk("data outside of the range of its read"));
        }
        let arrived = &mut self.sent(link, cookie)?.arrived;
        if arrived
            .iter()
            .any(|other| other.start < range.end && range.start < other.end)
        {
            return Err(Junk("data of a read arrives twice"));
        }
        match arrived.iter_mut().find(|other| other.end == range.start) {
            Some(before) => before.end = range.end,
            None => arrived.push(range),
        }
        match arrived.len() > PIECES_MAX {
            true => Err(Junk("data of a read arrives in more than 1024 pieces")),
            false => Ok(()),
        }
    }

    /// Puts bytes that were announced into the buffer of their read.
    pub(super) fn fill(
        &mut self,
        link: LinkId,
        cookie: u64,
        from: u64,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Junk> {
        if let Work::Read { at, buf, .. } = &mut self.sent(link, cookie)?.waiting.work {
            let start = (from - *at) as usize;
            fill(&mut buf[start..start + len]);
        }
        Ok(())
    }

    /// Notes an error of a request whose reply goes on.
    pub(super) fn fails(
        &mut self,
        link: LinkId,
        cookie: u64,
        error: ServerError,
    ) -> Result<(), Junk> {
        self.sent(link, cookie)?.error = Some(error);
        Ok(())
    }

    /// Ends a request, whose reply is complete.
    pub(super) fn end(
        &mut self,
        link: LinkId,
        cookie: u64,
        (now, fence): (Tick, Duration),
    ) -> Result<(), Junk> {
        self.sent(link, cookie)?;
        let Some(sent) = self.sent.remove(&cookie) else {
            return Ok(());
        };
        let Sent {
            waiting,
            ended,
            arrived,
            error,
            ..
        } = sent;
        let counters = Arc::clone(&self.counters);
        if error.is_some() && !matches!(waiting.work, Work::Change { .. }) {
            Counters::add(&counters.errors, 1);
        }
        match waiting.work {
            Work::Read { at, buf, completer } => {
                let count: u64 = arrived.iter().map(|range| range.end - range.start).sum();
                if error.is_none() && count != buf.len() as u64 {
                    // It is asked again on the next connection.
                    let work = Work::Read { at, buf, completer };
                    let since = waiting.since;
                    self.reads.push_front(Waiting { work, since });
                    return Err(Junk("the reply to a read lacks data"));
                }
                Counters::add(&counters.reads, u64::from(error.is_none()));
                Counters::add(&counters.read_bytes, count);
                completer.complete(match error {
                    None => Ok(buf),
                    Some(error) => Err(error.of(Operation::Read)),
                });
            }
            Work::Change { change, completer } => {
                let result = error.map_or(Ok(()), |error| Err(error.of(operation_of(&change))));
                let Some(completer) = completer else {
                    if let Err(error) = &result {
                        self.lose(format!("a change could not be repeated: {error}"));
                    }
                    self.repeating -= 1;
                    self.end_repeats(now, fence);
                    return Ok(());
                };
                self.ended += 1;
                self.unflushed.end(&change.range, self.ended);
                let bytes = change.range.end - change.range.start;
                count_change(&counters, operation_of(&change), bytes, result.is_ok());
                completer.complete(result);
            }
            Work::Flush { completer } => {
                match &error {
                    None => self.unflushed.forget(ended),
                    Some(error) => self.lose(format!("a flush failed: {}", error.reason)),
                }
                let Some(completer) = completer else {
                    self.flushes_itself = false;
                    return Ok(());
                };
                Counters::add(&counters.flushes, u64::from(error.is_none()));
                let result = error.map_or(Ok(()), |error| Err(error.of(Operation::Flush)));
                completer.complete(result);
            }
        }
        Ok(())
    }

    /// True if requests wait to be sent.
    pub(super) fn has_waiting(&self) -> bool {
        !(self.reads.is_empty() && self.changes.is_empty() && self.repeats.is_empty())
    }

    /// Goes on once every repeat has an answer.
    fn end_repeats(&mut self, now: Tick, fence: Duration) {
        if self.repeating > 0 {
            return;
        }
        self.unflushed.end_all(self.ended);
        for fenced in &mut self.fences {
            fenced.until = fenced.until.or(Some(now + fence));
        }
        let (changes, lost) = (std::mem::take(&mut self.unanswered), self.lost.clone());
        self.answer(changes, lost.as_ref());
    }

    fn answer(&self, changes: Vec<Unanswered>, failure: Option<&Arc<str>>) {
        for change in changes {
            let Unanswered {
                completer,
                operation,
                bytes,
                ..
            } = change;
            count_change(&self.counters, operation, bytes, failure.is_none());
            completer.complete(match failure {
                None => Ok(()),
                Some(why) => Err(unanswered(operation, why)),
            });
        }
    }

    /// Notes that acknowledged data may be lost.
    fn lose(&mut self, why: String) {
        self.lost.get_or_insert(why.into());
    }
}

impl Work {
    fn fail(self, error: impl FnOnce(Operation) -> DeviceError) {
        match self {
            Work::Read { completer, .. } => completer.complete(Err(error(Operation::Read))),
            Work::Change { change, completer } => {
                if let Some(completer) = completer {
                    completer.complete(Err(error(operation_of(&change))));
                }
            }
            Work::Flush { completer } => {
                if let Some(completer) = completer {
                    completer.complete(Err(error(Operation::Flush)));
                }
            }
        }
    }
}

fn operation_of(change: &Change) -> Operation {
    match change.content {
        Content::Data(_) => Operation::Write,
        Content::Zeroes => Operation::WriteZeroes,
        Content::Discarded => Operation::Discard,
    }
}

fn count_change(counters: &Counters, operation: Operation, bytes: u64, is_ok: bool) {
    match (is_ok, operation) {
        (false, _) => Counters::add(&counters.errors, 1),
        (true, Operation::Discard) => {}
        (true, _) => {
            Counters::add(&counters.writes, 1);
            Counters::add(&counters.write_bytes, bytes);
        }
    }
}
