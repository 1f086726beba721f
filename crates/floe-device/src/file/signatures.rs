//! Signatures of file systems, volume managers and partition tables on disks.

/// Longest magic of [`SIGNATURES`].
pub(super) const MAGIC_BYTES_MAX: usize = 16;

/// A mark that identifies the owner of a disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signature {
    /// The owner, with an article.
    pub(super) name: &'static str,
    pub(super) place: Place,
    magic: &'static [u8],
}

/// The position of a mark, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// From the start.
    Start(u64),
    /// From the end, which is rounded down to a multiple of `align`.
    End { align: u64, back: u64 },
}

impl Place {
    /// The offset on a medium of `len` bytes, if it is long enough.
    pub(super) fn offset(self, len: u64) -> Option<u64> {
        let offset = match self {
            Place::Start(offset) => offset,
            Place::End { align, back } => (len / align * align).checked_sub(back)?,
        };
        (offset < len).then_some(offset)
    }
}

impl Signature {
    /// True if `bytes`, read at the signature's offset, begin with it.
    pub(super) fn matches(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(self.magic)
    }

    #[cfg(test)]
    pub(super) fn magic(&self) -> &'static [u8] {
        self.magic
    }
}

const fn at(name: &'static str, offset: u64, magic: &'static [u8]) -> Signature {
    Signature {
        name,
        place: Place::Start(offset),
        magic,
    }
}

const fn behind(name: &'static str, align: u64, back: u64, magic: &'static [u8]) -> Signature {
    Signature {
        name,
        place: Place::End { align, back },
        magic,
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const GPT: &str = "a GPT partition table";
const GPT_BACKUP: &str = "the backup of a GPT partition table";
const MD: &str = "a member of an md RAID";
const MD_MAGIC: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
const LVM: &str = "an LVM physical volume";
const LVM_MAGIC: &[u8] = b"LABELONE";
const ZFS: &str = "a member of a ZFS pool";
/// The head of the list of names and values in each of the four labels.
const ZFS_MAGIC: &[u8] = &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const BTRFS: &str = "a btrfs file system";
const LUKS: &str = "a LUKS volume";
const F2FS: &str = "an F2FS file system";
const SWAP: &str = "swap space";

/// Signatures, most specific first: a GPT comes with an MBR.
pub(super) const SIGNATURES: &[Signature] = &[
    at(GPT, 512, b"EFI PART"),
    at(GPT, 4 * KIB, b"EFI PART"),
    behind(GPT_BACKUP, 512, 512, b"EFI PART"),
    behind(GPT_BACKUP, 4 * KIB, 4 * KIB, b"EFI PART"),
    // Versions 0.90, 1.0, 1.1 and 1.2 of the superblock.
    behind(MD, 64 * KIB, 64 * KIB, MD_MAGIC),
    behind(MD, 4 * KIB, 8 * KIB, MD_MAGIC),
    at(MD, 0, MD_MAGIC),
    at(MD, 4 * KIB, MD_MAGIC),
    behind(
        "a member of a DDF RAID",
        512,
        512,
        &[0xde, 0x11, 0xde, 0x11],
    ),
    behind("a member of an Intel RAID", 512, KIB, b"Intel Raid ISM"),
    at(LVM, 0, LVM_MAGIC),
    at(LVM, 512, LVM_MAGIC),
    at(LVM, 1024, LVM_MAGIC),
    at(LVM, 1536, LVM_MAGIC),
    at(ZFS, 16 * KIB, ZFS_MAGIC),
    at(ZFS, 272 * KIB, ZFS_MAGIC),
    behind(ZFS, 256 * KIB, 496 * KIB, ZFS_MAGIC),
    behind(ZFS, 256 * KIB, 240 * KIB, ZFS_MAGIC),
    at(LUKS, 0, b"LUKS\xba\xbe"),
    at(LUKS, 16 * KIB, b"SKUL\xba\xbe"),
    at("an XFS file system", 0, b"XFSB"),
    at("an ext2, ext3 or ext4 file system", KIB + 56, &[0x53, 0xef]),
    at(BTRFS, 64 * KIB + 64, b"_BHRfS_M"),
    at(BTRFS, 64 * MIB + 64, b"_BHRfS_M"),
    at(F2FS, KIB, &[0x10, 0x20, 0xf5, 0xf2]),
    at(F2FS, 5 * KIB, &[0x10, 0x20, 0xf5, 0xf2]),
    at(
        "a bcache or bcachefs device",
        4 * KIB + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca],
    ),
    at("a Ceph BlueStore device", 0, b"bluestore block"),
    at("a ReiserFS file system", 64 * KIB + 52, b"ReIsEr"),
    at("a JFS file system", 32 * KIB, b"JFS1"),
    at("an NTFS file system", 3, b"NTFS    "),
    at("an exFAT file system", 3, b"EXFAT   "),
    at("a BitLocker volume", 3, b"-FVE-FS-"),
    at("a FAT file system", 54, b"FAT1"),
    at("a FAT file system", 82, b"FAT32"),
    at("an ISO 9660 file system", 32 * KIB + 1, b"CD001"),
    at("a SquashFS file system", 0, b"hsqs"),
    at(SWAP, 4 * KIB - 10, b"SWAPSPACE2"),
    at(SWAP, 64 * KIB - 10, b"SWAPSPACE2"),
    at(
        "an MBR partition table or a boot sector",
        510,
        &[0x55, 0xaa],
    ),
];
