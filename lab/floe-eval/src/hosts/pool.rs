//! Threads of a host that read or write for its clients.

use std::collections::VecDeque;

/// Threads that serve in turn.
pub(super) struct Pool {
    /// Idle threads; `None` if clients do the work themselves.
    free: Option<u32>,
    line: VecDeque<u32>,
}

impl Pool {
    pub(super) fn new(threads: Option<u32>) -> Self {
        Pool {
            free: threads,
            line: VecDeque::new(),
        }
    }

    /// Takes a thread for the client; false if the client must wait in line.
    pub(super) fn take(&mut self, client: u32) -> bool {
        match &mut self.free {
            None => true,
            Some(0) => {
                self.line.push_back(client);
                false
            }
            Some(free) => {
                *free -= 1;
                true
            }
        }
    }

    /// The client that the freed thread serves next.
    pub(super) fn give_back(&mut self) -> Option<u32> {
        let next = self.line.pop_front();
        if let (Some(free), None) = (&mut self.free, next) {
            *free += 1;
        }
        next
    }
}
