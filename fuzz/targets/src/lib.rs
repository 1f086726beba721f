//! Fuzz targets for the layouts on flash, and the parts that all targets share.
//!
//! A target is a name, a function that takes any bytes and must return, and
//! seeds: valid inputs to start from. `cargo fuzz` drives it with coverage on a
//! nightly compiler, and the program of this crate without coverage on any.

mod collection;
mod layout;
mod mutate;
mod sealed;
mod smoke;
mod tiny;
mod volume;

pub use collection::{Collection, Target};
pub use mutate::Mutator;
pub use volume::seal_volumes;

/// The decoders of everything on flash.
pub const LAYOUTS: Collection = Collection {
    crate_name: "floe_fuzz_targets",
    program: "cargo run --manifest-path fuzz/targets/Cargo.toml",
    targets: TARGETS,
};

const TARGETS: &[Target] = &[
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
        name: "array_label",
        run: layout::array_label,
        seeds: layout::array_label_seeds,
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
    Target {
        name: "tiny_superblock",
        run: tiny::superblock,
        seeds: tiny::superblock_seeds,
    },
    Target {
        name: "tiny_fences",
        run: tiny::fences,
        seeds: tiny::fences_seeds,
    },
    Target {
        name: "tiny_page",
        run: tiny::page,
        seeds: tiny::page_seeds,
    },
    Target {
        name: "tiny_index",
        run: tiny::index,
        seeds: tiny::index_seeds,
    },
    Target {
        name: "tiny_filters",
        run: tiny::filters,
        seeds: tiny::filters_seeds,
    },
    Target {
        name: "volume_superblock",
        run: volume::superblock,
        seeds: volume::superblock_seeds,
    },
    Target {
        name: "volume_witness",
        run: volume::witness,
        seeds: volume::witness_seeds,
    },
    Target {
        name: "block_batch",
        run: volume::block_batch,
        seeds: volume::block_batch_seeds,
    },
    Target {
        name: "block_table",
        run: volume::block_table,
        seeds: volume::block_table_seeds,
    },
];

/// Runs the target of this name once.
///
/// # Panics
/// If there is no such target, or if it found a fault.
pub fn run(name: &str, data: &[u8]) {
    LAYOUTS.run(name, data);
}
