//! Numbers of the NBD protocol that clients and servers share.
//!
//! <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>

/// The first bytes of a server: `NBDMAGIC`.
pub const GREETING: u64 = 0x4e42_444d_4147_4943;
/// Before each option, and the rest of the greeting: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Before each reply to an option.
pub const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Before each request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Before a simple reply.
pub const SIMPLE_MAGIC: u32 = 0x6744_6698;
/// Before a chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Both sides: options have replies.
pub const FIXED_NEWSTYLE: u16 = 1 << 0;
/// Both sides: no padding follows the reply to `EXPORT_NAME`.
pub const NO_ZEROES: u16 = 1 << 1;

/// The most bytes of a request that any client may send: 32 MiB.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// Numbers of options.
#[allow(missing_docs, reason = "the protocol's own names")]
pub mod number {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options.
#[allow(missing_docs, reason = "the protocol's own names")]
pub mod kind {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERR_UNSUP: u32 = (1 << 31) + 1;
    pub const ERR_POLICY: u32 = (1 << 31) + 2;
    pub const ERR_INVALID: u32 = (1 << 31) + 3;
    pub const ERR_TLS_REQD: u32 = (1 << 31) + 5;
    pub const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    /// The server is being shut down.
    pub const ERR_SHUTDOWN: u32 = (1 << 31) + 7;
    pub const ERR_TOO_BIG: u32 = (1 << 31) + 9;
}

/// Types of information about an export.
#[allow(missing_docs, reason = "the protocol's own names")]
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags.
#[allow(missing_docs, reason = "the protocol's own names")]
pub mod flags {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Flags of commands.
#[allow(missing_docs, reason = "the protocol's own names")]
pub mod flag {
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// The chunk is the last one of its reply.
pub const DONE: u16 = 1;

/// Types of chunks of structured replies.
#[allow(missing_docs, reason = "the protocol's own names")]
pub mod chunk {
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR: u16 = (1 << 15) + 1;
    pub const ERROR_OFFSET: u16 = (1 << 15) + 2;
}

/// The commands, with their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Command {
    /// Reads a range.
    Read = 0,
    /// Writes the bytes that follow the head.
    Write = 1,
    /// Ends the connection, without a reply.
    Disconnect = 2,
    /// Makes all writes that have replies durable.
    Flush = 3,
    /// Tells that a range is not needed.
    Trim = 4,
    /// Tells that a range will be read soon.
    Cache = 5,
    /// Writes zeros.
    WriteZeroes = 6,
    /// Asks for the allocation of a range.
    BlockStatus = 7,
    /// A number without a command.
    Unknown = 8,
}

floe_core::names! {
    Command {
        Read => "read",
        Write => "write",
        Disconnect => "disconnect",
        Flush => "flush",
        Trim => "trim",
        Cache => "cache",
        WriteZeroes => "write_zeroes",
        BlockStatus => "block_status",
        Unknown => "unknown",
    }
}

impl Command {
    /// The command of this number.
    pub fn of(number: u16) -> Self {
        match number {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            _ => Command::Unknown,
        }
    }

    /// The flags that the command knows. FUA is valid for all commands.
    pub fn flags(self) -> u16 {
        flag::FUA
            | match self {
                Command::Read => flag::DF,
                Command::WriteZeroes => flag::NO_HOLE | flag::FAST_ZERO,
                Command::BlockStatus => flag::REQ_ONE,
                _ => 0,
            }
    }

    /// True if the command changes the export.
    pub fn changes(self) -> bool {
        matches!(self, Command::Write | Command::Trim | Command::WriteZeroes)
    }
}
