//! Files as block devices: opening, locks, sizes and errors.

use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use floe_core::ByteSize;
use floe_device::config::Direct;
use floe_device::conformance::pattern;
use floe_device::{
    BlockDevice as _, DeviceConfig, DeviceErrorKind, FileBlocks, FileBlocksConfig, FileDevice,
    IoBuf, OpenDeviceError,
};

const BLOCK: u64 = 4096;

fn run<T>(main: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(main)
}

struct Disk {
    directory: tempfile::TempDir,
    path: PathBuf,
}

impl Disk {
    fn new(size: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(size).unwrap();
        Disk { directory, path }
    }

    fn config(&self) -> FileBlocksConfig {
        FileBlocksConfig::new(&self.path)
    }

    fn error(&self) -> OpenDeviceError {
        FileBlocks::open(&self.config()).unwrap_err()
    }
}

#[test]
fn every_block_is_reachable_and_the_file_keeps_its_size() {
    // No zone of 64 MiB fits, and a tail is left after every one of 1 MiB.
    let size = (5 << 20) + 3 * BLOCK;
    let disk = Disk::new(size);
    run(async {
        let device = FileBlocks::open(&disk.config()).unwrap();
        assert_eq!(device.size_bytes(), size);
        let data = pattern(1, BLOCK as usize);
        device.write(size - BLOCK, data.clone()).await.unwrap();
        device.flush().await.unwrap();
        device.write_zeroes(0..size - BLOCK).await.unwrap();
        device.discard(0..size - BLOCK).await.unwrap();
        drop(device);
        let file = std::fs::File::open(&disk.path).unwrap();
        assert_eq!(file.metadata().unwrap().len(), size);
        let mut last = vec![0; BLOCK as usize];
        file.read_exact_at(&mut last, size - BLOCK).unwrap();
        assert!(last == *data);
    });
}

#[test]
fn the_block_of_a_file_is_512_bytes_with_direct_io() {
    let disk = Disk::new(3 * 512);
    run(async {
        let device = FileBlocks::open(&disk.config()).unwrap();
        assert_eq!((device.block_bytes(), device.is_direct()), (512, true));
        device.write(512, pattern(1, 512)).await.unwrap();
        drop(device);
        let buffered = FileBlocksConfig {
            direct: Direct::Off,
            ..disk.config()
        };
        let error = FileBlocks::open(&buffered).unwrap_err();
        assert!(
            matches!(error, OpenDeviceError::NotWholeBlocks { .. }),
            "{error}"
        );
        let chosen = FileBlocksConfig {
            block_size: Some(ByteSize(512)),
            ..buffered
        };
        let device = FileBlocks::open(&chosen).unwrap();
        let read = device.read(512, IoBuf::zeroed(512)).await.unwrap();
        assert!(*read == *pattern(1, 512));
    });
}

#[test]
fn a_file_is_open_once_for_writing_or_several_times_for_reading() {
    let disk = Disk::new(4 << 20);
    let reads = FileBlocksConfig {
        read_only: true,
        ..disk.config()
    };
    run(async {
        let writer = FileBlocks::open(&disk.config()).unwrap();
        for config in [disk.config(), reads.clone()] {
            let error = FileBlocks::open(&config).unwrap_err();
            assert!(matches!(error, OpenDeviceError::InUse(_)), "{error}");
        }
        let zones = DeviceConfig::file(&disk.path, ByteSize::mib(4));
        let error = FileDevice::open(&zones).unwrap_err();
        assert!(matches!(error, OpenDeviceError::InUse(_)), "{error}");
        drop(writer);
        let readers = [(); 2].map(|()| FileBlocks::open(&reads).unwrap());
        let error = disk.error();
        assert!(matches!(error, OpenDeviceError::InUse(_)), "{error}");
        for reader in &readers {
            let buf = IoBuf::zeroed(BLOCK as usize);
            reader.read(0, buf).await.unwrap();
            let changes = [
                reader.write(0, pattern(1, BLOCK as usize)),
                reader.write_zeroes(0..BLOCK),
                reader.discard(0..BLOCK),
            ];
            for change in changes {
                let kind = change.await.unwrap_err().kind;
                assert!(matches!(kind, DeviceErrorKind::Unsupported(_)), "{kind}");
            }
        }
    });
}

#[test]
fn zeros_keep_the_space_and_discards_free_it() {
    let disk = Disk::new(4 << 20);
    let taken = || std::fs::metadata(&disk.path).unwrap().blocks() * 512;
    run(async {
        let device = FileBlocks::open(&disk.config()).unwrap();
        let data = pattern(1, 1 << 20);
        for at in 0..4 {
            device.write(at << 20, data.clone()).await.unwrap();
        }
        device.write_zeroes(0..4 << 20).await.unwrap();
        device.flush().await.unwrap();
        assert!(taken() >= 4 << 20);
        device.discard(0..4 << 20).await.unwrap();
        device.flush().await.unwrap();
        assert!(taken() < 1 << 20);
    });
}

#[test]
fn a_file_is_resized_and_its_size_is_read_again() {
    let disk = Disk::new(BLOCK);
    let file = std::fs::File::options().write(true).open(&disk.path);
    let file = file.unwrap();
    let space = || file.metadata().unwrap().blocks() * 512;
    run(async {
        let device = FileBlocks::open(&disk.config()).unwrap();
        device.set_size(64 * BLOCK, false).await.unwrap();
        assert_eq!((device.size_bytes(), space()), (64 * BLOCK, 0));
        device.set_size(128 * BLOCK, true).await.unwrap();
        assert!(space() >= 128 * BLOCK);
        let data = IoBuf::zeroed(BLOCK as usize).freeze();
        device.write(127 * BLOCK, data.clone()).await.unwrap();
        // No file can have so much: nothing changes.
        device.set_size(1 << 63, true).await.unwrap_err();
        assert_eq!(device.size_bytes(), 128 * BLOCK);
        assert!(space() < 256 * BLOCK);
        device.set_size(BLOCK, false).await.unwrap();
        device.write(BLOCK, data.clone()).await.unwrap_err();
        file.set_len(4 * BLOCK + 100).unwrap();
        assert_eq!(device.size_bytes(), BLOCK);
        assert_eq!(device.refresh_size().await.unwrap(), 4 * BLOCK);
        device.write(3 * BLOCK, data).await.unwrap();
        drop(device);
        file.set_len(4 * BLOCK).unwrap();
        let reader = FileBlocks::open(&FileBlocksConfig {
            read_only: true,
            ..disk.config()
        });
        let refused = reader.map(|reader| reader.set_size(BLOCK, false));
        assert!(refused.unwrap().await.is_err());
    });
}

#[test]
fn errors_of_opening_name_cause_and_cure() {
    let disk = Disk::new(0);
    let message = disk.error().to_string();
    assert!(
        message.contains("0 bytes") && message.contains("resize"),
        "{message}"
    );
    let file = std::fs::File::create(&disk.path).unwrap();
    file.set_len(BLOCK + 1).unwrap();
    let message = disk.error().to_string();
    assert!(message.contains("4097 bytes"), "{message}");

    let path = disk.directory.path();
    let config = |path| FileBlocksConfig::new(path);
    let error = |path| FileBlocks::open(&config(path)).unwrap_err();
    let missing = error(path.join("none"));
    assert!(matches!(missing, OpenDeviceError::NotFound(_)), "{missing}");
    assert!(!path.join("none").exists());
    let directory = error(path.to_owned());
    assert!(
        matches!(directory, OpenDeviceError::IsDirectory(_)),
        "{directory}"
    );
    let terminal = error("/dev/null".into());
    assert!(
        matches!(terminal, OpenDeviceError::NotStorage { .. }),
        "{terminal}"
    );
    for wanted in [100, 8192, 1 << 40] {
        file.set_len(1 << 20).unwrap();
        let config = FileBlocksConfig {
            block_size: Some(ByteSize(wanted)),
            ..disk.config()
        };
        let error = FileBlocks::open(&config).unwrap_err();
        assert!(matches!(error, OpenDeviceError::LogicalBlock(_)), "{error}");
    }
}

#[test]
fn a_file_without_permission_is_not_opened() {
    let disk = Disk::new(1 << 20);
    let may_only_read = std::fs::Permissions::from_mode(0o400);
    std::fs::set_permissions(&disk.path, may_only_read).unwrap();
    // The superuser may write to it.
    if let Err(error) = FileBlocks::open(&disk.config()) {
        assert!(matches!(error, OpenDeviceError::Permission(_)), "{error}");
        let reads = FileBlocksConfig {
            read_only: true,
            ..disk.config()
        };
        FileBlocks::open(&reads).unwrap();
    }
}
