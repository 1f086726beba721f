//! Observes every command of an engine: counts them, and times them if asked.

use floe_core::tiny::model::Watcher;
use floe_core::tiny::{Flash, PageAddress};

use super::timing::Timing;

/// Counts of commands since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Commands {
    pub(super) writes: u64,
    pub(super) pages_written: u64,
    pub(super) pages_read: u64,
    pub(super) resets: u64,
}

#[derive(Debug)]
pub(super) struct Watch {
    flash: Flash,
    pub(super) commands: Commands,
    pub(super) timing: Option<Box<Timing>>,
}

impl Watch {
    pub(super) fn new(flash: Flash, timing: Option<Timing>) -> Self {
        Watch {
            flash,
            commands: Commands::default(),
            timing: timing.map(Box::new),
        }
    }
}

impl Watcher for Watch {
    fn read(&mut self, pages: &[PageAddress], for_search: bool) {
        self.commands.pages_read += pages.len() as u64;
        if let Some(timing) = &mut self.timing {
            timing.read(pages, for_search);
        }
    }

    fn written(&mut self, first: PageAddress, pages: usize) {
        self.commands.writes += 1;
        self.commands.pages_written += pages as u64;
        if let Some(timing) = &mut self.timing {
            // On devices with in-place writes, sets are written one by one.
            match (self.flash.in_place, pages) {
                (true, 1) => timing.written_in_place(first),
                _ => timing.appended(first, pages),
            }
        }
    }

    fn reset(&mut self, zone: u32) {
        self.commands.resets += 1;
        if let Some(timing) = &mut self.timing {
            timing.reset(zone);
        }
    }
}
