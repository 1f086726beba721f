//! The sizes of emulated objects.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use super::config::SizeRule;
use crate::origin::config_error::{OriginConfigError, invalid};
use crate::origin::types::ObjectKey;

pub(super) enum Sizes {
    Fixed(u64),
    Uniform {
        seed: u64,
        min: u64,
        max: u64,
    },
    FromKey {
        otherwise: u64,
    },
    Table {
        sizes: HashMap<Box<str>, u64>,
        otherwise: Option<u64>,
    },
}

impl Sizes {
    pub(super) fn new(rule: &SizeRule, seed: u64) -> Result<Self, OriginConfigError> {
        Ok(match rule {
            SizeRule::Fixed { bytes } => Sizes::Fixed(bytes.bytes()),
            SizeRule::Uniform { min, max } => Sizes::Uniform {
                seed,
                min: min.bytes(),
                max: max.bytes(),
            },
            SizeRule::FromKey { otherwise } => Sizes::FromKey {
                otherwise: otherwise.bytes(),
            },
            SizeRule::Table { path, otherwise } => Sizes::Table {
                sizes: read_table(path)?,
                otherwise: otherwise.map(|size| size.bytes()),
            },
        })
    }

    /// The size of an object, if it exists.
    pub(super) fn of(&self, key: &ObjectKey) -> Option<u64> {
        match self {
            Sizes::Fixed(size) => Some(*size),
            Sizes::Uniform { seed, min, max } => {
                let span = (max - min).saturating_add(1);
                Some(min + hash(*seed, key) % span)
            }
            Sizes::FromKey { otherwise } => {
                let number = key.key().rsplit(['.', '-']).next();
                Some(number.and_then(|n| n.parse().ok()).unwrap_or(*otherwise))
            }
            Sizes::Table { sizes, otherwise } => sizes
                .get(key.key())
                .or_else(|| sizes.get(key.to_string().as_str()))
                .copied()
                .or(*otherwise),
        }
    }
}

pub(super) fn hash(seed: u64, key: &ObjectKey) -> u64 {
    let mut hasher = Xxh3::with_seed(seed);
    hasher.update(key.bucket().as_bytes());
    hasher.update(&[0]);
    hasher.update(key.key().as_bytes());
    hasher.digest()
}

fn read_table(path: &Path) -> Result<HashMap<Box<str>, u64>, OriginConfigError> {
    let wrong = |cure: String| invalid("emulated.size.path", path.display(), &cure);
    let file =
        std::fs::File::open(path).map_err(|error| wrong(format!("cannot be opened: {error}")))?;
    let mut sizes = HashMap::new();
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(|error| wrong(format!("cannot be read: {error}")))?;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || (index == 0 && line == "key,bytes") {
            continue;
        }
        let entry = line
            .rsplit_once(',')
            .and_then(|(key, size)| Some((key.trim(), size.trim().parse().ok()?)));
        match entry {
            Some((key, size)) => sizes.insert(key.into(), size),
            None => {
                let number = index + 1;
                return Err(wrong(format!(
                    "has no `key,bytes` in line {number}: {line:?}"
                )));
            }
        };
    }
    Ok(sizes)
}
