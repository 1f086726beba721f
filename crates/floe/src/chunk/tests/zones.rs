use std::time::Duration;

use floe_core::chunk::{Placed, ZonePhase};
use futures::FutureExt as _;

use super::with_engine;

#[test]
fn a_change_wakes_each_waiter_that_registered_before() {
    with_engine(async |fixture| {
        let zones = &fixture.engine.zones;
        let mut waiters = [Box::pin(zones.changed()), Box::pin(zones.changed())];
        for waiter in &mut waiters {
            assert!(!waiter.as_mut().enable());
        }
        zones.notify_changed();
        assert!(
            waiters
                .into_iter()
                .all(|waiter| waiter.now_or_never().is_some())
        );
        assert!(zones.changed().now_or_never().is_none());
    });
}

#[test]
fn a_wake_up_of_the_reclaimer_is_kept_until_it_waits() {
    with_engine(async |fixture| {
        // Its task registered when the engine started.
        tokio::task::yield_now().await;
        let zones = &fixture.engine.zones;
        zones.wake_reclaimer();
        zones.wake_reclaimer();
        tokio::task::yield_now().await;
        assert!(zones.until_needed().now_or_never().is_none());
    });
}

#[test]
fn a_futile_reclaim_counts_only_when_nothing_is_under_way() {
    with_engine(async |fixture| {
        let zones = &fixture.engine.zones;
        zones.note_futile_reclaim();
        assert_eq!(zones.futile_reclaims(), 1);
        let Placed::AfterOpening(zone, _) = zones.lock().place(4096, 1) else {
            panic!("a zone is free");
        };
        zones.note_futile_reclaim();
        assert_eq!(zones.futile_reclaims(), 1);
        zones.reserved_write_failed(zone, false);
        zones.note_futile_reclaim();
        assert_eq!(zones.futile_reclaims(), 2);
    });
}

#[test]
fn a_retired_zone_is_counted_and_wakes_the_waiters() {
    with_engine(async |fixture| {
        let zones = &fixture.engine.zones;
        let mut changed = Box::pin(zones.changed());
        changed.as_mut().enable();
        let zone = fixture.engine.plan().data_zones().next().unwrap();
        let free = zones.lock().free_zones();
        zones.retire(zone);
        assert!(changed.now_or_never().is_some());
        assert_eq!(zones.lock().info(zone).phase, ZonePhase::Retired);
        assert_eq!(zones.lock().free_zones(), free - 1);
        assert_eq!(fixture.stats().counts.zones_retired, 1);
    });
}

#[test]
fn withdrawn_zones_come_back_after_a_rest() {
    with_engine(async |fixture| {
        let (zones, clock) = (&fixture.engine.zones, fixture.engine.clock());
        let free = zones.lock().free_zones();
        assert_eq!(zones.restore_withdrawn(None), None);
        zones.withdraw_unwritten();
        assert!(zones.lock().free_zones() < free);
        let retry_at = zones.restore_withdrawn(None);
        assert!(retry_at.is_some());
        assert_eq!(zones.restore_withdrawn(retry_at), retry_at);
        clock.sleep(Duration::from_secs(61)).await;
        assert_eq!(zones.restore_withdrawn(retry_at), None);
        assert_eq!(zones.lock().free_zones(), free);
    });
}
