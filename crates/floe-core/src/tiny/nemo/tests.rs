use super::filters::{Probe, Shape, Word, WordSink, probe_page};
use super::hashes::PageProbe;
use super::open::OpenGroup;
use super::page_filter::KeyLine;
use super::page_filter::PageFilterShape;
use super::{
    FilterKind, FilterSizing, IndexCache, Nemo, NemoConfig, NemoPlan, NemoStripe, Scratch,
    WriteBack,
};
use crate::hash::KeyHash;
use crate::tiny::model::Model;
use crate::tiny::statistics::Statistics;
use crate::tiny::tests::oracle::Oracle;
use crate::tiny::{
    Engine, Expiry, Flash, Found, Insert, Object, Outcome, Search, Step, Stripe as _, Task, TaskId,
    Work,
};

fn hash(i: u64) -> KeyHash {
    KeyHash(xxhash_rust::xxh3::xxh3_64(&i.to_le_bytes()))
}

/// Filters of `columns` set-groups, each of three sets with eleven objects.
fn filled(shape: Shape) -> (OpenGroup, impl Fn(u32, u32) -> Vec<KeyHash>) {
    let objects = |column: u32, set: u32| -> Vec<KeyHash> {
        (0..11)
            .map(|i| hash(u64::from(column * 1000 + set * 100 + i)))
            .collect()
    };
    let mut group = OpenGroup::new(shape, 3);
    for column in 0..shape.columns {
        let sets: Vec<_> = (0..3).map(|set| objects(column, set)).collect();
        group.push(sets.into_iter().map(Vec::into_iter));
    }
    (group, objects)
}

fn columns_of(word: Word) -> impl Iterator<Item = u32> {
    (0..64)
        .filter(move |bit| word.bits >> bit & 1 == 1)
        .map(move |bit| word.column + bit)
}

/// The matching columns in a set of an open group.
fn matching(group: &OpenGroup, set: u32, hash: KeyHash) -> Vec<u32> {
    let mut columns = Vec::new();
    let mut words = WordSink(|word| columns.extend(columns_of(word)));
    group.probe(set, &Probe::of(hash, group.shape), &mut words);
    columns
}

/// The matching columns in a page of filters.
fn matching_in_page(shape: Shape, page: &[u8], hash: KeyHash) -> Vec<u32> {
    let mut columns = Vec::new();
    let mut words = WordSink(|word| columns.extend(columns_of(word)));
    probe_page(&Probe::of(hash, shape), page, &mut words);
    columns
}

#[test]
fn filters_match_every_object_in_memory_and_in_a_page() {
    let page_filter = |lines| match lines {
        0 => PageFilterShape::NONE,
        lines => PageFilterShape { lines, probes: 3 },
    };
    let bloom = [1, 7, 8, 31, 32, 50, 64, 65, 136, 200, 511];
    let bloom = bloom.map(|columns| Shape::new(columns, 11.0, page_filter(columns / 7 % 31)));
    // Numbers of whole stripes, and others.
    let fingerprints = [1, 7, 50, 64, 66, 136, 201, 512]
        .map(|columns| Shape::of_fingerprints(columns, 11.0, page_filter(columns / 7 % 13)));
    for shape in bloom.into_iter().chain(fingerprints) {
        assert!(shape.is_valid(), "{shape:?}");
        let (mut group, objects) = filled(shape);
        assert!(group.is_full());
        // Fingerprints of no set, of some sets, and of all.
        for made in 0..=3 {
            group.make(made);
            for set in 0..3 {
                for column in 0..shape.columns {
                    for object in objects(column, set) {
                        assert!(group.may_hold(
                            set,
                            &KeyLine::of(PageProbe::of(object), group.shape.page_filter)
                        ));
                        let open = matching(&group, set, object);
                        assert!(open.contains(&column), "{shape:?} {made}");
                        assert!(open.iter().all(|found| *found < shape.columns));
                    }
                }
            }
        }
        for set in 0..3 {
            let page = group.page(set);
            for object in (0..shape.columns).flat_map(|column| objects(column, set)) {
                let on_page = matching_in_page(shape.of_pages(), &page, object);
                assert_eq!(matching(&group, set, object), on_page, "{shape:?}");
            }
        }
    }
}

#[test]
fn stripes_without_fingerprints_keep_their_bloom_filters() {
    // One stripe is complete, and a second one has begun.
    let (mut group, objects) = filled(Shape::of_fingerprints(66, 11.0, PageFilterShape::NONE));
    let with_bloom_filters = group.memory_bytes();
    group.make(3);
    assert!(group.memory_bytes() < with_bloom_filters);
    for column in 0..66 {
        assert!(matching(&group, 2, objects(column, 2)[0]).contains(&column));
    }
}

#[test]
fn bloom_filters_have_the_configured_false_positive_rate() {
    let columns = super::filters::columns_with(super::filters::filter_bits(11.0, 0.001));
    let (group, _) = filled(Shape::new(columns, 11.0, PageFilterShape::NONE));
    let page = group.page(1);
    let probes = 20_000;
    let wrong: usize = (0..probes)
        .map(|i| matching_in_page(group.shape, &page, hash(1 << 40 | i)).len())
        .sum();
    let rate = wrong as f64 / (probes as f64 * f64::from(columns));
    assert!((0.0005..0.0013).contains(&rate), "{rate}");
}

#[test]
fn filters_are_sized_for_uneven_sets() {
    use super::filters::{mean, objects_for};
    let mut equal = [0; 17];
    equal[16] = 40;
    assert!((objects_for(&equal, 0.003) - 16.0).abs() < 0.01);
    assert_eq!(objects_for(&[], 0.003), 0.0);

    // A third of the sets holds most objects.
    let uneven: Vec<usize> = (0..90).map(|set| [10, 14, 60][set % 3]).collect();
    let mut counts = [0; 61];
    uneven.iter().for_each(|objects| counts[*objects] += 1);
    let made_for = objects_for(&counts, 0.003);
    assert!((mean(&counts)..60.0).contains(&made_for), "{made_for}");
    let wrong_with = |made_for: f64| {
        let columns = super::filters::columns_with(super::filters::filter_bits(made_for, 0.003));
        let shape = super::filters::Shape::new(columns, made_for, PageFilterShape::NONE);
        let mut group = OpenGroup::new(shape, 90);
        let sets = (0..90).map(|set| (0..uneven[set]).map(move |i| hash((set << 8 | i) as u64)));
        group.push(sets);
        let probes = 2000u64;
        let lookups = (0..90).flat_map(|set| (0..probes).map(move |i| (set, hash(1 << 40 | i))));
        let wrong = lookups.filter(|(set, hash)| matching(&group, *set, *hash).contains(&0));
        wrong.count() as f64 / (90 * probes) as f64
    };
    let (wrong, of_mean) = (wrong_with(made_for), wrong_with(mean(&counts)));
    // Rows are whole bytes, so there are fewer columns, with more bits each.
    assert!((0.001..0.0035).contains(&wrong), "{wrong}");
    assert!(of_mean > 10.0 * wrong, "{of_mean}");
}

/// Settings that cover every code path that could return a stale object.
fn variants() -> Vec<NemoConfig> {
    let ours = NemoConfig::default();
    let published = NemoConfig::published();
    vec![
        ours.clone(),
        published.clone(),
        NemoConfig {
            page_filter_bits: 0.0,
            ..ours.clone()
        },
        NemoConfig {
            page_filter_bits: 2.0,
            filter_kind: FilterKind::Fingerprints,
            hotness_window: 1.0,
            write_back_share: 1.0,
            ..ours.clone()
        },
        NemoConfig {
            page_filter_bits: 0.0,
            index_cache_share: 1.0,
            hotness_window: 1.0,
            write_back_share: 1.0,
            ..ours.clone()
        },
        NemoConfig {
            page_filter_bits: 0.0,
            index_cache_share: 0.3,
            index_cache_eviction: IndexCache::Clock,
            index_cache_admit_one_in: 3,
            filter_kind: FilterKind::Fingerprints,
            ..ours.clone()
        },
        NemoConfig {
            memory_set_groups: 1,
            flush_threshold: 0.0,
            ..published.clone()
        },
        NemoConfig {
            flush_threshold: 2.0,
            filter_false_positive_rate: 0.3,
            ..published
        },
        NemoConfig {
            set_group_pages: Some(8),
            filter_false_positive_rate: 0.05,
            flush_threshold: 2.0,
            flush_fill: 1.0,
            ..ours.clone()
        },
        NemoConfig {
            set_group_pages: Some(32),
            filter_sizing: FilterSizing::Published,
            write_back: WriteBack::Off,
            ..ours
        },
    ]
}

const SMALL: Flash = Flash {
    zones: 24,
    zone_pages: 16,
    in_place: false,
};

#[test]
fn no_settings_return_a_stale_object() {
    for (at, config) in variants().into_iter().enumerate() {
        for seed in 0..4 {
            let engine = Nemo::new(NemoPlan::new(&config, &SMALL).expect("fits"));
            let seen = Oracle {
                seed: seed * 100 + at as u64,
                operations: 20_000,
                keys: 8_000,
                ..Oracle::default()
            }
            .run(engine, SMALL);
            assert!(seen.hits > 1_000, "variant {at}: {seen:?}");
        }
    }
}

/// Puts objects of these lengths until the first set-group is evicted; counts
/// the lost ones.
fn fill_flash(config: &NemoConfig, length: fn(u64) -> u32) -> (u64, Statistics) {
    let flash = Flash {
        zones: 10,
        zone_pages: 512,
        in_place: false,
    };
    let mut model = model_on(flash, config);
    let mut count = 0;
    while model.engine().oldest() == 0 {
        model.put(hash(count), length(count), Expiry::NEVER, 1);
        count += 1;
    }
    let lost = (0..count).filter(|key| model.get(hash(*key), 1).is_none());
    (lost.count() as u64, model.statistics())
}

#[test]
fn sets_fill_without_early_evictions() {
    let length = |key| 100 + (key * 7919 % 293) as u32;
    // The evicted objects were in the first set-group; no others are lost.
    let (lost, ours) = fill_flash(&NemoConfig::default(), length);
    assert_eq!(ours.dropped_early, 0);
    assert!(ours.fill_rate() > 0.98, "{}", ours.fill_rate());
    assert!(lost <= ours.evicted, "{lost} of {}", ours.evicted);

    let (_, published) = fill_flash(&NemoConfig::published(), length);
    assert!(published.dropped_early > 0, "it has one set per object");
    assert!(published.fill_rate() < 0.95, "{}", published.fill_rate());
}

#[test]
fn a_few_long_objects_do_not_flush_set_groups_early() {
    // One in so many objects takes a whole set.
    fn length<const ONE_IN: u64>(key: u64) -> u32 {
        match key * 7919 % ONE_IN {
            0 => 3900,
            short => 30 + short as u32,
        }
    }
    let config = NemoConfig::default();
    let (_, few) = fill_flash(&config, length::<200>);
    let (_, ours) = fill_flash(&config, length::<150>);
    for filled in [&few, &ours] {
        assert!(filled.fill_rate() > 0.95, "{}", filled.fill_rate());
        let share = filled.dropped_early as f64 / filled.objects_in as f64;
        assert!(share < 0.001, "{share}");
    }
    let (_, flushed) = fill_flash(
        &NemoConfig {
            flush_threshold: 0.0,
            ..config
        },
        length::<150>,
    );
    assert!(flushed.fill_rate() < ours.fill_rate());
}

#[test]
fn plan_errors_name_the_cause() {
    let plan = |config: NemoConfig| NemoPlan::new(&config, &SMALL).expect_err("does not fit");
    let three = plan(NemoConfig {
        candidates: 3,
        ..NemoConfig::default()
    });
    assert!(three.to_string().contains("candidates = 3"), "{three}");
    let odd = plan(NemoConfig {
        set_group_pages: Some(7),
        ..NemoConfig::default()
    });
    assert!(odd.to_string().contains("16"), "{odd}");
}

#[test]
fn sets_full_of_tombstones_are_flushed() {
    // Without an index in memory, any key may be on flash, so every delete
    // leaves a tombstone.
    let config = NemoConfig {
        page_filter_bits: 0.0,
        index_cache_share: 0.0,
        set_group_pages: Some(8),
        flush_threshold: 4.0,
        flush_fill: 1.0,
        filter_false_positive_rate: 0.5,
        ..NemoConfig::default()
    };
    let mut model = model_on(SMALL, &config);
    for number in 0..20_000 {
        model.put(hash(number), 250, Expiry::NEVER, 1);
    }
    for number in 0..50_000 {
        model.delete(hash(1 << 32 | number), 1);
    }
    model.put(hash(7), 300, Expiry::NEVER, 1);
    assert_eq!(model.get(hash(7), 1), Some(300));
}

/// The two parts of the engine.
struct Parts {
    nemo: Nemo,
    stripe: NemoStripe,
}

impl Parts {
    fn new(plan: NemoPlan) -> Self {
        let nemo = Nemo::new(plan);
        let stripe = nemo.stripe();
        Parts { nemo, stripe }
    }

    fn of(model: Model<Nemo>) -> Self {
        let (nemo, stripe) = model.into_parts();
        Parts { nemo, stripe }
    }

    fn insert(&mut self, object: Object, now_seconds: u32) -> Insert {
        self.nemo.insert(&mut self.stripe, object, now_seconds)
    }

    fn next_task(&mut self) -> Option<Task> {
        self.nemo.next_task_at_once(&mut self.stripe)
    }

    fn complete(&mut self, id: TaskId, outcome: Outcome, now_seconds: u32) {
        let stripe = &mut self.stripe;
        self.nemo.complete(stripe, id, outcome, now_seconds);
    }

    fn begin_search(&mut self, hash: KeyHash, search: &mut Search, scratch: &mut Scratch) -> Step {
        let stripe = &mut self.stripe;
        self.nemo.begin_search(stripe, hash, search, scratch)
    }

    fn end_search(&mut self, search: &mut Search, scratch: &mut Scratch, found: Found) {
        let stripe = &mut self.stripe;
        self.nemo.end_search(stripe, search, scratch, found);
    }

    fn is_drained(&self) -> bool {
        self.nemo.is_drained(&self.stripe)
    }
}

/// Completes the engine's tasks successfully, up to one for which `stops` is
/// true.
fn work_until(engine: &mut Parts, stops: fn(&Work) -> bool) -> Option<Task> {
    while let Some(task) = engine.next_task() {
        let outcome = match &task.work {
            work if stops(work) => return Some(task),
            Work::Read(pages) | Work::ReadIndex(pages) => Outcome::Read(vec![None; pages.len()]),
            _ => Outcome::Done,
        };
        engine.complete(task.id, outcome, 1);
    }
    None
}

/// Inserts objects until the engine resets a zone.
fn fill_until_reset(engine: &mut Parts) -> Task {
    for number in 0.. {
        let Insert::Accepted(_) = engine.insert(Object::sized(hash(number), 1000), 1) else {
            panic!("there is room");
        };
        if let Some(task) = work_until(engine, |work| matches!(work, Work::Reset(_))) {
            return task;
        }
    }
    unreachable!("flash is finite");
}

/// Counts the keys whose insert supersedes something on flash.
fn count_superseding(engine: &mut Parts, keys: std::ops::Range<u64>) -> usize {
    keys.filter(|key| supersedes(engine, Object::sized(hash(*key), 100)))
        .count()
}

fn supersedes(engine: &mut Parts, object: Object) -> bool {
    match engine.insert(object, 1) {
        Insert::Accepted(accepted) => accepted.supersedes_flash,
        Insert::Busy(_) => panic!("there is room"),
    }
}

fn model_on(flash: Flash, config: &NemoConfig) -> Model<Nemo> {
    let plan = NemoPlan::new(config, &flash).expect("fits");
    Model::new(Nemo::new(plan), flash)
}

#[test]
fn evicted_objects_count_until_flash_records_the_eviction() {
    for set_group_pages in [None, Some(8)] {
        let config = NemoConfig {
            page_filter_bits: 0.0,
            index_cache_share: 1.0,
            set_group_pages,
            ..NemoConfig::default()
        };
        let plan = NemoPlan::new(&config, &SMALL).expect("fits");
        for noted in [false, true] {
            let mut engine = Parts::new(plan.clone());
            let reset = fill_until_reset(&mut engine);
            assert!(engine.nemo.oldest() > 0);
            assert_eq!(
                count_superseding(&mut engine, 0..10),
                10,
                "a crash could bring them back"
            );
            if noted {
                engine.complete(reset.id, Outcome::Failed, 1);
            } else {
                engine.complete(reset.id, Outcome::Done, 1);
                assert_eq!(
                    count_superseding(&mut engine, 10..15),
                    5,
                    "a failed first attempt may be on flash"
                );
                work_until(&mut engine, |_| false);
            }
            assert!(
                count_superseding(&mut engine, 15..25) < 5,
                "they cannot come back"
            );
        }
    }
}

/// A device with less space than it reports: writes beyond `space` pages fail,
/// resets free space.
struct Short {
    flash: Flash,
    space: u32,
    written: Vec<u32>,
}

impl Short {
    fn outcome(&mut self, work: &Work) -> Outcome {
        let zone_pages = self.flash.zone_pages;
        let (first, count) = match work {
            Work::Append { first, pages } => (first, pages.len() as u32),
            Work::Seal { first, pages, .. } => (first, *pages),
            Work::Reset(zone) => {
                self.written[*zone as usize] = 0;
                return Outcome::Done;
            }
            Work::Read(pages) | Work::ReadIndex(pages) => {
                return Outcome::Read(vec![None; pages.len()]);
            }
            Work::Write { .. } => unreachable!("nothing is written in place"),
        };
        if self.written.iter().sum::<u32>() + count > self.space {
            return Outcome::NoSpace;
        }
        let at = &mut self.written[(first.0 / zone_pages) as usize];
        assert_eq!(*at, first.0 % zone_pages, "zones are written in order");
        *at += count;
        Outcome::Done
    }

    /// Inserts objects of a thousand bytes at `now_seconds`.
    fn insert(&mut self, engine: &mut Parts, numbers: std::ops::Range<u64>, now_seconds: u32) {
        for number in numbers {
            let object = Object::sized(hash(number), 1000);
            let Insert::Accepted(_) = engine.insert(object, now_seconds) else {
                panic!("there is room");
            };
            while let Some(task) = engine.next_task() {
                let outcome = self.outcome(&task.work);
                engine.complete(task.id, outcome, now_seconds);
            }
        }
    }
}

#[test]
fn the_engine_adapts_to_the_space_of_the_device() {
    // A set-group per zone, two per zone, and one in two zones.
    for set_group_pages in [None, Some(8), Some(32)] {
        let config = NemoConfig {
            set_group_pages,
            ..NemoConfig::default()
        };
        let plan = NemoPlan::new(&config, &SMALL).expect("fits");
        let extent_pages = plan.extent_pages();
        let all = u64::from(SMALL.zones * SMALL.zone_pages / extent_pages);
        let mut short = Short {
            flash: SMALL,
            space: 6 * extent_pages.max(SMALL.zone_pages) + extent_pages / 2,
            written: vec![0; SMALL.zones as usize],
        };
        let fitting = u64::from(short.space / extent_pages);
        let mut engine = Parts::new(plan);
        let kept = |engine: &Parts| engine.nemo.pool.next() - engine.nemo.oldest();
        short.insert(&mut engine, 0..20_000, 1);
        let few = kept(&engine);
        assert!(
            (fitting / 2..=fitting).contains(&few),
            "{few} of {fitting} with {set_group_pages:?}"
        );
        // Later, without more space: the same.
        short.insert(&mut engine, 20_000..40_000, 100);
        let few = kept(&engine);
        assert!((fitting / 2..=fitting).contains(&few), "{few} of {fitting}");

        // No space at all for a while.
        short.space = 0;
        let durable = engine.nemo.durable();
        short.insert(&mut engine, 40_000..60_000, 101);
        assert_eq!(kept(&engine), 0);
        assert!(
            engine.nemo.durable() <= durable + 1,
            "a dropped set-group is not durable"
        );
        assert!(
            engine.nemo.pool.next() > engine.nemo.durable(),
            "no other set-group has its number"
        );
        assert!(engine.nemo.waits_for_space() && !engine.is_drained());

        short.space = u32::MAX;
        short.insert(&mut engine, 60_000..61_000, 102);
        assert_eq!(kept(&engine), 0, "excluded extents are not tried at once");
        short.insert(&mut engine, 61_000..90_000, 200);
        assert!(kept(&engine) + 2 >= all, "{} of {all}", kept(&engine));
        assert!(!engine.nemo.waits_for_space());
        while engine.nemo.drain(&mut engine.stripe) {
            short.insert(&mut engine, 0..0, 200);
            let Some(task) = engine.next_task() else {
                break;
            };
            let outcome = short.outcome(&task.work);
            engine.complete(task.id, outcome, 200);
        }
        assert!(engine.is_drained(), "new objects reach flash");
        assert_eq!(engine.nemo.durable(), engine.nemo.pool.next());
    }
}

#[test]
fn a_search_reads_the_newest_copies_of_an_often_overwritten_object() {
    let flash = Flash {
        zones: 60,
        zone_pages: 16,
        in_place: false,
    };
    let config = NemoConfig {
        page_filter_bits: 0.0,
        index_cache_share: 1.0,
        ..NemoConfig::default()
    };
    let mut model = model_on(flash, &config);
    let (popular, set_group_objects) = (hash(1), 16 * 16);
    let mut others = (1 << 32..).map(hash);
    let mut overwritten = 0;
    for length in 100..150 {
        model.put(popular, length, Expiry::NEVER, 1);
        overwritten = length;
        for other in others.by_ref().take(set_group_objects) {
            model.put(other, 246, Expiry::NEVER, 1);
        }
    }
    // Move it out of memory.
    for other in others.take(4 * set_group_objects) {
        model.put(other, 246, Expiry::NEVER, 1);
    }
    assert_eq!(model.get(popular, 1), Some(overwritten));

    let mut engine = Parts::of(model);
    let (mut search, mut scratch) = (Search::new(), Scratch::default());
    assert_eq!(
        engine.begin_search(popular, &mut search, &mut scratch),
        Step::Pages
    );
    assert!(
        (16..=18).contains(&search.pages.len()),
        "{} pages of about 50 copies",
        search.pages.len()
    );
    assert_eq!(engine.nemo.statistics.searches_cut, 0);
    search.read = search.pages.len();
    let step = engine.nemo.pages_read(&mut search, &mut scratch);
    assert_eq!(step, Step::Absent);
    engine.end_search(&mut search, &mut scratch, Found::Nowhere);
    assert_eq!(engine.nemo.statistics.searches_cut, 1);
    assert!(
        supersedes(&mut engine, Object::sized(popular, 50)),
        "the search left copies unread"
    );
}

#[test]
fn a_write_after_a_miss_supersedes_nothing() {
    // The filters are on flash, except those of the newest set-groups.
    let flash = Flash {
        zones: 40,
        zone_pages: 64,
        in_place: false,
    };
    let config = NemoConfig {
        page_filter_bits: 0.0,
        index_cache_share: 0.0,
        set_group_pages: Some(8),
        ..NemoConfig::default()
    };
    let mut model = model_on(flash, &config);
    for key in 0..45_000 {
        model.put(hash(key), 200, Expiry::NEVER, 1);
    }
    let there: Vec<u64> = (0..45_000)
        .filter(|key| model.get(hash(*key), 1).is_some())
        .take(20)
        .collect();
    assert!(!there.is_empty());
    let absent = 1 << 20..(1 << 20) + 20;
    for key in absent.clone() {
        assert_eq!(model.get(hash(key), 1), None);
    }
    let mut engine = Parts::of(model);
    assert!(engine.nemo.index.groups().count() > 0);
    assert!(
        supersedes(&mut engine, Object::sized(hash(1 << 30), 50)),
        "no search has shown that it is absent"
    );
    for key in absent {
        assert!(!supersedes(&mut engine, Object::sized(hash(key), 50)));
        assert!(
            !supersedes(&mut engine, Object::sized(hash(key), 60)),
            "the only other copy is in memory"
        );
        assert!(!supersedes(&mut engine, Object::tombstone(hash(key))));
        assert!(
            engine.stripe.in_memory(hash(key)).is_none(),
            "no tombstone is needed"
        );
        assert!(
            supersedes(&mut engine, Object::sized(hash(key), 50)),
            "an insert removes the key from the known-absent table"
        );
    }
    for key in there {
        if engine.stripe.in_memory(hash(key)).is_none() {
            assert!(supersedes(&mut engine, Object::sized(hash(key), 50)));
        }
    }
}

#[test]
fn a_key_written_during_a_search_is_not_absent() {
    let plan = NemoPlan::new(&NemoConfig::default(), &SMALL).expect("fits");
    let mut engine = Parts::new(plan);
    let key = hash(1 << 20);
    let (mut search, mut scratch) = (Search::new(), Scratch::default());
    assert_eq!(
        engine.begin_search(key, &mut search, &mut scratch),
        Step::Absent
    );
    assert!(!supersedes(&mut engine, Object::sized(key, 100)));
    // It is written meanwhile, or at least was.
    fill_until_reset(&mut engine);
    assert!(engine.stripe.in_memory(key).is_none());
    engine.end_search(&mut search, &mut scratch, Found::Nowhere);
    assert!(supersedes(&mut engine, Object::sized(key, 100)));
}
