//! Floe's fuzz targets.
//!
//! A target is a name, a function that takes any bytes and must return, and
//! seeds: sound inputs to start from. `cargo fuzz` drives them with coverage
//! on a nightly compiler; the program of this crate drives them without on any.
//!
//! To add one: write its two functions, add a line to [`TARGETS`], copy a file
//! in `fuzz_targets/` and a `[[bin]]` in `fuzz/Cargo.toml`. A test holds the
//! three lists against each other.

mod layout;
mod mutate;
mod sealed;

pub use mutate::Mutator;

/// Something to feed arbitrary bytes to.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is also its driver's.
    pub name: &'static str,
    /// Takes any bytes; a panic is a finding.
    pub run: fn(&[u8]),
    /// Sound inputs, which reach deep at once.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "superblock",
        run: layout::superblock,
        seeds: layout::superblock_seeds,
    },
    Target {
        name: "zone_header",
        run: layout::zone_header,
        seeds: layout::zone_header_seeds,
    },
    Target {
        name: "batch",
        run: layout::batch,
        seeds: layout::batch_seeds,
    },
    Target {
        name: "large_descriptor",
        run: layout::large_descriptor,
        seeds: layout::large_descriptor_seeds,
    },
    Target {
        name: "summary",
        run: layout::summary,
        seeds: layout::summary_seeds,
    },
    Target {
        name: "journal",
        run: layout::journal,
        seeds: layout::journal_seeds,
    },
    Target {
        name: "slot_table",
        run: layout::slot_table,
        seeds: layout::slot_table_seeds,
    },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Runs the target of this name once.
///
/// # Panics
/// If there is no such target, or if it has found something.
pub fn run(name: &str, data: &[u8]) {
    match target(name) {
        Some(target) => (target.run)(data),
        None => panic!("no fuzz target is called {name}"),
    }
}
