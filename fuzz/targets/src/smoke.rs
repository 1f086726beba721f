//! The smoke run: every target with mutated seeds, for a given time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::{Collection, Mutator, Target};

/// Longest time that one input may take. A longer one counts as a hang.
const INPUT_TIME_MAX: Duration = Duration::from_secs(5);

/// Feeds `targets` for `time` in all. Returns the number of those that failed.
pub(crate) fn smoke(
    collection: &Collection,
    targets: &[&Target],
    time: Duration,
    seed: u64,
) -> Result<usize, String> {
    let each = time.div_f64(targets.len().max(1) as f64);
    let mut findings = 0;
    for target in targets {
        match smoke_one(target, each, seed) {
            Ok(inputs) => println!("{:<20} {inputs:>10} inputs, none bad", target.name),
            Err(finding) => {
                findings += 1;
                let file = save(target.name, "artifacts", "smoke", &finding.input)
                    .map_err(|error| format!("cannot save the input that failed: {error}"))?;
                println!("{:<20} {} on {}", target.name, finding.what, file.display());
                println!(
                    "  again with: {} -- reproduce {} {}",
                    collection.program,
                    target.name,
                    file.display()
                );
            }
        }
    }
    Ok(findings)
}

/// An input that a target failed on.
struct Finding {
    what: &'static str,
    input: Vec<u8>,
}

/// Feeds a target for `time`, its seeds first. Returns the number of inputs.
fn smoke_one(target: &Target, time: Duration, seed: u64) -> Result<u64, Finding> {
    let seeds = (target.seeds)();
    let mut mutator = Mutator::new(seed);
    let start = Instant::now();
    let mut inputs = 0;
    while inputs < seeds.len() as u64 || start.elapsed() < time {
        let input = match seeds.get(inputs as usize) {
            Some(seed) => seed.clone(),
            None => mutator.input(&seeds),
        };
        let began = Instant::now();
        // Targets have no state that a panic could break.
        let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
        let what = match outcome {
            Err(_) => "panicked",
            Ok(()) if began.elapsed() > INPUT_TIME_MAX => "took too long",
            Ok(()) => {
                inputs += 1;
                continue;
            }
        };
        return Err(Finding { what, input });
    }
    Ok(inputs)
}

/// Writes `bytes` to `fuzz/<folder>/<target>/<prefix>-<checksum>`.
pub(crate) fn save(target: &str, folder: &str, prefix: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(folder)
        .join(target);
    fs::create_dir_all(&folder)?;
    let file = folder.join(format!("{prefix}-{:08x}", crc32c::crc32c(bytes)));
    fs::write(&file, bytes)?;
    Ok(file)
}
