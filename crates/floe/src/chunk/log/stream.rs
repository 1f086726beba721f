//! A large value in the log: pieces at any offsets of one zone, and a
//! descriptor, written last, that lists them.

use std::sync::Arc;

use floe_core::chunk::{Entry, IndexFull};
use floe_core::hash::KeyHash;
use floe_core::layout::{
    LargeDescriptor, Note, PieceHeader, Sequence, SummaryEntry, ValueKind, ZoneLife,
    encode_piece_header,
};
use floe_device::{Address, IoBuf, OpFuture};

use super::{Log, Purpose, Relocation, Reservation};
use crate::chunk::flash_value::Published;
use crate::chunk::stats::add;
use crate::chunk::write_error::WriteError;
use crate::error::CacheError;

/// A large value that is written to the log. Its zone is reserved when its
/// first piece is sent, so a slow source holds none before.
#[derive(Debug)]
pub(crate) struct LogStream {
    log: Arc<Log>,
    footprint_bytes: u64,
    reservation: Option<Reservation>,
    /// Set if host GC moves the value.
    moving: Option<Moving>,
}

/// A value that host GC moves.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) from: Entry,
    /// The value's original sequence.
    pub(crate) sequence: Sequence,
    pub(crate) relocation: Arc<Relocation>,
}

/// The result of publishing a value whose descriptor was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entered {
    Yes,
    /// A newer value of the key was written, or the moved value was removed.
    Overtaken,
    IndexFull,
}

impl LogStream {
    pub(crate) fn new(log: &Arc<Log>, footprint_bytes: u64, moving: Option<Moving>) -> Self {
        LogStream {
            log: Arc::clone(log),
            footprint_bytes,
            reservation: None,
            moving,
        }
    }

    /// Bytes before a piece's payload.
    pub(crate) fn header_bytes(&self) -> usize {
        self.log.base.env.block_size() as usize
    }

    /// The life of the value's zone, which the first call reserves.
    pub(crate) async fn reserve(&mut self) -> Option<ZoneLife> {
        if self.reservation.is_none() {
            let purpose = match self.moving {
                Some(_) => Purpose::HostGc,
                None => Purpose::User,
            };
            let reserved = self.log.reserve(purpose, self.footprint_bytes, 1).await;
            if let (Some(reservation), Some(moving)) = (&reserved, &self.moving) {
                moving.relocation.add(reservation.life().zone);
            }
            self.reservation = reserved;
        }
        self.reservation.as_ref().map(Reservation::life)
    }

    /// Starts to append a piece; `buf` has its payload after its header.
    pub(crate) fn send(
        &self,
        piece: PieceHeader,
        mut buf: IoBuf,
    ) -> Result<OpFuture<Address>, WriteError> {
        let env = &self.log.base.env;
        let Some(reservation) = &self.reservation else {
            return Err(WriteError::Unplaced);
        };
        let life = reservation.life();
        encode_piece_header(env.id, life, piece, env.block_size(), &mut buf)?;
        let placement = reservation.placement();
        Ok(env.device.append(life.zone, buf.freeze(), placement))
    }

    /// Handles a failed write: the zone accepts no more.
    pub(crate) fn fail(&mut self, error: &WriteError) {
        tracing::warn!(%error, "a large value could not be written");
        add(&self.log.base.env.counters.write_errors, 1);
        if let Some(reservation) = self.reservation.take() {
            if let WriteError::Device(error) = error {
                let zone = reservation.life().zone;
                self.log.base.zones.note_unwritable(zone, error);
            }
            reservation.fail(error);
        }
    }

    /// Appends the descriptor and publishes the value. `None` if the value is not stored.
    pub(crate) async fn publish(
        &mut self,
        mut descriptor: LargeDescriptor,
        relaxed: bool,
    ) -> Result<Option<Published>, CacheError> {
        let Some(life) = self.reserve().await else {
            return Ok(None);
        };
        let (log, hash) = (Arc::clone(&self.log), descriptor.hash);
        // Drawn before the descriptor is written: a value that is found afterwards is newer.
        let mut notes = Vec::new();
        match &self.moving {
            // It was removed before tombstones were written for this zone too.
            Some(moving) if log.base.index.live_at(hash, moving.from.place).is_none() => {
                return Ok(None);
            }
            Some(moving) => descriptor.sequence = moving.sequence,
            None => (notes, descriptor.sequence) = log.replace(hash),
        }
        // The descriptor may reach flash even if the caller gives up or its
        // append fails. Until the value is published, it has a tombstone.
        let stillborn = Note::Tombstone {
            life,
            hash,
            sequence: descriptor.sequence,
        };
        log.base.journal.enqueue(&[stillborn]);
        notes.push(stillborn);
        let notes = log.base.journal.hold(notes);
        let placed = match self.append_descriptor(&descriptor, life).await {
            Ok(placed) => placed,
            Err(error) => {
                self.fail(&error);
                log.base.journal.commit(notes.take()).await?;
                return Ok(None);
            }
        };
        log.list_records(life.zone, &[placed]);
        let entered = self.enter(hash, log.entry(life, &placed));
        let mut notes = notes.take();
        if entered == Entered::Yes {
            log.base.journal.cancel(&[stillborn]);
            notes.retain(|note| *note != stillborn);
        } else {
            log.base.index.states().add_tombstone(life.zone);
        }
        log.settle(notes, relaxed).await?;
        Ok((entered != Entered::IndexFull).then(|| Published {
            descriptor: Arc::new(descriptor),
            checksum: placed.checksum,
        }))
    }

    async fn append_descriptor(
        &self,
        descriptor: &LargeDescriptor,
        life: ZoneLife,
    ) -> Result<SummaryEntry, WriteError> {
        let env = &self.log.base.env;
        let block_size = env.block_size();
        let mut buf = env.device.allocate(descriptor.encoded_bytes(block_size));
        let (_, checksum) = descriptor.encode(env.id, life, block_size, &mut buf)?;
        let placement = self.log.placement(life.zone);
        let at = env
            .device
            .append(life.zone, buf.freeze(), placement)
            .await?;
        Ok(SummaryEntry {
            hash: descriptor.hash,
            sequence: descriptor.sequence,
            block: (at.offset / u64::from(block_size)) as u32,
            value_bytes: descriptor.value_bytes as u32,
            checksum,
            expiry_unix_s: descriptor.expiry_unix_s,
            kind: ValueKind::Large,
            key_bytes: descriptor.key.len() as u16,
        })
    }

    /// Publishes the value, unless a newer one of the key was written meanwhile.
    fn enter(&self, hash: KeyHash, entry: Entry) -> Entered {
        let index = &self.log.base.index;
        if let Some(moving) = &self.moving {
            return match index.relocate(hash, moving.from, entry) {
                true => Entered::Yes,
                false => Entered::Overtaken,
            };
        }
        let mut shard = index.shard_of(hash).lock();
        if shard.pending.contains_key(&hash) || shard.index.get(hash).is_some() {
            return Entered::Overtaken;
        }
        // A newer value that was declined or evicted counts as older from now
        // on. Its RAM copy must go: reads would return it until it is evicted,
        // and then this value.
        shard.ram_remove(hash);
        match index.insert(&mut shard, hash, entry) {
            Ok(()) => Entered::Yes,
            Err(IndexFull) => Entered::IndexFull,
        }
    }
}

impl Log {
    /// Invalidates the key's older value. Returns its tombstones, and a
    /// sequence newer than all invalidated ones.
    fn replace(&self, hash: KeyHash) -> (Vec<Note>, Sequence) {
        let mut shard = self.base.index.shard_of(hash).lock();
        let replaced_up_to = self.base.env.draw_sequence();
        let (_, notes) = self.invalidate(&mut shard, hash, replaced_up_to);
        (notes, self.base.env.draw_sequence())
    }
}
