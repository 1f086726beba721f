//! `[tiny]`.

use std::path::PathBuf;

use floe_core::ByteSize;
use floe_core::policy::admission::{AdmissionConfig, ProbabilisticConfig, WriteBudgetConfig};
use floe_core::tiny::nemo::NemoConfig;
use floe_device::config::DeviceConfig;

use crate::cache::TinyTierConfig;
use crate::config::Limits;
use crate::tiny::TinyConfig;

crate::choices! {
    /// Which values are written to flash.
    pub enum TinyAdmission, default All {
        /// All of them.
        All = "all",
        /// A share of them, by chance.
        Probabilistic = "probabilistic",
        /// As many as a number of bytes in 24 hours allows.
        WriteBudget = "write-budget",
        /// Those that were asked for or written several times of late.
        Frequency = "frequency",
        /// Those that are written for the second time of late.
        RejectFirst = "reject-first",
    }
}

crate::section! {
    /// The engine for tiny objects: memcached's items up to `tiny.threshold`. It has a file or device of its own.
    pub struct TinySettings in "tiny" {
        /// Whether tiny objects have an engine of their own; otherwise they are chunks like everything else. Changing it forgets memcached's items.
        pub enabled: bool = true;
        /// File or block device; without it, `tiny.floe` in the data directory.
        pub path: Option<PathBuf> = None;
        /// Size of the file; of a block device, all of it.
        pub size: Option<ByteSize> = None;
        /// Size of a set-group: what is filled in memory and written at once. Three of them are in memory. Part of the format: changing it needs a reformat.
        pub set_group: ByteSize = ByteSize::mib(4);
        /// Most bytes of key and value together of an object that is tiny.
        pub threshold: ByteSize = ByteSize::kib(2);
        /// Memory for what was read from flash of late; 0 turns the tier off.
        pub ram: ByteSize = ByteSize::mib(64);
        /// Independent engines, each with a part of the keys and set-groups of its own in memory. Part of the format: changing it needs a reformat.
        pub instances: u32 = 1, limits Limits::between(1, 4096);
        /// What an acknowledged delete or overwrite survives: `true` a loss of power, `false` the end of the process only.
        pub survive_power_loss: bool = true;
        /// Which values are written to flash; the others stay in memory only (docs/admission.md).
        pub admission: TinyAdmission = TinyAdmission::All;
        /// With `probabilistic`: the share of values that is written.
        pub admission_probability: f64 = 0.5;
        /// With `write-budget`: most bytes written in any 24 hours.
        pub admission_bytes_per_day: ByteSize = ByteSize::gib(500);
        /// Bytes of key and value of an object, about; filters are made for it. Part of the format.
        pub object_size: u32 = 246, limits Limits::between(1, 4000);
        /// Sets of a set-group that an object may lie in: 1 as published, or 2. Part of the format.
        pub candidates: u32 = 2, limits Limits::between(1, 2);
        /// Share of the index on flash that is cached in memory.
        pub index_cached: f64 = 0.4;
        /// Share of the filters of sets without an object that say it is there.
        pub false_positives: f64 = 0.001;
        /// Most bytes of hot objects kept when a set-group goes, as a share of it.
        pub write_back: f64 = 0.1;
    }
}

impl TinySettings {
    fn admission(&self) -> AdmissionConfig {
        match self.admission {
            TinyAdmission::Probabilistic => AdmissionConfig::Probabilistic(ProbabilisticConfig {
                probability: self.admission_probability,
            }),
            TinyAdmission::WriteBudget => {
                AdmissionConfig::WriteBudget(WriteBudgetConfig::new(self.admission_bytes_per_day))
            }
            TinyAdmission::Frequency => AdmissionConfig::Frequency(Default::default()),
            TinyAdmission::RejectFirst => AdmissionConfig::RejectFirst(Default::default()),
            TinyAdmission::All => AdmissionConfig::default(),
        }
    }

    /// The settings of the engine and its device, which is at `path` unless
    /// they name another; `None` if it is turned off.
    pub fn tier(&self, path: PathBuf, default_size: ByteSize) -> Option<TinyTierConfig> {
        use floe_core::chunk::Durability;
        self.enabled.then(|| TinyTierConfig {
            device: DeviceConfig {
                size: match &self.path {
                    Some(_) => self.size,
                    None => Some(self.size.unwrap_or(default_size)),
                },
                path: Some(self.path.clone().unwrap_or(path)),
                zone_size: self.set_group,
                ..DeviceConfig::default()
            },
            threshold: self.threshold,
            engine: TinyConfig {
                instances: Some(self.instances),
                durability: if self.survive_power_loss {
                    Durability::Power
                } else {
                    Durability::Process
                },
                ram: self.ram,
                admission: self.admission(),
                nemo: NemoConfig {
                    object_bytes: self.object_size,
                    candidates: self.candidates,
                    index_cached: self.index_cached,
                    filter_false_positives: self.false_positives,
                    write_back_share: self.write_back,
                    ..NemoConfig::default()
                },
                ..TinyConfig::default()
            },
        })
    }
}
