//! Commands and decoders against bytes. Pages that are said to be QEMU's were read from its
//! NVMe controller, version 10.0.2.

use super::command::{
    Command, CommandSet, Feature, IOCTL_ADMIN, IOCTL_IO, Identify, LogPage, URING_IO, ZoneAction,
    deallocated_range,
};
use super::find::{Found, list_in, resolve_among};
use super::identify::{
    BlockFormat, Controller, IDENTIFY_BYTES, Namespace, ZonedNamespace, command_set,
    max_append_log2_pages,
};
use super::log_page::{
    EnduranceGroup, EventKind, HandleUsage, Health, Isolation, PlacementConfiguration,
    PlacementEvent, PlacementHandle, PlacementStatistics, SizedBy, handles_bytes,
};
use super::zone_report::{ZoneDescriptor, decode, report_bytes};
use crate::config::OpenDeviceError;
use crate::contract::ZoneState;

/// Zeros with `parts` at their offsets.
fn page(len: usize, parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut page = vec![0; len];
    for (at, bytes) in parts {
        page[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    page
}

#[test]
fn request_codes_are_those_of_the_kernel() {
    assert_eq!(URING_IO, 0xc048_4e80);
    assert_eq!(IOCTL_ADMIN, 0xc050_4e47);
    assert_eq!(IOCTL_IO, 0xc050_4e48);
}

#[test]
fn a_command_has_the_layout_of_nvme_uring_cmd() {
    let command = Command::write(7, 0x1_2345_6789, 16, Some(3));
    let expected = page(
        80,
        &[
            (0, &[0x01]),
            (4, &[7]),
            (24, &[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]),
            (36, &[0, 0, 1, 0]),
            (40, &[0x89, 0x67, 0x45, 0x23, 1, 0, 0, 0]),
            // 15 of 16 blocks, directive type 2.
            (48, &[0x0f, 0, 0x20, 0]),
            // Placement identifier 3.
            (52, &[0, 0, 3, 0]),
            (64, &30_000_u32.to_le_bytes()),
        ],
    );
    assert_eq!(
        command.for_kernel(0x1122_3344_5566_7788, 65536)[..],
        expected
    );
}

#[test]
fn commands_have_the_dwords_of_the_specification() {
    let cases = [
        (Command::read(1, 5, 1), 0x02, [5, 0, 0, 0, 0, 0]),
        (Command::write(1, 5, 2, None), 0x01, [5, 0, 1, 0, 0, 0]),
        (
            Command::append(1, 1 << 32, 65536),
            0x7d,
            [0, 1, 0xffff, 0, 0, 0],
        ),
        (
            Command::append(1, 0, 1).through(),
            0x7d,
            [0, 0, 1 << 30, 0, 0, 0],
        ),
        (
            Command::write(1, 0, 1, Some(3)).through().moved(7, 2),
            0x01,
            [7, 0, 1 << 30 | 2 << 20 | 1, 3 << 16, 0, 0],
        ),
        (Command::deallocate(1), 0x09, [0, 4, 0, 0, 0, 0]),
        (Command::flush(1), 0x00, [0; 6]),
        (
            Command::manage_zone(1, Some(0x4000), ZoneAction::Reset),
            0x79,
            [0x4000, 0, 0, 4, 0, 0],
        ),
        (
            Command::manage_zone(1, Some(0), ZoneAction::Open),
            0x79,
            [0, 0, 0, 3, 0, 0],
        ),
        (
            Command::manage_zone(1, None, ZoneAction::Finish),
            0x79,
            [0, 0, 0, 0x102, 0, 0],
        ),
        (
            Command::manage_zone(1, None, ZoneAction::Close),
            0x79,
            [0, 0, 0, 0x101, 0, 0],
        ),
        (
            Command::report_zones(1, 0x4000, 4096),
            0x7a,
            [0x4000, 0, 1023, 0x1_0000, 0, 0],
        ),
        (
            Command::reclaim_unit_handles(1, 272),
            0x12,
            [1, 67, 0, 0, 0, 0],
        ),
        (
            Command::identify(Identify::NamespaceOf(CommandSet::Zoned), 1),
            0x06,
            [5, 0x0200_0000, 0, 0, 0, 0],
        ),
        (
            Command::log_page(LogPage::PlacementStatistics(1), 64),
            0x02,
            [0x000f_0022, 0x0001_0000, 0, 0, 0, 0],
        ),
        (
            Command::log_page(LogPage::PlacementEvents(2), 1 << 20),
            0x02,
            [0xffff_0123, 0x0002_0003, 0, 0, 0, 0],
        ),
        (
            Command::get_feature(Feature::DataPlacement(1)),
            0x0a,
            [0x1d, 1, 0, 0, 0, 0],
        ),
    ];
    for (command, opcode, dwords) in cases {
        assert_eq!((command.opcode, command.dwords), (opcode, dwords));
    }
    let range = deallocated_range(0x1_0000_0002, 0x4000);
    assert_eq!(range, [0, 0, 0, 0, 0, 0x40, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn a_controller_of_qemu_is_decoded() {
    let bytes = page(
        IDENTIFY_BYTES,
        &[
            (4, b"fdp0                "),
            (24, b"QEMU NVMe Ctrl                          "),
            (64, b"10.0.2  "),
            (77, &[7]),
            (96, &[0x10, 0x80, 0x08, 0]),
            (516, &[0, 1, 0, 0]),
            (520, &[0x5d, 0x07]),
            (525, &[0x07]),
        ],
    );
    let expected = Controller {
        serial: "fdp0".to_owned(),
        model: "QEMU NVMe Ctrl".to_owned(),
        firmware: "10.0.2".to_owned(),
        max_transfer_log2_pages: Some(7),
        has_endurance_groups: true,
        has_data_placement: true,
        has_write_zeroes: true,
        has_deallocate: true,
        has_write_cache: true,
        atomic_blocks: 1,
        namespaces_max: 256,
        formats_all: false,
    };
    assert_eq!(Controller::decode(&bytes), Ok(expected));
    assert!(Controller::decode(&bytes[1..]).is_err());
    let limitless = Controller::decode(&page(IDENTIFY_BYTES, &[])).unwrap();
    assert_eq!(limitless.max_transfer_log2_pages, None);
    assert!(!limitless.has_data_placement && !limitless.has_write_cache);
    for (scope, namespaces, expected) in [(0, 9, false), (6, 9, false), (1, 9, true), (7, 1, false)]
    {
        let fields: [(usize, &[u8]); 2] = [(516, &[namespaces]), (524, &[scope])];
        let found = Controller::decode(&page(IDENTIFY_BYTES, &fields)).unwrap();
        assert_eq!(found.may_format_others(), expected, "{scope} {namespaces}");
    }
}

/// The identify namespace structure of QEMU's zoned namespace: eight formats, the fifth
/// in use.
fn namespace_of_qemu() -> Vec<u8> {
    page(
        IDENTIFY_BYTES,
        &[
            (0, &[0, 0, 8, 0, 0, 0, 0, 0]),
            (24, &[0x34, 7, 4, 3, 0x1f, 0, 1, 0, 0, 1]),
            (102, &[1, 0]),
            (128, &[0, 0, 9, 0, 8, 0, 9, 0, 16, 0, 9, 0, 64, 0, 9, 0]),
            (144, &[0, 0, 12, 0, 8, 0, 12, 0, 16, 0, 12, 0, 64, 0, 12, 0]),
        ],
    )
}

#[test]
fn a_namespace_of_qemu_is_decoded() {
    let found = Namespace::decode(&namespace_of_qemu()).unwrap();
    assert_eq!((found.blocks, found.block_bytes), (0x80000, 4096));
    assert_eq!((found.metadata_bytes, found.format), (0, 4));
    assert_eq!(found.formats.len(), 8);
    assert!(found.unwritten_reads_zero && !found.is_protected);
    assert_eq!(
        (found.atomic_blocks, found.atomic_boundary_blocks),
        (None, None)
    );
    assert_eq!(found.endurance_group, 1);
    assert_eq!(command_set(&[4, 1, 0, 0, 2, 0]), CommandSet::Zoned);
}

#[test]
fn a_format_with_metadata_and_atomic_writes_is_decoded() {
    let mut bytes = namespace_of_qemu();
    bytes[26] = 5;
    bytes[24] |= 2;
    bytes[29] = 1;
    bytes[36] = 3;
    bytes[44] = 7;
    let found = Namespace::decode(&bytes).unwrap();
    let format = BlockFormat {
        block_bytes: 4096,
        metadata_bytes: 8,
    };
    assert_eq!(found.formats[found.format], format);
    assert_eq!((found.block_bytes, found.metadata_bytes), (4096, 8));
    assert!(found.is_protected);
    assert_eq!(
        (found.atomic_blocks, found.atomic_boundary_blocks),
        (Some(4), Some(8))
    );
    // With more than 16 formats the upper bits count.
    bytes[25] = 39;
    bytes[26] = 0x21;
    bytes[128 + 4 * 17 + 2] = 12;
    assert_eq!(Namespace::decode(&bytes).unwrap().format, 17);
    // A format that is not listed, or has no data.
    for selected in [0xf, 0x6f] {
        bytes[25] = 7;
        bytes[26] = selected;
        assert!(Namespace::decode(&bytes).is_err());
    }
}

#[test]
fn descriptors_are_searched_for_the_command_set() {
    let uuid = page(20, &[(0, &[3, 16, 0, 0])]);
    let zoned = [&uuid[..], &[4, 1, 0, 0, 2], &[0; 8]].concat();
    assert_eq!(command_set(&zoned), CommandSet::Zoned);
    assert_eq!(command_set(&[4, 1, 0, 0, 1]), CommandSet::Other(1));
    for none in [&uuid[..], &[], &[0; 64], &[4, 1], &[9, 255, 0, 0, 2]] {
        assert_eq!(command_set(none), CommandSet::Nvm);
    }
}

#[test]
fn the_limits_of_a_zoned_namespace_are_decoded() {
    let bytes = page(
        IDENTIFY_BYTES,
        &[
            (4, &[13, 0, 0, 0]),
            (8, &[0xff; 4]),
            (2816 + 16 * 4, &[0, 0x40, 0, 0]),
        ],
    );
    let found = ZonedNamespace::decode(&bytes).unwrap();
    assert_eq!(
        (found.max_active_zones, found.max_open_zones),
        (Some(14), None)
    );
    assert_eq!(found.zone_blocks(4), Ok(0x4000));
    assert!(found.zone_blocks(0).is_err() && found.zone_blocks(64).is_err());
    assert_eq!(max_append_log2_pages(&[5]), Ok(Some(5)));
    assert_eq!(max_append_log2_pages(&[0]), Ok(None));
    assert!(max_append_log2_pages(&[]).is_err());
}

/// A zone of a report: its state's number, start and write pointer.
fn zone(state: u8, start: u64, pointer: u64) -> Vec<u8> {
    page(
        64,
        &[
            (0, &[2, state << 4]),
            (8, &0x3e00_u64.to_le_bytes()),
            (16, &start.to_le_bytes()),
            (24, &pointer.to_le_bytes()),
        ],
    )
}

#[test]
fn a_report_of_zones_is_decoded() {
    let states = [
        (0x1, ZoneState::Empty, Some(0)),
        (0x2, ZoneState::Open, Some(3)),
        (0x3, ZoneState::Open, Some(0)),
        (0x4, ZoneState::Closed, Some(1)),
        (0xd, ZoneState::ReadOnly, None),
        (0xe, ZoneState::Full, None),
        (0xf, ZoneState::Offline, None),
    ];
    let mut bytes = page(64, &[(0, &[7])]);
    for (index, (number, _, written)) in states.iter().enumerate() {
        let start = 0x4000 * index as u64;
        let pointer = written.map_or(u64::MAX, |written| start + written);
        bytes.extend(zone(*number, start, pointer));
    }
    assert_eq!(bytes.len(), report_bytes(7));
    let zones = decode(&bytes).unwrap();
    for (index, (zone, (_, state, written))) in zones.iter().zip(states).enumerate() {
        let expected = ZoneDescriptor {
            state,
            start: 0x4000 * index as u64,
            capacity: 0x3e00,
            written,
        };
        assert_eq!(*zone, expected);
    }
    assert_eq!(zones.len(), 7);
    // A report that is cut off has the zones that are whole.
    assert_eq!(decode(&bytes[..report_bytes(3) + 63]).unwrap().len(), 3);
    assert!(decode(&bytes[..63]).is_err());
    for bad in [
        zone(0, 0, 0),
        zone(2, 8, 7),
        zone(1, 0, 0x3e01),
        vec![0; 64],
    ] {
        assert!(decode(&[page(64, &[(0, &[1])]), bad].concat()).is_err());
    }
}

#[test]
fn health_is_decoded() {
    let bytes = page(
        512,
        &[
            (0, &[4, 0x43, 0x01, 100, 10, 3]),
            (32, &[2]),
            (48, &[0, 1]),
            (144, &[9]),
            (160, &[1]),
        ],
    );
    let expected = Health {
        critical_warning: 4,
        temperature_kelvin: 323,
        available_spare_percent: 100,
        percentage_used: 3,
        host_read_bytes: 1_024_000,
        host_written_bytes: 256 * 512_000,
        unsafe_shutdowns: 9,
        media_errors: 1,
    };
    assert_eq!(Health::decode(&bytes), Ok(expected));
    assert!(Health::decode(&bytes[1..]).is_err());
    let bytes = page(512, &[(5, &[8]), (64, &[2]), (80, &[3])]);
    let expected = EnduranceGroup {
        percentage_used: 8,
        host_written_bytes: 2_000_000_000,
        media_written_bytes: 3_000_000_000,
    };
    assert_eq!(EnduranceGroup::decode(&bytes), Ok(expected));
}

#[test]
fn placement_pages_of_qemu_are_decoded() {
    let bytes = page(
        144,
        &[
            (4, &[0x90]),
            (16, &[0x80, 0, 0x80, 0, 1, 0, 0, 0, 16, 0, 0x7f, 0, 0, 1]),
            (32, &[0, 0, 0, 1]),
            (80, &[1, 0, 0, 0].repeat(16)),
        ],
    );
    let found = PlacementConfiguration::decode_all(&bytes).unwrap();
    let expected = PlacementConfiguration {
        is_valid: true,
        group_bits: 0,
        reclaim_groups: 1,
        reclaim_unit_bytes: 16 << 20,
        time_limit_seconds: 0,
        handles: vec![Isolation::Initial; 16],
    };
    assert_eq!(found, [expected]);
    assert_eq!(
        PlacementConfiguration::decode_all(&bytes[..143]),
        Ok(vec![])
    );

    let mut bytes = page(136, &[(0, &[16])]);
    (0..8).for_each(|handle| bytes[8 + 8 * handle] = 1);
    let usage = HandleUsage::decode_all(&bytes).unwrap();
    assert_eq!(usage[..8], [HandleUsage::Host; 8]);
    assert_eq!(usage[8..], [HandleUsage::Unused; 8]);

    let mut bytes = page(handles_bytes(8), &[(14, &[8])]);
    for handle in 0..8 {
        let at = 16 + 32 * usize::from(handle);
        bytes[at] = handle;
        bytes[at + 2] = handle;
        bytes[at + 9] = 0x10;
    }
    let handles = PlacementHandle::decode_all(&bytes).unwrap();
    let expected = PlacementHandle {
        placement: 7,
        handle: 7,
        free_blocks: 4096,
    };
    assert_eq!((handles.len(), handles[7]), (8, expected));
}

#[test]
fn placement_statistics_and_events_are_decoded() {
    let bytes = page(64, &[(0, &[0, 2]), (16, &[0, 3]), (32, &[0, 1])]);
    let expected = PlacementStatistics {
        host_written_bytes: 512,
        media_written_bytes: 768,
        media_erased_bytes: 256,
    };
    assert_eq!(PlacementStatistics::decode(&bytes), Ok(expected));
    assert!(PlacementStatistics::decode(&bytes[1..]).is_err());

    let time = [0x10, 0, 0, 0, 0, 0, 2, 0];
    let bytes = page(
        192,
        &[
            (0, &[2]),
            (64, &[3, 3, 9, 0]),
            (68, &time),
            (76, &[1]),
            (128, &[0x80]),
        ],
    );
    let events = PlacementEvent::decode_all(&bytes).unwrap();
    let expected = PlacementEvent {
        kind: EventKind::InvalidPlacement,
        placement: Some(9),
        namespace: Some(1),
        timestamp_ms: 16,
    };
    assert_eq!((events.len(), events[0]), (2, expected));
    assert_eq!(events[1].kind, EventKind::Reallocated);
    assert_eq!((events[1].placement, events[1].namespace), (None, None));
}

#[test]
fn headers_tell_the_length_of_their_structures() {
    let header = page(64, &[(0, &[2, 0]), (4, &[0x90]), (14, &[8])]);
    let lengths = [
        (SizedBy::Configurations, 144),
        (SizedBy::Usage, 24),
        (SizedBy::Events, 192),
        (SizedBy::Handles, 272),
    ];
    for (kind, bytes) in lengths {
        assert_eq!(kind.bytes(&header), Ok(bytes));
        assert!(kind.bytes(&header[..kind.header_bytes() - 1]).is_err());
        let greedy = kind.bytes(&[0xff; 64]).unwrap();
        assert!(greedy <= 1 << 20 && greedy.is_multiple_of(4));
    }
}

#[test]
fn namespaces_are_found_by_path_and_by_serial_number() {
    let classes = tempfile::tempdir().unwrap();
    let put = |file: &str, text: &str| {
        let file = classes.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    assert_eq!(list_in(classes.path()).unwrap(), []);
    for (name, serial) in [
        ("ng1n1", "B1"),
        ("ng0n1", "A1"),
        ("ng0n2", "A1"),
        ("ng2n7", "C"),
    ] {
        put(
            &format!("nvme-generic/{name}/device/serial"),
            &format!("{serial}  \n"),
        );
        put(&format!("nvme-generic/{name}/device/model"), "Model X\n");
    }
    // The block device of a namespace may have another number of the drive.
    put("block/nvme7n2/nsid", "5\n");
    put("block/nvme0n2/nsid", "6\n");
    put("block/nvme0n2/device/serial", "OTHER\n");
    put("block/nvme0c0n2/hidden", "1\n");
    for block in ["nvme7n2", "nvme0c0n2"] {
        let link = classes.path().join("block").join(block).join("device");
        let target = classes.path().join("nvme-generic/ng0n2/device");
        std::os::unix::fs::symlink(target, link).unwrap();
    }
    let all = list_in(classes.path()).unwrap();
    let expected = Found {
        path: "/dev/ng0n2".into(),
        block_path: Some("/dev/nvme7n2".into()),
        serial: "A1".to_owned(),
        model: "Model X".to_owned(),
        namespace: 5,
    };
    assert_eq!((all.len(), &all[1]), (4, &expected));
    let paths = |path: &str| resolve_among(path.as_ref(), all.clone()).map(|found| found.path);
    for path in ["/dev/ng0n2", "/dev/nvme7n2", "nvme:A1:5"] {
        assert_eq!(paths(path).unwrap(), expected.path);
    }
    assert_eq!(paths("nvme:C").unwrap(), std::path::Path::new("/dev/ng2n7"));
    assert!(matches!(
        paths("nvme:A1"),
        Err(OpenDeviceError::SeveralNamespaces(_))
    ));
    for path in [
        "nvme:A1:2",
        "nvme:D",
        "nvme:B1:x",
        "/dev/nvme1n1",
        "/dev/null",
    ] {
        assert!(
            matches!(paths(path), Err(OpenDeviceError::NotNvme(_))),
            "{path}"
        );
    }
}
