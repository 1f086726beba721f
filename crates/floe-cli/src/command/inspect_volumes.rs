//! `floe inspect` and `floe check` of caches of volumes.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use floe::inspect::{
    InspectError, VolumeFinding, VolumeTotals, inspect_volumes, is_cache_of_volumes,
};
use floe_core::layout::LayoutError;
use floe_core::layout::volume::VOLUME_SUPERBLOCK_BYTES;
use floe_device::{DeviceConfig, FileBlocks, FileBlocksConfig, SharedBlockDevice};
use serde::Serialize;

use super::inspection::{LISTED_MAX, date};
use crate::device::{self, Part};
use crate::failure::Failure;
use crate::output::{self, size};
use crate::style::Style;

const CURE: &str = "copy the cache device before anything opens it: dirty data may have its only copy there; clean data is on the backing devices";

/// The path of the device, if it has a cache of volumes.
pub(super) fn path_of(config: &DeviceConfig) -> Option<&Path> {
    let path = config.path.as_deref()?;
    let mut head = vec![0; 2 * VOLUME_SUPERBLOCK_BYTES];
    // Errors are reported by the caller, which opens the device as another cache.
    let file = File::open(path).ok()?;
    file.read_exact_at(&mut head, 0).ok()?;
    is_cache_of_volumes(&head).then_some(path)
}

/// `floe inspect`: prints findings as they are read, batches and blocks only if `records`.
pub(super) fn run(path: &Path, records: bool, json: bool) -> Result<(), Failure> {
    let mut written = Ok(());
    let totals = walk(path, |finding| {
        let is_detail = matches!(
            finding,
            VolumeFinding::Batch { .. } | VolumeFinding::Block { .. }
        );
        if written.is_err() || (is_detail && !records) {
            return;
        }
        let line = match json {
            true => serde_json::to_string(finding).map_err(|error| Failure::bug(error.to_string())),
            false => Ok(line(finding)),
        };
        written = line.and_then(|line| output::print(&format!("{line}\n")));
    })?;
    written?;
    match json {
        true => Ok(()),
        false => output::print(&format!("{}\n", sum(&totals))),
    }
}

/// The result of checking a cache of volumes.
#[derive(Serialize)]
pub(super) struct Checked {
    ok: bool,
    totals: VolumeTotals,
    /// At most [`LISTED_MAX`].
    damage: Vec<VolumeFinding>,
}

impl Checked {
    /// Damaged places.
    pub(super) fn damaged(&self) -> u64 {
        self.totals.damage
    }
}

/// `floe check`: damage is exit status 4.
pub(super) fn check(path: &Path, json: bool) -> Result<(), Failure> {
    let checked = check_part(path, "", json)?;
    if json {
        output::print_json(&checked)?;
    }
    match checked.damaged() {
        0 => Ok(()),
        damaged => Err(damage(damaged)),
    }
}

/// So many places of a cache of volumes are damaged.
pub(super) fn damage(places: u64) -> Failure {
    Failure::damage(format!("{places} damaged places")).cure(CURE)
}

/// Checks a cache of volumes and, in text mode, prints the result after `name`.
pub(super) fn check_part(path: &Path, name: &str, json: bool) -> Result<Checked, Failure> {
    let mut damage = Vec::new();
    let mut written = Ok(());
    let totals = walk(path, |finding| match finding {
        VolumeFinding::Damage { .. } if json && damage.len() < LISTED_MAX => {
            damage.push(finding.clone());
        }
        VolumeFinding::Damage { .. } if !json && written.is_ok() => {
            written = output::print(&format!("{name}{}\n", line(finding)));
        }
        _ => {}
    })?;
    written?;
    if !json {
        output::print(&format!("{name}{}\n", sum(&totals)))?;
    }
    Ok(Checked {
        ok: totals.damage == 0,
        totals,
        damage,
    })
}

fn walk(path: &Path, visit: impl FnMut(&VolumeFinding) + Send) -> Result<VolumeTotals, Failure> {
    let runtime = super::runtime::small_runtime()?;
    runtime.block_on(async {
        let config = FileBlocksConfig {
            read_only: true,
            ..FileBlocksConfig::new(path)
        };
        let opened = FileBlocks::open(&config);
        let opened = opened.map_err(|error| device::explain(Part::Chunks, error))?;
        let device: SharedBlockDevice = Arc::new(opened);
        inspect_volumes(&device, visit).await.map_err(explain)
    })
}

fn explain(error: InspectError) -> Failure {
    let torn = |error: &LayoutError| !matches!(error, LayoutError::Blank | LayoutError::Foreign);
    match &error {
        InspectError::NoVolumes { first, second } if torn(first) || torn(second) => {
            Failure::damage("both superblocks are unusable")
                .because(error)
                .cure(CURE)
        }
        InspectError::Shape(_) => Failure::damage("the device was truncated")
            .because(error)
            .cure("give the device the size that it had"),
        _ => Failure::environment("the cache cannot be read").because(error),
    }
}

fn line(finding: &VolumeFinding) -> String {
    let style = Style::stdout();
    match finding {
        VolumeFinding::VolumeSuperblock {
            offset,
            current,
            cache_id,
            created_unix_s,
            epoch,
            sequence,
            is_clean,
            block_size,
            granule_bytes,
            classes,
            shards,
            log_bytes,
            places_bytes,
        } => {
            let sizes: Vec<_> = (0..u32::BITS)
                .filter(|class| classes >> class & 1 == 1)
                .map(|class| size(u64::from(*granule_bytes) << class))
                .collect();
            format!(
                "{} {cache_id}, epoch {epoch}, sequence {sequence}{}{}\n  formatted {}, {} of blocks of {} in {shards} shards, \
                 log of {}, device blocks of {}",
                style.bold(&format!("{offset:#x}: superblock of volumes")),
                if *current { ", current" } else { "" },
                if *is_clean {
                    ", closed"
                } else {
                    ", in use, or not closed"
                },
                date(*created_unix_s),
                size(*places_bytes),
                sizes.join(", "),
                size(*log_bytes),
                size(u64::from(*block_size)),
            )
        }
        VolumeFinding::Batch {
            number,
            stable,
            records,
        } => format!("  batch {number}  {records} records  stable before {stable}"),
        VolumeFinding::BlockLog {
            offset,
            first_batch,
            batches,
            stable_batches,
            records,
        } => format!(
            "{} {records} records in {batches} batches from {first_batch} on, {stable_batches} of them stable",
            style.bold(&format!("{offset:#x}: log")),
        ),
        VolumeFinding::Block {
            offset,
            volume,
            address,
            bytes,
            valid_bytes,
            dirty_bytes,
        } => format!(
            "  {offset:#x}  volume {volume} + {address:#x}  {}: {} valid, {} dirty",
            size(*bytes),
            size(*valid_bytes),
            size(*dirty_bytes),
        ),
        VolumeFinding::BlockTable {
            offset,
            pages,
            blank_pages,
            blocks,
        } => format!(
            "{} {blocks} blocks in {pages} pages ({blank_pages} never written)",
            style.bold(&format!("{offset:#x}: table")),
        ),
        VolumeFinding::Volume {
            volume,
            name,
            size_bytes,
            has_stamp,
            blocks,
            valid_bytes,
            dirty_bytes,
        } => format!(
            "{} {}{}: {blocks} blocks, {} valid, {} dirty",
            style.bold(&format!("volume {volume}: {}", name.escape_debug())),
            size(*size_bytes),
            if *has_stamp { ", stamped" } else { "" },
            size(*valid_bytes),
            size(*dirty_bytes),
        ),
        VolumeFinding::Damage { offset, what, why } => {
            format!("{} {offset:#x}: {what}: {why}", style.red("damage:"))
        }
    }
}

fn sum(totals: &VolumeTotals) -> String {
    let style = Style::stdout();
    let verdict = match totals.damage {
        0 => style.green("no damage"),
        damage => style.red(&format!("{damage} damaged places")),
    };
    format!(
        "{verdict}: {} blocks of {} volumes, {} valid, {} dirty",
        totals.blocks,
        totals.volumes,
        size(totals.valid_bytes),
        size(totals.dirty_bytes),
    )
}
