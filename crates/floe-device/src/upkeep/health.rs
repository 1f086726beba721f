//! The health of drives, for metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use floe_core::Tick;
use parking_lot::Mutex;

use super::facts::HealthFacts;
use crate::config::OpenDeviceError;
use crate::nvme::Drive;

/// The least time between two readings.
const PERIOD: Duration = Duration::from_secs(10);

/// The age at which a reading no longer counts: the drive does not answer.
const STALE: Duration = Duration::from_secs(60);

/// Reads the health of drives on a thread of its own, so that a scrape never waits for a drive.
#[derive(Clone)]
pub struct HealthWatch(Arc<Watch>);

/// Reads the health of a drive, if it can.
type Read = dyn Fn(&PathBuf) -> Result<HealthFacts, Refusal> + Send + Sync;

/// A drive has not told its health.
enum Refusal {
    /// The process may not ask, and is not asked again.
    ForGood,
    ForNow,
}

struct Watch {
    drives: Vec<PathBuf>,
    read: Box<Read>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The latest readings, and when they began.
    latest: BTreeMap<PathBuf, (Tick, HealthFacts)>,
    refused: BTreeSet<PathBuf>,
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
        HealthWatch::over(drives, |path| {
            let drive = Drive::open(path).map_err(Refusal::of)?;
            let facts = HealthFacts::from_drive(&drive);
            facts.map_err(|error| Refusal::of(error.at(path)))
        })
    }

    fn over(
        drives: impl IntoIterator<Item = PathBuf>,
        read: impl Fn(&PathBuf) -> Result<HealthFacts, Refusal> + Send + Sync + 'static,
    ) -> Self {
        HealthWatch(Arc::new(Watch {
            drives: drives.into_iter().collect(),
            read: Box::new(read),
            state: Mutex::default(),
        }))
    }

    /// The latest health that was read and is not stale. Starts to read it again if that was
    /// long before `now`.
    pub fn latest(&self, now: Tick) -> Vec<DriveHealth> {
        let mut state = self.0.state.lock();
        let is_due = state.began.is_none_or(|began| now.since(began) >= PERIOD);
        if is_due && !state.is_reading && state.refused.len() < self.0.drives.len() {
            state.began = Some(now);
            let watch = Arc::clone(&self.0);
            let started = thread::Builder::new()
                .name("floe-health".to_owned())
                .spawn(move || Reading(watch).run(now));
            state.is_reading = started.is_ok();
        }
        let fresh = |(path, (began, health)): (&PathBuf, &(Tick, HealthFacts))| {
            (now.since(*began) < STALE).then(|| DriveHealth {
                name: path.display().to_string(),
                health: health.clone(),
            })
        };
        state.latest.iter().filter_map(fresh).collect()
    }
}

impl Refusal {
    fn of(error: OpenDeviceError) -> Self {
        match error {
            OpenDeviceError::Permission(_) => Refusal::ForGood,
            _ => Refusal::ForNow,
        }
    }
}

/// A reading of all drives, which has ended once this is dropped.
struct Reading(Arc<Watch>);

impl Reading {
    fn run(&self, now: Tick) {
        for path in &self.0.drives {
            if self.0.state.lock().refused.contains(path) {
                continue;
            }
            let answer = (self.0.read)(path);
            let mut state = self.0.state.lock();
            match answer {
                Ok(health) => drop(state.latest.insert(path.clone(), (now, health))),
                Err(Refusal::ForGood) => drop(state.refused.insert(path.clone())),
                Err(Refusal::ForNow) => {}
            }
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.state.lock().is_reading = false;
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
            if path.as_os_str() == "b" {
                return Err(Refusal::ForGood);
            }
            Ok(HealthFacts {
                temperature_celsius: answers.lock().recv().expect("the drive answers"),
                ..HealthFacts::default()
            })
        });
        let temperatures = |seconds| {
            let latest = watch.latest(Tick::from_seconds(seconds)).into_iter();
            latest
                .map(|drive| (drive.name, drive.health.temperature_celsius))
                .collect::<Vec<_>>()
        };
        assert_eq!(temperatures(0), [], "the drive has not answered");
        assert_eq!(temperatures(60), [], "and is not asked twice at once");
        answer.send(40).unwrap();
        settled(&watch);
        let first = [("a".to_owned(), 40)];
        assert_eq!(temperatures(9), first, "too early");
        assert_eq!(temperatures(10), first, "asks again");
        answer.send(41).unwrap();
        settled(&watch);
        let second = [("a".to_owned(), 41)];
        assert_eq!(temperatures(11), second);
        drop(answer);
        assert_eq!(temperatures(20), second, "asks once more");
        settled(&watch);
        assert_eq!(
            temperatures(69),
            second,
            "a reading that panicked has ended"
        );
        settled(&watch);
        assert_eq!(temperatures(70), [], "the reading of second 10 is stale");
        assert!(HealthWatch::new([]).latest(Tick::ZERO).is_empty());
    }
}
