//! The front end: the link in both directions, the space of the write buffer,
//! and commands in progress.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::command::{CommandId, Completion};
use super::config::HostInterface;
use super::saved::{Reader, StateFault, Writer};
use super::slab::Slab;
use crate::Tick;

#[derive(Clone, Debug)]
pub(super) struct Front {
    to_device: Link,
    to_host: Link,
    overhead_ns: u64,
    pub(super) read_window: u64,
    pub(super) buffer_bytes: u64,
    pub(super) buffer_used: u64,
    /// Writes whose data is not yet all on the device. Round robin: each sends
    /// one piece, then goes to the end of the line.
    pub(super) line: VecDeque<u32>,
    /// The piece on the link.
    pub(super) crossing: Option<Crossing>,
    pub(super) writes: Slab<Write>,
    pub(super) reads: Slab<Read>,
    finished: BinaryHeap<Reverse<Finished>>,
    sequence: u64,
    pub(super) host_written_bytes: u64,
    pub(super) host_read_bytes: u64,
    stall: Option<(Stall, u64)>,
    pub(super) throttled_ns: u64,
    pub(super) buffer_full_ns: u64,
}

/// One direction of the link: one transfer at a time.
#[derive(Clone, Debug)]
struct Link {
    bytes_per_s: u64,
    free_at: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Crossing {
    pub(super) write: u32,
    pub(super) bytes: u64,
    pub(super) until: u64,
}

/// The reason why the first write in line must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stall {
    Buffer,
    Throttle,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) id: CommandId,
    /// The offset of the next piece.
    pub(super) next: u64,
    pub(super) end: u64,
    pub(super) target: Target,
    pub(super) appended_at: Option<u64>,
}

/// The stream of the device that a write belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    Handle(u16),
    /// A zone, and its number of resets.
    Zone(u32, u32),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) id: CommandId,
    /// The end of what was handed to the dies.
    pub(super) next: u64,
    pub(super) end: u64,
    pub(super) under_way: u32,
    pub(super) under_way_bytes: u64,
    /// When the last byte so far reaches the host.
    pub(super) delivered: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finished {
    at: u64,
    sequence: u64,
    id: CommandId,
    appended_at: Option<u64>,
}

impl Link {
    fn new(bytes_per_s: u64) -> Self {
        Link {
            bytes_per_s,
            free_at: 0,
        }
    }

    /// The time at which `bytes` that are ready at `now` have been transferred.
    fn cross(&mut self, now: u64, bytes: u64) -> u64 {
        let takes = transfer_ns(bytes, self.bytes_per_s);
        self.free_at = self.free_at.max(now) + takes;
        self.free_at
    }
}

/// Nanoseconds to transfer `bytes`, rounded up, so that no transfer is free.
pub(super) fn transfer_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    let product = u128::from(bytes) * 1_000_000_000;
    product.div_ceil(u128::from(bytes_per_s.max(1))) as u64
}

impl Front {
    pub(super) fn new(host: &HostInterface) -> Self {
        Front {
            to_device: Link::new(host.write_bytes_per_s),
            to_host: Link::new(host.read_bytes_per_s),
            overhead_ns: host.command_overhead_ns,
            read_window: host.read_window.bytes().max(1),
            buffer_bytes: host.buffer.bytes(),
            buffer_used: 0,
            line: VecDeque::new(),
            crossing: None,
            writes: Slab::new(),
            reads: Slab::new(),
            finished: BinaryHeap::new(),
            sequence: 0,
            host_written_bytes: 0,
            host_read_bytes: 0,
            stall: None,
            throttled_ns: 0,
            buffer_full_ns: 0,
        }
    }

    /// True if no command is in progress.
    pub(super) fn is_at_rest(&self) -> bool {
        self.line.is_empty() && self.crossing.is_none() && self.finished.is_empty()
    }

    /// Writes the counters.
    pub(super) fn save(&self, out: &mut Writer) {
        out.numbers([
            self.host_written_bytes,
            self.host_read_bytes,
            self.throttled_ns,
            self.buffer_full_ns,
        ]);
    }

    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), StateFault> {
        [
            self.host_written_bytes,
            self.host_read_bytes,
            self.throttled_ns,
            self.buffer_full_ns,
        ] = from.counts()?;
        Ok(())
    }

    /// Sends a piece of the first write in line across.
    pub(super) fn cross(&mut self, now: u64, bytes: u64) {
        self.stalled(now, None);
        let Some(write) = self.line.pop_front() else {
            return;
        };
        self.buffer_used += bytes;
        self.crossing = Some(Crossing {
            write,
            bytes,
            until: self.to_device.cross(now, bytes),
        });
    }

    /// Transfers bytes from the host; returns when they have arrived.
    pub(super) fn receive(&mut self, now: u64, bytes: u64) -> u64 {
        self.to_device.cross(now, bytes)
    }

    /// Transfers bytes to the host; returns when they have arrived.
    pub(super) fn deliver(&mut self, now: u64, bytes: u64) -> u64 {
        self.to_host.cross(now, bytes)
    }

    /// Completes a command whose data and work were done at `at`.
    pub(super) fn finish(&mut self, at: u64, id: CommandId, appended_at: Option<u64>) {
        self.sequence += 1;
        self.finished.push(Reverse(Finished {
            at: at + self.overhead_ns,
            sequence: self.sequence,
            id,
            appended_at,
        }));
    }

    /// When the next completion is due.
    pub(super) fn next_completion(&self) -> Option<u64> {
        self.finished.peek().map(|Reverse(finished)| finished.at)
    }

    /// Returns the completions due by `now`.
    pub(super) fn complete(&mut self, now: u64, done: &mut Vec<Completion>) {
        while let Some(Reverse(finished)) = self.finished.peek().copied() {
            if finished.at > now {
                return;
            }
            self.finished.pop();
            done.push(Completion {
                id: finished.id,
                at: Tick(finished.at),
                appended_at: finished.appended_at,
            });
        }
    }

    /// Counts the time for which the first write in line has waited, and
    /// records why it waits from now on.
    pub(super) fn stalled(&mut self, now: u64, stall: Option<Stall>) {
        if let Some((why, since)) = self.stall.take() {
            match why {
                Stall::Buffer => self.buffer_full_ns += now - since,
                Stall::Throttle => self.throttled_ns += now - since,
            }
        }
        self.stall = stall.map(|why| (why, now));
    }
}
