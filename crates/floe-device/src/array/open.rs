//! Opening an array: which drives belong to it.

use std::sync::Arc;

use floe_core::layout::{ARRAY_DRIVES_MAX, ArrayLabel, LayoutError};
use floe_core::{Geometry, ZoneId};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::runtime::Handle;

use super::device::{Array, Inner};
use super::drives::{Drives, Membership, Slot};
use super::error::ArrayError;
use super::labels::{self, Content, NextLabel};
use super::membership::{self, Refusal};
use super::shape::{LABEL_ZONES, LABELS_ACTIVE, MIRRORED_ZONES, Shape};
use crate::clock::Clock;
use crate::config::OpenDeviceError;
use crate::contract::{DriveStanding, SharedDevice, ZoneReport, ZoneState};
use crate::counters::Counters;
use crate::error::DeviceError;
use crate::file::states::ZoneStates;
use crate::zones::ZoneTable;

/// Zones of a joining drive that are reset concurrently.
const RESETS_AT_ONCE: usize = 32;

/// Space below the device that each zone of labels reserves.
const RESERVED_BYTES: u64 = 1 << 20;

/// A drive that may belong to an array.
#[derive(Debug)]
pub struct Candidate {
    /// Its path.
    pub name: String,
    /// The drive, or why it cannot be opened.
    pub opened: Result<SharedDevice, OpenDeviceError>,
}

/// How to open an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrayOptions {
    /// Discard what is on the drives, and make a new array of them.
    pub format: bool,
    /// Write nothing: no label, and no drive joins.
    pub read_only: bool,
    /// The source of ids; random by default.
    pub seed: Option<u64>,
}

impl Drive {
    fn label(&self) -> Option<&ArrayLabel> {
        match &self.content {
            Content::Labelled(label, _) => Some(label),
            Content::Blank | Content::Other(_) => None,
        }
    }
}

/// A drive that was opened, and its labels.
struct Drive {
    name: String,
    device: SharedDevice,
    content: Content,
}

impl Array {
    /// Opens an array, or makes one of blank drives. Needs a tokio runtime, which must
    /// live as long as the array.
    ///
    /// # Errors
    /// [`OpenDeviceError::Array`] says why the drives are no array; the error of a drive
    /// that is in use, or that is needed and cannot be opened.
    pub async fn open(
        candidates: Vec<Candidate>,
        options: ArrayOptions,
        clock: &Clock,
    ) -> Result<Array, OpenDeviceError> {
        let count = candidates.len();
        if count == 0 || count > ARRAY_DRIVES_MAX {
            return Err(OpenDeviceError::Array(ArrayError::Count(count)));
        }
        let (mut drives, mut missing) = (Vec::new(), Vec::new());
        for Candidate { name, opened } in candidates {
            match opened {
                Err(error @ OpenDeviceError::InUse(_)) => return Err(error),
                Err(error) => missing.push((name, error)),
                Ok(device) => match labels::read(&device).await {
                    Ok(content) => drives.push(Drive {
                        name,
                        device,
                        content,
                    }),
                    Err(error) => {
                        let drive = name.clone();
                        let error = ArrayError::Drive { name: drive, error };
                        missing.push((name, OpenDeviceError::Array(error)));
                    }
                },
            }
        }
        let mut random = match options.seed {
            Some(seed) => StdRng::seed_from_u64(seed),
            None => rand::make_rng(),
        };
        if !options.format && is_array(&drives).map_err(OpenDeviceError::Array)? {
            let opened = assemble(drives, missing, count, options, &mut random, clock);
            return opened.await.map_err(OpenDeviceError::Array);
        }
        if let Some((_, error)) = missing.into_iter().next() {
            return Err(error);
        }
        if options.read_only {
            let content = LayoutError::Blank;
            let name = drives[0].name.clone();
            let error = ArrayError::NotBlank { name, content };
            return Err(OpenDeviceError::Array(error));
        }
        let created = create(drives, options, &mut random, clock).await;
        created.map_err(OpenDeviceError::Array)
    }
}

/// True if the drives are of one array, or blank; false if all are blank.
fn is_array(drives: &[Drive]) -> Result<bool, ArrayError> {
    let mut first = None::<(&ArrayLabel, &str)>;
    for Drive { name, content, .. } in drives {
        match (content, first) {
            (Content::Labelled(label, _), Some((other, of))) if other.array != label.array => {
                return Err(ArrayError::Mixed {
                    name: name.clone(),
                    other: of.to_owned(),
                });
            }
            (Content::Labelled(label, _), None) => first = Some((label, name)),
            (Content::Labelled(..) | Content::Blank, _) => {}
            (Content::Other(content), _) => {
                return Err(ArrayError::NotBlank {
                    name: name.clone(),
                    content: *content,
                });
            }
        }
    }
    Ok(first.is_some())
}

/// The epoch of labels of an array that no engine has seen.
const CREATED: u64 = 0;

/// Makes an array of `drives`, whose content is lost.
async fn create(
    drives: Vec<Drive>,
    options: ArrayOptions,
    random: &mut StdRng,
    clock: &Clock,
) -> Result<Array, ArrayError> {
    let geometries: Vec<&Geometry> = drives.iter().map(|it| it.device.geometry()).collect();
    let shape = Shape::new(drives.len(), &geometries, None).map_err(ArrayError::Shape)?;
    let mut ids = Vec::new();
    for _ in &drives {
        ids.push(Some(new_id(random, &ids)));
    }
    let label = ArrayLabel {
        array: random.random(),
        sequence: 0,
        id: new_id(random, &[]),
        parent: 0,
        epoch: CREATED,
        block_size: shape.geometry.block_size,
        zone_count: shape.drive_zones,
        zone_size: shape.geometry.zone_size,
        zone_capacity: shape.geometry.zone_capacity,
        drive: 0,
        slots: ids.clone(),
    };
    for drive in &drives {
        check_labels(drive)?;
    }
    // All labels first: while one is in force, its drives have the newest metadata.
    for drive in &drives {
        clear_labels(drive).await.map_err(of(&drive.name))?;
    }
    let first = LABEL_ZONES.len() as u32;
    for drive in &drives {
        let mirrored = (first..first + MIRRORED_ZONES).map(ZoneId);
        reset(&drive.device, mirrored)
            .await
            .map_err(of(&drive.name))?;
    }
    let mut created = Vec::new();
    for (drive, id) in drives.into_iter().zip(&ids) {
        let label = ArrayLabel {
            drive: id.unwrap_or(0),
            ..label.clone()
        };
        let mut next = NextLabel::Begin(LABEL_ZONES[0]);
        let written = next.write(&drive.device, &label).await;
        written.map_err(of(&drive.name))?;
        created.push(Drive {
            content: Content::Labelled(label, LABEL_ZONES[0]),
            ..drive
        });
    }
    let slots = created.len();
    assemble(created, Vec::new(), slots, options, random, clock).await
}

/// Opens the array that the drives belong to.
async fn assemble(
    drives: Vec<Drive>,
    missing: Vec<(String, OpenDeviceError)>,
    named: usize,
    options: ArrayOptions,
    random: &mut StdRng,
    clock: &Clock,
) -> Result<Array, ArrayError> {
    let labels = drives.iter().filter_map(Drive::label);
    let labels: Vec<ArrayLabel> = labels.cloned().collect();
    let found: Vec<&ArrayLabel> = labels.iter().collect();
    let all_created = labels.iter().all(|label| label.epoch == CREATED);
    if all_created && labels.len() < drives.len() && missing.is_empty() && !options.read_only {
        // Its creation was interrupted, so no engine has seen it.
        return Box::pin(create(drives, options, random, clock)).await;
    }
    let of_array = labels[0].slots.len();
    if named != of_array {
        return Err(ArrayError::OtherCount {
            of: of_array,
            named,
        });
    }
    let mut base = membership::choose(&found).map_err(|refusal| match refusal {
        Refusal::Incomplete { there, of } => ArrayError::Incomplete {
            there,
            of,
            others: others(&drives, &missing),
        },
        Refusal::Conflict => ArrayError::Conflict,
    })?;
    base.is_disputed |= base.epoch == CREATED;
    let next_sequence = labels.iter().map(|label| label.sequence).max();
    let mut placed: Vec<Option<(Drive, DriveStanding)>> = (0..of_array).map(|_| None).collect();
    let mut next: Vec<NextLabel> = vec![NextLabel::after(None); of_array];
    let (mut blank, mut unused) = (Vec::new(), Vec::new());
    for drive in drives {
        let Content::Labelled(own, zone) = &drive.content else {
            blank.push(drive);
            continue;
        };
        let slot = base.drives.iter().position(|slot| *slot == Some(own.drive));
        match slot {
            Some(slot) if placed[slot].is_none() && wears_out(&drive.device).await => {
                tracing::error!(
                    drive = %drive.name,
                    "a drive of the array has metadata zones that cannot be written, and is dropped"
                );
                unused.push(drive.name);
            }
            Some(slot) if placed[slot].is_none() => {
                next[slot] = NextLabel::after(Some(*zone));
                placed[slot] = Some((drive, DriveStanding::Live));
            }
            // It was joining, and its label never was in force.
            None if own.parent == base.id => blank.push(drive),
            _ => {
                tracing::warn!(
                    drive = %drive.name,
                    "a drive was dropped from the array before, and its content is old: it stays \
                     unused until it is emptied, such as by `blkdiscard --zeroout`"
                );
                unused.push(drive.name);
            }
        }
    }
    unused.extend(missing.into_iter().map(|(name, _)| name));
    let label = labels[0].clone();
    let geometries: Vec<&Geometry> = (placed.iter().flatten())
        .map(|(drive, _)| drive.device.geometry())
        .collect();
    let shape = Shape::new(of_array, &geometries, Some(&label)).map_err(ArrayError::Shape)?;
    let mut ids = base.drives.clone();
    if !options.read_only {
        let vacant = (0..of_array).filter(|slot| placed[*slot].is_none());
        for (slot, drive) in vacant.collect::<Vec<_>>().into_iter().zip(blank) {
            let name = drive.name.clone();
            match emptied(drive, &shape).await {
                Some(drive) => {
                    ids[slot] = Some(new_id(random, &ids));
                    placed[slot] = Some((drive, DriveStanding::Joining));
                }
                None => unused.push(name),
            }
        }
    }
    let mut unused = unused.into_iter();
    let slots = placed.into_iter().map(|placed| match placed {
        Some((drive, standing)) => Slot::new(drive.name, Some((drive.device, standing))),
        None => Slot::new(unused.next().unwrap_or_default(), None),
    });
    let membership = Membership {
        base,
        next_sequence: next_sequence.unwrap_or(0) + 1,
        template: label,
        ids,
        next,
        random: StdRng::from_rng(random),
    };
    let drives = Drives::new(
        slots.collect(),
        membership,
        clock.clone(),
        options.read_only,
    );
    start(shape, drives).await
}

/// True if a zone of labels or of metadata takes no more writes.
async fn wears_out(device: &SharedDevice) -> bool {
    let zones = LABEL_ZONES.len() + MIRRORED_ZONES as usize;
    let is_worn =
        |zone: &ZoneReport| matches!(zone.state, ZoneState::ReadOnly | ZoneState::Offline);
    let report = device.report().await;
    report.is_ok_and(|report| report.iter().take(zones).any(is_worn))
}

/// The drives that are not found with a label.
fn others(drives: &[Drive], missing: &[(String, OpenDeviceError)]) -> String {
    let absent = missing
        .iter()
        .map(|(name, error)| format!("`{name}` ({error})"));
    let blank = drives.iter().filter(|drive| drive.label().is_none());
    let blank = blank.map(|drive| format!("`{}` (blank)", drive.name));
    absent.chain(blank).collect::<Vec<_>>().join(", ")
}

/// A blank drive that may join, once every zone is reset: one of them may have values
/// of an earlier life. `None` if it cannot be used.
async fn emptied(drive: Drive, shape: &Shape) -> Option<Drive> {
    let geometry = drive.device.geometry();
    let allows = |wanted: Option<u32>, limit: Option<u32>| {
        limit.is_none_or(|limit| wanted.is_some_and(|wanted| wanted + LABELS_ACTIVE <= limit))
    };
    let array = &shape.geometry;
    let fits = allows(array.max_open_zones, geometry.max_open_zones)
        && allows(array.max_active_zones, geometry.max_active_zones)
        && geometry.zone_size == shape.geometry.zone_size
        && geometry.zone_capacity == shape.geometry.zone_capacity
        && geometry.block_size == shape.geometry.block_size
        && geometry.zone_count >= shape.drive_zones
        && (geometry.random_writes || !shape.geometry.random_writes)
        && geometry.max_append_bytes >= shape.geometry.max_append_bytes;
    if !fits {
        tracing::error!(
            drive = %drive.name,
            "a blank drive cannot join the array: it is smaller, or has other zones or blocks"
        );
        return None;
    }
    tracing::info!(drive = %drive.name, zones = geometry.zone_count, "a blank drive joins the array: its zones are reset");
    match reset(&drive.device, geometry.zones()).await {
        Ok(()) => Some(drive),
        Err(error) => {
            tracing::error!(drive = %drive.name, %error, "a blank drive cannot join the array");
            None
        }
    }
}

async fn start(shape: Shape, drives: Drives) -> Result<Array, ArrayError> {
    let table = ZoneTable::new(&shape.geometry, ZoneState::Unknown);
    let array = Array(Arc::new(Inner {
        zones: ZoneStates::new(table),
        shape,
        drives,
        lanes: Default::default(),
        runtime: Handle::current(),
        counters: Counters::default(),
    }));
    let inner = &array.0;
    for (_, device) in inner.drives.all_usable() {
        let bytes = RESERVED_BYTES.min(device.geometry().zone_capacity);
        for zone in LABEL_ZONES {
            if let Err(error) = device.reserve(zone, bytes) {
                tracing::warn!(%error, "no space is reserved for labels");
            }
        }
    }
    inner.drives.write_labels().await;
    inner.drives.settled().await.map_err(|_| ArrayError::Lost)?;
    let reports = inner.gather_reports(inner.start_reports()).await;
    let mut zones = inner.zones.lock();
    for report in reports {
        zones.restore(report.zone, report.state, report.write_pointer);
    }
    drop(zones);
    Ok(array)
}

/// Checks that the labels of a drive can be cleared, so that all of them were found.
fn check_labels(drive: &Drive) -> Result<(), ArrayError> {
    let geometry = drive.device.geometry();
    match drive.label() {
        Some(label)
            if (label.zone_size, label.block_size) != (geometry.zone_size, geometry.block_size) =>
        {
            Err(ArrayError::OtherZones {
                name: drive.name.clone(),
                zone_bytes: label.zone_size,
                block_bytes: label.block_size,
            })
        }
        _ => Ok(()),
    }
}

/// Empties the zones of labels. A crash leaves the newest label or none: an older one may say
/// that the drive is the array alone, as it once was.
async fn clear_labels(drive: &Drive) -> Result<(), DeviceError> {
    if let Content::Labelled(label, newest) = &drive.content {
        // Alone in the other zone, since a zone may be reset in part.
        let mut other = NextLabel::after(Some(*newest));
        other.write(&drive.device, label).await?;
        reset(&drive.device, [*newest].into_iter()).await?;
    }
    reset(&drive.device, LABEL_ZONES.into_iter()).await
}

/// Resets zones durably.
async fn reset(
    device: &SharedDevice,
    zones: impl Iterator<Item = ZoneId>,
) -> Result<(), DeviceError> {
    let mut zones = zones.peekable();
    while zones.peek().is_some() {
        let started = zones.by_ref().take(RESETS_AT_ONCE);
        let started: Vec<_> = started.map(|zone| device.reset(zone)).collect();
        for reset in started {
            reset.await?;
        }
    }
    device.flush().await
}

/// An id that no drive has.
fn new_id(random: &mut StdRng, ids: &[Option<u64>]) -> u64 {
    loop {
        let id = random.random_range(1..=u64::MAX);
        if !ids.contains(&Some(id)) {
            return id;
        }
    }
}

fn of(name: &str) -> impl FnOnce(DeviceError) -> ArrayError + use<> {
    let name = name.to_owned();
    |error| ArrayError::Drive { name, error }
}
