//! SCSI operation codes, as traces of virtual disks have them.

use super::request::BlockOp;

/// The operation of a command; `None` for those that touch no blocks. WRITE
/// SAME is taken as zeroing, for which hypervisors use it.
pub(super) fn operation(code: u16) -> Option<BlockOp> {
    match code {
        0x08 | 0x28 | 0x88 | 0xa8 => Some(BlockOp::Read),
        0x0a | 0x2a | 0x8a | 0xaa | 0x2e | 0x8e => Some(BlockOp::Write),
        0x35 | 0x91 => Some(BlockOp::Flush),
        0x42 => Some(BlockOp::Trim),
        0x41 | 0x93 => Some(BlockOp::WriteZeroes),
        _ => None,
    }
}
