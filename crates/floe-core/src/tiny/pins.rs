//! Pins: a zone or extent is reset only after its last reader has finished.

/// The number of readers of each zone or extent.
#[derive(Clone, Debug)]
pub(super) struct Pins(Vec<u32>);

impl Pins {
    pub(super) fn new(count: u32) -> Self {
        Pins(vec![0; count as usize])
    }

    pub(super) fn pin(&mut self, at: u32) {
        self.0[at as usize] += 1;
    }

    pub(super) fn unpin(&mut self, at: u32) {
        debug_assert!(self.0[at as usize] > 0, "number {at} is not pinned");
        self.0[at as usize] -= 1;
    }

    pub(super) fn is_free(&self, at: u32) -> bool {
        self.0[at as usize] == 0
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<u32>()) as u64
    }
}
