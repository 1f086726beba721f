//! A slow, obvious device under the cache: arrays of sectors with versions.
//! It carries steps out, one by one, and checks the law after each request.

use std::collections::{BTreeMap, VecDeque};

use crate::policy::cleaning::Load;
use crate::volume::mode::Sector;
use crate::volume::{
    ByteRange, Cache, Extent, Operation, Outcome, Piece, Plan, Request, Restored, SECTOR_BYTES,
    Step, VolumeId,
};
use crate::{ByteSize, Tick};

/// The content of a sector: the number of the request that wrote it, 0 for zeros.
type Version = u32;

/// The content of a sector of the cache device that nothing has filled.
const POISON: Version = Version::MAX;

pub(super) struct Model {
    pub(super) cache: Cache,
    volume_bytes: u64,
    backing: BTreeMap<VolumeId, Vec<Version>>,
    device: Vec<Version>,
    /// The state of each sector of the cache device, as steps tell it.
    states: Vec<Sector>,
    /// The newest version of each sector; `None` where a trim left it open.
    newest: BTreeMap<VolumeId, Vec<Option<Version>>>,
    /// Blocks by place, and places by address.
    blocks: BTreeMap<u64, Extent>,
    addresses: BTreeMap<(VolumeId, u64), u64>,
    /// Places that may not be used yet, if the cache defers their reuse.
    retired: VecDeque<ByteRange>,
    defers_reuse: bool,
    steps: Vec<Step>,
    requests: Version,
    /// Blocks that a restart gave back.
    restored: u64,
    traffic: [u64; 6],
}

impl Model {
    pub(super) fn new(plan: &Plan, volumes: u16, volume_bytes: u64) -> Self {
        let sectors = (volume_bytes / SECTOR_BYTES) as usize;
        let numbers = (0..volumes).map(VolumeId);
        Model {
            cache: Cache::new(plan),
            volume_bytes,
            backing: numbers.clone().map(|v| (v, vec![0; sectors])).collect(),
            device: vec![POISON; (plan.capacity_bytes() / SECTOR_BYTES) as usize],
            states: vec![Sector::Missing; (plan.capacity_bytes() / SECTOR_BYTES) as usize],
            newest: numbers.map(|v| (v, vec![Some(0); sectors])).collect(),
            blocks: BTreeMap::new(),
            addresses: BTreeMap::new(),
            retired: VecDeque::new(),
            defers_reuse: plan.config().reserve > ByteSize(0),
            steps: Vec::new(),
            requests: 0,
            restored: 0,
            traffic: [0; 6],
        }
    }

    /// Grows the cache and its device.
    pub(super) fn grow(&mut self, capacity: ByteSize) {
        self.cache.grow(capacity).expect("it may grow");
        let bytes = self.cache.plan().capacity_bytes();
        let sectors = (bytes / SECTOR_BYTES) as usize;
        self.device.resize(sectors, POISON);
        self.states.resize(sectors, Sector::Missing);
    }

    /// Passes a request to the cache, carries its steps out, and checks the
    /// answer.
    pub(super) fn request(
        &mut self,
        volume: u16,
        operation: Operation,
        range: ByteRange,
    ) -> Outcome {
        let volume = VolumeId(volume);
        let request = Request {
            volume,
            operation,
            range,
        };
        self.requests += 1;
        let mut steps = std::mem::take(&mut self.steps);
        steps.clear();
        let now = Tick(u64::from(self.requests) * 5_000_000);
        let outcome = self.cache.request(&request, now, &mut steps);
        let is_due = self.cache.clean_at() <= now;
        let load = Load {
            in_flight: 0,
            last_request: if self.requests % 1000 < 500 {
                now
            } else {
                Tick::ZERO
            },
        };
        let cleaned_from = steps.len();
        let cleaned = self.cache.clean(now, load, |_| true, &mut steps);
        assert!(is_due || cleaned == 0);
        let mut carried = Carried {
            answer: vec![None; self.sectors(range).len()],
            fetched: Vec::new(),
        };
        for (number, step) in steps.iter().enumerate() {
            assert!(number < cleaned_from || matches!(step, Step::WriteBack(_)));
            self.carry_out(*step, &request, &mut carried);
        }
        self.steps = steps;
        self.reclaim();
        let wanted = self.sectors(range);
        let newest = self.newest.get_mut(&volume).unwrap();
        match operation {
            Operation::Read => {
                for (answer, newest) in carried.answer.iter().zip(&newest[wanted]) {
                    let answer = answer.expect("every sector is answered");
                    assert!(
                        newest.is_none_or(|newest| newest == answer),
                        "{request:?} is stale"
                    );
                }
            }
            Operation::Write => newest[wanted].fill(Some(self.requests)),
            Operation::WriteZeroes => newest[wanted].fill(Some(0)),
            Operation::Trim => newest[wanted].fill(None),
            Operation::Flush => {}
        }
        outcome
    }

    /// Evicts ahead of the next requests, and releases places of earlier ones. Every
    /// seventh block may not be evicted.
    fn reclaim(&mut self) {
        let now = Tick(u64::from(self.requests) * 5_000_000);
        let mut steps = Vec::new();
        let may_evict = |extent: Extent| !(extent.range.start >> 13).is_multiple_of(7);
        let mut dirty = Vec::new();
        self.cache
            .reclaim(now, 8, may_evict, &mut dirty, &mut steps);
        let places = dirty.iter().map(|piece| piece.place);
        self.cache.clean_at_places(places, may_evict, &mut steps);
        for step in steps {
            assert!(self.defers_reuse);
            match step {
                Step::WriteBack(piece) => {
                    self.traffic[3] += piece.extent.range.len();
                    self.write_back(piece);
                }
                Step::Unmap(piece) => {
                    assert!(may_evict(piece.extent));
                    self.unmap(piece);
                }
                step => panic!("{step:?} evicts nothing"),
            }
        }
        while self.retired.len() > usize::from(self.requests.is_multiple_of(16)) * 4 + 4 {
            let place = self.retired.pop_front().expect("there are more than four");
            self.cache.release(place.start);
        }
    }

    /// Replaces the cache by one that gets the blocks back.
    pub(super) fn restart(&mut self) {
        let (plan, maps) = (self.cache.plan().clone(), self.cache.plan().keeps_maps());
        let mut cache = Cache::new(&plan);
        let mut groups: BTreeMap<u64, Vec<(Piece, Runs)>> = BTreeMap::new();
        for (&place, &extent) in &self.blocks {
            let whole = ByteRange::at(0, self.volume_bytes);
            let range = extent.range.intersection(whole);
            let sectors = self.sectors(range);
            let places = sectors_of(ByteRange::at(place, range.len()));
            let mut valid = Runs::new();
            let mut is_dirty = false;
            for (sector, place) in sectors.zip(places) {
                let dirty = match self.states[place] {
                    Sector::Missing => continue,
                    state => state == Sector::Dirty,
                };
                is_dirty |= dirty;
                let one = ByteRange::at(sector as u64 * SECTOR_BYTES, SECTOR_BYTES);
                match valid.last_mut() {
                    Some((run, of_run)) if run.end == one.start && *of_run == dirty => {
                        run.end = one.end;
                    }
                    _ => valid.push((one, dirty)),
                }
            }
            if !maps {
                valid = vec![(range, is_dirty)];
            }
            let group = place / plan.group_bytes();
            groups
                .entry(group)
                .or_default()
                .push((Piece { extent, place }, valid));
        }
        for blocks in groups.values() {
            let restored = blocks.iter().map(|(block, valid)| Restored {
                block: *block,
                valid,
            });
            cache.restore(&restored.collect::<Vec<_>>()).unwrap();
        }
        self.retired.clear();
        assert_eq!(cache.occupancy().blocks, self.cache.occupancy().blocks);
        cache.set_mode(self.cache.mode());
        self.cache = cache;
        self.traffic = [0; 6];
        self.restored = self.blocks.len() as u64;
    }

    /// Reads all of every volume, and checks the accounts.
    pub(super) fn finish(&mut self) {
        self.check_accounts();
        for volume in 0..self.backing.len() as u16 {
            let chunk = 64 << 10;
            for start in (0..self.volume_bytes).step_by(chunk) {
                let range = ByteRange::at(start, chunk as u64);
                let all = ByteRange::at(0, self.volume_bytes);
                self.request(volume, Operation::Read, range.intersection(all));
            }
        }
        self.check_accounts();
    }

    fn carry_out(&mut self, step: Step, request: &Request, carried: &mut Carried) {
        match step {
            Step::ReadCache(piece) => {
                self.traffic[0] += piece.extent.range.len();
                let (volume, place) = self.check_piece(piece);
                assert_eq!(volume, request.volume);
                let mut states = self.states[place.clone()].iter();
                assert!(states.all(|&state| state != Sector::Missing));
                let versions = self.device[place].to_vec();
                carried.answer(request.range, piece.extent.range, &versions);
            }
            Step::WriteCache(piece) | Step::ZeroCache(piece) => {
                self.traffic[1] += piece.extent.range.len();
                let (_, place) = self.check_piece(piece);
                let is_write = matches!(step, Step::WriteCache(_));
                self.device[place].fill(if is_write { self.requests } else { 0 });
                assert!(request.range.contains(piece.extent.range));
            }
            Step::Fill(piece) => {
                self.traffic[2] += piece.extent.range.len();
                let (_, place) = self.check_piece(piece);
                let sectors = self.sectors(piece.extent.range);
                let versions = carried.fetched(sectors);
                self.device[place].copy_from_slice(versions);
            }
            Step::WriteBack(piece) => {
                self.traffic[3] += piece.extent.range.len();
                self.write_back(piece);
            }
            Step::ReadBacking(extent) => {
                self.traffic[4] += extent.range.len();
                let sectors = self.sectors(extent.range);
                let versions = self.backing[&extent.volume][sectors.clone()].to_vec();
                carried.answer(request.range, extent.range, &versions);
                carried.fetched.push((sectors.start, versions));
            }
            Step::WriteBacking(extent) | Step::ZeroBacking(extent) => {
                self.traffic[5] += extent.range.len();
                let version = match step {
                    Step::WriteBacking(_) => self.requests,
                    _ => 0,
                };
                let sectors = self.sectors(extent.range);
                self.backing.get_mut(&extent.volume).unwrap()[sectors].fill(version);
                assert!(request.range.contains(extent.range));
            }
            Step::TrimBacking(_) | Step::Flush(_) => {}
            Step::Map(piece) => self.map(piece),
            Step::Mark(piece, state) => {
                let (_, place) = self.check_piece(piece);
                self.states[place].fill(state);
            }
            Step::Unmap(piece) => self.unmap(piece),
        }
    }

    fn write_back(&mut self, piece: Piece) {
        let (volume, place) = self.check_piece(piece);
        let sectors = self.sectors(piece.extent.range);
        let versions = &self.device[place.clone()];
        assert!(versions.iter().all(|&version| version != POISON));
        self.backing.get_mut(&volume).unwrap()[sectors].copy_from_slice(versions);
        self.states[place].fill(Sector::Clean);
    }

    fn map(&mut self, piece: Piece) {
        let extent = piece.extent;
        let place = ByteRange::at(piece.place, extent.range.len());
        let mut retired = self.retired.iter();
        assert!(retired.all(|range| range.intersection(place).is_empty()));
        let (start, end) = (extent.range.start, extent.range.end);
        let after = self
            .addresses
            .range((extent.volume, start)..(extent.volume, end))
            .next();
        assert_eq!(after, None, "an address in two blocks");
        let before = self.addresses.range(..(extent.volume, start)).next_back();
        if let Some((&(volume, _), place)) = before {
            let other = self.blocks[place];
            assert!(
                volume != extent.volume || other.range.end <= start,
                "an address in two blocks"
            );
        }
        let below = self.blocks.range(..=piece.place).next_back();
        assert!(below.is_none_or(|(place, e)| place + e.range.len() <= piece.place));
        let above = self.blocks.range(piece.place..).next();
        assert!(above.is_none_or(|(place, _)| piece.place + extent.range.len() <= *place));
        let sectors = sectors_of(ByteRange::at(piece.place, extent.range.len()));
        self.device[sectors.clone()].fill(POISON);
        self.states[sectors].fill(Sector::Missing);
        self.blocks.insert(piece.place, extent);
        self.addresses.insert((extent.volume, start), piece.place);
    }

    fn unmap(&mut self, piece: Piece) {
        assert_eq!(self.blocks.remove(&piece.place), Some(piece.extent));
        self.addresses
            .remove(&(piece.extent.volume, piece.extent.range.start));
        if self.defers_reuse {
            let place = ByteRange::at(piece.place, piece.extent.range.len());
            self.retired.push_back(place);
        }
    }

    /// The volume of a piece, and its sectors on the cache device, where the
    /// block that has it must be mapped.
    fn check_piece(&self, piece: Piece) -> (VolumeId, std::ops::Range<usize>) {
        let (place, extent) = self
            .blocks
            .range(..=piece.place)
            .next_back()
            .expect("a block");
        assert_eq!(extent.volume, piece.extent.volume);
        assert!(
            extent.range.contains(piece.extent.range),
            "{piece:?} in {extent:?}"
        );
        assert_eq!(
            piece.place - place,
            piece.extent.range.start - extent.range.start
        );
        assert!(!piece.extent.range.is_empty() && piece.extent.range.end <= self.volume_bytes);
        let place = sectors_of(ByteRange::at(piece.place, piece.extent.range.len()));
        (extent.volume, place)
    }

    fn check_accounts(&self) {
        let (statistics, occupancy) = (self.cache.statistics(), self.cache.occupancy());
        let blocks = self.blocks.len() as u64;
        let turnover = statistics.turnover;
        assert_eq!(occupancy.blocks.iter().sum::<u64>(), blocks);
        let entered = self.restored + turnover.promotions();
        assert_eq!(entered - turnover.demotions(), blocks);
        let bytes = self
            .blocks
            .values()
            .map(|extent| extent.range.len())
            .sum::<u64>();
        assert_eq!(occupancy.bytes, bytes);
        assert!(bytes <= occupancy.capacity_bytes);
        let traffic = statistics.traffic;
        let counted = [
            traffic.cache_hits,
            traffic.cache_writes,
            traffic.fills,
            traffic.write_backs,
            traffic.backing_reads,
            traffic.backing_writes,
        ];
        assert_eq!(counted.map(|io| io.bytes), self.traffic);
        assert!(occupancy.dirty_bytes >= self.dirty_sectors() * SECTOR_BYTES);
        assert!(occupancy.dirty_blocks <= blocks);
        if self.dirty_sectors() > 0 {
            assert!(occupancy.dirty_blocks > 0);
        }
        for accesses in [statistics.reads, statistics.writes] {
            assert!(accesses.hits <= accesses.requests && accesses.hit_bytes <= accesses.bytes);
        }
    }

    /// Sectors of which the cache device alone has the newest version.
    fn dirty_sectors(&self) -> u64 {
        let mut count = 0;
        for (&place, extent) in &self.blocks {
            let whole = ByteRange::at(0, self.volume_bytes);
            let range = extent.range.intersection(whole);
            let places = sectors_of(ByteRange::at(place, range.len()));
            for (place, sector) in places.zip(self.sectors(range)) {
                let newest = self.newest[&extent.volume][sector];
                let is_only_copy = newest.is_some()
                    && newest == Some(self.device[place])
                    && newest != Some(self.backing[&extent.volume][sector]);
                assert!(!is_only_copy || self.states[place] == Sector::Dirty);
                count += u64::from(is_only_copy);
            }
        }
        count
    }

    fn sectors(&self, range: ByteRange) -> std::ops::Range<usize> {
        assert!(
            range.end <= self.volume_bytes,
            "{range} passes the volume's end"
        );
        sectors_of(range)
    }
}

/// Valid bytes of a block, and whether they are dirty.
type Runs = Vec<(ByteRange, bool)>;

/// Results of the steps of one request.
struct Carried {
    answer: Vec<Option<Version>>,
    /// Versions read from the backing device: the first sector, and all of them.
    fetched: Vec<(usize, Vec<Version>)>,
}

impl Carried {
    fn fetched(&self, sectors: std::ops::Range<usize>) -> &[Version] {
        let reads = self.fetched.iter().rev();
        let mut parts = reads.filter_map(|(first, versions)| {
            let from = sectors.start.checked_sub(*first)?;
            versions.get(from..from + sectors.len())
        });
        parts
            .next()
            .expect("a fill writes sectors that one step has read")
    }

    fn answer(&mut self, wanted: ByteRange, range: ByteRange, versions: &[Version]) {
        let common = sectors_of(wanted.intersection(range));
        let (first, from) = (sectors_of(wanted).start, sectors_of(range).start);
        for sector in common {
            self.answer[sector - first] = Some(versions[sector - from]);
        }
    }
}

fn sectors_of(range: ByteRange) -> std::ops::Range<usize> {
    let sector = |at: u64| {
        assert!(at.is_multiple_of(SECTOR_BYTES));
        (at / SECTOR_BYTES) as usize
    };
    sector(range.start)..sector(range.end)
}
