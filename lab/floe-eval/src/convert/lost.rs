//! The account of what a conversion drops.

use floe_core::ByteSize;

use super::unit::Unit;
use crate::trace::{BlockOp, BlockRequest, NS_PER_S, NS_PER_US};

/// Counts of requests that the target does not tell all of.
#[derive(Debug, Default)]
pub(super) struct Lost {
    pub(super) requests: u64,
    writes: u64,
    write_zeroes: u64,
    flushes: u64,
    trims: u64,
    unaligned: u64,
    below_seconds: u64,
    below_microseconds: u64,
    volumes: u32,
}

impl Lost {
    pub(super) fn note(&mut self, request: &BlockRequest, unit: Unit) {
        self.requests += 1;
        match request.op {
            BlockOp::Read => {}
            BlockOp::Write => self.writes += 1,
            BlockOp::WriteZeroes => self.write_zeroes += 1,
            BlockOp::Flush => self.flushes += 1,
            BlockOp::Trim => self.trims += 1,
        }
        let step = unit.step_bytes();
        let is_aligned = |bytes: u64| bytes.is_multiple_of(step);
        let is_whole = match unit {
            Unit::Requests => is_aligned(request.offset),
            Unit::Blocks(_) => is_aligned(request.offset) && is_aligned(request.length),
        };
        self.unaligned += u64::from(!is_whole);
        let time = request.time_ns.unwrap_or(0);
        self.below_seconds += u64::from(!time.is_multiple_of(NS_PER_S));
        self.below_microseconds += u64::from(!time.is_multiple_of(NS_PER_US));
        self.volumes = self.volumes.max(request.volume + 1);
    }

    pub(super) fn in_oracle_general(&self, unit: Unit) -> Vec<String> {
        let mut lost = self.dropped();
        let written = self.writes + self.write_zeroes;
        add(&mut lost, written, "writes, which are read as reads");
        add(&mut lost, self.below_seconds, "parts of seconds");
        match unit {
            Unit::Blocks(bytes) => {
                let text = format!(
                    "offsets and lengths inside of blocks of {}",
                    ByteSize(bytes)
                );
                add(&mut lost, self.unaligned, &text);
                lost.push("the bounds of requests of several blocks".into());
            }
            Unit::Requests => {
                add(&mut lost, self.unaligned, "offsets inside of sectors");
                lost.push("overlaps: requests that start elsewhere are other objects".into());
            }
        }
        lost
    }

    pub(super) fn in_alibaba(&self) -> Vec<String> {
        let mut lost = self.dropped();
        add(
            &mut lost,
            self.write_zeroes,
            "writes of zeroes, which are read as writes",
        );
        add(&mut lost, self.below_microseconds, "parts of microseconds");
        lost
    }

    fn dropped(&self) -> Vec<String> {
        let mut lost = Vec::new();
        add(&mut lost, self.flushes, "flushes, left out");
        add(&mut lost, self.trims, "trims, left out");
        if self.volumes > 1 {
            lost.push(format!(
                "the names of {} volumes, now numbers",
                self.volumes
            ));
        }
        lost
    }
}

fn add(lost: &mut Vec<String>, count: u64, what: &str) {
    if count > 0 {
        lost.push(format!("of {count} requests: {what}"));
    }
}
