//! `floe device list`, `info` and `zones`: the NVMe namespaces of this machine.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use floe_device::ZoneState;
use floe_device::nvme::identify::BlockFormat;
use floe_device::nvme::zone_report::ZoneDescriptor;
use floe_device::nvme::{self, Drive, Found, Interface};
use floe_device::upkeep::HealthFacts;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{self, size};
use crate::style::Style;

/// `floe device info`.
pub(super) fn info(path: &Path, json: bool) -> Result<(), Failure> {
    let info = Info::of(&open(path)?);
    match json {
        true => output::print_json(&info),
        false => output::print(&info.text()),
    }
}

fn open(path: &Path) -> Result<Drive, Failure> {
    Drive::open(path)
        .map_err(|error| Failure::environment("the namespace cannot be opened").because(error))
}

/// A line of `floe device list`.
#[derive(Serialize)]
struct Listed {
    path: PathBuf,
    block_path: Option<PathBuf>,
    serial: String,
    model: String,
    namespace: u32,
    /// `None` if the namespace cannot be opened.
    kind: Option<&'static str>,
    capacity_bytes: Option<u64>,
    block_bytes: Option<u32>,
    /// The reason why Floe cannot use it, if it cannot.
    unusable: Option<String>,
}

impl Listed {
    fn of(found: Found) -> Self {
        let opened = Drive::open(&found.path);
        let (drive, mut unusable) = match opened {
            Ok(drive) => (Some(drive), None),
            Err(error) => (None, Some(error.to_string())),
        };
        if let Some(why) = drive.as_ref().and_then(Drive::unusable) {
            unusable = Some(why.to_owned());
        }
        Listed {
            kind: drive.as_ref().map(|drive| kind(drive.interface())),
            capacity_bytes: drive.as_ref().map(capacity_bytes),
            block_bytes: drive.as_ref().map(|drive| drive.namespace().block_bytes),
            path: found.path,
            block_path: found.block_path,
            serial: found.serial,
            model: found.model,
            namespace: found.namespace,
            unusable,
        }
    }

    fn text(&self) -> String {
        let capacity = self.capacity_bytes.map_or_else(|| "?".to_owned(), size);
        let block = self
            .block_bytes
            .map_or_else(|| "?".to_owned(), |bytes| size(bytes.into()));
        let use_of_it = self.unusable.as_ref().map(|why| format!("unusable: {why}"));
        format!(
            "{:<14} {:<5} {capacity:>10} {block:>6}  nvme:{}:{}  {}  {}\n",
            self.path.display(),
            self.kind.unwrap_or("?"),
            self.serial,
            self.namespace,
            self.model,
            use_of_it.as_deref().unwrap_or("usable"),
        )
    }
}

/// The value of `device.kind`.
fn kind(interface: &Interface) -> &'static str {
    match interface {
        Interface::Zoned(_) => "zns",
        Interface::Placement(_) => "fdp",
        Interface::Conventional => "nvme",
    }
}

fn capacity_bytes(drive: &Drive) -> u64 {
    let namespace = drive.namespace();
    namespace
        .blocks
        .saturating_mul(u64::from(namespace.block_bytes))
}

/// `floe device list`.
pub(super) fn list(json: bool) -> Result<(), Failure> {
    let found = nvme::list()
        .map_err(|error| Failure::environment("cannot list NVMe namespaces").because(error))?;
    let all: Vec<_> = found.into_iter().map(Listed::of).collect();
    if json {
        return output::print_json(&all);
    }
    if all.is_empty() {
        return output::print("no NVMe namespaces\n");
    }
    output::print(&all.iter().map(Listed::text).collect::<String>())
}

/// What `floe device info` shows. Sizes are in bytes; what the drive or the kernel does not
/// tell is absent.
#[derive(Serialize)]
struct Info {
    path: PathBuf,
    block_path: Option<PathBuf>,
    serial: String,
    model: String,
    firmware: String,
    namespace: u32,
    kind: &'static str,
    unusable: Option<&'static str>,
    capacity_bytes: u64,
    block_bytes: u32,
    metadata_bytes: u16,
    /// Formats of blocks, by the number that `--lba-format` takes.
    block_formats: Vec<FormatInfo>,
    atomic_write_bytes: u64,
    max_transfer_bytes: u32,
    write_cache: bool,
    zones: Option<ZonesInfo>,
    placement: Option<PlacementInfo>,
    health: Option<HealthFacts>,
}

#[derive(Serialize)]
struct FormatInfo {
    block_bytes: u32,
    metadata_bytes: u16,
}

impl FormatInfo {
    fn of(format: &BlockFormat) -> Self {
        FormatInfo {
            block_bytes: format.block_bytes,
            metadata_bytes: format.metadata_bytes,
        }
    }

    fn text((number, format): (usize, &FormatInfo)) -> String {
        let block = size(format.block_bytes.into());
        match format.metadata_bytes {
            0 => format!("{number}: {block}"),
            metadata => format!("{number}: {block} + {metadata}"),
        }
    }
}

#[derive(Serialize)]
struct ZonesInfo {
    count: u64,
    size_bytes: u64,
    max_open: Option<u32>,
    max_active: Option<u32>,
    max_append_bytes: u32,
}

#[derive(Serialize)]
struct PlacementInfo {
    handles: usize,
    endurance_group: u16,
    reclaim_unit_bytes: Option<u64>,
    host_written_bytes: Option<u128>,
    media_written_bytes: Option<u128>,
    /// Reclaim unit handles of the endurance group that namespaces use.
    handles_in_use: Option<usize>,
    events: Option<usize>,
}

impl Info {
    fn of(drive: &Drive) -> Self {
        let (controller, namespace) = (drive.controller(), drive.namespace());
        let block_bytes = namespace.block_bytes;
        let mut info = Info {
            path: drive.path().to_owned(),
            block_path: drive.block_path().map(Path::to_owned),
            serial: controller.serial.clone(),
            model: controller.model.clone(),
            firmware: controller.firmware.clone(),
            namespace: drive.number(),
            kind: kind(drive.interface()),
            unusable: drive.unusable(),
            capacity_bytes: capacity_bytes(drive),
            block_bytes,
            metadata_bytes: namespace.metadata_bytes,
            block_formats: namespace.formats.iter().map(FormatInfo::of).collect(),
            atomic_write_bytes: drive.atomic_bytes(),
            max_transfer_bytes: drive.max_transfer_bytes(),
            write_cache: drive.write_cache_is_on(),
            zones: None,
            placement: None,
            health: HealthFacts::of(drive),
        };
        match drive.interface() {
            Interface::Conventional => {}
            Interface::Zoned(zones) => {
                info.zones = Some(ZonesInfo {
                    count: zones.count,
                    size_bytes: zones.zone_blocks * u64::from(block_bytes),
                    max_open: zones.max_open,
                    max_active: zones.max_active,
                    max_append_bytes: zones.max_append_bytes,
                });
            }
            Interface::Placement(placement) => {
                let group = placement.group;
                let statistics = drive.placement_statistics(group).ok();
                let configuration = placement.configuration.as_ref();
                let usage = drive.handle_usage(group).ok();
                let is_used = |usage: &&nvme::log_page::HandleUsage| {
                    **usage != nvme::log_page::HandleUsage::Unused
                };
                info.placement = Some(PlacementInfo {
                    handles: placement.handles.len(),
                    endurance_group: group,
                    reclaim_unit_bytes: configuration.map(|found| found.reclaim_unit_bytes),
                    host_written_bytes: statistics.map(|found| found.host_written_bytes),
                    media_written_bytes: statistics.map(|found| found.media_written_bytes),
                    handles_in_use: usage.map(|all| all.iter().filter(is_used).count()),
                    events: drive
                        .placement_events(group)
                        .ok()
                        .map(|events| events.len()),
                });
            }
        }
        info
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:<18} {value}");
        };
        let limit = |limit: Option<u32>| limit.map_or("no limit".to_owned(), |it| it.to_string());
        let short = |bytes: u128| size(u64::try_from(bytes).unwrap_or(u64::MAX));
        let path = self.block_path.as_ref();
        let beside = path.map(|path| format!(", block device {}", path.display()));
        let beside = beside.unwrap_or_default();
        line("namespace", format!("{}{beside}", self.path.display()));
        line(
            "by serial number",
            format!("nvme:{}:{}", self.serial, self.namespace),
        );
        line(
            "drive",
            format!("{}, firmware {}", self.model, self.firmware),
        );
        line("device.kind", self.kind.to_owned());
        line(
            "usable",
            self.unusable
                .map_or("yes".to_owned(), |why| format!("no: {why}")),
        );
        line("capacity", size(self.capacity_bytes));
        line(
            "block",
            format!(
                "{}, {} bytes of metadata",
                size(self.block_bytes.into()),
                self.metadata_bytes
            ),
        );
        let formats = self.block_formats.iter().enumerate();
        let formats: Vec<_> = formats.map(FormatInfo::text).collect();
        line("block formats", formats.join(", "));
        line("atomic write", size(self.atomic_write_bytes));
        line(
            "transfer",
            format!("at most {}", size(self.max_transfer_bytes.into())),
        );
        let cache = if self.write_cache {
            "on"
        } else {
            "none, or off"
        };
        line("write cache", cache.to_owned());
        if let Some(zones) = &self.zones {
            line(
                "zones",
                format!("{} of {}", zones.count, size(zones.size_bytes)),
            );
            line("open zones", limit(zones.max_open));
            line("active zones", limit(zones.max_active));
            line(
                "zone append",
                format!("at most {}", size(zones.max_append_bytes.into())),
            );
        }
        if let Some(placement) = &self.placement {
            line("placement handles", placement.handles.to_string());
            if let Some(bytes) = placement.reclaim_unit_bytes {
                line("reclaim unit", size(bytes));
            }
            if let (Some(host), Some(media)) =
                (placement.host_written_bytes, placement.media_written_bytes)
            {
                line("hosts wrote", short(host));
                line("the drive wrote", short(media));
            }
        }
        match &self.health {
            None => line(
                "health",
                "not readable (needs root or CAP_SYS_ADMIN)".to_owned(),
            ),
            Some(health) => {
                line(
                    "health",
                    format!(
                        "{}% used, {}% spare, {} °C, warnings {:#04x}, {} media errors",
                        health.percentage_used,
                        health.available_spare_percent,
                        health.temperature_celsius,
                        health.critical_warning,
                        health.media_errors,
                    ),
                );
                line("written by hosts", short(health.host_written_bytes.into()));
            }
        }
        text
    }
}

/// A zone of `floe device zones --json`. Sizes are in bytes.
#[derive(Serialize)]
struct ZoneInfo {
    zone: usize,
    state: &'static str,
    start: u64,
    capacity: u64,
    /// `None` in states without a write pointer.
    written: Option<u64>,
}

/// `floe device zones`.
pub(super) fn zones(path: &Path, json: bool) -> Result<(), Failure> {
    let drive = open(path)?;
    if !matches!(drive.interface(), Interface::Zoned(_)) {
        let path = drive.path().display();
        return Err(
            Failure::usage(format!("`{path}` is {}", drive.interface().name()))
                .cure("name a zoned namespace; `floe device list` shows the kinds"),
        );
    }
    let zones = drive.zones();
    let zones =
        zones.map_err(|error| Failure::environment("the zones cannot be read").because(error))?;
    let block = u64::from(drive.namespace().block_bytes);
    if !json {
        return output::print(&map(&zones, block, Style::stdout()));
    }
    let all = zones.iter().enumerate().map(|(zone, found)| ZoneInfo {
        zone,
        state: word(found.state),
        start: found.start * block,
        capacity: found.capacity * block,
        written: found.written.map(|blocks| blocks * block),
    });
    output::print_json(&all.collect::<Vec<_>>())
}

fn word(state: ZoneState) -> &'static str {
    match state {
        ZoneState::Empty => "empty",
        ZoneState::Open => "open",
        ZoneState::Closed => "closed",
        ZoneState::Full => "full",
        ZoneState::ReadOnly => "read_only",
        ZoneState::Offline => "offline",
        ZoneState::Unknown => "unknown",
    }
}

/// A map with a character for each zone, and a line for each zone that is neither empty
/// nor full.
fn map(zones: &[ZoneDescriptor], block_bytes: u64, style: Style) -> String {
    const ROW: usize = 64;
    let mut text = String::new();
    for (row, part) in zones.chunks(ROW).enumerate() {
        let cells: String = part.iter().map(|zone| cell(zone, style)).collect();
        let _ = writeln!(text, "{:>6}  {cells}", row * ROW);
    }
    text.push_str("\n· empty  ▁▂▃▄▅▆▇ written so far  █ full  R read-only  X offline\n");
    let count = |state| zones.iter().filter(|zone| zone.state == state).count();
    let states = [
        ZoneState::Empty,
        ZoneState::Open,
        ZoneState::Closed,
        ZoneState::Full,
        ZoneState::ReadOnly,
        ZoneState::Offline,
    ];
    let counts = states.map(|state| format!("{} {}", count(state), word(state)));
    let _ = writeln!(text, "{} zones: {}", zones.len(), counts.join(", "));
    for (number, zone) in zones.iter().enumerate() {
        let written = match (zone.state, zone.written) {
            (ZoneState::Empty | ZoneState::Full, _) => continue,
            (_, Some(blocks)) => format!(
                ", written {} of {}",
                size(blocks * block_bytes),
                size(zone.capacity * block_bytes)
            ),
            (_, None) => String::new(),
        };
        let _ = writeln!(text, "zone {number}: {}{written}", word(zone.state));
    }
    text
}

fn cell(zone: &ZoneDescriptor, style: Style) -> String {
    const LEVELS: [&str; 7] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇"];
    match zone.state {
        ZoneState::Empty | ZoneState::Unknown => style.dim("·"),
        ZoneState::Full => "█".to_owned(),
        ZoneState::ReadOnly => style.red("R"),
        ZoneState::Offline => style.red("X"),
        ZoneState::Open | ZoneState::Closed => {
            let written = zone.written.unwrap_or(0);
            let level =
                u128::from(written) * LEVELS.len() as u128 / u128::from(zone.capacity.max(1));
            let level = LEVELS[(level as usize).min(LEVELS.len() - 1)];
            match zone.state {
                ZoneState::Open => style.green(level),
                _ => level.to_owned(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_shows_each_zone_and_the_write_pointers_of_active_ones() {
        let zone = |state, written| ZoneDescriptor {
            state,
            start: 0,
            capacity: 256,
            written,
        };
        let mut zones = vec![
            zone(ZoneState::Open, Some(0)),
            zone(ZoneState::Closed, Some(255)),
            zone(ZoneState::Full, None),
            zone(ZoneState::ReadOnly, None),
            zone(ZoneState::Offline, None),
        ];
        zones.resize(65, zone(ZoneState::Empty, Some(0)));
        let text = map(&zones, 4096, Style::plain());
        let expected = format!("     0  ▁▇█RX{}\n    64  ·\n", "·".repeat(59));
        assert!(text.starts_with(&expected), "{text}");
        assert!(
            text.contains("65 zones: 60 empty, 1 open, 1 closed, 1 full, 1 read_only, 1 offline")
        );
        assert!(
            text.contains("zone 1: closed, written 1020KiB of 1MiB\n"),
            "{text}"
        );
        assert!(text.ends_with("zone 3: read_only\nzone 4: offline\n"));
    }
}
