//! The structures that an NVMe drive returns.

use floe::device::nvme::identify::{
    Controller, IDENTIFY_BYTES, Namespace, ZonedNamespace, command_set, max_append_log2_pages,
};
use floe::device::nvme::log_page::{
    EnduranceGroup, HandleUsage, Health, PlacementConfiguration, PlacementEvent, PlacementHandle,
    PlacementStatistics, handles_bytes,
};
use floe::device::nvme::{Status, zone_report};

/// Decodes `data` as it is, and at the start of a structure of full length.
pub(crate) fn identify(data: &[u8]) {
    let mut whole = data.to_vec();
    whole.resize(whole.len().max(IDENTIFY_BYTES), 0);
    for bytes in [data, &whole] {
        let _ = Controller::decode(bytes);
        let _ = max_append_log2_pages(bytes);
        let _ = command_set(bytes);
        let zoned = ZonedNamespace::decode(bytes);
        if let Ok(namespace) = Namespace::decode(bytes) {
            assert!(namespace.block_bytes.is_power_of_two() && namespace.block_bytes >= 512);
            if let Ok(zoned) = zoned {
                let _ = zoned.zone_blocks(namespace.format);
            }
        }
    }
}

pub(crate) fn identify_seeds() -> Vec<Vec<u8>> {
    let mut bytes = vec![0; IDENTIFY_BYTES];
    bytes[25] = 7;
    bytes[26] = 4;
    bytes[128 + 4 * 4 + 2] = 12;
    bytes[2816 + 16 * 4 + 1] = 0x40;
    let descriptors = vec![3, 16, 0, 0, 1, 1, 1, 1, 4, 1, 0, 0, 2, 0];
    vec![bytes, descriptors]
}

/// Decodes `data` as a report of zones and, by its first bytes, as a status.
pub(crate) fn zones(data: &[u8]) {
    if let Ok(zones) = zone_report::decode(data) {
        assert!(zone_report::report_bytes(zones.len()) <= data.len());
        for zone in zones {
            assert!(zone.written.is_none_or(|written| written <= zone.capacity));
        }
    }
    if let Some(bytes) = data.first_chunk() {
        let status = Status::from_result(u32::from_le_bytes(*bytes));
        assert!(status.is_none_or(|status| !status.to_string().is_empty()));
    }
}

pub(crate) fn zones_seeds() -> Vec<Vec<u8>> {
    let mut bytes = vec![0; zone_report::report_bytes(3)];
    bytes[0] = 3;
    for (zone, state) in (1_u8..).zip([0x10, 0x20, 0xe0]) {
        let at = usize::from(zone) * 64;
        bytes[at] = 2;
        bytes[at + 1] = state;
        bytes[at + 9] = 0x3e;
        bytes[at + 17] = 0x40 * zone;
        bytes[at + 25] = 0x40 * zone;
    }
    vec![bytes, vec![0xb9, 0x41, 0, 0]]
}

/// Decodes `data` as every log page.
pub(crate) fn logs(data: &[u8]) {
    let _ = Health::decode(data);
    let _ = EnduranceGroup::decode(data);
    let _ = PlacementStatistics::decode(data);
    let _ = HandleUsage::decode_all(data);
    let _ = PlacementEvent::decode_all(data);
    if let Ok(configurations) = PlacementConfiguration::decode_all(data) {
        let handles = configurations.iter().map(|found| found.handles.len());
        assert!(handles.sum::<usize>() * 4 <= data.len());
    }
    if let Ok(handles) = PlacementHandle::decode_all(data) {
        assert!(handles_bytes(handles.len()) <= data.len());
    }
}

pub(crate) fn logs_seeds() -> Vec<Vec<u8>> {
    let mut configurations = vec![0; 16 + 72];
    configurations[16] = 72;
    configurations[18] = 0x80;
    configurations[24] = 2;
    let mut handles = vec![0; handles_bytes(2)];
    handles[14] = 2;
    let mut events = vec![0; 128];
    events[0] = 1;
    vec![configurations, handles, events, vec![0; 512]]
}
