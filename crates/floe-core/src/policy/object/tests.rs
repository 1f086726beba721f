use proptest::prelude::*;

use super::*;

fn misses(kind: ObjectPolicyKind, capacity: u64, keys: &[u64]) -> Vec<bool> {
    let mut policy = ObjectPolicy::new(kind, capacity);
    keys.iter()
        .map(|&key| policy.access(key, 1) != Access::Hit)
        .collect()
}

#[test]
fn names_parse() {
    for kind in ObjectPolicyKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    assert_eq!("S3-FIFO".parse(), Ok(ObjectPolicyKind::S3Fifo));
    assert!("arc".parse::<ObjectPolicyKind>().is_err());
}

#[test]
fn lru_keeps_recently_used_objects() {
    // Object 1 is refreshed, so 3 evicts 2.
    let missed = misses(ObjectPolicyKind::Lru, 2, &[1, 2, 1, 3, 1, 2]);
    assert_eq!(missed, [true, true, false, true, false, true]);
}

#[test]
fn fifo_ignores_hits() {
    let missed = misses(ObjectPolicyKind::Fifo, 2, &[1, 2, 1, 3, 1]);
    assert_eq!(missed, [true, true, false, true, true]);
}

#[test]
fn clock_gives_one_second_chance() {
    // FIFO would evict 1 for 3. Here 1 has a mark, so 2 is evicted.
    let missed = misses(ObjectPolicyKind::Clock, 2, &[1, 2, 1, 3, 1]);
    assert_eq!(missed, [true, true, false, true, false]);
}

#[test]
fn sieve_evicts_the_unmarked_and_leaves_the_marked_in_place() {
    // The paper's figure: the hand passes marked objects and clears their
    // marks.
    let missed = misses(ObjectPolicyKind::Sieve, 3, &[1, 2, 3, 1, 4, 1, 2]);
    assert_eq!(missed, [true, true, true, false, true, false, true]);
}

#[test]
fn lfu_keeps_the_frequent() {
    let missed = misses(ObjectPolicyKind::Lfu, 2, &[1, 1, 2, 3, 4, 1]);
    assert_eq!(missed, [true, false, true, true, true, false]);
}

#[test]
fn s3fifo_survives_a_scan() {
    let mut policy = ObjectPolicy::new(ObjectPolicyKind::S3Fifo, 100);
    for _ in 0..4 {
        for key in 0..20 {
            policy.access(key, 1);
        }
    }
    for key in 1_000..1_500 {
        policy.access(key, 1);
    }
    let kept = (0..20).filter(|&key| policy.contains(key)).count();
    assert_eq!(kept, 20);
}

#[test]
fn objects_larger_than_the_cache_are_rejected_and_evict_nothing() {
    for kind in ObjectPolicyKind::ALL {
        let mut policy = ObjectPolicy::new(kind, 100);
        assert_eq!(policy.access(1, 100), Access::Miss);
        assert_eq!(policy.access(2, 101), Access::Rejected);
        assert_eq!(policy.access(1, 100), Access::Hit, "{kind}");
    }
}

proptest! {
    /// Bytes are counted exactly and the capacity holds. An object is held
    /// after its access, and a hit is reported exactly for objects that are
    /// held.
    #[test]
    fn every_policy_keeps_its_accounts(
        capacity in 0u64..300,
        steps in proptest::collection::vec((0u8..10, 0u64..40, 0u64..60), 0..400),
    ) {
        for kind in ObjectPolicyKind::ALL {
            let mut policy = ObjectPolicy::new(kind, capacity);
            let mut sizes = std::collections::BTreeMap::new();
            for &(op, key, size) in &steps {
                let held = policy.contains(key);
                if op == 0 {
                    prop_assert_eq!(policy.remove(key), held);
                    prop_assert!(!policy.contains(key));
                    continue;
                }
                match policy.access(key, size) {
                    Access::Hit => prop_assert!(held),
                    Access::Miss => {
                        prop_assert!(!held && policy.contains(key));
                        sizes.insert(key, size);
                    }
                    Access::Rejected => prop_assert!(!held && size > capacity),
                }
                let held: Vec<u64> = (0..40).filter(|&k| policy.contains(k)).collect();
                let bytes: u64 = held.iter().map(|key| sizes[key]).sum();
                prop_assert_eq!(policy.used_bytes(), bytes);
                prop_assert_eq!(policy.len(), held.len());
                prop_assert!(bytes <= capacity);
            }
        }
    }

    /// Compares LRU with a plain list.
    #[test]
    fn lru_equals_a_plain_list(
        capacity in 1u64..200,
        steps in proptest::collection::vec((0u64..40, 1u64..60), 0..300),
    ) {
        let mut policy = Resident::<Lru>::new(capacity);
        let mut list: Vec<(u64, u64)> = Vec::new();
        for (key, size) in steps {
            let place = list.iter().position(|&(k, _)| k == key);
            let expected = match place {
                Some(at) => {
                    let entry = list.remove(at);
                    list.push(entry);
                    Access::Hit
                }
                None if size > capacity => Access::Rejected,
                None => {
                    while list.iter().map(|&(_, s)| s).sum::<u64>() + size > capacity {
                        list.remove(0);
                    }
                    list.push((key, size));
                    Access::Miss
                }
            };
            prop_assert_eq!(policy.access(key, size), expected);
        }
    }
}
