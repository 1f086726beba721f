//! A drive's own report of its zones, while a run lasts.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use floe_device::ZoneState;
use floe_device::nvme::{Drive, Interface};

use super::media::figure;
use crate::run::ExtraFigure;

/// Time between two reports.
const PERIOD: Duration = Duration::from_secs(1);

/// Asks zoned NVMe drives for their zones, on a thread of its own.
#[derive(Debug)]
pub struct DriveWatch {
    stop: Sender<()>,
    thread: JoinHandle<Peaks>,
}

/// The most zones of one drive that a report had.
#[derive(Clone, Copy, Debug, Default)]
struct Peaks {
    open: usize,
    active: usize,
    reports: usize,
}

impl DriveWatch {
    /// Watches those of `paths` that are zoned NVMe drives; `None` if none is.
    pub fn start(paths: &[PathBuf]) -> Option<Self> {
        let drives = paths.iter().filter_map(|path| Drive::open(path).ok());
        let is_zoned = |drive: &Drive| matches!(drive.interface(), Interface::Zoned(_));
        let drives: Vec<_> = drives.filter(is_zoned).collect();
        if drives.is_empty() {
            return None;
        }
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut peaks = Peaks::default();
            loop {
                for drive in &drives {
                    peaks.count(drive);
                }
                if stopped.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout) {
                    return peaks;
                }
            }
        });
        Some(DriveWatch { stop, thread })
    }

    /// Stops, and returns the figures.
    pub fn figures(self) -> Vec<ExtraFigure> {
        // A thread that panicked has said so.
        let _ = self.stop.send(());
        let peaks = self.thread.join().unwrap_or_default();
        [
            ("device_reported_open_zones_max", peaks.open),
            ("device_reported_active_zones_max", peaks.active),
            ("device_zone_reports", peaks.reports),
        ]
        .map(|(metric, value)| figure(metric, "count", value as f64))
        .into()
    }
}

impl Peaks {
    fn count(&mut self, drive: &Drive) {
        // A drive that is being reset tells nothing.
        let Ok(zones) = drive.zones() else {
            return;
        };
        let count = |states: &[ZoneState]| {
            let is_one = zones.iter().filter(|zone| states.contains(&zone.state));
            is_one.count()
        };
        self.open = self.open.max(count(&[ZoneState::Open]));
        self.active = self
            .active
            .max(count(&[ZoneState::Open, ZoneState::Closed]));
        self.reports += 1;
    }
}
