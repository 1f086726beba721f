//! Stamps: what tells a backing device from others of its size.
//!
//! A stamp hashes blocks that are spread over the device. It tells a device that was
//! swapped or restored. It does not tell every write that went past the cache.

use floe_core::hash::{HashSeed, KeyHash};
use floe_device::{DeviceError, IoBuf, SharedBlockDevice};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};

pub(super) type Stamp = [u8; 32];

/// The stamp of a volume that is attached, or was after the last clean stop.
pub(super) const NO_STAMP: Stamp = [0; 32];

const SAMPLES: u64 = 64;
const SAMPLE_BYTES: u64 = 4096;

/// Samples that are read at once.
const SAMPLES_AT_ONCE: usize = 8;

/// The stamp of the first `size` bytes of `backing`, with the cache's `seed`: four hashes of
/// 16 samples each.
pub(super) async fn stamp_of(
    backing: &SharedBlockDevice,
    size: u64,
    seed: HashSeed,
) -> Result<Stamp, DeviceError> {
    let block = u64::from(backing.block_bytes());
    let len = SAMPLE_BYTES.min(size);
    let last = (size - len) / block;
    let read = |sample: u64| {
        let at = (u128::from(last) * u128::from(sample) / u128::from(SAMPLES - 1)) as u64 * block;
        backing.read(at, backing.allocate(len as usize))
    };
    let samples: Vec<IoBuf> = stream::iter((0..SAMPLES).map(read))
        .buffered(SAMPLES_AT_ONCE)
        .try_collect()
        .await?;
    let mut stamp = NO_STAMP;
    let (hashes, _) = stamp.as_chunks_mut::<8>();
    let per_hash = samples.len() / hashes.len();
    for (hash, samples) in hashes.iter_mut().zip(samples.chunks(per_hash)) {
        let bytes: Vec<u8> = samples
            .iter()
            .flat_map(|sample| &sample[..])
            .copied()
            .collect();
        *hash = KeyHash::of(seed, &bytes).0.to_le_bytes();
    }
    Ok(stamp)
}
