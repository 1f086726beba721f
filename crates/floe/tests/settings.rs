//! Settings in users' code: every type of a `CacheConfig` has a path in `floe`,
//! and every enum parses from its name in files.

use std::fmt::Debug;
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;

use floe::admission::{AdmissionConfig, AdmissionKind};
use floe::device::config::{DeviceKind, Direct, IoChoice, RingChoice};
use floe::device::{SimConfig, SimModel};
use floe::object::Consistency;
use floe::origin::OriginKind;
use floe::tiny::{
    FairyWrenConfig, KangarooConfig, LogConfig, LookBeforeFence, NemoConfig, SetConfig, SetPolicy,
    SetStorage, TinyDurability, TinyEngine,
};
use floe::{
    CacheConfig, ChunkConfig, ClruLayout, DeviceConfig, Durability, Eviction, LargeReads,
    RamConfig, StoreConfig, TinyConfig, TinyTierConfig,
};

#[test]
fn every_part_of_a_configuration_can_be_named() {
    let CacheConfig {
        device,
        store,
        tiny,
    } = CacheConfig::default();
    let _: (DeviceConfig, Option<TinyTierConfig>) = (device.clone(), tiny);
    let _: (DeviceKind, Direct, IoChoice, RingChoice) =
        (device.kind, device.direct, device.io, device.rings);
    let sim: SimConfig = device.sim;
    let _: SimModel = sim.model;
    let store: StoreConfig = store;
    let _: (AdmissionConfig, RamConfig) = (store.admission, store.ram);
    let chunk: ChunkConfig = store.chunk;
    let _: (Eviction, ClruLayout) = (chunk.eviction, chunk.clru_layout);
    let _: (Durability, LargeReads) = (chunk.durability, chunk.large_reads);
    let tiny: TinyConfig = TinyTierConfig::default().engine;
    let _: (TinyEngine, TinyDurability) = (tiny.engine, tiny.durability);
    let _: (LookBeforeFence, AdmissionConfig) = (tiny.look_before_fence, tiny.admission);
    let _: (NemoConfig, LogConfig) = (tiny.nemo, tiny.log);
    let _: (SetConfig, KangarooConfig) = (tiny.set, tiny.kangaroo);
    let _: FairyWrenConfig = tiny.fairywren;
}

/// Each name parses to its variant, and other words do not parse.
fn parses<T>(names: &[&str])
where
    T: FromStr<Err: Debug> + Serialize + DeserializeOwned,
{
    for name in names {
        let parsed: T = name.parse().expect(name);
        assert_eq!(serde_json::to_value(&parsed).unwrap(), *name);
    }
    assert!("no such name".parse::<T>().is_err());
    assert!("".parse::<T>().is_err());
}

#[test]
fn enums_of_settings_parse_from_their_names() {
    parses::<DeviceKind>(&["file", "zns", "fdp", "nvme", "memory", "sim"]);
    parses::<Direct>(&["auto", "on", "off"]);
    parses::<IoChoice>(&["auto", "uring", "threads"]);
    parses::<RingChoice>(&["auto", "shared", "per_thread"]);
    parses::<SimModel>(&[
        "queues",
        "zn540",
        "sn540",
        "fdp",
        "sata",
        "optane",
        "ram_disk",
        "hdd_array",
    ]);
    parses::<Eviction>(&["zplru", "fifo", "sieve", "clru"]);
    parses::<ClruLayout>(&["auto", "log", "slots"]);
    parses::<Durability>(&["power", "process"]);
    parses::<TinyDurability>(&["power", "process", "none"]);
    parses::<LargeReads>(&["in_turn", "first"]);
    parses::<TinyEngine>(&["nemo", "log", "set", "kangaroo", "fairywren"]);
    parses::<SetPolicy>(&["fifo", "rrip"]);
    parses::<SetStorage>(&["in_place", "zoned"]);
    parses::<LookBeforeFence>(&["never", "many", "always"]);
    parses::<Consistency>(&["immutable", "ttl", "etag"]);
    parses::<OriginKind>(&["directory", "s3", "gcs", "azure", "http", "emulated"]);
    for kind in AdmissionKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    let error = "lru".parse::<Eviction>().unwrap_err().to_string();
    assert!(error.contains("lru") && error.contains("zplru"), "{error}");
}
