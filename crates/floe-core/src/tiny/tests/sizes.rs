//! Tests that objects of every length are found until the flash is full.

use crate::hash::KeyHash;
use crate::tiny::model::Model;
use crate::tiny::nemo::{FilterKind, Nemo, NemoConfig, NemoPlan};
use crate::tiny::object::{OBJECT_HEADER_BYTES, PAGE_BYTES};
use crate::tiny::{Cause, Expiry, Flash};

/// About as many set-groups as a gigabyte has, each with a 32nd of the
/// default's pages.
const FLASH: Flash = Flash {
    zones: 254,
    zone_pages: 32,
    in_place: false,
};

/// Share of the device that keys, values and their headers fill.
const FULL: f64 = 0.85;

/// Most keys to look up.
const ASKED: u64 = 20_000;

fn hash(key: u64) -> KeyHash {
    KeyHash(xxhash_rust::xxh3::xxh3_64(&key.to_le_bytes()))
}

/// Bytes of a key and its value. Keys have 8 to 20.
fn bytes(key: u64, value: u32) -> u32 {
    8 + (hash(key).0 >> 40) as u32 % 13 + value
}

/// The model, and the number of keys put so far.
struct Filled {
    model: Model<Nemo>,
    value: u32,
    keys: u64,
}

impl Filled {
    fn new(config: &NemoConfig) -> Self {
        let plan = NemoPlan::new(config, &FLASH).expect("fits");
        Filled {
            model: Model::new(Nemo::new(plan), FLASH),
            value: 0,
            keys: 0,
        }
    }

    /// Puts new keys with values of `value` bytes until they fill `share` of
    /// the device; returns the first.
    fn fill(&mut self, value: u32, share: f64) -> u64 {
        self.value = value;
        let first = self.keys;
        let mut left = share * FLASH.pages() as f64 * PAGE_BYTES as f64;
        while left > 0.0 {
            let bytes = bytes(self.keys, value);
            self.model.put(hash(self.keys), bytes, Expiry::NEVER, 1);
            left -= f64::from(bytes) + OBJECT_HEADER_BYTES as f64;
            self.keys += 1;
        }
        first
    }

    /// Looks up the keys from `first` on. Returns the share found, and the
    /// false positives per key.
    fn found(&mut self, first: u64) -> (f64, f64) {
        let before = self.model.statistics();
        let keys = first..self.keys;
        let step = ((keys.end - keys.start) / ASKED).max(1) as usize;
        let lookups = keys.clone().step_by(step).count();
        let found = keys
            .step_by(step)
            .filter(|key| self.model.get(hash(*key), 1) == Some(bytes(*key, self.value)))
            .count();
        let counts = self.model.statistics().since(&before);
        (
            found as f64 / lookups as f64,
            counts.false_positives as f64 / lookups as f64,
        )
    }
}

/// Checks that the newest keys that fill most of the device are found, once and
/// after it was filled twice.
fn fills_the_device(config: &NemoConfig, value: u32) {
    let mut filled = Filled::new(config);
    for round in 0..2 {
        let first = filled.fill(value, FULL);
        let (found, in_vain) = filled.found(first);
        let what = format!("values of {value} bytes, round {round}: {found}, {in_vain} in vain");
        assert!(found >= 0.99, "{what}");
        assert!(in_vain < 12.0, "{what}");
    }
    let counts = filled.model.statistics();
    assert_eq!(counts.searches_cut, 0, "values of {value} bytes");
}

#[test]
fn objects_of_every_length_are_found_until_the_flash_is_full() {
    for value in [1, 5, 20, 50, 100, 300, 1000, 2000] {
        fills_the_device(&NemoConfig::default(), value);
    }
}

#[test]
fn objects_of_every_length_are_found_by_fingerprints() {
    let config = NemoConfig {
        filter_kind: FilterKind::Fingerprints,
        ..NemoConfig::default()
    };
    for value in [20, 300] {
        fills_the_device(&config, value);
    }
}

#[test]
fn filters_follow_objects_that_become_shorter_and_longer() {
    let mut filled = Filled::new(&NemoConfig::default());
    for value in [300, 20, 300, 5, 100] {
        // Ends in the middle of an index group.
        filled.fill(value, 0.2);
        let first = filled.fill(value, 0.6);
        let (found, in_vain) = filled.found(first);
        assert!(found >= 0.99, "values of {value} bytes: {found}");
        assert!(in_vain < 12.0, "values of {value} bytes: {in_vain} in vain");
    }
    let counts = filled.model.statistics();
    assert_eq!(counts.searches_cut, 0);
    // Groups that end early cost few set-groups.
    let index = counts.written_for(Cause::Index) as f64 / counts.bytes_written() as f64;
    assert!(index < 0.1, "{index} of what is written is index");
}
