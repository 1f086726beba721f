use std::path::Path;

use floe_core::ByteSize;
use floe_core::chunk::Eviction;

use super::*;
use crate::store::RamConfig;
use crate::volume::VolumeCacheConfig;

fn schema() -> Schema {
    Schema::new(library_sections().unwrap())
}

fn load<'a>(schema: &'a Schema, text: &str, sources: &Sources) -> Result<Effective<'a>, String> {
    schema
        .load_text(Path::new("floe.toml"), text, sources)
        .map_err(|error| error.to_string())
}

fn flag(setting: &str, text: &str) -> Overlay {
    Overlay {
        setting: setting.into(),
        text: text.into(),
        source: Source::Flag(format!("--{}", Schema::flag(setting))),
    }
}

#[test]
fn defaults_are_those_of_the_structs() {
    let schema = schema();
    let effective = load(&schema, "", &Sources::default()).unwrap();
    assert_eq!(
        effective.section::<ChunkSettings>("chunk").unwrap(),
        ChunkSettings::default()
    );
    assert_eq!(
        effective.section::<RamConfig>("ram").unwrap(),
        RamConfig::default()
    );
}

#[test]
fn every_section_of_the_library_is_in_the_table() {
    let schema = Schema::new(library_sections().unwrap());
    let text = schema.default_file();
    let effective = load(&schema, &text, &Sources::default()).unwrap();
    let device: floe_device::DeviceConfig = effective.section("device").unwrap();
    assert_eq!(device, floe_device::DeviceConfig::default());
    let origin: crate::origin::OriginConfig = effective.section("origin").unwrap();
    assert_eq!(origin, crate::origin::OriginConfig::default());
    let _: crate::object::ObjectConfig = effective.section("object").unwrap();
}

#[test]
fn nested_keys_are_found_and_their_typos_named() {
    let schema = Schema::new(library_sections().unwrap());
    let text = "[origin]\nkind = \"emulated\"\n[origin.requests]\nmax_attempts = 2\n\
                [origin.emulated]\nsize = { rule = \"fixed\", bytes = \"4KiB\" }\n";
    let effective = load(&schema, text, &Sources::default()).unwrap();
    let origin: crate::origin::OriginConfig = effective.section("origin").unwrap();
    assert_eq!(origin.requests.max_attempts, 2);
    assert!(origin.emulated.is_some());
    let error = load(
        &schema,
        "[origin.requests]\natempts = 2\n",
        &Sources::default(),
    )
    .unwrap_err();
    assert!(error.contains("`origin.requests.max_attempts`"), "{error}");
}

#[test]
fn the_default_file_changes_nothing() {
    let schema = schema();
    let text = schema.default_file();
    let effective = load(&schema, &text, &Sources::default()).unwrap();
    assert_eq!(
        effective.section::<ChunkSettings>("chunk").unwrap(),
        ChunkSettings::default()
    );
    for (setting, key) in schema.keys() {
        assert!(!key.doc.is_empty(), "{setting} is documented");
        assert_eq!(
            effective.get(&setting).map(|entry| &entry.value),
            key.default.as_ref(),
            "{setting}"
        );
    }
}

#[test]
fn a_flag_wins_over_a_variable_over_the_file_over_the_default() {
    let schema = schema();
    let file = "[ram]\nsize = \"1MiB\"\nmax_value_size = \"2MiB\"\n[chunk]\nsize = 131072\n";
    let sources = Sources {
        environment: vec![
            ("FLOE_RAM_SIZE".into(), "3MiB".into()),
            ("FLOE_RAM_MAX_VALUE_SIZE".into(), "4MiB".into()),
        ],
        flags: vec![flag("ram.size", "5MiB")],
        ..Sources::default()
    };
    let effective = load(&schema, file, &sources).unwrap();
    let ram: RamConfig = effective.section("ram").unwrap();
    assert_eq!(ram.size, ByteSize::mib(5));
    assert_eq!(ram.max_value_size, ByteSize::mib(4));
    let chunk: ChunkSettings = effective.section("chunk").unwrap();
    let chunk = chunk.engine;
    assert_eq!(chunk.size, ByteSize::kib(128));
    assert_eq!(chunk.eviction, Eviction::Zplru);
    let sources: Vec<String> = [
        "ram.size",
        "ram.max_value_size",
        "chunk.size",
        "chunk.eviction",
    ]
    .iter()
    .map(|setting| effective.get(setting).unwrap().source.to_string())
    .collect();
    assert_eq!(
        sources,
        [
            "flag --ram-size",
            "variable FLOE_RAM_MAX_VALUE_SIZE",
            "floe.toml:5",
            "default"
        ]
    );
}

#[test]
fn a_profile_changes_defaults_alone() {
    let schema = schema();
    let settings = |text: &str, flags: Vec<Overlay>| {
        let sources = Sources {
            flags,
            ..Sources::default()
        };
        let effective = load(&schema, text, &sources).unwrap();
        let cache: VolumesSettings = effective.section("volumes").unwrap();
        (cache.cache, effective)
    };
    for (word, profile) in [
        ("hdd", VolumesProfile::Hdd),
        ("ssd", VolumesProfile::Ssd),
        ("ultra-fast", VolumesProfile::UltraFast),
    ] {
        let (cache, effective) = settings("", vec![flag("volumes.profile", word)]);
        assert_eq!(cache, profile.settings(), "{word}");
        assert_eq!(cache.sizes.to_string(), "4KiB..64KiB");
        assert!(!effective.is_given("volumes.promotion"));
        let shown = effective.show();
        let sizes = shown.lines().find(|line| line.starts_with("sizes = "));
        let expected = format!("# volumes.profile {word}");
        assert!(sizes.unwrap().ends_with(&expected), "{sizes:?}");
    }
    // Settings of any source win, those that repeat a default as well.
    let file = "[volumes]\nprofile = \"ultra-fast\"\nsizes = \"32KiB..256KiB\"\npromotion = { kind = \"smq\" }\n";
    let (cache, effective) = settings(file, vec![flag("volumes.cleaning", "{ kind = \"acp\" }")]);
    assert_eq!(cache.sizes, VolumeCacheConfig::default().sizes);
    assert_eq!(cache.promotion, "smq".parse().unwrap());
    assert_eq!(cache.cleaning, "acp".parse().unwrap());
    let source = |setting| effective.get(setting).unwrap().source.to_string();
    assert_eq!(source("volumes.sizes"), "floe.toml:3");
    assert_eq!(source("volumes.shards"), "default");
    let error = load(&schema, "volumes.profile = \"sdd\"", &Sources::default()).unwrap_err();
    assert!(error.contains("hdd, ssd, ultra-fast"), "{error}");
}

#[test]
fn unknown_keys_name_the_line_and_the_nearest() {
    let schema = schema();
    for (text, line, key, nearest) in [
        ("[chunk]\nsise = 1", 2, "chunk.sise", "`chunk.size`"),
        (
            "[chunk]\n\n\nevction = \"fifo\"",
            4,
            "chunk.evction",
            "`chunk.eviction`",
        ),
        ("[chnk]\nsize = 1", 1, "chnk", "`chunk`"),
        (
            "[chunk]\nmax_value_size = 1",
            2,
            "chunk.max_value_size",
            "`ram.max_value_size`",
        ),
        ("ram.sizes = 1", 1, "ram.sizes", "`ram.size`"),
        ("[zzzzzz]", 1, "zzzzzz", "`floe config default`"),
    ] {
        let error = load(&schema, text, &Sources::default()).unwrap_err();
        assert!(error.starts_with(&format!("floe.toml:{line}: ")), "{error}");
        assert!(error.contains(&format!("`{key}`")), "{error}");
        assert!(error.contains(nearest), "{error}");
    }
    let sources = Sources {
        flags: vec![Overlay {
            setting: "chunk.sice".into(),
            text: "1".into(),
            source: Source::Flag("--set chunk.sice".into()),
        }],
        ..Sources::default()
    };
    let error = load(&schema, "", &sources).unwrap_err();
    assert!(
        error.contains("--set chunk.sice") && error.contains("`chunk.size`"),
        "{error}"
    );
}

#[test]
fn old_names_give_the_present_ones() {
    let schema = schema();
    for (old, name) in super::renamed::all() {
        assert!(schema.key(old).is_none(), "{old} is a setting");
        assert!(schema.key(name).is_some(), "{name} is no setting");
        let error = load(&schema, &format!("{old} = 1"), &Sources::default()).unwrap_err();
        assert!(
            error.contains(&format!("`{old}` is called `{name}` now")),
            "{error}"
        );
    }
    let (old, name) = super::renamed::all().first_key_value().unwrap();
    let environment = [(Schema::variable(old), "1".to_owned())];
    let unknown = schema.unknown_variables(&environment, &[]);
    assert_eq!(unknown[0].1, Some(Schema::variable(name)));
    let flag = Schema::renamed_flag(&Schema::flag(old));
    assert_eq!(flag, Some(Schema::flag(name)));
}

#[test]
fn errors_of_bad_values_name_setting_value_limit_and_a_valid_value() {
    let schema = schema();
    for (text, parts) in [
        (
            "[chunk]\nsize = \"3GiB\"",
            ["`chunk.size`", "\"3GiB\"", "at most 1GiB", "works is 1GiB"],
        ),
        (
            "[chunk]\nsize = 7000",
            ["`chunk.size`", "7000", "at least 64KiB", "works is 64KiB"],
        ),
        (
            "[chunk]\nsize = \"big\"",
            ["`chunk.size`", "\"big\"", "is not a size", "64KiB"],
        ),
        (
            "[chunk]\neviction = \"fif\"",
            [
                "`chunk.eviction`",
                "\"fif\"",
                "must be one of",
                "works is \"fifo\"",
            ],
        ),
        (
            "[chunk]\nopen_zones = -1",
            ["`chunk.open_zones`", "-1", "at least 1", "works is 1"],
        ),
        (
            "[chunk]\nopen_zones = true",
            [
                "`chunk.open_zones`",
                "true",
                "must be a whole number",
                "floe.toml:2",
            ],
        ),
    ] {
        let error = load(&schema, text, &Sources::default()).unwrap_err();
        for part in parts {
            assert!(error.contains(part), "{part} in: {error}");
        }
    }
}

#[test]
fn broken_toml_names_its_line() {
    let error = load(&schema(), "[chunk]\nsize = = 3\n", &Sources::default()).unwrap_err();
    assert!(error.starts_with("floe.toml:2: not valid TOML"), "{error}");
    let twice = load(
        &schema(),
        "[ram]\nsize = 1\nsize = 2\n",
        &Sources::default(),
    )
    .unwrap_err();
    assert!(twice.starts_with("floe.toml:3: not valid TOML"), "{twice}");
}

#[test]
fn unknown_variables_are_reported_with_the_nearest_name() {
    let schema = schema();
    let environment = [
        ("FLOE_CHUNK_SISE".to_owned(), "1".to_owned()),
        ("FLOE_CONFIG".to_owned(), "x".to_owned()),
        ("PATH".to_owned(), "/bin".to_owned()),
    ];
    assert_eq!(
        schema.unknown_variables(&environment, &["FLOE_CONFIG"]),
        [(
            "FLOE_CHUNK_SISE".to_owned(),
            Some("FLOE_CHUNK_SIZE".to_owned())
        )]
    );
}

#[test]
fn names_of_flags_and_variables_are_unique() {
    let schema = schema();
    let mut flags: Vec<String> = schema.keys().map(|(s, _)| Schema::flag(&s)).collect();
    flags.sort();
    let count = flags.len();
    flags.dedup();
    assert_eq!(flags.len(), count);
}

mod any_text {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn never_panics(text in "[\\PC\n\\[\\]=.\"]{0,80}") {
            let _ = load(&schema(), &text, &Sources::default());
        }

        #[test]
        fn values_never_panic(setting in 0..schema().keys().count(), text in "\\PC{0,24}") {
            let schema = schema();
            let (name, _) = schema.keys().nth(setting).unwrap();
            let sources = Sources { flags: vec![flag(&name, &text)], ..Sources::default() };
            let _ = load(&schema, "", &sources);
        }
    }
}
