//! The provenance of a figure: code, configuration, seed, device, machine.

use serde::{Deserialize, Serialize};

/// The provenance of a figure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Floe's version and the commit it was built from, with `+` if the working
    /// directory is a checkout of that commit with changes. Where the build's
    /// commit is not known, the working directory's stands for it.
    pub commit: String,
    /// A digest of the configuration.
    pub config_digest: String,
    /// The seed of everything random.
    pub seed: u64,
    /// The device under the cache, or `none`.
    pub device: String,
    /// Processor, memory, kernel.
    pub machine: String,
    /// The date in UTC.
    pub date: String,
}

impl Provenance {
    /// The provenance of a run now on this machine, with the given
    /// configuration, seed and device. `built_from` is the program's commit, if
    /// known.
    pub fn here(
        built_from: Option<&str>,
        config: &str,
        seed: u64,
        device: impl Into<String>,
    ) -> Self {
        Provenance {
            commit: commit(built_from),
            config_digest: digest(config),
            seed,
            device: device.into(),
            machine: machine(),
            date: now(),
        }
    }
}

/// A 64-bit digest of a configuration.
pub fn digest(config: &str) -> String {
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(config.as_bytes()))
}

/// The current time, or that of `SOURCE_DATE_EPOCH`, with which results are
/// reproducible byte for byte.
fn now() -> String {
    let fixed = std::env::var("SOURCE_DATE_EPOCH").ok();
    let fixed = fixed.and_then(|text| text.parse().ok());
    let fixed = fixed.and_then(|unix_s| time::OffsetDateTime::from_unix_timestamp(unix_s).ok());
    let now = fixed.unwrap_or_else(time::OffsetDateTime::now_utc);
    let format =
        time::macros::format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
    now.format(format).unwrap_or_default()
}

fn commit(built_from: Option<&str>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let here = git(&["rev-parse", "--short=12", "HEAD"]);
    let is_changed = || {
        let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
        changed.is_some_and(|list| !list.is_empty())
    };
    let commit = built_from.filter(|commit| !commit.is_empty());
    let mark = match (commit, &here) {
        (_, None) => "",
        // In another checkout, changes do not concern this program.
        (Some(commit), Some(here)) if !here.starts_with(commit) && !commit.starts_with(here) => "",
        _ if is_changed() => "+",
        _ => "",
    };
    match commit.or(here.as_deref()) {
        Some(commit) => format!("{version} ({commit}{mark})"),
        None => version.to_owned(),
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = std::process::Command::new("git")
        .args(arguments)
        .stderr(std::process::Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| -> Option<String> {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    let model = field(&read("/proc/cpuinfo"), "model name");
    let memory_kib: Option<u64> = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|text| text.split_ascii_whitespace().next()?.parse().ok());
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{processors} × {}, {} GiB, {} {}",
        model.as_deref().unwrap_or(std::env::consts::ARCH),
        memory_kib.map_or(0, |kib| (kib + (1 << 19)) >> 20),
        std::env::consts::OS,
        kernel.trim(),
    )
}
