use super::*;

const SECTORS: [Sector; 3] = [Sector::Missing, Sector::Clean, Sector::Dirty];

/// The whole table: reads of missing and clean sectors, writes of missing and
/// cached ones.
#[test]
fn modes_decide_as_the_table_says() {
    use Read::{Backing as FromBacking, BackingInsert, Cache as FromCache};
    use Write::{Backing, BackingInvalidate, Both, Cache};
    for (mode, read_miss, read_hit, write_miss, write_hit) in [
        (Mode::WriteBack, BackingInsert, FromCache, Cache, Cache),
        (Mode::WriteThrough, BackingInsert, FromCache, Both, Both),
        (Mode::WriteAround, BackingInsert, FromCache, Backing, Both),
        (
            Mode::WriteInvalidate,
            BackingInsert,
            FromCache,
            Backing,
            BackingInvalidate,
        ),
        (Mode::WriteOnly, FromBacking, FromCache, Cache, Cache),
        (
            Mode::PassThrough,
            FromBacking,
            FromBacking,
            Backing,
            BackingInvalidate,
        ),
    ] {
        assert_eq!(mode.read(Sector::Missing), read_miss, "{mode}");
        assert_eq!(mode.read(Sector::Clean), read_hit, "{mode}");
        assert_eq!(mode.write(Sector::Missing), write_miss, "{mode}");
        assert_eq!(mode.write(Sector::Clean), write_hit, "{mode}");
    }
}

/// Two copies of one sector under every mode, with and without insertion: a
/// read never sees anything but the newest data.
#[test]
fn no_mode_serves_or_leaves_stale_data() {
    for mode in Mode::ALL {
        for sector in SECTORS {
            for inserts in [true, false] {
                assert_eq!(mode.read(Sector::Dirty), Read::Cache, "{mode}");
                let cached = sector != Sector::Missing;
                let write = match mode.write(sector) {
                    write if inserts || cached => write,
                    write => write.without_insertion(),
                };
                // The state of both copies after the write: newest or stale.
                let (cache, backing, after) = match write {
                    Write::Cache => (Some(true), false, Sector::Dirty),
                    Write::Both => (Some(true), true, Sector::Clean),
                    Write::Backing => (cached.then_some(false), true, sector),
                    Write::BackingInvalidate => (None, true, Sector::Missing),
                };
                assert_ne!(cache, Some(false), "{mode} {sector:?} leaves a stale copy");
                let read = mode.read(after).without_insertion();
                let newest = match read {
                    Read::Cache => cache == Some(true),
                    Read::Backing | Read::BackingInsert => backing,
                };
                assert!(newest, "{mode} {sector:?} reads stale data");
                assert_eq!(
                    after == Sector::Dirty,
                    mode.makes_dirty() && write == Write::Cache
                );
            }
        }
    }
}

#[test]
fn names_parse() {
    for mode in Mode::ALL {
        assert_eq!(mode.name().parse(), Ok(mode));
        assert_eq!(mode.to_string(), mode.name());
    }
    let error = "write-bck".parse::<Mode>().expect_err("no such mode");
    assert!(error.to_string().contains("write-around"), "{error}");
}
