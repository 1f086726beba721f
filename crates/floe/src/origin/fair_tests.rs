//! Tests of the fair limit: the order of turns, the full queue, and random histories.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::client::Client;
use super::fair::{FairHeld, FairLimit, QueueFull};

fn client(number: u8) -> Client {
    Client::at(Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))))
}

type Answer = Result<FairHeld, QueueFull>;

/// A caller that waits.
struct Caller(Pin<Box<dyn Future<Output = Answer>>>);

impl Caller {
    /// A caller that has asked for `units`.
    fn of(limit: &Arc<FairLimit>, number: u8, units: usize, waiters_max: usize) -> Self {
        let limit = Arc::clone(limit);
        let hold = async move { limit.hold(client(number), units, waiters_max).await };
        Caller(Box::pin(hold))
    }

    fn answer(&mut self) -> Option<Answer> {
        let mut context = Context::from_waker(Waker::noop());
        match self.0.as_mut().poll(&mut context) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }
}

/// Callers in the queue, each with a name.
fn queued(limit: &Arc<FairLimit>, clients: &[u8]) -> Vec<(u8, Caller)> {
    let mut callers = Vec::new();
    for number in clients {
        let mut caller = Caller::of(limit, *number, 1, usize::MAX);
        assert!(caller.answer().is_none());
        callers.push((*number, caller));
    }
    callers
}

/// The clients in the order in which they are served, one at a time.
fn served(mut first: FairHeld, mut callers: Vec<(u8, Caller)>) -> Vec<u8> {
    let mut order = Vec::new();
    while !callers.is_empty() {
        drop(first);
        let answers = callers.iter_mut().map(|(_, caller)| caller.answer());
        let mut answers: Vec<_> = answers.collect();
        let next = answers.iter().position(Option::is_some).unwrap();
        first = answers.swap_remove(next).unwrap().unwrap();
        assert!(answers.iter().all(Option::is_none));
        order.push(callers.remove(next).0);
    }
    order
}

#[test]
fn free_units_go_to_the_clients_in_rotation() {
    let limit = FairLimit::new(1);
    let held = limit.try_hold(1).unwrap();
    let callers = queued(&limit, &[1, 1, 1, 1, 2, 3, 2]);
    assert_eq!(served(held, callers), [1, 2, 3, 1, 2, 1, 1]);
    assert_eq!(limit.held(), 0);
}

#[test]
fn a_client_that_leaves_and_comes_back_is_not_preferred() {
    let limit = FairLimit::new(1);
    let held = limit.try_hold(1).unwrap();
    let mut callers = queued(&limit, &[1, 2, 1, 2]);
    // The second client loses its place, and gets one at the end.
    callers.retain(|(client, _)| *client == 1);
    callers.extend(queued(&limit, &[3, 2]));
    assert_eq!(served(held, callers), [1, 3, 2, 1]);
}

#[test]
fn a_full_queue_refuses_the_newest_waiter_of_the_client_with_the_most() {
    let limit = FairLimit::new(1);
    let held = limit.try_hold(1).unwrap();
    let mut of_first: Vec<_> = (0..4).map(|_| Caller::of(&limit, 1, 1, 4)).collect();
    assert!(of_first.iter_mut().all(|caller| caller.answer().is_none()));
    let is_refused = |caller: &mut Caller| matches!(caller.answer(), Some(Err(QueueFull)));
    assert!(is_refused(&mut Caller::of(&limit, 1, 1, 4)));
    let mut of_second: Vec<_> = (0..3).map(|_| Caller::of(&limit, 2, 1, 4)).collect();
    assert!(of_second[0].answer().is_none());
    assert!(of_second[1].answer().is_none());
    let refused: Vec<_> = of_first.iter_mut().map(is_refused).collect();
    assert_eq!(refused, [false, false, true, true], "the newest");
    // Each has its half: neither takes a place from the other.
    assert!(is_refused(&mut of_second[2]));
    assert!(is_refused(&mut Caller::of(&limit, 1, 1, 4)));
    let callers = [of_first.remove(0), of_second.remove(0), of_first.remove(0)];
    drop((of_first, of_second));
    let callers = [1, 2, 1].into_iter().zip(callers).collect();
    assert_eq!(served(held, callers), [1, 2, 1]);
}

#[test]
fn without_room_for_waiters_each_is_refused() {
    let limit = FairLimit::new(1);
    let held = limit.try_hold(1).unwrap();
    assert!(matches!(Caller::of(&limit, 1, 1, 0).answer(), Some(Err(_))));
    drop(held);
    assert!(matches!(Caller::of(&limit, 1, 1, 0).answer(), Some(Ok(_))));
}

#[test]
fn a_wide_waiter_is_not_overtaken_until_it_leaves() {
    let limit = FairLimit::new(4);
    let mut held = limit.try_hold(3).unwrap();
    let mut wide = Caller::of(&limit, 1, 3, 9);
    let mut narrow = Caller::of(&limit, 2, 2, 9);
    assert!(wide.answer().is_none() && narrow.answer().is_none());
    assert!(limit.try_hold(1).is_none());
    held.shrink_to(2);
    assert!(wide.answer().is_none() && narrow.answer().is_none());
    drop(wide);
    let narrow = narrow.answer().unwrap().unwrap();
    assert_eq!(limit.held(), 4);
    drop((held, narrow));
    assert_eq!(limit.held(), 0);
}

#[test]
fn a_changed_limit_takes_effect_at_once() {
    let limit = FairLimit::new(2);
    let held = [limit.try_hold(1).unwrap(), limit.try_hold(1).unwrap()];
    let mut callers = queued(&limit, &[1, 2, 3]);
    limit.set(1);
    let [first, second] = held;
    drop(first);
    assert!(callers.iter_mut().all(|(_, c)| c.answer().is_none()));
    limit.set(3);
    let answers = callers.iter_mut().filter_map(|(_, c)| c.answer());
    let taken: Vec<_> = answers.collect();
    assert_eq!((taken.len(), limit.held()), (2, 3));
    drop(second);
    assert!(callers[2].1.answer().unwrap().is_ok());
}

#[test]
fn an_answer_that_is_not_taken_is_passed_on() {
    let limit = FairLimit::new(1);
    let held = limit.try_hold(1).unwrap();
    let mut callers = queued(&limit, &[1, 2]);
    drop(held);
    // The unit is in the first one's channel.
    callers.remove(0);
    assert!(callers[0].1.answer().unwrap().is_ok());
    assert_eq!(limit.held(), 0);
}

/// Callers come, leave before and after their answers, and return units; the limit changes.
/// After each step nothing is free that the next waiter needs, and a client that was refused has
/// its share of the queue.
#[test]
fn random_histories_lose_no_unit_and_refuse_no_client_its_share() {
    const UNITS_MAX: usize = 4;
    for seed in 0..200 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let waiters_max = rng.random_range(1..=30);
        let clients: u8 = rng.random_range(1..=8);
        let widest: usize = rng.random_range(1..=UNITS_MAX);
        let mut units = UNITS_MAX + 2;
        let limit = FairLimit::new(units);
        let mut waiting: Vec<(u8, usize, Caller)> = Vec::new();
        let mut held = Vec::new();
        let mut refused = 0;
        for _ in 0..2_000 {
            let mut newcomer = None;
            match rng.random_range(0..10) {
                0..=5 => {
                    // One client asks for more than half of all.
                    let client = rng.random_range(0..2 * clients).saturating_sub(clients);
                    let wanted = rng.random_range(1..=widest);
                    let caller = Caller::of(&limit, client, wanted, waiters_max);
                    newcomer = Some(client);
                    waiting.push((client, wanted, caller));
                }
                6 if !waiting.is_empty() => {
                    drop(waiting.swap_remove(rng.random_range(0..waiting.len())));
                }
                7 => {
                    units = rng.random_range(widest..=2 * UNITS_MAX);
                    limit.set(units);
                }
                8 if !held.is_empty() => {
                    let index = rng.random_range(0..held.len());
                    let (of, part): &mut (FairHeld, usize) = &mut held[index];
                    *part = rng.random_range(0..=*part);
                    of.shrink_to(*part);
                }
                _ if !held.is_empty() => {
                    drop(held.swap_remove(rng.random_range(0..held.len())));
                }
                _ => {}
            }
            let mut left = Vec::new();
            let mut sizes = BTreeMap::<u8, usize>::new();
            let mut losers = Vec::new();
            // The newest first: it may have taken the place of one before.
            for (client, wanted, mut caller) in waiting.drain(..).rev() {
                match caller.answer() {
                    Some(Ok(taken)) => held.push((taken, wanted)),
                    Some(Err(QueueFull)) => losers.push(client),
                    None => {
                        *sizes.entry(client).or_default() += 1;
                        left.push((client, wanted, caller));
                    }
                }
            }
            left.reverse();
            waiting = left;
            assert!(losers.len() <= 1, "seed {seed}");
            for loser in losers {
                refused += 1;
                let own = sizes.get(&loser).copied().unwrap_or(0);
                sizes.entry(loser).or_default();
                sizes.entry(newcomer.unwrap()).or_default();
                assert!(own >= waiters_max / sizes.len(), "seed {seed}: {sizes:?}");
                assert!(sizes.values().all(|size| *size <= own + 1), "seed {seed}");
            }
            assert!(waiting.len() <= waiters_max, "seed {seed}");
            let sum: usize = held.iter().map(|(_, part)| part).sum();
            assert_eq!(limit.held(), sum, "seed {seed}");
            if !waiting.is_empty() {
                assert!(units.saturating_sub(sum) < widest, "seed {seed}");
            }
            let free = units.saturating_sub(sum);
            let narrowest = waiting.iter().map(|(_, wanted, _)| *wanted).min();
            assert!(
                widest > 1 || narrowest.is_none() || free == 0,
                "seed {seed}"
            );
        }
        // The remaining waiters are served as units are returned.
        while !waiting.is_empty() {
            held.clear();
            let before = waiting.len();
            waiting.retain_mut(|(_, wanted, caller)| match caller.answer() {
                Some(answer) => {
                    held.push((answer.unwrap(), *wanted));
                    false
                }
                None => true,
            });
            assert!(waiting.len() < before, "seed {seed}");
        }
        held.clear();
        assert_eq!(limit.held(), 0, "seed {seed}");
        assert!(refused > 0 || waiters_max > 5, "seed {seed}: {refused}");
    }
}
