//! Requests in the kernel.

use super::request::Request;

/// Requests in the kernel, by token.
#[derive(Default)]
pub(super) struct Table {
    slots: Vec<Option<Request>>,
    free: Vec<usize>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn insert(&mut self, request: Request) -> (u64, &mut Request) {
        let token = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        (token as u64, self.slots[token].insert(request))
    }

    pub(super) fn remove(&mut self, token: u64) -> Option<Request> {
        let token = usize::try_from(token).ok()?;
        let request = self.slots.get_mut(token)?.take();
        if request.is_some() {
            self.free.push(token);
        }
        request
    }
}
