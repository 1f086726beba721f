//! SQL over a Parquet file in a directory, read through Floe: cold, then warm
//! after a restart of the cache.
//!
//! `cargo run --manifest-path lab/datafusion/Cargo.toml`

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use floe::object::{Consistency, ObjectStats};
use floe::{ByteSize, CacheConfig, ObjectConfig};
use floe_object_store::CachedStore;
use object_store::local::LocalFileSystem;
use url::Url;

const SQL: &str = "SELECT day, count(*) AS trips, round(avg(fare), 2) AS fare \
                   FROM trips GROUP BY day ORDER BY day";

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lake = folder.path().join("lake");
    std::fs::create_dir(&lake)?;
    write_trips(&lake).await?;

    let cache = folder.path().join("cache.floe");
    let (cold, answer) = query(&lake, &cache).await?;
    let (warm, again) = query(&lake, &cache).await?;
    println!("{answer}");
    ensure!(answer == again, "the warm answer differs:\n{again}");
    ensure!(warm.chunks_missed < cold.chunks_missed, "{warm:?}");
    Ok(())
}

/// Opens the cache, runs the query, and closes the cache.
async fn query(lake: &Path, cache: &Path) -> Result<(ObjectStats, String)> {
    let origin = Arc::new(LocalFileSystem::new_with_prefix(lake)?);
    let cache = CacheConfig::file(cache, ByteSize::gib(1));
    let mut objects = ObjectConfig::default();
    // Files of a lake are never overwritten.
    objects.consistency = Consistency::Immutable;
    let store = CachedStore::open(origin, "lake", &cache, objects).await?;

    let context = SessionContext::new();
    context.register_object_store(&Url::parse("floe://lake")?, Arc::new(store.clone()));
    let options = ParquetReadOptions::default();
    context.register_parquet("trips", "floe://lake/", options).await?;
    let start = Instant::now();
    let answer = context.sql(SQL).await?.to_string().await?;
    let took = start.elapsed();

    let stats = store.objects().stats();
    let hits = stats.chunks_ram + stats.chunks_buffer + stats.chunks_flash;
    println!("{took:?}: {hits} chunks from the cache, {} fetched", stats.chunks_missed);
    store.close().await?;
    Ok((stats, answer))
}

/// Two million rows in a Parquet file.
async fn write_trips(lake: &Path) -> Result<()> {
    let rows = "SELECT value % 7 AS day, value, (value * 7919) % 10007 / 100.0 AS fare \
                FROM range(2000000)";
    let path = lake.join("trips.parquet");
    let options = DataFrameWriteOptions::new().with_single_file_output(true);
    let frame = SessionContext::new().sql(rows).await?;
    frame.write_parquet(&path.to_string_lossy(), options, None).await?;
    Ok(())
}
