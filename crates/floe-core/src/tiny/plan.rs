//! The error of a configuration that does not fit the flash.

use std::fmt::Display;

use super::object::Flash;

/// A setting that cannot work: its name and value, the reason, and the cure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} = {value} cannot work: {reason}; {cure}")]
pub struct PlanError {
    /// The setting, as written in the configuration file.
    pub setting: &'static str,
    /// Its value.
    pub value: String,
    /// The limit that it breaks.
    pub reason: String,
    /// The nearest value that works, or what else to change.
    pub cure: String,
}

impl PlanError {
    /// An error for one setting.
    pub fn new(
        setting: &'static str,
        value: impl ToString,
        reason: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        PlanError {
            setting,
            value: value.to_string(),
            reason: reason.into(),
            cure: cure.into(),
        }
    }
}

/// The cure that names a value.
pub(super) fn nearest(value: impl Display) -> String {
    format!("the nearest that works is {value}")
}

/// Checks that `value` lies in `least..=most`.
pub(super) fn check_range<T: PartialOrd + Display + Copy>(
    setting: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), PlanError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let reason = format!("it must be {least} to {most}");
    let best = if value < least { least } else { most };
    Err(PlanError::new(setting, value, reason, nearest(best)))
}

/// Checks that the flash has at least `zones_least` zones, and that page
/// numbers fit their type.
pub(super) fn check_flash(flash: &Flash, zones_least: u32) -> Result<(), PlanError> {
    if flash.zone_pages == 0 || flash.zones < zones_least {
        return Err(PlanError::new(
            "device",
            format!("{} zones of {} pages", flash.zones, flash.zone_pages),
            format!("the engine needs {zones_least} zones that hold pages"),
            "use a larger device or smaller zones",
        ));
    }
    if flash.pages() > u64::from(PAGES_MOST) {
        return Err(PlanError::new(
            "device",
            format!("{} pages", flash.pages()),
            format!("one engine can number at most {PAGES_MOST} pages"),
            "divide the device among several instances",
        ));
    }
    Ok(())
}

/// Most pages of one engine: 8 TiB. One bit of a page's number is a flag.
pub(super) const PAGES_MOST: u32 = (1 << 31) - 1;

/// Checks that pages may be written in place.
pub(super) fn check_in_place(
    flash: &Flash,
    setting: &'static str,
    value: &str,
    cure: &str,
) -> Result<(), PlanError> {
    if flash.in_place {
        return Ok(());
    }
    Err(PlanError::new(
        setting,
        value,
        "sets of one page are rewritten in place, and this device writes its zones only sequentially",
        cure,
    ))
}
