//! The end of a large value: its descriptor, and its place in the index.

use std::sync::Arc;

use floe_core::chunk::Entry;
use floe_core::layout::{
    LargeDescriptor, Note, RecordFlags, Sequence, SummaryEntry, ValueKind, ZoneLife,
};
use floe_device::Address;

use super::{LargeWriter, Moving};
use crate::chunk::place::Placement;
use crate::chunk::space::Deaths;
use crate::chunk::write::WriteError;
use crate::error::CacheError;

/// What became of a value whose descriptor was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entered {
    Yes,
    /// A newer one of the same key came, or the one that was moved went.
    Overtaken,
    IndexFull,
}

impl LargeWriter {
    /// Writes the descriptor and enters the value into the index.
    pub(super) async fn publish(&mut self) -> Result<Option<()>, CacheError> {
        if self.engine.slots().is_some() {
            return self.publish_in_slot().await;
        }
        let Some(life) = self.place().await else {
            return Ok(None);
        };
        let block_size = self.engine.plan.geometry.block_size;
        if let Some(Moving { from, .. }) = &self.moving
            && !self.engine.is_live_at(self.hash, from.place)
        {
            // It died before deaths were noted here, too.
            return Ok(None);
        }
        // Before the descriptor is written: whatever is found afterwards is newer than it.
        let (notes, sequence) = match &self.moving {
            Some(moving) => (Vec::new(), moving.sequence),
            None => {
                let (deaths, sequence) = self.invalidate();
                (deaths.notes, sequence)
            }
        };
        // The descriptor may land though the caller has given up by then, or
        // though its append failed. Until it is entered, it counts as dead.
        let hash = self.hash;
        let stillborn = Note::Death {
            life,
            hash,
            sequence,
        };
        let journal = &self.engine.journal;
        journal.owe(&[stillborn]);
        let notes = journal.hold([&notes[..], &[stillborn]].concat());
        let descriptor = self.descriptor(sequence);
        let (at, checksum) = match self.append_descriptor(&descriptor, life, block_size).await {
            Ok(landed) => landed,
            Err(error) => {
                self.give_up_zone(&error);
                self.engine.journal.commit(notes.take()).await?;
                return Ok(None);
            }
        };
        let summary = SummaryEntry {
            hash: self.hash,
            sequence,
            block: (at.offset / u64::from(block_size)) as u32,
            value_bytes: self.len as u32,
            checksum,
            expiry_unix_s: self.expiry_unix_s,
            kind: ValueKind::Large,
            key_bytes: self.key.len() as u16,
        };
        self.engine.list_records(life.zone, &[summary]);
        let entry = Entry {
            place: at,
            len: self.len as u32,
            checksum,
            expiry_unix_s: self.expiry_unix_s,
        };
        let entered = self.enter(entry);
        let mut notes = notes.take();
        if entered == Entered::Yes {
            self.engine.journal.forgive(&[stillborn]);
            notes.retain(|note| *note != stillborn);
        } else {
            self.engine.states.add_death(life.zone);
        }
        self.engine
            .descriptors
            .insert((self.hash, checksum), Arc::new(descriptor));
        if self.relaxed {
            self.engine.journal.commit_later(notes).await;
        } else {
            self.engine.journal.commit(notes).await?;
        }
        Ok((entered != Entered::IndexFull).then_some(()))
    }

    fn descriptor(&mut self, sequence: Sequence) -> LargeDescriptor {
        LargeDescriptor {
            hash: self.hash,
            sequence,
            stream: self.stream,
            key: self.key.to_vec(),
            value_bytes: self.len,
            expiry_unix_s: self.expiry_unix_s,
            flags: RecordFlags::default(),
            piece_bytes: self.engine.plan.piece_bytes,
            piece_blocks: std::mem::take(&mut self.piece_blocks),
            unit_checksums: std::mem::take(&mut self.unit_checksums),
        }
    }

    async fn append_descriptor(
        &mut self,
        descriptor: &LargeDescriptor,
        life: ZoneLife,
        block_size: u32,
    ) -> Result<(Address, u32), WriteError> {
        let mut buf = self
            .engine
            .device
            .allocate(descriptor.encoded_bytes(block_size));
        let (_, checksum) = descriptor.encode(self.engine.id, life, block_size, &mut buf)?;
        let handle = self
            .placement
            .as_ref()
            .map_or_else(Default::default, Placement::handle);
        let at = self
            .engine
            .device
            .append(life.zone, buf.freeze(), handle)
            .await?;
        Ok((at, checksum))
    }

    /// Enters the value into the index, unless a newer one of the same key
    /// came while its descriptor was being written.
    fn enter(&self, entry: Entry) -> Entered {
        let mut shard = self.engine.shard_of(self.hash).lock();
        let states = &self.engine.states;
        if let Some(Moving { from, .. }) = self.moving {
            if !shard.index.relocate(self.hash, from.place, entry) {
                return Entered::Overtaken;
            }
            states.remove_live(from.place.zone, u64::from(from.len));
            states.add_live(entry.place.zone, u64::from(entry.len));
            return Entered::Yes;
        }
        if shard.pending.contains_key(&self.hash) || shard.index.get(self.hash).is_some() {
            return Entered::Overtaken;
        }
        // A newer one that was not written, or is evicted again, counts as older
        // from now on: it must not be served until memory forgets it, and this then.
        shard.ram_remove(self.hash);
        if shard.index.insert(self.hash, entry).is_err() {
            return Entered::IndexFull;
        }
        states.add_live(entry.place.zone, u64::from(entry.len));
        Entered::Yes
    }

    /// Takes the key's older value out of service. Returns the notes of its
    /// death and a sequence newer than anything invalidated.
    pub(super) fn invalidate(&self) -> (Deaths, Sequence) {
        let mut shard = self.engine.shard_of(self.hash).lock();
        let replaced_up_to = self.engine.next_sequence();
        let (_, deaths) = self
            .engine
            .invalidate(&mut shard, self.hash, replaced_up_to);
        (deaths, self.engine.next_sequence())
    }
}
