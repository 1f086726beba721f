//! Metrics, health and statistics.

use std::time::{Duration, Instant};

use crate::support::{Rig, pattern, request, rig, rig_holding, rig_with, send};

async fn page(rig: &Rig, path: &str) -> crate::support::Reply {
    send(rig.admin(), request(rig.admin(), "GET", path, &[], "")).await
}

/// The sum of a metric's samples whose line contains `label`.
pub(crate) async fn metric_sum(rig: &Rig, metric: &str, label: &str) -> f64 {
    let response = page(rig, "/metrics").await;
    let lines = response.text().lines();
    lines
        .filter(|line| {
            let name = line.split(['{', ' ']).next().unwrap();
            name == metric && line.contains(label)
        })
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

#[tokio::test]
async fn every_page_responds() {
    let rig = rig().await;
    assert_eq!(page(&rig, "/health").await.text(), "ok\n");
    assert_eq!(page(&rig, "/ready").await.text(), "ready\n");
    assert!(
        page(&rig, "/version")
            .await
            .text()
            .contains(env!("CARGO_PKG_VERSION"))
    );
    assert!(page(&rig, "/").await.text().contains("/metrics"));
    assert_eq!(page(&rig, "/nothing").await.status, 404);
    let stats = page(&rig, "/stats").await;
    assert_eq!(stats.header("content-type"), "application/json");
    let json: serde_json::Value = serde_json::from_str(stats.text()).unwrap();
    assert!(json["floe_requests_total"].is_array());
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let rig = rig_holding("bucket", "key", pattern(1, 1000)).await;
    rig.get("/bucket/key", &[]).await;
    rig.get("/bucket/missing", &[]).await;
    let text = page(&rig, "/metrics").await;
    assert!(
        text.header("content-type")
            .starts_with("application/openmetrics-text")
    );
    assert!(text.text().ends_with("# EOF\n"));
    for (metric, label, value) in [
        (
            "floe_requests_total",
            "frontend=\"s3\",method=\"get\",status=\"2xx\"",
            1.0,
        ),
        (
            "floe_requests_total",
            "frontend=\"s3\",method=\"get\",status=\"4xx\"",
            1.0,
        ),
        ("floe_connections_total", "frontend=\"s3\"", 2.0),
        (
            "floe_request_first_byte_seconds_count",
            "frontend=\"s3\",method=\"get\"",
            2.0,
        ),
        ("floe_build_info", "version=", 1.0),
    ] {
        assert_eq!(
            metric_sum(&rig, metric, label).await,
            value,
            "{metric}{{{label}}}"
        );
    }
    for metric in [
        "floe_object_reads_total",
        "floe_origin_requests_total{origin=\"custom\",operation=\"head\",reason=\"validation\",outcome=\"negative\"}",
        "floe_origin_request_first_byte_seconds_count",
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "floe_uptime_seconds",
        "floe_chunk_puts_total",
        "floe_chunk_index_bytes",
        "floe_chunk_zones",
        "floe_device_append_bytes_total",
        "floe_device_operation_errors_total{operation=\"flush\"} 0",
        "floe_device_operations_abandoned_total{operation=\"read\"} 0",
        "floe_device_operations_in_flight{operation=\"reset\"} 0",
        "floe_device_operation_duration_seconds_bucket{le=\"0.00001\",operation=\"append\"}",
    ] {
        assert!(text.text().contains(&format!("\n{metric}")), "{metric}");
    }
    // Every line is a comment or a name, labels and a number; no name comes twice as a family.
    let mut families = std::collections::HashSet::new();
    for line in text.text().lines() {
        match line.strip_prefix("# TYPE ") {
            Some(family) => assert!(families.insert(family), "{line}"),
            None if line.starts_with('#') => {}
            None => assert!(
                line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(),
                "{line}"
            ),
        }
    }
}

#[tokio::test]
async fn the_device_is_metered() {
    let rig = rig().await;
    let (count, bytes) = (
        "floe_device_operation_duration_seconds_count",
        "floe_device_operation_bytes_total",
    );
    let appended = metric_sum(&rig, bytes, "operation=\"append\"").await;
    rig.origin.store("bucket", "key", pattern(1, 2_500_000));
    rig.get("/bucket/key", &[]).await;
    rig.stored().await;
    rig.cache.store().flush().await.unwrap();
    let appended = metric_sum(&rig, bytes, "operation=\"append\"").await - appended;
    assert!(appended >= 2_500_000.0, "{appended} bytes appended");
    for operation in ["append", "flush", "read"] {
        let label = format!("operation=\"{operation}\"");
        let operations = metric_sum(&rig, count, &label).await;
        assert!(operations >= 1.0, "{operation}: {operations}");
    }
}

/// Two fetches of one object, as a user sees them.
#[tokio::test]
async fn one_miss_then_one_hit() {
    let rig = rig_holding("bucket", "key", pattern(1, 2_500_000)).await;
    for (read, header) in ["miss", "hit"].into_iter().enumerate() {
        let response = rig.get("/bucket/key", &[]).await;
        assert!(response.body == pattern(1, 2_500_000));
        assert_eq!(response.header("x-floe-cache"), header);
        rig.stored().await;
        for (result, reads) in [("miss", 1), ("hit", read)] {
            let label = format!("result=\"{result}\"");
            let counted = metric_sum(&rig, "floe_object_reads_total", &label).await;
            assert_eq!(counted, reads as f64, "{result} after {header}");
        }
    }
}

#[tokio::test]
async fn zones_are_listed_on_request() {
    let rig = rig().await;
    assert!(!page(&rig, "/metrics").await.text().contains("floe_zone_"));
    let response = page(&rig, "/metrics?zones=1").await;
    let lines = response.text().lines();
    assert_eq!(
        lines
            .filter(|line| line.starts_with("floe_zone_used_bytes{"))
            .count(),
        30
    );
}

/// With the maximum of idle connections, health still responds.
#[tokio::test]
async fn health_responds_at_the_connection_limit() {
    let rig = rig().await;
    let mut crowd = Vec::new();
    for _ in 0..100 {
        crowd.push(tokio::net::TcpStream::connect(rig.admin()).await.unwrap());
        let mut half = tokio::net::TcpStream::connect(rig.admin()).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut half, b"GET /met")
            .await
            .unwrap();
        crowd.push(half);
    }
    for path in ["/ready", "/health", "/metrics"] {
        assert_eq!(page(&rig, path).await.status, 200, "{path}");
    }
}

/// Connections that do not read their pages leave connections for health.
#[tokio::test]
async fn pages_leave_connections_for_health() {
    let rig = rig_with(|config| config.admin.as_mut().unwrap().max_connections = 2).await;
    let mut readers = Vec::new();
    for _ in 0..10 {
        let mut stream = tokio::net::TcpStream::connect(rig.admin()).await.unwrap();
        let requests = "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(400);
        tokio::io::AsyncWriteExt::write_all(&mut stream, requests.as_bytes())
            .await
            .unwrap();
        readers.push(stream);
    }
    for path in ["/ready", "/health"] {
        assert_eq!(page(&rig, path).await.status, 200, "{path}");
    }
}

/// Posts a command with a token and further headers.
async fn command(
    rig: &Rig,
    name: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> crate::support::Reply {
    let mut all = vec![("content-type", "application/json")];
    all.extend_from_slice(headers);
    let path = format!("/cache/{name}");
    let body = body.to_owned();
    send(rig.admin(), request(rig.admin(), "POST", &path, &all, body)).await
}

/// The objects of the lines of a response.
fn lines(reply: &crate::support::Reply) -> Vec<serde_json::Value> {
    let lines = reply.text().lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

const TOKEN: &str = "a token of the tests";
const BEARER: (&str, &str) = ("authorization", "Bearer a token of the tests");

async fn commanded_rig() -> Rig {
    let rig = rig_with(|config| config.admin.as_mut().unwrap().token = TOKEN.into()).await;
    for key in ["a/1", "a/2", "b"] {
        rig.origin.store("bucket", key, pattern(1, 1000));
    }
    rig
}

#[tokio::test]
async fn commands_list_warm_and_purge_objects() {
    let rig = commanded_rig().await;
    let all = r#"{"bucket":"bucket","prefix":"a/"}"#;
    let states = async || {
        let listed = command(&rig, "ls", &[BEARER], all).await;
        assert_eq!(listed.header("content-type"), "application/x-ndjson");
        let lines = lines(&listed).into_iter();
        let states = lines.map(|line| (line["key"].clone(), line["state"].clone()));
        states.collect::<Vec<_>>()
    };
    let of = |state: &str| vec![("a/1".into(), state.into()), ("a/2".into(), state.into())];
    assert_eq!(states().await, of("none"));
    let warmed = lines(&command(&rig, "warm", &[BEARER], all).await);
    assert_eq!(warmed.len(), 2);
    assert!(warmed.iter().all(|object| object["is_done"] == true));
    assert_eq!(warmed[0]["fetched_bytes"], 1000);
    assert_eq!(states().await, of("whole"));
    let after = r#"{"bucket":"bucket","after":"a/2"}"#;
    let after = lines(&command(&rig, "ls", &[BEARER], after).await);
    assert_eq!((after.len(), &after[0]["key"]), (1, &"b".into()));
    let (begun, slowly) = (
        Instant::now(),
        r#"{"bucket":"bucket","objects_a_second":2}"#,
    );
    assert_eq!(
        lines(&command(&rig, "ls", &[BEARER], slowly).await).len(),
        3
    );
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let sets = r#"{"sets":[{"set":"prefix","bucket":"bucket","prefix":"a/"}]}"#;
    let purged = command(&rig, "purge", &[BEARER], sets).await;
    assert_eq!((purged.status, purged.text()), (200, r#"{"purged":1}"#));
    assert_eq!(states().await, of("none"));
    let absent = command(&rig, "ls", &[BEARER], r#"{"bucket":"absent"}"#).await;
    assert!(lines(&absent)[0]["error"].is_string());
}

#[tokio::test]
async fn commands_pin_and_unpin_objects() {
    let rig = commanded_rig().await;
    let pin = r#"{"bucket":"bucket","prefix":"a/","cap":"1MiB"}"#;
    let pinned = command(&rig, "pin", &[BEARER], pin).await;
    assert_eq!(pinned.status, 200, "{}", pinned.text());
    assert_eq!(lines(&pinned)[0]["cap_bytes"], 1 << 20);
    let pins = lines(&command(&rig, "pins", &[BEARER], "{}").await);
    assert_eq!((pins.len(), &pins[0]["prefix"]), (1, &"a/".into()));
    assert_eq!(rig.cache.pins().len(), 1);
    let unpin = r#"{"bucket":"bucket","prefix":"a/"}"#;
    for was_pinned in [true, false] {
        let unpinned = command(&rig, "unpin", &[BEARER], unpin).await;
        assert_eq!(lines(&unpinned)[0]["was_pinned"], was_pinned);
    }
    let nameless = command(&rig, "pin", &[BEARER], r#"{"bucket":""}"#).await;
    assert_eq!(nameless.status, 400);
}

#[tokio::test]
async fn commands_without_the_token_or_from_a_browser_are_refused() {
    let rig = commanded_rig().await;
    let wrong = ("authorization", "Bearer another");
    let web = ("origin", "http://127.0.0.1:9100");
    let sets = r#"{"sets":[{"set":"all"}]}"#;
    for (name, headers, body, status) in [
        ("purge", &[][..], sets, 403),
        ("purge", &[wrong], sets, 403),
        ("purge", &[BEARER, web], sets, 403),
        ("ls", &[], r#"{"bucket":"bucket"}"#, 403),
        ("pins", &[], "{}", 403),
        ("purge", &[BEARER], "junk", 400),
        ("purge", &[BEARER], r#"{"sets":[],"more":1}"#, 400),
        ("purge", &[BEARER], &"x".repeat(70_000), 413),
        ("nothing", &[BEARER], "{}", 404),
    ] {
        let reply = command(&rig, name, headers, body).await;
        assert_eq!(reply.status, status, "{name} {headers:?} {}", reply.text());
    }
    let got = request(rig.admin(), "GET", "/cache/purge", &[BEARER], "");
    assert_eq!(send(rig.admin(), got).await.status, 405);
    let form = ("content-type", "text/plain");
    let form = request(rig.admin(), "POST", "/cache/purge", &[form, BEARER], sets);
    assert_eq!(send(rig.admin(), form).await.status, 415);
    // Without a token in the settings there are no commands.
    let off = rig_with(|_| {}).await;
    for headers in [&[][..], &[("authorization", "Bearer ")], &[BEARER]] {
        let reply = command(&off, "purge", headers, sets).await;
        assert_eq!(reply.status, 403);
        assert!(reply.text().contains("admin.token"));
    }
}
