//! Cache modes: where each sector of a request is read from or written to.
//!
//! A mode is a table of four [`Rules`], one file each. [`Mode::read`] and
//! [`Mode::write`] look a sector up in it and keep the law of volumes: **a dirty
//! sector is the only copy**, so a read of it is always served from the cache,
//! whatever the mode. A mode can therefore change while dirty sectors remain.
//!
//! A mode says nothing about policies. Whether an insertion that a mode wants
//! really happens is up to promotion, sequential cut-off and the room that is
//! left; [`Read::without_insertion`] and [`Write::without_insertion`] say what
//! happens if it does not.
//!
//! Adding a mode takes a file here and an arm of [`Mode`].

mod pass_through;
mod rules;
#[cfg(test)]
mod tests;
mod write_around;
mod write_back;
mod write_invalidate;
mod write_only;
mod write_through;

use serde::{Deserialize, Serialize};

pub use rules::{Read, Rules, Sector, Write};

use crate::{names, parse_by_name};

/// The modes, by name.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Writes go to the cache and later to the backing device.
    #[default]
    WriteBack,
    /// Writes go to the cache and the backing device at once.
    WriteThrough,
    /// Writes go to the backing device, and to the cache where it has the
    /// sectors.
    WriteAround,
    /// Writes go to the backing device; the cache forgets their sectors.
    WriteInvalidate,
    /// Writes are cached as in write-back; reads are never inserted.
    WriteOnly,
    /// Nothing is cached.
    PassThrough,
}

parse_by_name!(Mode);
names! {
    Mode {
        WriteBack => "write-back",
        WriteThrough => "write-through",
        WriteAround => "write-around",
        WriteInvalidate => "write-invalidate",
        WriteOnly => "write-only",
        PassThrough => "pass-through",
    }
}

impl Mode {
    /// Its decisions.
    pub const fn rules(self) -> Rules {
        match self {
            Mode::WriteBack => write_back::RULES,
            Mode::WriteThrough => write_through::RULES,
            Mode::WriteAround => write_around::RULES,
            Mode::WriteInvalidate => write_invalidate::RULES,
            Mode::WriteOnly => write_only::RULES,
            Mode::PassThrough => pass_through::RULES,
        }
    }

    /// The source of a sector that is read.
    pub const fn read(self, sector: Sector) -> Read {
        match sector {
            Sector::Missing => self.rules().read_miss,
            Sector::Clean => self.rules().read_hit,
            Sector::Dirty => Read::Cache,
        }
    }

    /// The destination of a sector that is written.
    pub const fn write(self, sector: Sector) -> Write {
        match sector {
            Sector::Missing => self.rules().write_miss,
            Sector::Clean | Sector::Dirty => self.rules().write_hit,
        }
    }

    /// True if its writes make sectors dirty.
    pub const fn makes_dirty(self) -> bool {
        matches!(self.rules().write_hit, Write::Cache)
    }
}
