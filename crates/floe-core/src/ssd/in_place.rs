//! A medium that is overwritten in place. Each lane serves one access at a
//! time; an access is spread over the lanes of its stripes.

use super::command::{Command, CommandId, Completion, Rejection};
use super::config::{HostInterface, InPlaceConfig};
use super::front::{Front, transfer_ns};
use super::saved::{Busy, Reader, StateFault, Writer};
use super::statistics::{Programmed, Statistics};

#[derive(Clone, Debug)]
pub(super) struct InPlace {
    config: InPlaceConfig,
    front: Front,
    lanes: Vec<Lane>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    free_at: u64,
    /// The end of the lane's last access.
    position: u64,
}

impl InPlace {
    pub(super) fn new(config: &InPlaceConfig, host: &HostInterface) -> Self {
        InPlace {
            config: config.clone(),
            front: Front::new(host),
            lanes: vec![Lane::default(); config.lanes as usize],
        }
    }

    pub(super) fn submit(
        &mut self,
        now: u64,
        id: CommandId,
        command: Command,
    ) -> Result<(), Rejection> {
        let at = match command {
            Command::Read { offset, bytes } => {
                let read = self.access(now, offset, bytes, true);
                self.front.host_read_bytes += bytes;
                read.max(self.front.deliver(now, bytes))
            }
            Command::Write { offset, bytes, .. } => {
                let arrived = self.front.receive(now, bytes);
                self.front.host_written_bytes += bytes;
                self.access(now, offset, bytes, false).max(arrived)
            }
            Command::Trim { .. } | Command::Flush => now,
            _ => return Err(Rejection::InvalidOpcode),
        };
        self.front.finish(at, id, None);
        Ok(())
    }

    pub(super) fn next_wakeup(&self) -> Option<u64> {
        self.front.next_completion()
    }

    pub(super) fn advance(
        &mut self,
        until: u64,
        done: &mut Vec<Completion>,
        stop_at_first: bool,
    ) -> u64 {
        let until = match self.front.next_completion() {
            Some(completion) if stop_at_first => until.min(completion),
            _ => until,
        };
        self.front.complete(until, done);
        until
    }

    pub(super) fn statistics(&self) -> Statistics {
        Statistics {
            host_written_bytes: self.front.host_written_bytes,
            host_read_bytes: self.front.host_read_bytes,
            programmed: Programmed {
                host_bytes: self.front.host_written_bytes,
                ..Programmed::default()
            },
            ..Statistics::default()
        }
    }

    /// Writes the front end's counters, and the end of each lane's last access.
    pub(super) fn save(&self, out: &mut Writer) -> Result<(), Busy> {
        if !self.front.is_at_rest() {
            return Err(Busy);
        }
        self.front.save(out);
        out.numbers(self.lanes.iter().map(|lane| lane.position));
        Ok(())
    }

    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), StateFault> {
        self.front.restore(from)?;
        for lane in &mut self.lanes {
            lane.position = from.number()?;
        }
        Ok(())
    }

    /// Serves a range on its lanes. Returns when the last lane is done.
    fn access(&mut self, now: u64, offset: u64, bytes: u64, is_read: bool) -> u64 {
        let stripe = self.config.stripe.bytes();
        let lanes = self.lanes.len() as u64;
        let (first, last) = (offset / stripe, (offset + bytes - 1) / stripe);
        let mut done = now;
        for ahead in 0..lanes.min(last - first + 1) {
            let begin = first + ahead;
            let stripes = (last - begin) / lanes + 1;
            let mut length = stripes * stripe;
            if ahead == 0 {
                length -= offset % stripe;
            }
            if (last - begin).is_multiple_of(lanes) {
                length -= (last + 1) * stripe - (offset + bytes);
            }
            // The stripes of one lane are contiguous on it.
            let position = begin / lanes * stripe + if ahead == 0 { offset % stripe } else { 0 };
            let number = (begin % lanes) as usize;
            done = done.max(self.serve(now, number, position, length, is_read));
        }
        done
    }

    fn serve(&mut self, now: u64, lane: usize, position: u64, bytes: u64, is_read: bool) -> u64 {
        let config = &self.config;
        let lane = &mut self.lanes[lane];
        let (access_ns, bytes_per_s) = match is_read {
            true => (config.read_ns, config.read_bytes_per_s),
            false => (config.write_ns, config.write_bytes_per_s),
        };
        let seek_ns = match lane.position == position {
            true => 0,
            false => config.seek_ns,
        };
        lane.position = position + bytes;
        lane.free_at =
            lane.free_at.max(now) + access_ns + seek_ns + transfer_ns(bytes, bytes_per_s);
        lane.free_at
    }
}
