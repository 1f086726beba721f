use std::time::Duration;

use floe_device::virtual_time;
use futures::FutureExt;

use super::*;

#[test]
fn the_longest_idle_is_asked_and_a_busy_one_declines() {
    virtual_time::run(1, |clock| async move {
        let crowd = Crowd::new(clock.clone());
        let second = || clock.sleep(Duration::from_secs(1));
        let first = crowd.join(None);
        second().await;
        let other = crowd.join(None);
        second().await;
        // A request that begins after the other connection's.
        drop(first.activity.begin());
        second().await;

        let mut evict = Box::pin(crowd.evict());
        assert!(futures::poll!(&mut evict).is_pending());
        let busy = other.activity.begin();
        assert!(other.activity.evicted().now_or_never().is_none());
        // It declined, so the next one is told to close.
        assert!(futures::poll!(&mut evict).is_pending());
        assert!(first.activity.evicted().now_or_never().is_some());
        drop(first);

        // No connection is idle until its request has ended and the response is sent.
        assert!(futures::poll!(&mut evict).is_pending());
        other.activity.writing(true);
        drop(busy);
        assert!(futures::poll!(&mut evict).is_pending());
        assert!(other.activity.evicted().now_or_never().is_none());
        other.activity.writing(false);
        assert!(futures::poll!(&mut evict).is_pending());
        assert!(other.activity.evicted().now_or_never().is_some());
    });
}

/// Two threads wait for a place, and one connection leaves.
#[test]
fn another_is_asked_for_the_thread_that_still_waits() {
    virtual_time::run(1, |clock| async move {
        let crowd = Crowd::new(clock.clone());
        let first = crowd.join(None);
        clock.sleep(Duration::from_secs(1)).await;
        let other = crowd.join(None);
        let mut waiting = Box::pin(crowd.evict());
        let mut still_waiting = Box::pin(crowd.evict());
        assert!(futures::poll!(&mut waiting).is_pending());
        assert!(futures::poll!(&mut still_waiting).is_pending());
        assert!(first.activity.evicted().now_or_never().is_some());
        assert!(other.activity.evicted().now_or_never().is_none());
        drop(waiting);
        drop(first);
        assert!(futures::poll!(&mut still_waiting).is_pending());
        assert!(other.activity.evicted().now_or_never().is_some());
    });
}

#[test]
fn permits_are_kept_until_the_connection_is_idle() {
    virtual_time::run(1, |clock| async move {
        let crowd = Crowd::new(clock);
        let member = crowd.join(None);
        let pages = Arc::new(tokio::sync::Semaphore::new(1));
        let busy = member.activity.begin();
        let page = Arc::clone(&pages).try_acquire_owned().unwrap();
        member.activity.keep(page);
        member.activity.writing(true);
        drop(busy);
        assert_eq!(pages.available_permits(), 0);
        member.activity.writing(false);
        assert_eq!(pages.available_permits(), 1);
    });
}

#[test]
fn a_client_has_a_limit_of_busy_connections() {
    virtual_time::run(1, |clock| async move {
        let crowd = Crowd::new(clock);
        let of = |last| Some(IpAddr::from([10, 0, 0, last]));
        let members = [(); 3].map(|()| crowd.join(of(1)));
        let [first, second, third] = &members;
        let begun = first.activity.begin();
        second.activity.writing(true);
        assert!(!first.activity.exceeds(2) && !second.activity.exceeds(2));
        // A refused one keeps none from being served, however often it asks.
        for _ in 0..3 {
            let busy = third.activity.begin();
            assert!(third.activity.exceeds(2));
            drop(busy);
        }
        let other = crowd.join(of(2));
        let busy = other.activity.begin();
        assert!(!other.activity.exceeds(1), "another client");
        drop((busy, begun));
        let busy = third.activity.begin();
        assert!(!third.activity.exceeds(2));
        // A connection that ends while it is busy counts no longer.
        drop(members);
        drop(busy);
        let again = crowd.join(of(1));
        let busy = again.activity.begin();
        assert!(!again.activity.exceeds(1));
        drop(busy);
    });
}

#[test]
fn the_client_with_the_most_connections_makes_room() {
    virtual_time::run(1, |clock| async move {
        let crowd = Crowd::new(clock.clone());
        let of = |last| Some(IpAddr::from([10, 0, 0, last]));
        let alone = crowd.join(of(1));
        clock.sleep(Duration::from_secs(1)).await;
        let many = [(); 2].map(|()| crowd.join(of(2)));
        let mut evict = Box::pin(crowd.evict());
        assert!(futures::poll!(&mut evict).is_pending());
        assert!(alone.activity.evicted().now_or_never().is_none());
        assert!(many[0].activity.evicted().now_or_never().is_some());
    });
}
