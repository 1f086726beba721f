//! A device's state as bytes, so that an expensive state is built once.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | `FLOE-SSD` |
//! | 8 | 4 | version: 1 |
//! | 12 | 4 | CRC-32C of the body |
//! | 16 | 8 | length of the body |
//! | 24 | … | body |
//!
//! Fixed fields are little-endian. The body is a sequence of numbers in LEB128:
//! seven bits a byte, low ones first. It begins with the configuration, which
//! reveals the state of another device. Then come seed, front end, flash array
//! and its manager; the `save` of each defines its part.
//!
//! Only an idle device can be saved, and a loaded one begins at time zero.
//! Counters continue. The timeline of garbage collection is not saved, nor are
//! lives of superblocks, which only commands under way need.
//! A state is untrusted input: every number is checked against the
//! configuration and the other numbers, so that no unreachable state can be
//! loaded.

use super::config::{
    FlashConfig, FtlConfig, HostInterface, InPlaceConfig, Interface, Isolation, Medium, NandConfig,
    SsdConfig, Victim, ZonedConfig,
};
use crate::layout::crc32c;

const MAGIC: [u8; 8] = *b"FLOE-SSD";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 24;
/// Above any count of a device, and low enough that sums of a few counts do not
/// overflow.
const COUNT_MAX: u64 = 1 << 56;

/// The device cannot be saved: commands or work of its own are in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device is busy; advance time until it has no wake-up, then save its state")]
pub struct Busy;

/// The reason why bytes are not the state of a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateFault {
    /// The bytes are something else.
    #[error("this is not a saved state of a simulated SSD")]
    NotAState,
    /// The format's version is unknown to this program.
    #[error(
        "the saved state has version {0}, of which this program knows only {VERSION}; save it again"
    )]
    Version(u32),
    /// The bytes are incomplete or changed.
    #[error("the saved state is damaged: its length or checksum is wrong; save it again")]
    Damaged,
    /// The state is that of another device.
    #[error(
        "the saved state is of a device with another configuration than {0}; save one of this device"
    )]
    OtherDevice(String),
    /// The numbers contradict the configuration or each other.
    #[error("the saved state is inconsistent: {0}")]
    Malformed(&'static str),
}

/// The state with a given body, header included.
pub(super) fn seal(body: Writer) -> Vec<u8> {
    let body = body.0;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(crc32c([body.as_slice()]).to_le_bytes());
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// Checks header, checksum and configuration, which must be `config`. Returns a
/// reader of the rest of the body.
pub(super) fn open<'a>(config: &SsdConfig, bytes: &'a [u8]) -> Result<Reader<'a>, StateFault> {
    let mut expected = Writer::default();
    expected.config(config);
    match body(bytes)?.strip_prefix(expected.0.as_slice()) {
        Some(rest) => Ok(Reader(rest)),
        None => Err(StateFault::OtherDevice(config.name.clone())),
    }
}

fn body(bytes: &[u8]) -> Result<&[u8], StateFault> {
    let (magic, rest) = bytes
        .split_first_chunk::<8>()
        .ok_or(StateFault::NotAState)?;
    if *magic != MAGIC {
        return Err(StateFault::NotAState);
    }
    let (version, rest) = rest.split_first_chunk().ok_or(StateFault::Damaged)?;
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        return Err(StateFault::Version(version));
    }
    let (checksum, rest) = rest.split_first_chunk().ok_or(StateFault::Damaged)?;
    let (length, body) = rest.split_first_chunk().ok_or(StateFault::Damaged)?;
    let is_whole = u64::from_le_bytes(*length) == body.len() as u64
        && u32::from_le_bytes(*checksum) == crc32c([body]);
    match is_whole {
        true => Ok(body),
        false => Err(StateFault::Damaged),
    }
}

/// Writes a body.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub(super) fn numbers(&mut self, numbers: impl IntoIterator<Item = u64>) {
        numbers.into_iter().for_each(|number| self.number(number));
    }

    /// Writes a number plus one, or zero for none.
    pub(super) fn option(&mut self, number: Option<u64>) {
        self.number(number.map_or(0, |number| number + 1));
    }

    /// Writes every field, so that any difference between two devices shows.
    pub(super) fn config(&mut self, config: &SsdConfig) {
        let SsdConfig {
            name,
            block,
            host,
            medium,
        } = config;
        self.number(name.len() as u64);
        self.0.extend(name.as_bytes());
        let HostInterface {
            write_bytes_per_s,
            read_bytes_per_s,
            command_overhead_ns,
            buffer,
            read_window,
        } = host;
        self.numbers([
            block.bytes(),
            *write_bytes_per_s,
            *read_bytes_per_s,
            *command_overhead_ns,
            buffer.bytes(),
            read_window.bytes(),
        ]);
        match medium {
            Medium::Flash(flash) => self.flash(flash),
            Medium::InPlace(InPlaceConfig {
                capacity,
                lanes,
                stripe,
                read_ns,
                write_ns,
                seek_ns,
                read_bytes_per_s,
                write_bytes_per_s,
            }) => self.numbers([
                0,
                capacity.bytes(),
                u64::from(*lanes),
                stripe.bytes(),
                *read_ns,
                *write_ns,
                *seek_ns,
                *read_bytes_per_s,
                *write_bytes_per_s,
            ]),
        }
    }

    fn flash(&mut self, flash: &FlashConfig) {
        let FlashConfig {
            nand,
            superblock,
            superblocks,
            interface,
        } = flash;
        let NandConfig {
            dies,
            stripe_dies,
            page,
            program_unit,
            read_page_ns,
            program_ns,
            erase_ns,
            parity_every,
            suspends_per_program,
            read_burst_ns,
        } = nand;
        self.numbers([
            1,
            superblock.bytes(),
            u64::from(*superblocks),
            u64::from(*dies),
            u64::from(*stripe_dies),
            page.bytes(),
            program_unit.bytes(),
            *read_page_ns,
            *program_ns,
            *erase_ns,
            u64::from(*parity_every),
            u64::from(*suspends_per_program),
            *read_burst_ns,
        ]);
        match interface {
            Interface::Zoned(ZonedConfig {
                zones,
                zone_size,
                open_max,
                active_max,
                append_max,
            }) => self.numbers([
                0,
                u64::from(*zones),
                zone_size.bytes(),
                u64::from(*open_max),
                u64::from(*active_max),
                append_max.bytes(),
            ]),
            Interface::Conventional(FtlConfig {
                capacity,
                mapping_unit,
                handles,
                isolation,
                collect_below,
                throttle_at,
                collect_window,
                victim,
            }) => self.numbers([
                1,
                capacity.bytes(),
                mapping_unit.bytes(),
                u64::from(*handles),
                u64::from(*isolation == Isolation::Persistent),
                u64::from(*collect_below),
                u64::from(*throttle_at),
                collect_window.bytes(),
                u64::from(*victim == Victim::Greedy),
            ]),
        }
    }
}

/// Reads a body.
pub(super) struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// Fails unless all was read.
    pub(super) fn end(&self) -> Result<(), StateFault> {
        check(self.0.is_empty(), "something follows the state")
    }

    pub(super) fn number(&mut self) -> Result<u64, StateFault> {
        const LONGEST: usize = 10;
        let end = self
            .0
            .iter()
            .take(LONGEST)
            .position(|byte| byte & 0x80 == 0);
        let end = end.ok_or(StateFault::Malformed("a number has no end"))?;
        let (bytes, rest) = self.0.split_at(end + 1);
        self.0 = rest;
        if end + 1 == LONGEST && bytes[end] > 1 {
            return Err(StateFault::Malformed("a number is too large"));
        }
        let bits = bytes.iter().rev();
        Ok(bits.fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f)))
    }

    /// A number of at most `most`.
    pub(super) fn at_most(&mut self, most: u64, wrong: &'static str) -> Result<u64, StateFault> {
        let number = self.number()?;
        match number <= most {
            true => Ok(number),
            false => Err(StateFault::Malformed(wrong)),
        }
    }

    /// As [`Reader::at_most`], for numbers that fit 32 bits.
    pub(super) fn small(&mut self, most: u32, wrong: &'static str) -> Result<u32, StateFault> {
        Ok(self.at_most(u64::from(most), wrong)? as u32)
    }

    /// A number of at most `most`, or none.
    pub(super) fn option(
        &mut self,
        most: u64,
        wrong: &'static str,
    ) -> Result<Option<u64>, StateFault> {
        Ok(self.at_most(most + 1, wrong)?.checked_sub(1))
    }

    pub(super) fn flag(&mut self) -> Result<bool, StateFault> {
        Ok(self.at_most(1, "a flag is neither set nor clear")? == 1)
    }

    /// Reads a counter.
    pub(super) fn count(&mut self) -> Result<u64, StateFault> {
        self.at_most(COUNT_MAX, "a count is impossibly high")
    }

    /// Reads several counters.
    pub(super) fn counts<const N: usize>(&mut self) -> Result<[u64; N], StateFault> {
        let mut counts = [0; N];
        for count in &mut counts {
            *count = self.count()?;
        }
        Ok(counts)
    }
}

/// Fails unless `sound`.
pub(super) fn check(sound: bool, wrong: &'static str) -> Result<(), StateFault> {
    match sound {
        true => Ok(()),
        false => Err(StateFault::Malformed(wrong)),
    }
}
