//! Two machines before one backing device.

use std::ops::Range;

use floe_device::error::{DeviceErrorKind, Operation};
use floe_device::{BlockDevice, Counters, DeviceError, Holder, IoBuf, IoData, OpFuture, Reserved};
use parking_lot::Mutex;

use super::*;

/// A device that several machines reach: the key that it is reserved by, and whether its holder
/// has confirmed it.
type Medium = Arc<Mutex<Option<(u64, bool)>>>;

/// The device as one machine has it, which holds the reservation by its key or does not.
#[derive(Debug)]
struct Attached {
    below: SharedBlockDevice,
    holder: Medium,
    /// The key that this machine has used.
    key: Mutex<u64>,
    /// It tells that another machine has taken it, as a lock does and a reservation does not.
    tells: bool,
}

impl Attached {
    fn to(below: &SharedBlockDevice, holder: &Medium, tells: bool) -> SharedBlockDevice {
        Arc::new(Attached {
            tells,
            below: Arc::clone(below),
            holder: Arc::clone(holder),
            key: Mutex::new(0),
        })
    }

    /// Starts a write, if no other machine has reserved the device.
    fn change(&self, start: impl FnOnce() -> OpFuture<()>) -> OpFuture<()> {
        let holder = *self.holder.lock();
        match holder.is_none_or(|(holder, _)| holder == *self.key.lock()) {
            true => start(),
            false => {
                let conflict = std::io::Error::other("reservation conflict");
                let kind = DeviceErrorKind::Io(conflict);
                OpFuture::ready(Err(DeviceError::new(Operation::Write, None, kind)))
            }
        }
    }
}

impl BlockDevice for Attached {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn describe(&self) -> String {
        "a shared device".to_owned()
    }

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        self.change(|| self.below.write(at, data))
    }

    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()> {
        self.change(|| self.below.write_zeroes(range))
    }

    fn discard(&self, range: Range<u64>) -> OpFuture<()> {
        self.change(|| self.below.discard(range))
    }

    fn block_bytes(&self) -> u32 {
        self.below.block_bytes()
    }

    fn flush(&self) -> OpFuture<()> {
        self.below.flush()
    }

    fn read(&self, at: u64, buf: IoBuf) -> OpFuture<IoBuf> {
        self.below.read(at, buf)
    }

    fn counters(&self) -> &Counters {
        self.below.counters()
    }

    fn reserve(&self, key: u64, taken_from: Option<u64>) -> OpFuture<Reserved> {
        *self.key.lock() = key;
        let mut holder = self.holder.lock();
        let was_held = *holder == Some((key, true));
        OpFuture::ready(Ok(match *holder {
            Some((other, _)) if other != key && taken_from != Some(other) => {
                Reserved::Elsewhere(Holder {
                    key: Some(other),
                    name: None,
                })
            }
            _ => {
                *holder = Some((key, was_held));
                Reserved::Held { was_held }
            }
        }))
    }

    fn is_taken_away(&self) -> bool {
        let holder = *self.holder.lock();
        self.tells && holder.is_none_or(|(holder, _)| holder != *self.key.lock())
    }

    fn confirm(&self, key: u64) -> OpFuture<()> {
        *self.holder.lock() = Some((key, true));
        OpFuture::ready(Ok(()))
    }

    fn release(&self, key: u64) -> OpFuture<()> {
        let mut holder = self.holder.lock();
        *holder = holder.filter(|(holder, _)| *holder != key);
        OpFuture::ready(Ok(()))
    }
}

/// A machine: its cache device, which outlives its process.
struct Machine {
    device: SharedBlockDevice,
    medium: SharedBlockDevice,
    holder: Medium,
    tells: bool,
}

impl Machine {
    async fn open(&self) -> VolumeCache {
        let settings = config(Fill::Sector);
        let cache = VolumeCache::open(Arc::clone(&self.device), Clock::real(), &settings).await;
        cache.expect("it opens")
    }

    async fn attach(
        &self,
        cache: &VolumeCache,
        change: impl FnOnce(&mut VolumeConfig),
    ) -> Result<Volume, OpenVolumesError> {
        let mut config = VolumeConfig {
            reserve: Reserve::Required,
            ..of_mode(Mode::WriteBack)
        };
        change(&mut config);
        let backing = Attached::to(&self.medium, &self.holder, self.tells);
        cache.attach("disk", backing, &config).await
    }
}

/// The caches of two machines. The first one has the volume, and has written 1 to its start.
async fn opened([one, two]: &[Machine; 2]) -> (VolumeCache, VolumeCache, Volume) {
    let (first, second) = (one.open().await, two.open().await);
    let volume = one.attach(&first, |_| {}).await.expect("it attaches");
    volume.write_at(0, block(1), true).await.expect("it writes");
    (first, second, volume)
}

/// Two machines with one device of 8 MiB.
fn machines() -> [Machine; 2] {
    let (medium, holder) = (memory(8), Medium::default());
    [(); 2].map(|()| Machine {
        device: memory(6),
        medium: Arc::clone(&medium),
        holder: Arc::clone(&holder),
        tells: false,
    })
}

fn block(byte: u8) -> IoData {
    IoBuf::copy_of(&[byte; 4096], 4096).freeze()
}

async fn first_byte(volume: &Volume) -> u8 {
    volume.read_at(0, 4096).await.expect("it reads")[0]
}

#[test]
fn a_second_machine_is_told_who_has_the_device() {
    run(async {
        let machines = machines();
        let (first, second, _) = opened(&machines).await;
        let [one, two] = &machines;
        let refused = two.attach(&second, |_| {}).await;
        let refused = refused.expect_err("the device is reserved").to_string();
        assert!(refused.contains(&first.key.to_string()), "{refused}");
        // A clean stop and a restart keep it; a read-only volume reserves nothing.
        first.close().await.expect("it closes");
        assert!(two.attach(&second, |_| {}).await.is_err());
        let first = one.open().await;
        one.attach(&first, |_| {}).await.expect("it attaches again");
        let read_only = two.attach(&second, |config| config.read_only = true).await;
        read_only.expect("it attaches");
        let detached = second.detach("disk", DirtyData::WriteBack).await;
        detached.expect("it detaches");
        // Once it is detached, the other one may have it, and reads what was written.
        let kept = first.detach("disk", DirtyData::Keep).await;
        kept.expect("it detaches");
        assert!(
            two.attach(&second, |_| {}).await.is_err(),
            "dirty data was kept"
        );
        one.attach(&first, |_| {}).await.expect("it attaches");
        let detached = first.detach("disk", DirtyData::WriteBack).await;
        detached.expect("it detaches");
        let volume = two.attach(&second, |_| {}).await.expect("it attaches");
        assert_eq!(first_byte(&volume).await, 1);
        // What was cached before a detach may have been overwritten since.
        volume.write_at(0, block(2), true).await.expect("it writes");
        let detached = second.detach("disk", DirtyData::WriteBack).await;
        detached.expect("it detaches");
        let volume = one.attach(&first, |_| {}).await.expect("it attaches");
        assert_eq!(first_byte(&volume).await, 2);
    });
}

#[test]
fn a_machine_that_lost_its_reservation_serves_nothing_old() {
    for has_dirty in [true, false] {
        run(async {
            let machines = machines();
            let (first, second, volume) = opened(&machines).await;
            let [one, two] = &machines;
            if !has_dirty {
                volume.clean().await.expect("it is written back");
            }
            let key = Some(first.key);
            let taken = two.attach(&second, |config| config.take_from = key).await;
            let taken = taken.expect("the first machine's reservation is taken away");
            taken.write_at(0, block(2), true).await.expect("it writes");
            taken.clean().await.expect("it is written back");
            // The first machine lives on, and cannot write.
            volume
                .write_at(8192, block(3), true)
                .await
                .expect("to the cache");
            assert!(volume.clean().await.is_err());
            first.abandon();
            drop((volume, first));
            let detached = second.detach("disk", DirtyData::WriteBack).await;
            detached.expect("it detaches");

            // In both cases there is dirty data now: it is refused until it is given up.
            let first = one.open().await;
            for _ in 0..2 {
                let refused = one.attach(&first, |_| {}).await;
                let refused = refused.map(drop).expect_err("it has dirty data");
                assert!(
                    matches!(refused, OpenVolumesError::ReservationLost { .. }),
                    "{refused}"
                );
            }
            // Its own key confirms that no other machine has written.
            let key = Some(first.key);
            let confirmed = one.attach(&first, |config| config.take_from = key).await;
            confirmed.expect("it attaches");
        });
    }
}

#[test]
fn clean_blocks_of_a_lost_reservation_are_forgotten() {
    run(async {
        let both = machines();
        let (one, two) = (&both[0], &both[1]);
        let (first, second, volume) = opened(&both).await;
        volume.clean().await.expect("it is written back");
        first.close().await.expect("it closes");
        let key = Some(first.key);
        let taken = two.attach(&second, |config| config.take_from = key).await;
        let taken = taken.expect("the reservation is taken away");
        assert_eq!(first_byte(&taken).await, 1);
        taken.write_at(0, block(2), true).await.expect("it writes");
        let detached = second.detach("disk", DirtyData::WriteBack).await;
        detached.expect("it detaches");
        let first = one.open().await;
        let volume = one.attach(&first, |_| {}).await.expect("it attaches");
        assert_eq!(first_byte(&volume).await, 2);
    });
}

#[test]
fn a_device_without_reservations_is_refused_where_they_are_required() {
    run(async {
        let [one, _] = machines();
        let cache = one.open().await;
        let required = VolumeConfig {
            reserve: Reserve::Required,
            ..of_mode(Mode::WriteBack)
        };
        let refused = cache.attach("disk", memory(8), &required).await;
        assert!(matches!(refused, Err(OpenVolumesError::NoReservations(_))));
        let attached = cache
            .attach("disk", memory(8), &of_mode(Mode::WriteBack))
            .await;
        attached.expect("nothing is to be reserved");
    });
}

/// With a lock, unlike with a reservation, the one that lost it learns of it before it writes.
#[test]
fn a_volume_whose_lock_was_taken_away_answers_nothing() {
    for dirty in [DirtyData::Discard, DirtyData::Keep] {
        run(async move {
            let mut machines = machines();
            machines.iter_mut().for_each(|machine| machine.tells = true);
            let (first, second, old) = opened(&machines).await;
            let [one, two] = &machines;
            assert_eq!(first_byte(&old).await, 1);
            let taken = two.attach(&second, |config| config.take_from = Some(first.key));
            let new = taken.await.expect("it attaches");
            new.write_at(0, block(3), true).await.expect("it writes");
            assert!(old.status().is_taken_away && !new.status().is_taken_away);
            let refused = old.read_at(0, 4096).await.expect_err("its block is old");
            assert!(matches!(refused, VolumeError::TakenAway), "{refused}");
            let refused = old.write_at(0, block(4), false).await;
            assert!(matches!(refused, Err(VolumeError::TakenAway)));
            assert!(matches!(old.flush().await, Err(VolumeError::TakenAway)));
            let written = first.detach("disk", DirtyData::WriteBack).await;
            assert!(written.is_err(), "the other machine's data would be lost");
            let detached = first.detach("disk", dirty).await;
            detached.expect("it detaches");
            first.close().await.expect("it closes");
            let first = one.open().await;
            assert!(one.attach(&first, |_| {}).await.is_err());
            assert_eq!(first_byte(&new).await, 3);
            let detached = second.detach("disk", DirtyData::WriteBack).await;
            detached.expect("it detaches");
            let back = one.attach(&first, |_| {}).await;
            match dirty {
                DirtyData::Keep => {
                    let refused = back.expect_err("its dirty data is old").to_string();
                    assert!(refused.contains("take-from="), "{refused}");
                }
                _ => assert_eq!(first_byte(&back.expect("it attaches")).await, 3),
            }
        });
    }
}
