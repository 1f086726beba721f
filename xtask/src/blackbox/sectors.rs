//! The versions that each sector of a volume may have.
//!
//! A sector's bytes repeat its number and the version of the write that they come from.
//! Writes of one sector never overlap in time on a connection, so the newest
//! acknowledged version decides, and only writes that were requested later may
//! replace it. After a power loss, the newest flushed version decides.

use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of a sector, the smallest unit of a request.
pub(crate) const SECTOR_BYTES: usize = 512;

/// The requested and acknowledged versions of a range of sectors.
#[derive(Debug)]
pub(crate) struct Sectors {
    first: u64,
    allowed: Vec<Allowed>,
    /// The version of the last requested write.
    last: u64,
    /// The newest version of each sector that survives a power loss.
    flushed: Vec<u64>,
    /// Acknowledged writes that no acknowledged flush covers, in order.
    unflushed: VecDeque<(Range<u64>, u64)>,
    /// Acknowledged writes that have left `unflushed`.
    covered: u64,
}

/// The versions that a sector may have: `newest`, or any after `settled`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    newest: u64,
    settled: u64,
}

impl Sectors {
    /// Sectors that read as zeros, which is version 0.
    pub(crate) fn new(sectors: Range<u64>) -> Self {
        let never = Allowed {
            newest: 0,
            settled: 0,
        };
        Sectors {
            allowed: vec![never; (sectors.end - sectors.start) as usize],
            flushed: vec![0; (sectors.end - sectors.start) as usize],
            first: sectors.start,
            last: 0,
            unflushed: VecDeque::new(),
            covered: 0,
        }
    }

    /// All sectors.
    pub(crate) fn all(&self) -> Range<u64> {
        self.first..self.first + self.allowed.len() as u64
    }

    /// Requests a write: its version, and its bytes.
    pub(crate) fn write(&mut self, sectors: Range<u64>) -> (u64, Vec<u8>) {
        self.last += 1;
        let mut bytes = Vec::new();
        for sector in sectors {
            for _ in 0..SECTOR_BYTES / 16 {
                bytes.extend(sector.to_le_bytes());
                bytes.extend(self.last.to_le_bytes());
            }
        }
        (self.last, bytes)
    }

    /// The write of this version is acknowledged, and durable if it had FUA.
    pub(crate) fn acknowledge(&mut self, sectors: Range<u64>, version: u64, durable: bool) {
        let range = self.indexes(sectors.clone());
        self.allowed[range].fill(Allowed {
            newest: version,
            settled: version,
        });
        match durable {
            true => self.make_durable(sectors, version),
            false => self.unflushed.push_back((sectors, version)),
        }
    }

    /// Call before a flush is sent. Returns what [`end_flush`](Self::end_flush) takes.
    pub(crate) fn begin_flush(&self) -> u64 {
        self.covered + self.unflushed.len() as u64
    }

    /// The flush is acknowledged.
    pub(crate) fn end_flush(&mut self, covered: u64) {
        while self.covered < covered
            && let Some((sectors, version)) = self.unflushed.pop_front()
        {
            self.covered += 1;
            self.make_durable(sectors, version);
        }
    }

    fn make_durable(&mut self, sectors: Range<u64>, version: u64) {
        let range = self.indexes(sectors);
        for flushed in &mut self.flushed[range] {
            *flushed = version.max(*flushed);
        }
    }

    /// The power fails: of each sector, the newest flushed version or any later one is
    /// left.
    pub(crate) fn lose_power(&mut self) {
        self.covered += self.unflushed.len() as u64;
        self.unflushed.clear();
        for (allowed, flushed) in self.allowed.iter_mut().zip(&self.flushed) {
            *allowed = Allowed {
                newest: *flushed,
                settled: *flushed,
            };
        }
    }

    /// The newest version of each sector that survives a power loss.
    pub(crate) fn flushed(&self) -> &[u64] {
        &self.flushed
    }

    /// The same sectors after a power loss when `flushed` had been flushed, or later.
    pub(crate) fn since(&self, flushed: &[u64]) -> Self {
        let mut then = Sectors {
            last: self.last,
            flushed: flushed.to_vec(),
            ..Sectors::new(self.all())
        };
        then.lose_power();
        then
    }

    /// Call before a read.
    pub(crate) fn begin_read(&self, sectors: Range<u64>) -> Vec<Allowed> {
        self.allowed[self.indexes(sectors)].to_vec()
    }

    /// Judges the bytes of a read; returns the versions.
    ///
    /// # Errors
    /// A sector has a version that was replaced, or bytes that were never written.
    pub(crate) fn judge(
        &self,
        sectors: Range<u64>,
        since: &[Allowed],
        bytes: &[u8],
    ) -> Result<Vec<u64>, String> {
        let parts = sectors.zip(since).zip(bytes.chunks(SECTOR_BYTES));
        parts
            .map(|((sector, allowed), bytes)| {
                let version = version(sector, bytes).filter(|version| *version <= self.last);
                let Some(version) = version else {
                    let head = &bytes[..16];
                    return Err(format!("sector {sector}: bytes never written: {head:?}"));
                };
                if version == allowed.newest || version > allowed.settled {
                    return Ok(version);
                }
                let kind = match version < allowed.newest {
                    true => "an acknowledged write was lost, or an older one landed late",
                    false => "a write of a dead connection landed late",
                };
                Err(format!(
                    "sector {sector}: {kind}: version {version}, allowed {allowed:?}"
                ))
            })
            .collect()
    }

    /// Judges a read while no write is in flight. The versions that it found stay:
    /// writes without an answer have landed, or never will.
    pub(crate) fn settle(&mut self, sectors: Range<u64>, bytes: &[u8]) -> Result<(), String> {
        let since = self.begin_read(sectors.clone());
        let versions = self.judge(sectors.clone(), &since, bytes)?;
        let range = self.indexes(sectors.clone());
        let allowed = self.allowed[range].iter_mut();
        for ((allowed, sector), newest) in allowed.zip(sectors).zip(versions) {
            *allowed = Allowed {
                newest,
                settled: self.last,
            };
            self.unflushed.push_back((sector..sector + 1, newest));
        }
        Ok(())
    }

    fn indexes(&self, sectors: Range<u64>) -> Range<usize> {
        (sectors.start - self.first) as usize..(sectors.end - self.first) as usize
    }
}

/// The version of a sector's bytes; `None` if no write made them.
fn version(sector: u64, bytes: &[u8]) -> Option<u64> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let first = bytes.first_chunk::<16>()?;
    let (number, version) = first.split_at(8);
    let version = u64::from_le_bytes(version.try_into().ok()?);
    let is_whole = number == sector.to_le_bytes() && bytes.chunks(16).all(|chunk| chunk == first);
    is_whole.then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two acknowledged writes, and one without an answer.
    fn three_writes() -> (Sectors, [Vec<u8>; 3]) {
        let mut sectors = Sectors::new(8..24);
        let (first, old) = sectors.write(10..12);
        sectors.acknowledge(10..12, first, false);
        let (second, new) = sectors.write(10..12);
        sectors.acknowledge(10..12, second, false);
        let (_, unanswered) = sectors.write(10..12);
        (sectors, [old, new, unanswered])
    }

    #[test]
    fn an_acknowledged_write_may_not_be_lost() {
        let (mut sectors, [old, new, unanswered]) = three_writes();
        for lie in [&old, &vec![0; 1024], &vec![7; 1024]] {
            assert!(sectors.settle(10..12, lie).is_err());
        }
        let mixed = [&new[..SECTOR_BYTES], &unanswered[SECTOR_BYTES..]].concat();
        assert!(sectors.settle(10..12, &mixed).is_ok());
    }

    #[test]
    fn a_settled_sector_does_not_change() {
        let (mut sectors, [_, new, unanswered]) = three_writes();
        assert!(sectors.settle(10..12, &new).is_ok());
        let late = sectors.settle(10..12, &unanswered);
        assert!(late.is_err_and(|lie| lie.contains("landed late")));
    }

    #[test]
    fn no_write_lands_after_a_newer_acknowledged_one() {
        let (mut sectors, [_, _, unanswered]) = three_writes();
        let since = sectors.begin_read(10..12);
        let (newest, _) = sectors.write(10..12);
        sectors.acknowledge(10..12, newest, false);
        let seen_before = sectors.judge(10..12, &since, &unanswered);
        assert!(seen_before.is_ok(), "a read that began before may see it");
        assert!(sectors.settle(10..12, &unanswered).is_err());
    }

    #[test]
    fn a_power_loss_spares_what_a_flush_covered() {
        let mut sectors = Sectors::new(0..4);
        let bytes: Vec<_> = [false, false, true, false]
            .map(|durable| {
                let covered = sectors.begin_flush();
                let (version, bytes) = sectors.write(0..1);
                sectors.acknowledge(0..1, version, durable);
                // It was sent before this write was acknowledged.
                sectors.end_flush(covered);
                bytes
            })
            .into();
        sectors.lose_power();
        let judge =
            |sectors: &Sectors, bytes| sectors.judge(0..1, &sectors.begin_read(0..1), bytes);
        assert!(
            judge(&sectors, &bytes[1]).is_err(),
            "replaced by a durable write"
        );
        assert!(judge(&sectors, &bytes[2]).is_ok());
        assert!(sectors.settle(0..1, &bytes[3]).is_ok());
        assert!(
            judge(&sectors, &bytes[2]).is_err(),
            "it was there after the power loss"
        );
        sectors.lose_power();
        assert!(judge(&sectors, &bytes[2]).is_ok(), "no flush followed");
        assert!(judge(&sectors, &[0; SECTOR_BYTES]).is_err());
    }

    #[test]
    fn a_state_of_the_past_has_what_was_flushed_then() {
        let mut sectors = Sectors::new(0..4);
        let write = |sectors: &mut Sectors| {
            let (version, bytes) = sectors.write(0..1);
            sectors.acknowledge(0..1, version, true);
            (sectors.flushed().to_vec(), bytes)
        };
        let states = [(); 3].map(|()| write(&mut sectors));
        let mut past = sectors.since(&states[1].0);
        assert!(past.settle(0..1, &states[0].1).is_err(), "replaced before");
        assert!(past.settle(0..1, &states[2].1).is_ok(), "written later");
        assert!(
            sectors
                .since(&states[2].0)
                .settle(0..1, &states[1].1)
                .is_err()
        );
    }

    #[test]
    fn sectors_that_are_torn_or_misplaced_are_recognised() {
        let (mut sectors, [old, new, _]) = three_writes();
        let torn = [&new[..256], &old[256..]].concat();
        assert!(sectors.settle(10..12, &torn).is_err());
        assert!(sectors.settle(11..13, &new).is_err());
    }
}
