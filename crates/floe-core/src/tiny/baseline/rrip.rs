//! Eviction from full pages: by age, or by predicted time to the next use.
//!
//! The latter is RRIParoo (Kangaroo, McAllister et al., SOSP '21, §4.4). Each
//! object has a three-bit prediction on flash. Memory has one bit per slot, set
//! if the object was used since its page was written. The next rewrite sets a
//! used object's prediction to 0. To evict, all objects are aged until one has
//! the highest prediction, and the objects with the highest predictions go
//! first.

use crate::tiny::object::{Object, PAGE_ROOM_BYTES, PREDICTION_MAX};

/// The eviction policy of a full page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetPolicy {
    /// Evicts the oldest objects.
    #[default]
    Fifo,
    /// Evicts the objects that RRIP predicts to be used last.
    Rrip,
}

crate::parse_by_name!(SetPolicy);

/// The prediction of an object with `hits` hits in the log. Without any it is
/// long: one step below the highest.
pub(super) fn prediction_after(hits: u8) -> u8 {
    PREDICTION_MAX - 1 - hits.min(PREDICTION_MAX - 1)
}

/// One bit per used object of a page, by slot. Slots beyond the last bit are
/// not tracked, because pages list the objects needed soonest first.
pub(super) type HitBits = u32;

/// Marks `slot` as used.
pub(super) fn mark(bits: &mut HitBits, slot: usize) {
    if slot < HitBits::BITS as usize {
        *bits |= 1 << slot;
    }
}

/// Predicts an early next use of the used objects.
pub(super) fn promote(objects: &mut [Object], mut bits: HitBits) {
    while bits != 0 {
        let slot = bits.trailing_zeros() as usize;
        bits &= bits - 1;
        if let Some(object) = objects.get_mut(slot) {
            object.prediction = 0;
        }
    }
}

/// Bytes that objects take in a page.
pub(super) fn bytes_of(objects: &[Object]) -> usize {
    objects.iter().map(Object::stored_bytes).sum()
}

/// Ages all objects equally, so that at least one has the highest prediction.
pub(super) fn age(objects: &mut [Object]) {
    let live = objects.iter().filter(|object| !object.tombstone);
    let Some(most) = live.map(|object| object.prediction).max() else {
        return;
    };
    let step = PREDICTION_MAX - most.min(PREDICTION_MAX);
    for object in objects.iter_mut().filter(|object| !object.tombstone) {
        object.prediction += step;
    }
}

/// Adds `incoming` to a page. Objects that no longer fit move to `evicted`, by
/// prediction. Among equals the incoming stay, because they have just cost a
/// write.
pub(super) fn merge(page: &mut Vec<Object>, incoming: &mut Vec<Object>, evicted: &mut Vec<Object>) {
    if bytes_of(page) + bytes_of(incoming) <= PAGE_ROOM_BYTES {
        page.append(incoming);
    } else {
        age(page);
        incoming.append(page);
        std::mem::swap(page, incoming);
    }
    trim(page, evicted);
}

/// Orders a page by prediction, tombstones first, and evicts what does not fit.
pub(super) fn trim(page: &mut Vec<Object>, evicted: &mut Vec<Object>) {
    page.sort_by_key(|object| (!object.tombstone, object.prediction));
    let mut room = PAGE_ROOM_BYTES;
    if bytes_of(page) <= room {
        return;
    }
    evicted.extend(page.extract_if(.., |object| {
        let bytes = object.stored_bytes();
        let stays = bytes <= room;
        if stays {
            room -= bytes;
        }
        !stays
    }));
}

/// Adds `object` to a page ordered by age, and evicts the oldest objects if it
/// is full.
pub(super) fn queue(page: &mut Vec<Object>, object: Object, evicted: &mut Vec<Object>) {
    let mut bytes = object.stored_bytes() + bytes_of(page);
    let too_old = page
        .iter()
        .take_while(|oldest| {
            let goes = bytes > PAGE_ROOM_BYTES;
            if goes {
                bytes -= oldest.stored_bytes();
            }
            goes
        })
        .count();
    evicted.extend(page.drain(..too_old));
    page.push(object);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHash;

    fn object(number: u64, bytes: u32, prediction: u8) -> Object {
        Object {
            prediction,
            ..Object::sized(KeyHash(number), bytes)
        }
    }

    fn numbers(objects: &[Object]) -> Vec<u64> {
        objects.iter().map(|object| object.hash.0).collect()
    }

    #[test]
    fn the_oldest_go_first_by_age() {
        let mut page = vec![object(1, 1500, 0), object(2, 1500, 0), object(3, 900, 0)];
        let mut evicted = Vec::new();
        queue(&mut page, object(4, 1000, 0), &mut evicted);
        assert_eq!(numbers(&page), [2, 3, 4]);
        assert_eq!(numbers(&evicted), [1]);
    }

    #[test]
    fn objects_predicted_last_are_evicted_first() {
        let mut page = vec![object(1, 1500, 3), object(2, 1500, 1), object(3, 900, 2)];
        // The object with the latest prediction was used, so it now has the
        // earliest.
        promote(&mut page, 0b001);
        let mut incoming = vec![object(4, 1000, prediction_after(0))];
        let mut evicted = Vec::new();
        merge(&mut page, &mut incoming, &mut evicted);
        assert_eq!(numbers(&page), [1, 4, 2], "2 and 3 were aged by five");
        assert_eq!(numbers(&evicted), [3]);
        let predictions: Vec<u8> = page.iter().map(|object| object.prediction).collect();
        assert_eq!(predictions, [5, 6, 6]);
    }

    #[test]
    fn tombstones_stay() {
        let mut page = vec![Object::tombstone(KeyHash(1)), object(2, 4000, 0)];
        let mut incoming = vec![object(3, 3000, 6)];
        let mut evicted = Vec::new();
        merge(&mut page, &mut incoming, &mut evicted);
        assert_eq!(numbers(&page), [1, 3]);
        assert_eq!(numbers(&evicted), [2]);
    }
}
