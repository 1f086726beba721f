//! Estimates, after a restart, how many copies on flash are the newest of their
//! key.
//!
//! Recovered set-groups record how many copies they hold, but not how many of
//! them are superseded. So a background task draws random copies and looks each
//! up, one read at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use floe_core::hash::KeyHash;
use floe_core::layout::tiny::split_record;
use floe_core::tiny::{Engine as _, Label, Object, Page, PageAddress};

use super::instance::Instance;

/// Most draws, including those of an empty set or an unreadable page.
const DRAWS_MAX: u64 = 1 << 15;

impl Instance {
    /// Draws copies until the engine has enough.
    pub(super) async fn survey(self: Arc<Self>, now_seconds: impl Fn() -> u32) {
        for nth in 0..DRAWS_MAX {
            if self.stopping.load(SeqCst) {
                return;
            }
            let random = KeyHash::of(self.medium.seed, &nth.to_le_bytes()).0;
            let Some((page, label)) = self.draw(random) else {
                return;
            };
            let Some(object) = self.one_of(page, label, random).await else {
                continue;
            };
            let is_found = self.finds(&object, page, now_seconds()).await;
            let state = &mut *self.state.lock();
            let stripe = &mut state.stripe;
            state.engine.surveyed(stripe, &object, label, is_found);
        }
    }

    fn draw(&self, random: u64) -> Option<(PageAddress, Label)> {
        let state = self.state.lock();
        state.engine.draw(&state.stripe, random)
    }

    /// One object of a page. The page is not pinned: if its zone was reset
    /// meanwhile, its label does not match.
    async fn one_of(&self, page: PageAddress, label: Label, random: u64) -> Option<Object> {
        let read = self.medium.read(page).await.ok();
        let Page::Objects(mut objects) = self.medium.objects(label, read.as_deref())? else {
            return None;
        };
        let at = (random >> 32).checked_rem(objects.len() as u64)?;
        Some(objects.swap_remove(at as usize))
    }

    /// True if a get of the object's key finds this copy.
    async fn finds(&self, object: &Object, page: PageAddress, now_seconds: u32) -> bool {
        match split_record(&object.record) {
            Some((key, _)) if !object.tombstone => {
                let found = self.page_of(object.hash, key, now_seconds).await;
                found == Some(page)
            }
            _ => false,
        }
    }
}
