//! A key-value cache in a file: put, get, delete, and a warm restart.
//!
//! Run it twice: `cargo run -p floe --example key_value`

use floe::{ByteSize, Bytes, Cache, CacheConfig};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join("floe-example.floe");
    let cache = Cache::open(&CacheConfig::file(&path, ByteSize::gib(1))).await?;
    println!("{} values were warm", cache.recovery().store.records);

    for n in 0..1000u32 {
        let value = Bytes::from(vec![n as u8; 4096]);
        cache.put(&n.to_be_bytes(), value).await?;
    }
    // Served from the RAM tier or the write buffer at once, from flash later.
    let value = cache.get(&7u32.to_be_bytes()).await?;
    assert_eq!(value, Some(Bytes::from(vec![7; 4096])));

    cache.delete(&7u32.to_be_bytes()).await?;
    assert_eq!(cache.get(&7u32.to_be_bytes()).await?, None);

    cache.flush().await?;
    let stats = cache.stats();
    println!(
        "{} values live, {:.3} bytes written to flash per byte stored",
        stats.store.engine.live_records,
        stats.store.alwa().unwrap_or_default()
    );
    cache.close().await?;
    Ok(())
}
