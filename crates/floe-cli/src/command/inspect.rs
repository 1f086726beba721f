//! `floe inspect` and `floe check`: read a cache offline.

use floe::inspect::{Finding, InspectError, RecordState, Scope, Totals, ZoneState, inspect};
use floe_core::ZoneId;
use floe_core::layout::LayoutError;
use floe_device::{Clock, DeviceConfig, SharedDevice};
use serde::Serialize;

use clap::ArgMatches;
use floe::config::Schema;

use super::inspect_volumes;
use super::inspection::{LISTED_MAX, date};
use crate::args::{CheckArgs, InspectArgs};
use crate::device::{self, Part};
use crate::failure::Failure;
use crate::output::{self, size};
use crate::settings::{self, Request};
use crate::style::Style;

/// `floe inspect`: prints findings as they are read.
pub(crate) fn run(
    schema: &Schema,
    matches: &ArgMatches,
    args: &InspectArgs,
    json: bool,
) -> Result<(), Failure> {
    let scope = Scope {
        zone: args.zone.map(ZoneId),
        payloads: args.values,
    };
    let mut written = Ok(());
    let request = Request::new(schema, matches)?;
    let effective = request.load(schema)?;
    let config = settings::device(&request, &effective)?;
    if let Some(path) = inspect_volumes::path_of(&config) {
        if args.zone.is_some() {
            return Err(Failure::usage("a cache of volumes has no zones").cure("leave out --zone"));
        }
        return inspect_volumes::run(path, args.records, json);
    }
    let totals = walk(Part::Chunks, &config, scope, |finding| {
        if written.is_err() || (is_record(finding) && !args.records) {
            return;
        }
        let line = if json {
            serde_json::to_string(finding).map_err(|error| Failure::bug(error.to_string()))
        } else {
            Ok(line(finding))
        };
        written = line.and_then(|line| output::print(&format!("{line}\n")));
    })?;
    written?;
    if !json {
        output::print(&format!("{}\n", sum(&totals)))?;
    }
    match settings::volumes_path(&request, &effective)? {
        Some(path) if args.zone.is_none() => inspect_volumes::run(&path, args.records, json),
        _ => Ok(()),
    }
}

/// The result of checking one device.
#[derive(Serialize)]
struct Checked {
    totals: Totals,
    /// At most [`LISTED_MAX`].
    damage: Vec<Finding>,
}

#[derive(Serialize)]
struct CheckedAll {
    ok: bool,
    #[serde(flatten)]
    chunks: Checked,
    /// The file of tiny objects, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    tiny: Option<Checked>,
    /// The cache of volumes, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    volumes: Option<inspect_volumes::Checked>,
}

/// `floe check`: verifies every checksum, of chunks, tiny objects and volumes; damage is
/// exit status 4.
pub(crate) fn check(
    schema: &Schema,
    matches: &ArgMatches,
    args: &CheckArgs,
    json: bool,
) -> Result<(), Failure> {
    let scope = Scope {
        payloads: !args.quick,
        ..Scope::EVERYTHING
    };
    let request = Request::new(schema, matches)?;
    let effective = request.load(schema)?;
    let chunks = settings::device(&request, &effective)?;
    if let Some(path) = inspect_volumes::path_of(&chunks) {
        return inspect_volumes::check(path, json);
    }
    let tiny = settings::tiny_device(&request, &effective)?;
    let volumes = settings::volumes_path(&request, &effective)?;
    // Damage in one cache must not hide damage in another.
    let chunks = check_part(Part::Chunks, &chunks, scope, json);
    let tiny = tiny.map(|tiny| check_part(Part::Tiny, &tiny, scope, json));
    let volumes = volumes.map(|path| inspect_volumes::check_part(&path, "volumes: ", json));
    let (chunks, tiny, volumes) = (chunks?, tiny.transpose()?, volumes.transpose()?);
    let of_volumes = volumes
        .as_ref()
        .map_or(0, inspect_volumes::Checked::damaged);
    let damaged = chunks.totals.damage + tiny.as_ref().map_or(0, |tiny| tiny.totals.damage);
    if json {
        let ok = damaged + of_volumes == 0;
        output::print_json(&CheckedAll {
            ok,
            chunks,
            tiny,
            volumes,
        })?;
    }
    if of_volumes > 0 {
        return Err(inspect_volumes::damage(of_volumes));
    }
    if damaged == 0 {
        return Ok(());
    }
    Err(Failure::damage(format!("{damaged} damaged places")).cure(
        "no action is necessary: a damaged value is a miss and is fetched again; `floe format --force` starts empty; \
         if the damage recurs, replace the device",
    ))
}

/// Checks one device and, in text mode, prints the result.
fn check_part(
    part: Part,
    config: &DeviceConfig,
    scope: Scope,
    json: bool,
) -> Result<Checked, Failure> {
    let mut damage = Vec::new();
    let mut written = Ok(());
    let name = match part {
        Part::Chunks => "",
        Part::Tiny => "tiny objects: ",
    };
    let totals = walk(part, config, scope, |finding| {
        if !matches!(finding, Finding::Damage { .. }) {
            return;
        }
        if json {
            if damage.len() < LISTED_MAX {
                damage.push(finding.clone());
            }
        } else if written.is_ok() {
            written = output::print(&format!("{name}{}\n", line(finding)));
        }
    })?;
    written?;
    if !json {
        output::print(&format!("{name}{}\n", sum(&totals)))?;
    }
    Ok(Checked { totals, damage })
}

fn walk(
    part: Part,
    config: &DeviceConfig,
    scope: Scope,
    visit: impl FnMut(&Finding) + Send,
) -> Result<Totals, Failure> {
    let runtime = super::runtime::small_runtime()?;
    runtime.block_on(async {
        let device: SharedDevice = device::open_existing(part, config, &Clock::real()).await?;
        inspect(&device, scope, visit)
            .await
            .map_err(|error| explain(part, error))
    })
}

fn explain(part: Part, error: InspectError) -> Failure {
    let torn = |error: &LayoutError| !matches!(error, LayoutError::Blank | LayoutError::Foreign);
    match &error {
        InspectError::NoCache { first, second } if torn(first) || torn(second) => {
            Failure::damage(match part {
                Part::Chunks => "both superblocks are unusable",
                Part::Tiny => "both superblocks of tiny objects are unusable",
            })
            .because(error)
            .cure(part.start_anew())
        }
        InspectError::NoCache { .. } => Failure::environment("there is no cache to read")
            .because(error)
            .cure("name the cache with --device-path or --data-dir"),
        InspectError::Shape(_) => Failure::usage("the settings do not fit the cache")
            .because(error)
            .cure("leave out device.size, device.zone_size and device.block_size: the cache records its geometry"),
        _ => Failure::environment("the cache cannot be read").because(error),
    }
}

fn is_record(finding: &Finding) -> bool {
    matches!(
        finding,
        Finding::Record { .. }
            | Finding::Object { .. }
            | Finding::EmptyZone { .. }
            | Finding::EmptyExtent { .. }
            | Finding::Leftover { .. }
    )
}

fn line(finding: &Finding) -> String {
    let style = Style::stdout();
    match finding {
        Finding::Superblock {
            zone,
            current,
            cache_id,
            created_unix_s,
            epoch,
            block_size,
            zone_count,
            zone_size,
            zone_capacity,
            chunk_bytes,
            piece_bytes,
            layout,
        } => format!(
            "{} {cache_id}, epoch {epoch}{}\n  formatted {}, layout {layout}, chunks of {}, pieces of {}\n  \
             {zone_count} zones of {} (capacity {}), blocks of {}",
            style.bold(&format!("zone {zone}: superblock")),
            if *current { ", current" } else { "" },
            date(*created_unix_s),
            size(*chunk_bytes),
            size(u64::from(*piece_bytes)),
            size(*zone_size),
            size(*zone_capacity),
            size(u64::from(*block_size)),
        ),
        Finding::Journal {
            zone,
            blocks,
            notes,
            full_zones,
            tombstones,
            complete,
            end_offset,
            ..
        } => format!(
            "{} {notes} notes in {blocks} blocks: {full_zones} of full zones, {tombstones} tombstones; \
             ends at {end_offset:#x}{}",
            style.bold(&format!("zone {zone}: journal")),
            if *complete {
                ""
            } else {
                "; its start is incomplete"
            },
        ),
        Finding::TinySuperblock { .. }
        | Finding::Fences { .. }
        | Finding::SetGroup { .. }
        | Finding::IndexGroup { .. }
        | Finding::EmptyExtent { .. }
        | Finding::TinyPages { .. }
        | Finding::Object { .. } => tiny_line(finding, style),
        Finding::EmptyZone { zone } => {
            format!("{} empty", style.bold(&format!("zone {zone}:")))
        }
        Finding::Leftover { zone, what } => format!(
            "{} unused since the cache was made; {what}",
            style.bold(&format!("zone {zone}:"))
        ),
        Finding::Zone {
            zone,
            generation,
            layout,
            state,
            batches,
            records,
            dead_records,
            value_bytes,
            end_offset,
        } => format!(
            "{} generation {generation}, {layout}, {}: {records} records ({dead_records} dead), {} in {batches} {}, \
             ends at {end_offset:#x}",
            style.bold(&format!("zone {zone}:")),
            match state {
                ZoneState::Open => "open",
                ZoneState::Full => "full",
                ZoneState::Closed => "closed",
            },
            size(*value_bytes),
            if layout == "slots" {
                "slots"
            } else {
                "batches"
            },
        ),
        Finding::Record {
            zone,
            offset,
            key,
            sequence,
            value_bytes,
            expiry_unix_s,
            state,
            intact,
            ..
        } => {
            let key = if key.is_empty() {
                "(key in RAM only)"
            } else {
                key
            };
            let mut text = format!(
                "  zone {zone} + {offset:#x}  sequence {sequence}  {}  {key}",
                size(*value_bytes)
            );
            match state {
                RecordState::Present => {}
                RecordState::Void => text.push_str("  void"),
                RecordState::Dead => text.push_str("  dead"),
            }
            if *expiry_unix_s > 0 {
                text.push_str(&format!("  expires {}", date(u64::from(*expiry_unix_s))));
            }
            match intact {
                Some(true) => text.push_str("  intact"),
                Some(false) => text.push_str("  damaged"),
                None => {}
            }
            text
        }
        Finding::Summary {
            zone,
            offset,
            entries,
        } => style.dim(&format!(
            "  zone {zone} + {offset:#x}  summary of {entries} records"
        )),
        Finding::Gap {
            zone,
            offset,
            bytes,
        } => style.dim(&format!(
            "  zone {zone} + {offset:#x}  gap of {bytes} bytes"
        )),
        Finding::Damage {
            zone,
            offset,
            what,
            why,
        } => format!(
            "{} zone {zone} + {offset:#x}: {what}: {why}",
            style.red("damage:")
        ),
    }
}

/// The line of a finding in a cache of tiny objects.
fn tiny_line(finding: &Finding, style: Style) -> String {
    let gone = |live: &bool| if *live { "" } else { ", gone" };
    match finding {
        Finding::TinySuperblock {
            zone,
            current,
            cache_id,
            created_unix_s,
            epoch,
            engine,
            block_size,
            zone_count,
            zone_size,
            zone_capacity,
            set_group_pages,
            sets,
            candidates,
            instances,
        } => format!(
            "{} {cache_id}, epoch {epoch}{}\n  formatted {}, engine {engine}, {instances} instances, \
             {}\n  {zone_count} zones of {} (capacity {}), blocks of {}",
            style.bold(&format!("zone {zone}: superblock of tiny objects")),
            if *current { ", current" } else { "" },
            date(*created_unix_s),
            match set_group_pages {
                0 => "which keeps its index in memory: nothing is found again when it is opened"
                    .to_owned(),
                pages => format!(
                    "set-groups of {pages} pages with {sets} sets, {candidates} for each object"
                ),
            },
            size(*zone_size),
            size(*zone_capacity),
            size(u64::from(*block_size)),
        ),
        Finding::TinyPages {
            zone,
            pages,
            objects,
            tombstones,
            value_bytes,
            other_pages,
        } => format!(
            "{} {objects} objects and {tombstones} tombstones in {pages} pages, {}; {other_pages} other pages",
            style.bold(&format!("zone {zone}:")),
            size(*value_bytes),
        ),
        Finding::Fences {
            zone,
            blocks,
            fences,
            unfenced,
            complete,
            end_offset,
            ..
        } => format!(
            "{} {fences} in {blocks} blocks; end at {end_offset:#x}{}{}",
            style.bold(&format!("zone {zone}: fences")),
            if *complete {
                ""
            } else {
                "; their start is incomplete"
            },
            if *unfenced {
                "; not closed since writes without fences, so the next start is empty"
            } else {
                ""
            },
        ),
        Finding::SetGroup {
            zone,
            offset,
            sequence,
            live,
            pages,
            objects,
            tombstones,
            value_bytes,
        } => {
            let name = style.bold(&format!("zone {zone} + {offset:#x}: set-group {sequence}"));
            if *pages == 0 {
                return format!("{name}{}", gone(live));
            }
            format!(
                "{name}{}: {objects} objects and {tombstones} tombstones in {pages} pages, {}",
                gone(live),
                size(*value_bytes)
            )
        }
        Finding::IndexGroup {
            zone,
            offset,
            sequence,
            live,
            columns,
            rows,
            probes,
            page_filter_bytes,
            ..
        } => format!(
            "{}{}: of {columns} set-groups, {}{}",
            style.bold(&format!(
                "zone {zone} + {offset:#x}: index group from {sequence}"
            )),
            gone(live),
            match probes {
                0 => format!("fingerprints in {rows} buckets"),
                _ => format!("filters of {rows} bits, {probes} per key"),
            },
            match page_filter_bytes {
                0 => String::new(),
                bytes => format!(", page filters of {bytes} bytes"),
            },
        ),
        Finding::EmptyExtent { zone, offset, what } => format!(
            "{} {what}",
            style.bold(&format!("zone {zone} + {offset:#x}:"))
        ),
        Finding::Object {
            zone,
            offset,
            slot,
            key,
            hash,
            sequence,
            value_bytes,
            expiry_unix_s,
            tombstone,
        } => {
            let what = if *tombstone {
                format!("hash {hash:016x} is dead")
            } else {
                format!("{}  {key}", size(*value_bytes))
            };
            let expires = match expiry_unix_s {
                0 => String::new(),
                at => format!("  expires {}", date(*at)),
            };
            format!(
                "  zone {zone} + {offset:#x}  object {slot}  sequence {sequence}  {what}{expires}"
            )
        }
        _ => String::new(),
    }
}

fn sum(totals: &Totals) -> String {
    let style = Style::stdout();
    let verdict = if totals.damage == 0 {
        style.green("no damage")
    } else {
        style.red(&format!("{} damaged places", totals.damage))
    };
    let extents = totals.extents_used + totals.extents_empty;
    let (used, empty, what) = if extents == 0 {
        (totals.zones_used, totals.zones_empty, "zones")
    } else {
        (totals.extents_used, totals.extents_empty, "groups")
    };
    let mut text = format!(
        "{verdict}: {} records ({} dead), {} in {used} {what}; {empty} {what} empty",
        totals.records,
        totals.dead_records,
        size(totals.value_bytes),
    );
    if totals.intact > 0 {
        text.push_str(&format!("; {} values verified", totals.intact));
    }
    if totals.gaps > 0 {
        text.push_str(&format!("; {} gaps", totals.gaps));
    }
    text
}
