//! `floe config`, and the sources and validation of settings.

mod common;

use std::fs;

use common::{floe, outcome, run};

#[test]
fn the_default_file_passes_its_own_check() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        run(folder.path(), &["config", "default"]).expect(0, &["[chunk]", "size = \"64KiB\""]);
    fs::write(folder.path().join("floe.toml"), &text.out).unwrap();
    run(folder.path(), &["config", "check", "floe.toml"]).expect(0, &["ok: floe.toml"]);
    // It has the effect of no file.
    let values = |text: &str| -> Vec<String> {
        let pairs = text
            .lines()
            .map(|line| line.split("  #").next().unwrap_or(""));
        pairs.map(|pair| pair.trim().to_owned()).collect()
    };
    let with = run(folder.path(), &["config", "show", "--config", "floe.toml"]);
    let without = run(folder.path(), &["config", "show"]);
    assert_eq!(values(&with.out), values(&without.out));
}

#[test]
fn the_reference_page_is_current() {
    let folder = tempfile::tempdir().unwrap();
    let generated = run(folder.path(), &["config", "reference"])
        .expect(0, &[])
        .out;
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    if std::env::var_os("FLOE_BLESS").is_some() {
        fs::write(page, &generated).unwrap();
    }
    let written = fs::read_to_string(page).unwrap_or_default();
    assert!(
        written == generated,
        "docs/configuration.md is not current: FLOE_BLESS=1 cargo test -p floe-cli rewrites it"
    );
}

#[test]
fn an_invalid_policy_of_a_key_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let key = "[[s3.keys]]\naccess_key = \"AK\"\nsecret_key = \"long enough\"\n";
    for (policy, named) in [
        (
            "key = \"AK\"\nbuckets = [\"open\"]\naccess = \"read\"",
            None,
        ),
        (
            "key = \"AK\"\nbuckets = [\"open\"]\naccess = \"list\"",
            Some("list"),
        ),
        (
            "key = \"AK\"\nbucket = \"open\"\naccess = \"read\"",
            Some("`bucket`"),
        ),
        (
            "key = \"A\"\nbuckets = [\"*\"]\naccess = \"read\"",
            Some("name an access key"),
        ),
    ] {
        let text = format!("{key}[[s3.policies]]\n{policy}\n");
        fs::write(folder.path().join("floe.toml"), text).unwrap();
        let checked = run(folder.path(), &["config", "check", "floe.toml"]);
        match named {
            None => checked.expect(0, &[]),
            Some(named) => checked.expect(2, &["policies", named]),
        };
    }
}

#[test]
fn an_error_of_an_admission_policy_names_its_setting() {
    let folder = tempfile::tempdir().unwrap();
    for section in ["chunk", "tiny"] {
        let admission = "admission = \"probabilistic\"\nadmission_probability = 7.0\n";
        let text = format!("[{section}]\n{admission}");
        fs::write(folder.path().join("floe.toml"), text).unwrap();
        run(folder.path(), &["config", "check", "floe.toml"]).expect(
            2,
            &[
                &format!("{section}.admission_probability = 7 cannot work"),
                "nearest value that works is 1",
            ],
        );
    }
}

#[test]
fn an_unknown_key_names_its_line_and_the_nearest() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("floe.toml"),
        "[chunk]\nevicton = \"fifo\"\n",
    )
    .unwrap();
    run(folder.path(), &["config", "check", "floe.toml"]).expect(
        2,
        &[
            "floe.toml:2",
            "unknown setting `chunk.evicton`",
            "`chunk.eviction`",
        ],
    );
    run(folder.path(), &["config", "check", "--set", "ram.sise=1"])
        .expect(2, &["--set ram.sise", "`ram.size`"]);
    run(folder.path(), &["config", "check", "--set", "nonsense"]).expect(2, &["has no `=`"]);
    run(folder.path(), &["config", "check", "--chunk-sise", "1"]).expect(2, &["--chunk-size"]);
}

#[test]
fn a_flag_wins_over_a_variable_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = "[ram]\nsize = \"1MiB\"\nmax_value_size = \"1KiB\"\n[log]\nlevel = \"warn\"\n";
    fs::write(folder.path().join("floe.toml"), file).unwrap();
    let shown = outcome(
        floe(folder.path())
            .args(["config", "show", "--json", "--ram-size", "3MiB"])
            .env("FLOE_CONFIG", "floe.toml")
            .env("FLOE_RAM_SIZE", "2MiB")
            .env("FLOE_RAM_MAX_VALUE_SIZE", "2KiB")
            .output()
            .unwrap(),
    )
    .expect(0, &[]);
    let shown: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    for (setting, value, source) in [
        ("ram.size", "3MiB", "flag --ram-size"),
        (
            "ram.max_value_size",
            "2KiB",
            "variable FLOE_RAM_MAX_VALUE_SIZE",
        ),
        ("log.level", "warn", "floe.toml:5"),
        ("chunk.size", "64KiB", "default"),
    ] {
        assert_eq!(shown[setting]["value"], value, "{setting}");
        assert_eq!(shown[setting]["source"], source, "{setting}");
    }
}

#[test]
fn errors_of_bad_values_name_the_limit_and_a_valid_value() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, parts) in [
        (
            &["--chunk-size", "1KiB"][..],
            &[
                "`chunk.size`",
                "1KiB",
                "flag --chunk-size",
                "at least 64KiB",
            ][..],
        ),
        (
            &["--chunk-eviction", "lru"],
            &[
                "`chunk.eviction`",
                "must be one of zplru, fifo, sieve, clru",
            ],
        ),
        (
            &["--s3-listen", "localhost:9000"],
            &["`s3.listen`", "IP address", "127.0.0.1:9000"],
        ),
        (
            &["--chunk-size", "512MiB"],
            &[
                "chunk.size = 512MiB",
                "whose capacity is 64MiB",
                "device.zone_size",
            ],
        ),
        (
            &["--device-size", "128MiB", "--device-zone-size", "64MiB"],
            &["device.size = 128MiB", "384MiB"],
        ),
        (
            &[
                "--memcached-max-item-size",
                "65MiB",
                "--memcached-memory",
                "1GiB",
            ],
            &[
                "memcached.max_item_size = 65MiB",
                "at most",
                "device.zone_size",
            ],
        ),
        (
            &[
                "--memcached-max-item-size",
                "2MiB",
                "--chunk-eviction",
                "clru",
            ],
            &[
                "memcached.max_item_size = 2MiB",
                "at most 64KiB",
                "chunk.clru_layout = log",
            ],
        ),
        (
            &["--chunk-open-zones", "1000"],
            &["chunk.open_zones = 1000", "the nearest is"],
        ),
        (
            &["--origin-kind", "s3", "--origin-root", "x"],
            &["origin.root", "has no meaning"],
        ),
        (
            &["--log-level", "loud=="],
            &["`log.level`", "error, warn, info"],
        ),
        (
            &["--oxcache-bucket", "b"],
            &["`oxcache.bucket`", "without `oxcache.path`"],
        ),
        (
            &["--s3-listen", "0.0.0.0:9000"],
            &["s3.keys", "s3.anonymous"],
        ),
        (
            &["--memcached-listen", "0.0.0.0:11211"],
            &["memcached.listen", "memcached.anonymous = true"],
        ),
        (
            &["--admin-listen", "0.0.0.0:9100"],
            &["admin.listen", "admin.public = true"],
        ),
    ] {
        let arguments = [&["config", "check"], arguments].concat();
        run(folder.path(), &arguments).expect(2, parts);
    }
    run(folder.path(), &["config", "check", "absent.toml"])
        .expect(2, &["cannot read the configuration file absent.toml"]);
}

#[test]
fn frontends_open_to_other_machines_cause_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let open = [
        "--memcached-anonymous=true",
        "--memcached-listen",
        "0.0.0.0:11211",
    ];
    let arguments = [&["config", "check"][..], &open].concat();
    let checked = run(folder.path(), &arguments);
    checked.expect(0, &["0.0.0.0:11211", "anyone", "memcached.anonymous"]);
}

#[test]
fn unknown_variables_cause_a_warning_and_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let output = floe(folder.path())
        .args(["config", "check"])
        .env("FLOE_CHUNK_SISE", "1")
        .output()
        .unwrap();
    outcome(output).expect(0, &["FLOE_CHUNK_SISE", "FLOE_CHUNK_SIZE"]);
}

#[test]
fn secrets_are_never_printed() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["config", "show"][..],
        &["config", "show", "--json"],
        &["config", "check", "--origin-kind", "http"],
    ] {
        let output = floe(folder.path())
            .args(arguments)
            .env("FLOE_S3_KEYS", "me:verysecretvalue")
            .env("FLOE_ORIGIN_SECRET_KEY", "verysecretvalue")
            .output()
            .unwrap();
        let outcome = outcome(output);
        assert!(!outcome.out.contains("verysecret"), "{outcome:?}");
        assert!(!outcome.err.contains("verysecret"), "{outcome:?}");
    }
}

#[test]
fn keys_in_the_wrong_form_are_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    for wrong in [
        "origin = \"AKIA:verysecretvalue\"",
        "origin = { access_key = \"A\", secret_key = [\"verysecretvalue\"] }",
        "origin = [\"verysecretvalue\"]",
    ] {
        let text = format!(
            "[[s3.keys]]\naccess_key = \"me\"\nsecret_key = \"verysecretvalue\"\n{wrong}\n"
        );
        fs::write(&path, text).unwrap();
        let arguments = ["config", "check", "--config", path.to_str().unwrap()];
        let outcome = run(folder.path(), &arguments).expect(2, &["s3.keys"]);
        let all = format!("{}{}", outcome.out, outcome.err);
        assert!(!all.contains("verysecret"), "{all}");
    }
}

/// A cache of any size opens with default settings; the test creates no files.
#[test]
fn every_size_fits_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let mib = |exponent: u32| format!("{}MiB", 1_u64 << exponent);
    let sizes = (6..=22).map(mib);
    let odd = ["65MiB", "100MiB", "1000MiB", "3GiB", "7GiB", "1TB", "3TiB"];
    for size in sizes.chain(odd.map(str::to_owned)) {
        for size_of in ["device", "tiny"] {
            let flag = format!("--{size_of}-size={size}");
            run(folder.path(), &["config", "check", &flag]).expect(0, &["ok"]);
        }
        for extra in ["--chunk-eviction=clru", "--chunk-size=1MiB"] {
            let flag = format!("--device-size={size}");
            run(folder.path(), &["config", "check", &flag, extra]).expect(0, &["ok"]);
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
