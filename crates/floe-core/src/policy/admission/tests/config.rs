use super::*;
use crate::ByteSize;

fn parse(text: &str) -> Result<AdmissionConfig, toml::de::Error> {
    #[derive(Deserialize)]
    struct File {
        admission: AdmissionConfig,
    }
    toml::from_str(&format!("admission = {text}")).map(|file: File| file.admission)
}

#[test]
fn names_parse() {
    for kind in AdmissionKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
        assert_eq!(kind.to_string(), kind.name());
    }
    assert_eq!(" Write_Budget".parse(), Ok(AdmissionKind::WriteBudget));
    let unknown = "random".parse::<AdmissionKind>().unwrap_err();
    assert!(unknown.to_string().contains("reject-first"), "{unknown}");
}

#[test]
fn configurations_parse_with_defaults() {
    let budget = WriteBudgetConfig::new(ByteSize::gib(500));
    for (text, expected) in [
        ("{ kind = 'all' }", AdmissionConfig::default()),
        (
            "{ kind = 'probabilistic' }",
            AdmissionConfig::Probabilistic(ProbabilisticConfig { probability: 0.5 }),
        ),
        (
            "{ kind = 'probabilistic', probability = 1 }",
            AdmissionConfig::Probabilistic(ProbabilisticConfig { probability: 1.0 }),
        ),
        (
            "{ kind = 'write-budget', bytes_per_day = '500 GiB' }",
            AdmissionConfig::WriteBudget(budget),
        ),
        (
            "{ kind = 'write-budget', bytes_per_day = '500GiB', burst = '1GiB', size_bias = 0.3 }",
            AdmissionConfig::WriteBudget(WriteBudgetConfig {
                burst: Some(ByteSize::gib(1)),
                size_bias: 0.3,
                ..budget
            }),
        ),
        (
            "{ kind = 'frequency', threshold = 3 }",
            AdmissionConfig::Frequency(FrequencyConfig {
                threshold: 3,
                window: 1 << 20,
            }),
        ),
        (
            "{ kind = 'reject-first', window_seconds = 600 }",
            AdmissionConfig::RejectFirst(RejectFirstConfig {
                keys: 1 << 20,
                window_seconds: 600,
            }),
        ),
    ] {
        let config = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(config, expected, "{text}");
        assert_eq!(config.check(), Ok(()), "{text}");
        let written = toml::Value::try_from(&config).unwrap();
        assert_eq!(written.try_into::<AdmissionConfig>().unwrap(), expected);
        assert_eq!(parse(text).unwrap().kind().name(), config.kind().name());
    }
}

#[test]
fn unknown_and_missing_keys_are_named() {
    for (text, message) in [
        ("{ kind = 'all', probability = 0.5 }", "probability"),
        ("{ kind = 'probabilistic', chance = 0.5 }", "chance"),
        ("{ kind = 'write-budget' }", "bytes_per_day"),
        (
            "{ kind = 'write-budget', bytes_per_day = 'much' }",
            "`much` is not a size",
        ),
        (
            "{ kind = 'write-budget', bytes_per_day = '1GiB', day = 1 }",
            "day",
        ),
        ("{ kind = 'frequency', treshold = 1 }", "treshold"),
        ("{ kind = 'frequency', threshold = -1 }", "-1"),
        ("{ kind = 'reject-first', splits = 2 }", "splits"),
        ("{ kind = 'coin' }", "reject-first"),
        ("{ probability = 0.5 }", "kind"),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn errors_of_values_out_of_range_name_the_nearest_valid_one() {
    let budget = |text: &str| format!("{{ kind = 'write-budget', {text} }}");
    for (text, setting, nearest) in [
        (
            "{ kind = 'probabilistic', probability = 0 }".to_owned(),
            "probability",
            "0.001",
        ),
        (
            "{ kind = 'probabilistic', probability = nan }".to_owned(),
            "probability",
            "0.001",
        ),
        (
            "{ kind = 'probabilistic', probability = 1.5 }".to_owned(),
            "probability",
            "1",
        ),
        (budget("bytes_per_day = 0"), "bytes_per_day", "1MiB"),
        (
            budget("bytes_per_day = '2097152TiB'"),
            "bytes_per_day",
            "1048576TiB",
        ),
        (budget("bytes_per_day = '1GiB', burst = 0"), "burst", "4KiB"),
        (
            budget("bytes_per_day = '1GiB', burst = '2GiB'"),
            "burst",
            "1GiB",
        ),
        (
            budget("bytes_per_day = '1GiB', size_bias = -1"),
            "size_bias",
            "0",
        ),
        (
            budget("bytes_per_day = '1GiB', size_bias = nan"),
            "size_bias",
            "0",
        ),
        (
            budget("bytes_per_day = '1GiB', size_bias = 2"),
            "size_bias",
            "1",
        ),
        (
            "{ kind = 'frequency', threshold = 0 }".to_owned(),
            "threshold",
            "1",
        ),
        (
            "{ kind = 'frequency', threshold = 16 }".to_owned(),
            "threshold",
            "15",
        ),
        (
            "{ kind = 'frequency', window = 1 }".to_owned(),
            "window",
            "1024",
        ),
        (
            "{ kind = 'reject-first', keys = 9223372036854775807 }".to_owned(),
            "keys",
            "1073741824",
        ),
        (
            "{ kind = 'reject-first', window_seconds = 0 }".to_owned(),
            "window_seconds",
            "1",
        ),
    ] {
        let config = parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let error = Admission::new(&config, 0).expect_err(&text);
        assert_eq!(
            (error.setting, error.nearest.as_str()),
            (setting, nearest),
            "{text}"
        );
        assert!(error.to_string().contains(&error.limit), "{error}");
        // The size of unchecked settings can be computed too.
        config.memory_bytes();
    }
}
