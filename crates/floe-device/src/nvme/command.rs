//! Commands of the NVMe base, NVM and zoned-namespace command sets, as the kernel's
//! passthrough takes them.
//!
//! The kernel builds the 64 bytes of the submission queue entry: it adds the command
//! identifier and the pointers to memory. The dwords are the caller's.
//!
//! Must not depend on: files, rings and memory.

/// An admin command or I/O command without its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// The operation code.
    pub opcode: u8,
    /// The namespace; zero for none.
    pub namespace: u32,
    /// Dwords 10 to 15 of the submission queue entry.
    pub dwords: [u32; 6],
    /// Milliseconds after which the kernel aborts the command.
    pub timeout_ms: u32,
}

/// Milliseconds that a read, write or flush may take. The kernel's own default.
const TRANSFER_MS: u32 = 30_000;
/// Milliseconds that a command may take which covers a whole zone or namespace.
const MANAGEMENT_MS: u32 = 120_000;
/// Milliseconds that formatting may take.
const FORMAT_MS: u32 = 600_000;

/// Bytes of `struct nvme_uring_cmd`.
const URING_BYTES: usize = 72;
/// Bytes of the command's area in an io_uring submission entry of 128 bytes.
pub(crate) const URING_AREA_BYTES: usize = 80;
/// Bytes of `struct nvme_passthru_cmd64`, whose first part is `struct nvme_uring_cmd`.
pub(super) const IOCTL_BYTES: usize = 80;
/// Offset of the result in `struct nvme_passthru_cmd64`.
pub(super) const IOCTL_RESULT_AT: usize = 72;

/// `NVME_URING_CMD_IO`: the operation of io_uring's `URING_CMD`.
pub(crate) const URING_IO: u32 = request_code(0x80, URING_BYTES);
/// `NVME_IOCTL_ADMIN64_CMD`.
pub(super) const IOCTL_ADMIN: u32 = request_code(0x47, IOCTL_BYTES);
/// `NVME_IOCTL_IO64_CMD`.
pub(crate) const IOCTL_IO: u32 = request_code(0x48, IOCTL_BYTES);

/// `_IOWR('N', number, bytes)` of the kernel's headers.
const fn request_code(number: u32, bytes: usize) -> u32 {
    const READ_WRITE: u32 = 3;
    READ_WRITE << 30 | (bytes as u32) << 16 | (b'N' as u32) << 8 | number
}

/// Operation codes.
mod opcode {
    pub(super) const FLUSH: u8 = 0x00;
    pub(super) const WRITE: u8 = 0x01;
    pub(super) const READ: u8 = 0x02;
    pub(super) const DATASET_MANAGEMENT: u8 = 0x09;
    pub(super) const IO_MANAGEMENT_RECEIVE: u8 = 0x12;
    pub(super) const ZONE_MANAGEMENT_SEND: u8 = 0x79;
    pub(super) const ZONE_MANAGEMENT_RECEIVE: u8 = 0x7a;
    pub(super) const ZONE_APPEND: u8 = 0x7d;
    pub(super) const ADMIN_GET_LOG_PAGE: u8 = 0x02;
    pub(super) const ADMIN_IDENTIFY: u8 = 0x06;
    pub(super) const ADMIN_GET_FEATURES: u8 = 0x0a;
    pub(super) const ADMIN_FORMAT: u8 = 0x80;
}

/// A command set identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandSet {
    /// The NVM command set: blocks in any order.
    Nvm,
    /// Zoned namespaces.
    Zoned,
    /// Another one, which Floe cannot use.
    Other(u8),
}

impl CommandSet {
    /// The set of an identifier.
    pub fn from_identifier(identifier: u8) -> Self {
        match identifier {
            0 => CommandSet::Nvm,
            2 => CommandSet::Zoned,
            other => CommandSet::Other(other),
        }
    }

    fn identifier(self) -> u8 {
        match self {
            CommandSet::Nvm => 0,
            CommandSet::Zoned => 2,
            CommandSet::Other(other) => other,
        }
    }
}

/// The structures of an identify command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identify {
    /// The namespace, by the NVM command set (CNS 00h).
    Namespace,
    /// The controller (CNS 01h).
    Controller,
    /// The namespace's identifiers and command set (CNS 03h).
    Descriptors,
    /// The namespace, by a command set (CNS 05h).
    NamespaceOf(CommandSet),
    /// The controller, by a command set (CNS 06h).
    ControllerOf(CommandSet),
}

/// The action of a zone management send command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneAction {
    /// Makes the zone closed.
    Close,
    /// Makes the zone full.
    Finish,
    /// Makes the zone explicitly open.
    Open,
    /// Makes the zone empty.
    Reset,
}

impl Command {
    fn new(opcode: u8, namespace: u32, dwords: [u32; 6]) -> Self {
        Command {
            opcode,
            namespace,
            dwords,
            timeout_ms: TRANSFER_MS,
        }
    }

    /// A command on `blocks` blocks from `block`, of which there is at least one.
    fn on_blocks(opcode: u8, namespace: u32, block: u64, blocks: u32) -> Self {
        let [low, high] = halves(block);
        // The number of blocks counts from zero, in 16 bits.
        let count = blocks.saturating_sub(1) & 0xffff;
        Command::new(opcode, namespace, [low, high, count, 0, 0, 0])
    }

    /// The same command on other blocks.
    pub(super) fn moved(mut self, block: u64, blocks: u32) -> Self {
        let moved = Command::on_blocks(self.opcode, self.namespace, block, blocks);
        self.dwords[..2].copy_from_slice(&moved.dwords[..2]);
        self.dwords[2] = self.dwords[2] & !0xffff | moved.dwords[2];
        self
    }

    /// True if the command has the same effect when it is executed twice.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.opcode != opcode::ZONE_APPEND
    }

    /// True for a [`deallocate`](Self::deallocate) command.
    pub(super) fn is_deallocate(&self) -> bool {
        self.opcode == opcode::DATASET_MANAGEMENT
    }

    /// Reads blocks.
    pub fn read(namespace: u32, block: u64, blocks: u32) -> Self {
        Command::on_blocks(opcode::READ, namespace, block, blocks)
    }

    /// Writes blocks, with data placement if `placement` is given: directive type 2 and a
    /// placement identifier.
    pub fn write(namespace: u32, block: u64, blocks: u32, placement: Option<u16>) -> Self {
        Command::on_blocks(opcode::WRITE, namespace, block, blocks).placed(placement)
    }

    /// Appends blocks to the zone that starts at `zone_block`.
    pub fn append(namespace: u32, zone_block: u64, blocks: u32) -> Self {
        Command::on_blocks(opcode::ZONE_APPEND, namespace, zone_block, blocks)
    }

    /// The same write or append by force unit access: it ends once its data is on stable media.
    pub fn through(mut self) -> Self {
        const FORCE_UNIT_ACCESS: u32 = 1 << 30;
        self.dwords[2] |= FORCE_UNIT_ACCESS;
        self
    }

    fn placed(mut self, placement: Option<u16>) -> Self {
        const DATA_PLACEMENT: u32 = 2;
        if let Some(identifier) = placement {
            self.dwords[2] |= DATA_PLACEMENT << 20;
            self.dwords[3] |= u32::from(identifier) << 16;
        }
        self
    }

    /// Deallocates one range, which is the command's data: see [`deallocated_range`].
    pub fn deallocate(namespace: u32) -> Self {
        const RANGES_FROM_ZERO: u32 = 0;
        const DEALLOCATE: u32 = 1 << 2;
        Command {
            timeout_ms: MANAGEMENT_MS,
            ..Command::new(
                opcode::DATASET_MANAGEMENT,
                namespace,
                [RANGES_FROM_ZERO, DEALLOCATE, 0, 0, 0, 0],
            )
        }
    }

    /// Makes what completed durable.
    pub fn flush(namespace: u32) -> Self {
        Command {
            timeout_ms: MANAGEMENT_MS,
            ..Command::new(opcode::FLUSH, namespace, [0; 6])
        }
    }

    /// Changes the state of the zone that starts at `zone_block`, or of all zones.
    pub fn manage_zone(namespace: u32, zone_block: Option<u64>, action: ZoneAction) -> Self {
        const ALL: u32 = 1 << 8;
        let [low, high] = halves(zone_block.unwrap_or(0));
        let action = match action {
            ZoneAction::Close => 1,
            ZoneAction::Finish => 2,
            ZoneAction::Open => 3,
            ZoneAction::Reset => 4,
        };
        let all = if zone_block.is_none() { ALL } else { 0 };
        Command {
            timeout_ms: MANAGEMENT_MS,
            ..Command::new(
                opcode::ZONE_MANAGEMENT_SEND,
                namespace,
                [low, high, 0, action | all, 0, 0],
            )
        }
    }

    /// Reports the zones from the one that starts at `zone_block`, in `bytes` bytes: a
    /// multiple of 4. The drive counts only the zones that fit.
    pub fn report_zones(namespace: u32, zone_block: u64, bytes: u32) -> Self {
        const PARTIAL: u32 = 1 << 16;
        let [low, high] = halves(zone_block);
        Command::new(
            opcode::ZONE_MANAGEMENT_RECEIVE,
            namespace,
            [low, high, dwords_from_zero(bytes), PARTIAL, 0, 0],
        )
    }

    /// Returns the status of the namespace's reclaim unit handles in `bytes` bytes, a
    /// multiple of 4.
    pub fn reclaim_unit_handles(namespace: u32, bytes: u32) -> Self {
        const RECLAIM_UNIT_HANDLE_STATUS: u32 = 1;
        let count = dwords_from_zero(bytes);
        Command::new(
            opcode::IO_MANAGEMENT_RECEIVE,
            namespace,
            [RECLAIM_UNIT_HANDLE_STATUS, count, 0, 0, 0, 0],
        )
    }

    /// Identifies a namespace or the controller, in 4096 bytes. An admin command.
    pub fn identify(structure: Identify, namespace: u32) -> Self {
        let (number, set) = match structure {
            Identify::Namespace => (0, 0),
            Identify::Controller => (1, 0),
            Identify::Descriptors => (3, 0),
            Identify::NamespaceOf(set) => (5, set.identifier()),
            Identify::ControllerOf(set) => (6, set.identifier()),
        };
        let set = u32::from(set) << 24;
        Command::new(opcode::ADMIN_IDENTIFY, namespace, [number, set, 0, 0, 0, 0])
    }

    /// Reads `bytes` bytes of a log page, a multiple of 4. An admin command.
    pub fn log_page(page: LogPage, bytes: u32) -> Self {
        const ALL_NAMESPACES: u32 = u32::MAX;
        const HOST_EVENTS: u32 = 1 << 8;
        let (identifier, specific, group) = match page {
            LogPage::Health => (0x02, 0, 0),
            LogPage::EnduranceGroup(group) => (0x09, 0, group),
            LogPage::PlacementConfigurations(group) => (0x20, 0, group),
            LogPage::PlacementUsage(group) => (0x21, 0, group),
            LogPage::PlacementStatistics(group) => (0x22, 0, group),
            LogPage::PlacementEvents(group) => (0x23, HOST_EVENTS, group),
        };
        let [low, high] = [
            dwords_from_zero(bytes) & 0xffff,
            dwords_from_zero(bytes) >> 16,
        ];
        let dwords = [
            identifier | specific | low << 16,
            high | u32::from(group) << 16,
            0,
            0,
            0,
            0,
        ];
        Command::new(opcode::ADMIN_GET_LOG_PAGE, ALL_NAMESPACES, dwords)
    }

    /// Reads the current value of a feature. An admin command.
    pub fn get_feature(feature: Feature) -> Self {
        let (identifier, argument) = match feature {
            Feature::VolatileWriteCache => (0x06, 0),
            Feature::DataPlacement(group) => (0x1d, u32::from(group)),
        };
        Command::new(
            opcode::ADMIN_GET_FEATURES,
            0,
            [identifier, argument, 0, 0, 0, 0],
        )
    }

    /// Gives the namespace the block format `format`, of at most 64, which erases it. An admin
    /// command.
    pub fn format(namespace: u32, format: u8) -> Self {
        let (low, high) = (u32::from(format & 0xf), u32::from(format >> 4 & 3));
        Command {
            timeout_ms: FORMAT_MS,
            ..Command::new(
                opcode::ADMIN_FORMAT,
                namespace,
                [low | high << 12, 0, 0, 0, 0, 0],
            )
        }
    }

    /// The command as `struct nvme_uring_cmd`, with `data_bytes` bytes of data at the
    /// address `data`, padded to its area in a submission entry. The same bytes begin a
    /// `struct nvme_passthru_cmd64`.
    pub(crate) fn for_kernel(&self, data: u64, data_bytes: u32) -> [u8; URING_AREA_BYTES] {
        let mut bytes = [0; URING_AREA_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &[self.opcode]);
        put(4, &self.namespace.to_ne_bytes());
        put(24, &data.to_ne_bytes());
        put(36, &data_bytes.to_ne_bytes());
        for (index, dword) in self.dwords.iter().enumerate() {
            put(40 + 4 * index, &dword.to_ne_bytes());
        }
        put(64, &self.timeout_ms.to_ne_bytes());
        bytes
    }
}

/// A log page, with the endurance group where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPage {
    /// SMART and health information.
    Health,
    /// An endurance group's health.
    EnduranceGroup(u16),
    /// The configurations of flexible data placement.
    PlacementConfigurations(u16),
    /// The use of reclaim unit handles.
    PlacementUsage(u16),
    /// Bytes that hosts and the drive itself wrote.
    PlacementStatistics(u16),
    /// Events that concern the host.
    PlacementEvents(u16),
}

/// A feature of a controller, with the endurance group where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// The volatile write cache.
    VolatileWriteCache,
    /// Flexible data placement.
    DataPlacement(u16),
}

/// Bytes of a [`deallocated_range`].
pub const RANGE_BYTES: usize = 16;

/// The data of [`Command::deallocate`]: `blocks` blocks from `block`.
pub fn deallocated_range(block: u64, blocks: u32) -> [u8; RANGE_BYTES] {
    let mut range = [0; RANGE_BYTES];
    range[4..8].copy_from_slice(&blocks.to_le_bytes());
    range[8..].copy_from_slice(&block.to_le_bytes());
    range
}

fn halves(block: u64) -> [u32; 2] {
    [block as u32, (block >> 32) as u32]
}

/// A number of dwords as commands count them: less one.
fn dwords_from_zero(bytes: u32) -> u32 {
    (bytes / 4).saturating_sub(1)
}
