//! Foreign data on a real block device, written by the usual tools or in their
//! formats. `cargo xtask devices` provides a loop device.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_core::ByteSize;
use floe_device::config::DeviceKind;
use floe_device::{Clock, DeviceConfig, OpenDeviceError, open};
use rustix::fs::FallocateFlags;

const KIB: u64 = 1 << 10;

struct Device {
    path: PathBuf,
    len: u64,
}

impl Device {
    fn new() -> Self {
        let path = std::env::var_os("FLOE_TEST_BLOCK_DEVICE").expect("names a scratch device");
        let mut file = File::open(&path).unwrap();
        let len = io::Seek::seek(&mut file, io::SeekFrom::End(0)).unwrap();
        Device {
            path: path.into(),
            len,
        }
    }

    fn write(&self, parts: &[(u64, &[u8])]) {
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        for (offset, bytes) in parts {
            file.write_all_at(bytes, *offset).unwrap();
        }
        file.sync_all().unwrap();
    }

    fn wipe(&self) {
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        let zeros = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, zeros, 0, self.len).unwrap();
    }

    fn open(&self) -> Result<(), OpenDeviceError> {
        let config = DeviceConfig {
            kind: DeviceKind::File,
            path: Some(self.path.clone()),
            zone_size: Some(ByteSize::mib(1)),
            ..DeviceConfig::default()
        };
        open(&config, &Clock::real()).map(drop)
    }

    /// Asserts that opening fails with an error that names `what`, and changes
    /// nothing.
    fn assert_rejected(&self, what: &str) {
        let before = std::fs::read(&self.path).unwrap();
        match self.open() {
            Err(OpenDeviceError::ForeignData { what: found, .. }) => assert_eq!(found, what),
            other => panic!("{what}: {other:?}"),
        }
        let after = std::fs::read(&self.path).unwrap();
        assert!(after == before, "{what}: it was changed");
    }
}

/// Runs a tool of the system. Prints a warning if it is not installed.
fn run(tool: &str, arguments: &[&str], device: &Path) -> bool {
    let status = Command::new(tool)
        .args(arguments)
        .arg(device)
        .stdout(std::process::Stdio::null())
        .status();
    match status {
        Ok(status) => {
            assert!(status.success(), "{tool}: {status}");
            true
        }
        Err(error) => {
            eprintln!("skipped: {tool} cannot be run ({error}); its format is written instead");
            false
        }
    }
}

/// Bytes at an offset.
type Placed<'a> = (u64, &'a [u8]);

#[test]
#[ignore = "needs a scratch block device in FLOE_TEST_BLOCK_DEVICE"]
fn foreign_data_is_named_and_left_alone() {
    let device = Device::new();
    let end = device.len;
    let md = [0xfc, 0x4e, 0x2b, 0xa9];
    let cases: [(&str, &[Placed<'_>]); 10] = [
        (
            "a GPT partition table",
            &[(512, b"EFI PART"), (510, &[0x55, 0xaa])],
        ),
        (
            "the backup of a GPT partition table",
            &[(end - 512, b"EFI PART")],
        ),
        ("a member of an md RAID", &[(4 * KIB, &md)]),
        (
            "a member of an md RAID",
            &[(end / (64 * KIB) * (64 * KIB) - 64 * KIB, &md)],
        ),
        (
            "a member of an md RAID",
            &[(end / (4 * KIB) * (4 * KIB) - 8 * KIB, &md)],
        ),
        ("an LVM physical volume", &[(512, b"LABELONE")]),
        (
            "an ext2, ext3 or ext4 file system",
            &[(KIB + 56, &[0x53, 0xef])],
        ),
        ("an XFS file system", &[(0, b"XFSB")]),
        ("swap space", &[(4 * KIB - 10, b"SWAPSPACE2")]),
        (
            "data that is not Floe's",
            &[(end / 2 / (1 << 20) * (1 << 20), b"x")],
        ),
    ];
    for (what, parts) in cases {
        device.wipe();
        device.write(parts);
        device.assert_rejected(what);
    }
    for (tool, arguments, what) in [
        (
            "mkfs.ext4",
            &["-q", "-F"][..],
            "an ext2, ext3 or ext4 file system",
        ),
        ("mkswap", &[], "swap space"),
    ] {
        device.wipe();
        if run(tool, arguments, &device.path) {
            device.assert_rejected(what);
        }
    }
    device.wipe();
    device.open().expect("what is blank is taken");
}

/// Unmounts when it is dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &[], &self.0);
    }
}

#[test]
#[ignore = "needs a scratch block device in FLOE_TEST_BLOCK_DEVICE"]
fn a_mounted_device_is_in_use() {
    let device = Device::new();
    device.wipe();
    if !run("mkfs.ext4", &["-q", "-F"], &device.path) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = device.path.to_str().unwrap();
    if !run("mount", &["-t", "ext4", place], folder.path()) {
        return;
    }
    let mounted = Mounted(folder.path().to_owned());
    std::fs::write(folder.path().join("file"), "theirs").unwrap();
    let error = device.open().expect_err("it is mounted");
    assert!(matches!(error, OpenDeviceError::InUse(_)), "{error:?}");
    let kept = std::fs::read_to_string(folder.path().join("file")).unwrap();
    assert_eq!(kept, "theirs");
    drop(mounted);
    device.assert_rejected("an ext2, ext3 or ext4 file system");
}
