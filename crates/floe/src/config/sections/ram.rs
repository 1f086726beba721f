//! `[ram]`.

use crate::config::{Key, Kind, Section};
use crate::store::RamConfig;

pub(super) fn section() -> Result<Section, String> {
    Section::adopt(
        "ram",
        "The RAM tier in front of flash.",
        &RamConfig::default(),
        &[],
        vec![
            Key::new(
                "size",
                Kind::Size,
                "Memory for values, their keys and their overhead; 0 turns the tier off.",
            ),
            Key::new(
                "max_value_size",
                Kind::Size,
                "Values larger than this are served from flash only.",
            ),
        ],
    )
}
