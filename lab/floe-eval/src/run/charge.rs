//! The host's time, which virtual time does not include: processing a request,
//! and copying its data.

use std::time::Duration;

use floe_core::Tick;
use floe_device::Clock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The host's work that is added to requests, like that of the papers' hosts'
/// models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostCharge {
    /// Microseconds of a hit.
    pub hit_us: f64,
    /// Microseconds of a miss.
    pub miss_us: f64,
    /// Bytes per second at which all clients together copy the data that they
    /// receive.
    pub copies_bytes_per_s: u64,
}

/// The charges of one run.
pub(super) struct Charging {
    charge: HostCharge,
    clock: Clock,
    /// Time at which the copies in progress end.
    copies_free_at: Mutex<Tick>,
}

impl Charging {
    pub(super) fn new(charge: HostCharge, clock: Clock) -> Self {
        Charging {
            charge,
            clock,
            copies_free_at: Mutex::new(Tick::ZERO),
        }
    }

    /// Waits for the host's work on a hit of `bytes` bytes.
    pub(super) async fn hit(&self, bytes: u64) {
        self.pay(self.charge.hit_us, bytes).await;
    }

    /// Waits for the host's work on a miss of `bytes` bytes.
    pub(super) async fn miss(&self, bytes: u64) {
        self.pay(self.charge.miss_us, bytes).await;
    }

    async fn pay(&self, us: f64, bytes: u64) {
        let copied = self.copy(bytes);
        self.clock.sleep_until(copied + seconds(us / 1e6)).await;
    }

    /// Time at which a copy ends, after those before it.
    fn copy(&self, bytes: u64) -> Tick {
        let now = self.clock.now();
        if self.charge.copies_bytes_per_s == 0 {
            return now;
        }
        let takes = seconds(bytes as f64 / self.charge.copies_bytes_per_s as f64);
        let mut free_at = self.copies_free_at.lock();
        *free_at = now.max(*free_at) + takes;
        *free_at
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_all_clients_share_one_rate() {
        let charge = HostCharge {
            hit_us: 1000.0,
            miss_us: 0.0,
            copies_bytes_per_s: 1000,
        };
        let took: Result<Duration, crate::error::EvalError> =
            crate::run::in_virtual_time(1, async |clock| {
                let charging = Charging::new(charge, clock.clone());
                futures::join!(charging.hit(500), charging.hit(500));
                Ok(clock.now().since(Tick::ZERO))
            });
        assert_eq!(took.expect("it runs"), Duration::from_millis(1001));
    }
}
