//! A large value in the log: pieces wherever their appends landed, and a
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

/// A large value on its way into the log. Its room is promised in one zone when
/// its first piece is sent, so a slow source holds no zone before.
#[derive(Debug)]
pub(crate) struct LogStream {
    log: Arc<Log>,
    footprint_bytes: u64,
    reservation: Option<Reservation>,
    /// Set when host GC moves the value.
    moving: Option<Moving>,
}

/// A value that host GC moves.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) from: Entry,
    /// The value's own.
    pub(crate) sequence: Sequence,
    pub(crate) relocation: Arc<Relocation>,
}

/// The fate of a value whose descriptor was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entered {
    Yes,
    /// A newer value of the key came, or the one that was moved went.
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

    /// The life that the value lies in; its room is promised on the first call.
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

    /// Starts to append a piece, whose payload is in `buf` behind its header.
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
        let handle = reservation.handle();
        Ok(env.device.append(life.zone, buf.freeze(), handle))
    }

    /// A write of the value failed: its zone takes no more.
    pub(crate) fn fail(&mut self, error: &WriteError) {
        tracing::warn!(%error, "a large value could not be written");
        add(&self.log.base.env.counters.write_errors, 1);
        if let Some(reservation) = self.reservation.take() {
            reservation.fail(error);
        }
    }

    /// Appends the descriptor and enters the value into the index. `None` if the
    /// value is not stored.
    pub(crate) async fn publish(
        &mut self,
        mut descriptor: LargeDescriptor,
        relaxed: bool,
    ) -> Result<Option<Published>, CacheError> {
        let Some(life) = self.reserve().await else {
            return Ok(None);
        };
        let (log, hash) = (Arc::clone(&self.log), descriptor.hash);
        // Before the descriptor is written: what is found afterwards is newer than it.
        let mut notes = Vec::new();
        match &self.moving {
            // It died before tombstones were written for this zone, too.
            Some(moving) if log.base.index.live_at(hash, moving.from.place).is_none() => {
                return Ok(None);
            }
            Some(moving) => descriptor.sequence = moving.sequence,
            None => (notes, descriptor.sequence) = log.replace(hash),
        }
        // The descriptor may land though the caller has given up by then, or
        // though its append failed. Until it is entered, it counts as dead.
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
        let handle = self.reservation.as_ref().map(Reservation::handle);
        let handle = handle.unwrap_or_default();
        let at = env.device.append(life.zone, buf.freeze(), handle).await?;
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

    /// Enters the value into the index, unless a newer one of the same key
    /// came while its descriptor was being written.
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
        // A newer one that was not written, or is evicted again, counts as older
        // from now on: it must not be served until memory forgets it, and this then.
        shard.ram_remove(hash);
        match index.insert(&mut shard, hash, entry) {
            Ok(()) => Entered::Yes,
            Err(IndexFull) => Entered::IndexFull,
        }
    }
}

impl Log {
    /// Takes the key's older value out of service. Returns its tombstones and a
    /// sequence newer than anything invalidated.
    fn replace(&self, hash: KeyHash) -> (Vec<Note>, Sequence) {
        let mut shard = self.base.index.shard_of(hash).lock();
        let replaced_up_to = self.base.env.draw_sequence();
        let (_, notes) = self.invalidate(&mut shard, hash, replaced_up_to);
        (notes, self.base.env.draw_sequence())
    }
}
