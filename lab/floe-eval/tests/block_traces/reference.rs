//! LRU and SIEVE as their papers describe them. They share nothing with the
//! policies under test.

use std::collections::{HashMap, VecDeque};

/// The accesses with pages numbered from 0 in the order of their first accesses.
pub(super) fn numbered(accesses: &[(u32, u64)]) -> Vec<usize> {
    let mut numbers = HashMap::new();
    let number = |access| {
        let next = numbers.len();
        *numbers.entry(access).or_insert(next)
    };
    accesses.iter().map(number).collect()
}

/// Hits of LRU over `pages_max` numbered pages. The queue has every access, oldest
/// first; an entry is stale if its page was accessed again.
pub(super) fn lru_hits(pages_max: usize, accesses: &[usize]) -> u64 {
    let mut accessed = vec![None; accesses.len()];
    let (mut queue, mut cached, mut hits) = (VecDeque::new(), 0, 0);
    for (time, &page) in accesses.iter().enumerate() {
        match accessed[page].replace(time) {
            Some(_) => hits += 1,
            None => cached += 1,
        }
        queue.push_back((page, time));
        while cached > pages_max {
            let (oldest, time) = queue.pop_front().expect("every access is queued");
            if accessed[oldest] == Some(time) {
                accessed[oldest] = None;
                cached -= 1;
            }
        }
    }
    hits
}

struct Page {
    key: usize,
    visited: bool,
    newer: Option<usize>,
    older: Option<usize>,
}

/// Hits of SIEVE over `pages_max` numbered pages, with a queue and a hand.
pub(super) fn sieve_hits(pages_max: usize, accesses: &[usize]) -> u64 {
    let (mut pages, mut places) = (Vec::<Page>::new(), vec![None; accesses.len()]);
    let (mut newest, mut oldest, mut hand) = (None::<usize>, None::<usize>, None::<usize>);
    let mut hits = 0;
    for &key in accesses {
        if let Some(place) = places[key] {
            let page: &mut Page = &mut pages[place];
            page.visited = true;
            hits += 1;
            continue;
        }
        let page = Page {
            key,
            visited: false,
            newer: None,
            older: newest,
        };
        let place = if pages.len() < pages_max {
            pages.push(page);
            pages.len() - 1
        } else {
            let mut victim = hand.or(oldest).expect("a full cache");
            while std::mem::take(&mut pages[victim].visited) {
                victim = pages[victim].newer.or(oldest).expect("a full cache");
            }
            let (newer, older) = (pages[victim].newer, pages[victim].older);
            hand = newer;
            match newer {
                Some(newer) => pages[newer].older = older,
                None => newest = older,
            }
            match older {
                Some(older) => pages[older].newer = newer,
                None => oldest = newer,
            }
            places[pages[victim].key] = None;
            pages[victim] = Page {
                older: newest,
                ..page
            };
            victim
        };
        if let Some(newest) = newest {
            pages[newest].newer = Some(place);
        }
        newest = Some(place);
        oldest = oldest.or(newest);
        places[key] = Some(place);
    }
    hits
}
