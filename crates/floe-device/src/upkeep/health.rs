//! The health of drives, for metrics.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use floe_core::Tick;
use parking_lot::Mutex;

use super::facts::HealthFacts;
use crate::nvme::Drive;

/// The least time between two readings.
const PERIOD: Duration = Duration::from_secs(10);

/// Reads the health of drives on a thread of its own, so that a scrape never waits for a drive.
#[derive(Clone)]
pub struct HealthWatch(Arc<Watch>);

/// Reads the health of a drive, if it can.
type Read = dyn Fn(&PathBuf) -> Option<HealthFacts> + Send + Sync;

struct Watch {
    drives: Vec<PathBuf>,
    read: Box<Read>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    latest: Arc<[DriveHealth]>,
    began: Option<Tick>,
    is_reading: bool,
}

/// The health of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveHealth {
    /// The path of the drive.
    pub name: String,
    /// Its health.
    pub health: HealthFacts,
}

impl HealthWatch {
    /// Watches those of `drives` that are NVMe drives and may be asked.
    pub fn new(drives: impl IntoIterator<Item = PathBuf>) -> Self {
        HealthWatch::over(drives, |path| HealthFacts::of(&Drive::open(path).ok()?))
    }

    fn over(
        drives: impl IntoIterator<Item = PathBuf>,
        read: impl Fn(&PathBuf) -> Option<HealthFacts> + Send + Sync + 'static,
    ) -> Self {
        HealthWatch(Arc::new(Watch {
            drives: drives.into_iter().collect(),
            read: Box::new(read),
            state: Mutex::default(),
        }))
    }

    /// The latest health that was read. Starts to read it again if that was long before `now`.
    pub fn latest(&self, now: Tick) -> Arc<[DriveHealth]> {
        let mut state = self.0.state.lock();
        let is_due = state.began.is_none_or(|began| now.since(began) >= PERIOD);
        if is_due && !state.is_reading && !self.0.drives.is_empty() {
            state.began = Some(now);
            let watch = Arc::clone(&self.0);
            let started = thread::Builder::new()
                .name("floe-health".to_owned())
                .spawn(move || watch.read());
            state.is_reading = started.is_ok();
        }
        Arc::clone(&state.latest)
    }
}

impl Watch {
    fn read(&self) {
        let known = |path: &PathBuf| {
            Some(DriveHealth {
                health: (self.read)(path)?,
                name: path.display().to_string(),
            })
        };
        let latest = self.drives.iter().filter_map(known).collect();
        let mut state = self.state.lock();
        state.latest = latest;
        state.is_reading = false;
    }
}

impl fmt::Debug for HealthWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HealthWatch").field(&self.0.drives).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Waits for the reading that has begun.
    fn settled(watch: &HealthWatch) {
        while watch.0.state.lock().is_reading {
            thread::yield_now();
        }
    }

    #[test]
    fn a_scrape_waits_for_no_drive_and_drives_are_asked_rarely() {
        let (answer, answers) = mpsc::channel();
        let answers = Mutex::new(answers);
        let watch = HealthWatch::over(["a".into(), "b".into()], move |path: &PathBuf| {
            let temperature_celsius = answers.lock().recv().unwrap();
            (path.as_os_str() == "a").then_some(HealthFacts {
                temperature_celsius,
                ..HealthFacts::default()
            })
        });
        let temperatures = |seconds| {
            let latest = watch.latest(Tick::from_seconds(seconds));
            let all = latest.iter();
            all.map(|drive| (drive.name.clone(), drive.health.temperature_celsius))
                .collect::<Vec<_>>()
        };
        assert_eq!(temperatures(0), [], "the drive has not answered");
        assert_eq!(temperatures(60), [], "and is not asked twice at once");
        answer.send(40).unwrap();
        answer.send(0).unwrap();
        settled(&watch);
        let first = [("a".to_owned(), 40)];
        assert_eq!(temperatures(9), first, "too early");
        assert_eq!(temperatures(10), first, "asks again");
        answer.send(41).unwrap();
        answer.send(0).unwrap();
        settled(&watch);
        assert_eq!(temperatures(11), [("a".to_owned(), 41)]);
        assert!(HealthWatch::new([]).latest(Tick::ZERO).is_empty());
    }
}
