//! Log pages: health, endurance groups, and flexible data placement.

use super::fields::{DecodeError, Fields};

/// Bytes of the health page.
pub const HEALTH_BYTES: usize = 512;
/// Bytes of the page of an endurance group.
pub const ENDURANCE_GROUP_BYTES: usize = 512;
/// Bytes of the page of placement statistics.
pub const STATISTICS_BYTES: usize = 64;
/// Bytes in a data unit of the health page.
const DATA_UNIT_BYTES: u128 = 512 * 1000;

/// SMART and health information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Bits of what needs attention; zero if nothing does.
    pub critical_warning: u8,
    /// Degrees Kelvin.
    pub temperature_kelvin: u16,
    /// Spare capacity that is left, of 100.
    pub available_spare_percent: u8,
    /// Estimate of the life that is used; may exceed 100.
    pub percentage_used: u8,
    /// Bytes that hosts read, to 512,000 bytes.
    pub host_read_bytes: u128,
    /// Bytes that hosts wrote, to 512,000 bytes.
    pub host_written_bytes: u128,
    /// Power losses without notice.
    pub unsafe_shutdowns: u128,
    /// Errors of the medium that were not recovered.
    pub media_errors: u128,
}

impl Health {
    /// Decodes the page.
    ///
    /// # Errors
    /// If there are fewer than [`HEALTH_BYTES`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::new(bytes, HEALTH_BYTES, "a short health page")?;
        let units = |at| fields.u128(at).saturating_mul(DATA_UNIT_BYTES);
        Ok(Health {
            critical_warning: fields.u8(0),
            temperature_kelvin: fields.u16(1),
            available_spare_percent: fields.u8(3),
            percentage_used: fields.u8(5),
            host_read_bytes: units(32),
            host_written_bytes: units(48),
            unsafe_shutdowns: fields.u128(144),
            media_errors: fields.u128(160),
        })
    }
}

/// An endurance group's health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnduranceGroup {
    /// Estimate of the life that is used; may exceed 100.
    pub percentage_used: u8,
    /// Bytes that hosts wrote, to 10^9 bytes.
    pub host_written_bytes: u128,
    /// Bytes that the drive wrote to its medium, to 10^9 bytes.
    pub media_written_bytes: u128,
}

impl EnduranceGroup {
    /// Decodes the page.
    ///
    /// # Errors
    /// If there are fewer than [`ENDURANCE_GROUP_BYTES`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        const UNIT_BYTES: u128 = 1_000_000_000;
        let what = "a short endurance group page";
        let fields = Fields::new(bytes, ENDURANCE_GROUP_BYTES, what)?;
        let units = |at| fields.u128(at).saturating_mul(UNIT_BYTES);
        Ok(EnduranceGroup {
            percentage_used: fields.u8(5),
            host_written_bytes: units(64),
            media_written_bytes: units(80),
        })
    }
}

/// A configuration of flexible data placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementConfiguration {
    /// The drive can use it.
    pub is_valid: bool,
    /// Bits of a placement identifier that name a reclaim group.
    pub group_bits: u8,
    /// Number of reclaim groups.
    pub reclaim_groups: u32,
    /// Bytes of a reclaim unit.
    pub reclaim_unit_bytes: u64,
    /// Seconds after which the drive may leave a reclaim unit unfilled; zero for no limit.
    pub time_limit_seconds: u32,
    /// Each reclaim unit handle's isolation.
    pub handles: Vec<Isolation>,
}

/// The data that a drive may put together with a handle's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// That of other handles, once garbage collection moves it.
    Initial,
    /// Only the handle's own, also after garbage collection.
    Persistent,
    /// Not specified.
    Unknown,
}

impl PlacementConfiguration {
    /// Decodes all configurations that the page holds whole.
    ///
    /// # Errors
    /// If there is not even the page's header.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Self>, DecodeError> {
        const HEADER_BYTES: usize = 16;
        let what = "a short page of placement configurations";
        let fields = Fields::new(bytes, HEADER_BYTES, what)?;
        let mut rest = &bytes[HEADER_BYTES..];
        let mut all = Vec::new();
        for _ in 0..=fields.u16(0) {
            let Some((len, configuration)) = Self::decode(rest) else {
                break;
            };
            all.push(configuration);
            rest = &rest[len..];
        }
        Ok(all)
    }

    /// The first configuration in `bytes` and its length; `None` if it is not whole.
    fn decode(bytes: &[u8]) -> Option<(usize, Self)> {
        const FIXED_BYTES: usize = 64;
        let fields = Fields::new(bytes, FIXED_BYTES, "").ok()?;
        let (len, count) = (usize::from(fields.u16(0)), usize::from(fields.u16(8)));
        if len < FIXED_BYTES + 4 * count || bytes.len() < len {
            return None;
        }
        let handles = fields.entries(FIXED_BYTES, 4, count);
        let isolation = |handle: Fields<'_>| match handle.u8(0) {
            1 => Isolation::Initial,
            2 => Isolation::Persistent,
            _ => Isolation::Unknown,
        };
        let attributes = fields.u8(2);
        let configuration = PlacementConfiguration {
            is_valid: attributes & 1 << 7 != 0,
            group_bits: attributes & 0xf,
            reclaim_groups: fields.u32(4),
            reclaim_unit_bytes: fields.u64(16),
            time_limit_seconds: fields.u32(24),
            handles: handles.map(isolation).collect(),
        };
        Some((len, configuration))
    }
}

/// The use of a reclaim unit handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleUsage {
    /// By no namespace.
    Unused,
    /// By a namespace that was created with it.
    Host,
    /// By a namespace for which the controller chose it.
    Controller,
    /// Not specified.
    Unknown,
}

impl HandleUsage {
    /// Decodes the page: the use of each handle that it holds whole.
    ///
    /// # Errors
    /// If there is not even the page's header.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Self>, DecodeError> {
        const HEADER_BYTES: usize = 8;
        let what = "a short page of reclaim unit handles";
        let fields = Fields::new(bytes, HEADER_BYTES, what)?;
        let handles = fields.entries(HEADER_BYTES, 8, usize::from(fields.u16(0)));
        let usage = |handle: Fields<'_>| match handle.u8(0) {
            0 => HandleUsage::Unused,
            1 => HandleUsage::Host,
            2 => HandleUsage::Controller,
            _ => HandleUsage::Unknown,
        };
        Ok(handles.map(usage).collect())
    }
}

/// Bytes written and erased since data placement was turned on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementStatistics {
    /// Bytes that hosts wrote, with their metadata.
    pub host_written_bytes: u128,
    /// Bytes that the drive wrote to its medium, with their metadata.
    pub media_written_bytes: u128,
    /// Bytes that the drive erased.
    pub media_erased_bytes: u128,
}

impl PlacementStatistics {
    /// Decodes the page.
    ///
    /// # Errors
    /// If there are fewer than [`STATISTICS_BYTES`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = "a short page of placement statistics";
        let fields = Fields::new(bytes, STATISTICS_BYTES, what)?;
        Ok(PlacementStatistics {
            host_written_bytes: fields.u128(0),
            media_written_bytes: fields.u128(16),
            media_erased_bytes: fields.u128(32),
        })
    }
}

/// An event of flexible data placement that concerns the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementEvent {
    /// The cause.
    pub kind: EventKind,
    /// The placement identifier, if one is concerned.
    pub placement: Option<u16>,
    /// The namespace, if one is concerned.
    pub namespace: Option<u32>,
    /// Milliseconds of the drive's clock.
    pub timestamp_ms: u64,
}

/// The cause of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A reclaim unit was left before it was full.
    UnitNotFull,
    /// A reclaim unit's time limit passed.
    TimeLimit,
    /// A reset of the controller changed reclaim unit handles.
    ControllerReset,
    /// A write named a placement identifier that the namespace does not have.
    InvalidPlacement,
    /// The drive moved data of a reclaim unit.
    Reallocated,
    /// The drive changed a reclaim unit handle by itself.
    Modified,
    /// Another one.
    Other(u8),
}

impl PlacementEvent {
    const BYTES: usize = 64;

    /// Decodes the events that the page holds whole.
    ///
    /// # Errors
    /// If there is not even the page's header.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Self>, DecodeError> {
        let what = "a short page of placement events";
        let fields = Fields::new(bytes, Self::BYTES, what)?;
        let count = fields.u32(0) as usize;
        let events = fields.entries(Self::BYTES, Self::BYTES, count);
        Ok(events.map(Self::decode).collect())
    }

    fn decode(fields: Fields<'_>) -> Self {
        let flags = fields.u8(1);
        // The time is the lower 48 bits; the others tell where it came from.
        const TIME: u64 = (1 << 48) - 1;
        PlacementEvent {
            kind: match fields.u8(0) {
                0x00 => EventKind::UnitNotFull,
                0x01 => EventKind::TimeLimit,
                0x02 => EventKind::ControllerReset,
                0x03 => EventKind::InvalidPlacement,
                0x80 => EventKind::Reallocated,
                0x81 => EventKind::Modified,
                other => EventKind::Other(other),
            },
            placement: (flags & 1 != 0).then(|| fields.u16(2)),
            namespace: (flags & 1 << 1 != 0).then(|| fields.u32(12)),
            timestamp_ms: fields.u64(4) & TIME,
        }
    }
}

/// A reclaim unit handle of a namespace, from an I/O management receive command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementHandle {
    /// The placement identifier that writes name.
    pub placement: u16,
    /// The reclaim unit handle.
    pub handle: u16,
    /// Blocks that its reclaim unit still has room for.
    pub free_blocks: u64,
}

/// A structure whose header tells its length. Drives reject a buffer that is longer than
/// the structure where they use scatter-gather lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SizedBy {
    Configurations,
    Usage,
    Events,
    Handles,
}

impl SizedBy {
    /// Bytes of the header.
    pub(super) fn header_bytes(self) -> usize {
        match self {
            SizedBy::Configurations | SizedBy::Handles => 16,
            SizedBy::Usage => 8,
            SizedBy::Events => PlacementEvent::BYTES,
        }
    }

    /// Bytes of the structure that begins with `header`, at most 64 KiB.
    ///
    /// # Errors
    /// If the header is not whole.
    pub(super) fn bytes(self, header: &[u8]) -> Result<usize, DecodeError> {
        const BYTES_MAX: usize = 1 << 16;
        let fields = Fields::new(header, self.header_bytes(), "a short header")?;
        let bytes = match self {
            SizedBy::Configurations => fields.u32(4) as usize / 4 * 4,
            SizedBy::Usage => 8 + 8 * usize::from(fields.u16(0)),
            SizedBy::Events => (fields.u32(0) as usize + 1).saturating_mul(PlacementEvent::BYTES),
            SizedBy::Handles => handles_bytes(usize::from(fields.u16(14))),
        };
        Ok(bytes.clamp(self.header_bytes(), BYTES_MAX))
    }
}

/// Bytes of the status of `handles` handles.
pub fn handles_bytes(handles: usize) -> usize {
    16 + 32 * handles
}

impl PlacementHandle {
    /// Decodes the handles that the status holds whole.
    ///
    /// # Errors
    /// If there is not even the status's header.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Self>, DecodeError> {
        let what = "a short status of reclaim unit handles";
        let fields = Fields::new(bytes, handles_bytes(0), what)?;
        let count = usize::from(fields.u16(14));
        let handles = fields.entries(handles_bytes(0), 32, count);
        let handle = |fields: Fields<'_>| PlacementHandle {
            placement: fields.u16(0),
            handle: fields.u16(2),
            free_blocks: fields.u64(8),
        };
        Ok(handles.map(handle).collect())
    }
}
