use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, UnixListener, UnixStream};

use super::*;
use crate::run::{Progress, RunResult, Stop, Target, bench};
use crate::workload::{Distribution, WorkloadSpec};

const SEED: u64 = 7;
const OBJECT_BYTES: u64 = 3000;

fn options(requests: u64) -> BenchOptions {
    let source = RequestSource::Synthetic {
        workload: WorkloadSpec {
            distribution: Distribution::Uniform,
            items: 50,
            seed: SEED,
        },
        object_bytes: OBJECT_BYTES,
        read_bytes: None,
    };
    BenchOptions {
        pacing: Pacing::Closed { clients: 3 },
        stop: Stop {
            requests: Some(requests),
            duration: None,
        },
        verify_seed: Some(SEED),
        progress: Progress::Off,
        seed: SEED,
        ..BenchOptions::new("remote", source)
    }
}

async fn drive(
    address: &str,
    spec: &RemoteSpec,
    options: &BenchOptions,
) -> Result<RunResult, EvalError> {
    let clock = Clock::real();
    let address: RemoteAddress = address.parse().expect("it is an address");
    let target = RemoteTarget::connect(&address, spec, options, &clock).await?;
    bench(&Target::Remote(target.into()), &clock, None, options).await
}

fn pipelined() -> RemoteSpec {
    RemoteSpec {
        pipeline: 8,
        timeout_s: 5.0,
        ..RemoteSpec::default()
    }
}

/// The behaviour of a fake server at its `n`th request.
type Mood = fn(u64) -> Behaviour;

#[derive(Clone, Copy, PartialEq)]
enum Behaviour {
    Right,
    /// One byte is wrong.
    Wrong,
    /// A byte is missing.
    Short,
    Error,
    /// The connection is closed.
    Leaves,
}

/// A number of bincode's, which begins with `first`.
async fn number(from: &mut BufReader<UnixStream>) -> std::io::Result<u64> {
    Ok(match from.read_u8().await? {
        251 => from.read_u16_le().await?.into(),
        252 => from.read_u32_le().await?.into(),
        253 => from.read_u64_le().await?,
        first => first.into(),
    })
}

/// The server side of OxCache's protocol.
async fn oxcache(stream: UnixStream, count: Arc<Mutex<u64>>, mood: Mood) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let _frame_bytes = stream.read_u32().await?;
        if number(&mut stream).await? != 0 {
            return Ok(());
        }
        let mut key = vec![0; number(&mut stream).await? as usize];
        stream.read_exact(&mut key).await?;
        let (offset, size) = (number(&mut stream).await?, number(&mut stream).await?);
        let mood = mood({
            let mut count = count.lock();
            *count += 1;
            *count
        });
        let key = ObjectKey::new(BENCH_BUCKET, String::from_utf8(key).expect("text"));
        let mut data = vec![0; size as usize];
        Content::new(SEED, &key, 0).fill(offset, &mut data);
        match mood {
            Behaviour::Right => {}
            Behaviour::Wrong => data[1234] ^= 1,
            Behaviour::Short => _ = data.pop(),
            Behaviour::Error => data = b"out of sorts".to_vec(),
            Behaviour::Leaves => return Ok(()),
        }
        let mut head = vec![u8::from(mood != Behaviour::Error)];
        match data.len() {
            short @ 0..=250 => head.push(short as u8),
            long => {
                head.push(251);
                head.extend((long as u16).to_le_bytes());
            }
        }
        stream.write_u32((head.len() + data.len()) as u32).await?;
        stream.write_all(&head).await?;
        stream.write_all(&data).await?;
        stream.flush().await?;
    }
}

/// Starts a server in `folder`; returns its address.
fn fake_oxcache(folder: &tempfile::TempDir, mood: Mood) -> String {
    let path = folder.path().join("oxcache.sock");
    let listener = UnixListener::bind(&path).expect("it binds");
    let count = Arc::default();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(oxcache(stream, Arc::clone(&count), mood));
        }
    });
    format!("unix:{}", path.display())
}

#[tokio::test]
async fn an_oxcache_server_is_driven_and_verified() {
    let folder = tempfile::tempdir().unwrap();
    let address = fake_oxcache(&folder, |_| Behaviour::Right);
    let run = drive(&address, &pipelined(), &options(500)).await.unwrap();
    assert_eq!((run.requests, run.failed), (500, 0));
    assert_eq!(run.verified_bytes, 500 * OBJECT_BYTES);
    assert_eq!(run.whole.get.count, 500);
    assert!(run.whole.hits_untold && run.whole.get_bytes_per_s > 0.0);
    let figures = crate::results::run_figures(&run);
    assert!(figures.iter().all(|figure| figure.metric != "hit_ratio"));
    // Partial reads, in an open loop over few connections.
    let mut open = options(200);
    let RequestSource::Synthetic { read_bytes, .. } = &mut open.source else {
        unreachable!("it is drawn");
    };
    *read_bytes = Some(100);
    open.pacing = Pacing::Open {
        rate: 20_000.0,
        arrivals: crate::run::Arrivals::Fixed,
        in_flight_max: 50,
    };
    let spec = RemoteSpec {
        connections: 2,
        ..pipelined()
    };
    let run = drive(&address, &spec, &open).await.unwrap();
    assert_eq!((run.requests, run.verified_bytes), (200, 200 * 100));
}

#[tokio::test]
async fn a_wrong_response_is_detected() {
    for (mood, what) in [
        (
            (|n| {
                if n == 99 {
                    Behaviour::Wrong
                } else {
                    Behaviour::Right
                }
            }) as Mood,
            "offset 1234",
        ),
        (
            |n| {
                if n == 99 {
                    Behaviour::Short
                } else {
                    Behaviour::Right
                }
            },
            "2999 bytes came",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let address = fake_oxcache(&folder, mood);
        let lie = drive(&address, &pipelined(), &options(500))
            .await
            .unwrap_err();
        assert!(matches!(lie, EvalError::ServerLied { .. }), "{lie}");
        assert!(lie.to_string().contains(what), "{lie}");
    }
}

#[tokio::test]
async fn errors_and_broken_connections_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let address = fake_oxcache(&folder, |n| match n {
        50 => Behaviour::Error,
        150 => Behaviour::Leaves,
        _ => Behaviour::Right,
    });
    let run = drive(&address, &pipelined(), &options(500)).await.unwrap();
    assert_eq!(run.requests, 500);
    // The failures include all requests in flight on the closed connection.
    assert!((2..=1 + 2 * 8).contains(&run.failed), "{}", run.failed);
    let first = run.first_failure.unwrap();
    assert!(first.contains("out of sorts"), "{first}");
    assert_eq!(run.whole.get.count, 500 - run.failed);
}

/// A memcached server that stores everything. With `lies`, it returns the
/// values of other keys.
async fn fake_memcached(lies: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("it binds");
    let address = listener.local_addr().expect("it has one");
    let values: Arc<Mutex<HashMap<String, Vec<u8>>>> = Arc::default();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let values = Arc::clone(&values);
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                while stream.read_line(&mut line).await? > 0 {
                    let words: Vec<&str> = line.split_whitespace().collect();
                    let response = match words[..] {
                        ["version"] => b"VERSION 1.6.18\r\n".to_vec(),
                        ["get", key] => {
                            let values = values.lock();
                            let found = match lies {
                                true => values.iter().find(|(other, _)| *other != key),
                                false => values.get_key_value(key),
                            };
                            let mut response = Vec::new();
                            if let Some((_, value)) = found {
                                let head = format!("VALUE {key} 0 {}\r\n", value.len());
                                response.extend(head.as_bytes());
                                response.extend(value);
                                response.extend(b"\r\n");
                            }
                            response.extend(b"END\r\n");
                            response
                        }
                        ["set", key, _, _, length] => {
                            let mut value = vec![0; length.parse::<usize>().expect("a length") + 2];
                            stream.read_exact(&mut value).await?;
                            value.truncate(value.len() - 2);
                            values.lock().insert(key.to_owned(), value);
                            b"STORED\r\n".to_vec()
                        }
                        _ => b"ERROR\r\n".to_vec(),
                    };
                    stream.write_all(&response).await?;
                    stream.flush().await?;
                    line.clear();
                }
                std::io::Result::Ok(())
            });
        }
    });
    format!("memcached:{address}")
}

#[tokio::test]
async fn a_memcached_server_is_filled_by_its_misses() {
    let address = fake_memcached(false).await;
    let run = drive(&address, &pipelined(), &options(1000)).await.unwrap();
    let whole = &run.whole;
    assert_eq!((run.requests, run.failed), (1000, 0));
    assert_eq!(whole.hit.count + whole.miss.count, 1000);
    // Several clients may miss a key before the first has set it.
    assert!((50..=500).contains(&whole.miss.count), "{whole:?}");
    assert_eq!(whole.put.count, whole.miss.count);
    assert!((whole.hit_ratio - whole.byte_hit_ratio).abs() < 1e-9);
    assert_eq!(run.verified_bytes, whole.hit.count * OBJECT_BYTES);
    let mut mixed = options(1000);
    (mixed.writes, mixed.fill) = (0.25, true);
    let run = drive(&address, &pipelined(), &mixed).await.unwrap();
    let whole = &run.whole;
    assert_eq!(whole.get.count + whole.put.count, 1000);
    assert!((180..320).contains(&whole.put.count), "{whole:?}");
    assert_eq!(whole.miss.count, 0, "all were written first");
    // With `set_on_miss` off, nothing is set.
    let empty = fake_memcached(false).await;
    let spec = RemoteSpec {
        set_on_miss: false,
        ..pipelined()
    };
    let run = drive(&empty, &spec, &options(100)).await.unwrap();
    assert_eq!((run.whole.miss.count, run.whole.put.count), (100, 0));
}

#[tokio::test]
async fn a_wrong_response_of_memcached_is_detected() {
    let address = fake_memcached(true).await;
    let lie = drive(&address, &pipelined(), &options(1000))
        .await
        .unwrap_err();
    assert!(lie.to_string().contains("differs"), "{lie}");
}

#[tokio::test]
async fn connection_errors_name_cause_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("memcached.sock")).unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let rejected = stream.write_all(b"CLIENT_ERROR unauthenticated\r\n").await;
            kept.push((rejected, stream));
        }
    });
    let socket = folder.path().display();
    let cases = [
        (format!("unix:{socket}/none"), "nothing listens there"),
        ("memcached:127.0.0.1:1".into(), "nothing listens there"),
        (
            format!("memcached:{socket}/memcached.sock"),
            "MEMCACHED_USERNAME",
        ),
        ("s3:http://127.0.0.1:1/bench".into(), "start the server"),
    ];
    // Without keys, the client would query the machine's metadata services.
    let mut spec = RemoteSpec::default();
    spec.s3.anonymous = true;
    for (address, part) in cases {
        let failed = drive(&address, &spec, &options(10)).await;
        let text = failed.unwrap_err().to_string();
        assert!(text.contains(part), "{text}");
        assert!(text.contains(&address), "{text}");
    }
    let spec = |change: fn(&mut RemoteSpec)| {
        let mut spec = RemoteSpec::default();
        change(&mut spec);
        spec
    };
    for (spec, part) in [
        (spec(|spec| spec.pipeline = 0), "pipeline"),
        (spec(|spec| spec.key = "same".into()), "{id}"),
        (spec(|spec| spec.timeout_s = f64::NAN), "timeout"),
        (spec(|spec| spec.connections = 0), "connections"),
    ] {
        let failed = drive("memcached:127.0.0.1:1", &spec, &options(10)).await;
        let text = failed.unwrap_err().to_string();
        assert!(text.contains(part), "{text}");
    }
    let mut writes = options(10);
    writes.writes = 0.1;
    let failed = drive("unix:/none", &RemoteSpec::default(), &writes).await;
    assert!(failed.unwrap_err().to_string().contains("no writes"));
}

#[tokio::test]
async fn a_request_without_response_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("silent.sock");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            kept.push(stream);
        }
    });
    let spec = RemoteSpec {
        timeout_s: 0.05,
        ..RemoteSpec::default()
    };
    let begun = std::time::Instant::now();
    let failed = drive(&format!("unix:{}", path.display()), &spec, &options(6)).await;
    let text = failed.unwrap_err().to_string();
    assert!(text.contains("6 of 6 requests failed"), "{text}");
    assert!(text.contains("no response within 50ms"), "{text}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn addresses_are_read_and_written() {
    for text in [
        "unix:/run/oxcache.sock",
        "memcached:127.0.0.1:11211",
        "memcached:[::1]:11211",
        "memcached:/run/memcached.sock",
        "s3:https://s3.example.com/bucket",
        "s3:http://127.0.0.1:9000/path/bucket",
    ] {
        let address: RemoteAddress = text.parse().unwrap();
        assert_eq!(address.to_string(), text);
    }
    for (text, part) in [
        ("unix:", "write unix:PATH"),
        ("memcached:localhost", "names no port"),
        ("memcached::11211", "names no port"),
        ("s3:bucket", "names no bucket"),
        ("s3:http://127.0.0.1:9000", "names no bucket"),
        ("s3:http://127.0.0.1:9000/", "names no bucket"),
        ("redis:127.0.0.1:1", "is not a server"),
        ("store", "has no protocol"),
    ] {
        let error = text.parse::<RemoteAddress>().unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}
