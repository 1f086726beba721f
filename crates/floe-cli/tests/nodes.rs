//! Several nodes from the command line.

mod common;

use std::path::Path;

use common::{Serving, floe, run};

fn node(folder: &Path, data: &str, name: &str, ring: &str) -> Serving {
    let mut command = floe(folder);
    command.env("FLOE_DATA_DIR", folder.join(data));
    command
        .env("FLOE_NODE_NAME", name)
        .env("FLOE_NODE_RING", ring);
    Serving::spawn(command.env("FLOE_NODE_RING_HASH", "nutcracker"))
}

#[test]
fn the_state_of_nodes_is_shown_and_disagreement_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let ring = "10.0.0.1:11211:1 n1,10.0.0.2:11211:1 n2";
    let nodes = [
        node(folder.path(), "1", "n1", ring),
        node(folder.path(), "2", "n2", ring),
    ];
    let addresses = nodes.each_ref().map(|node| node.admin.to_string());
    let all = addresses.join(",");
    run(folder.path(), &["status", "--nodes", &all]).expect(0, &["n1", "n2", "confirmed"]);
    run(folder.path(), &["--json", "status", "--nodes", &all]).expect(0, &["\"ok\": true"]);

    let other = node(folder.path(), "3", "n2", "10.0.0.2:11211:1 n2,h:1:1 x");
    let three = format!("{all},{}", other.admin);
    let words = ["have the name `n2`", "the nodes disagree about the ring"];
    run(folder.path(), &["status", "--nodes", &three]).expect(1, &words);
    drop(other);
    run(folder.path(), &["status", "--nodes", &three]).expect(1, &["does not answer"]);
}

#[test]
fn the_state_of_a_node_is_read_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("c.pem"), folder.path().join("k.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut command = floe(folder.path());
    command.env("FLOE_ADMIN_TLS_CERTIFICATE", &certificate);
    let node = Serving::spawn(command.env("FLOE_ADMIN_TLS_KEY", &key));
    let url = format!("https://{}", node.admin);
    let ask = |arguments: &[&str]| {
        run(
            folder.path(),
            &[&["status", "--nodes", &url][..], arguments].concat(),
        )
    };
    ask(&["--ca", certificate.to_str().unwrap()]).expect(0, &["confirmed"]);
    ask(&[]).expect(1, &["--ca names no authorities"]);
    ask(&["--ca", key.to_str().unwrap()]).expect(2, &["it has no certificate"]);
    let plain = node.admin.to_string();
    run(folder.path(), &["status", "--nodes", &plain]).expect(1, &["does not answer"]);
}

#[test]
fn a_node_that_is_not_in_its_ring_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let ring = [
        "--node-ring",
        "10.0.0.1:11211:1 n1",
        "--node-ring-hash",
        "nutcracker",
    ];
    let named = [&["serve", "--node-name", "n9"], &ring[..]].concat();
    run(folder.path(), &named).expect(2, &["n9", "none of node.ring"]);
}

#[test]
fn peers_are_checked_with_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let check = |more: &[&str], code, words: &[&str]| {
        let command = [&["config", "check"], more].concat();
        run(folder.path(), &command).expect(code, words);
    };
    let open = ["--peers-listen", "10.0.0.1:9095"];
    check(
        &open,
        2,
        &[
            "peers.listen",
            "read every cached object",
            "set peers.secret",
        ],
    );
    check(
        &["--peers-nodes", "10.0.0.2:9095"],
        2,
        &["peers.nodes", "no effect without `peers.listen`"],
    );
    let secret = [&open[..], &["--peers-secret", "s"]].concat();
    check(&secret, 0, &["ok:"]);
    let wrong = [&secret[..], &["--peers-nodes", "http://10.0.0.2:9095"]].concat();
    check(
        &wrong,
        2,
        &["peers.nodes", "is no address", "10.0.0.11:9095"],
    );
    let expiring = [&secret[..], &["--object-consistency", "ttl"]].concat();
    check(
        &expiring,
        0,
        &[
            "warning: ",
            "object.consistency is `ttl` and there are peers",
        ],
    );
}

#[test]
fn a_new_node_takes_objects_from_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let objects = folder.path().join("objects/bucket");
    std::fs::create_dir_all(&objects).unwrap();
    let bytes = vec![7; 700_000];
    std::fs::write(objects.join("key"), &bytes).unwrap();
    let node = |data: &str, nodes: &str| {
        let mut command = floe(folder.path());
        command
            .env("FLOE_DATA_DIR", folder.path().join(data))
            .env("FLOE_ORIGIN_ROOT", folder.path().join("objects"))
            .env("FLOE_S3_ANONYMOUS", "true")
            .env("FLOE_PEERS_LISTEN", "127.0.0.1:0")
            .env("FLOE_PEERS_NODES", nodes);
        Serving::spawn(&mut command)
    };
    let get = |node: &Serving| {
        let address = node.announced["s3"].as_str().unwrap();
        let (status, answer) = common::get(address.parse().unwrap(), "/bucket/key");
        assert_eq!((status, answer.len()), (200, bytes.len()));
        assert!(answer == bytes);
    };
    let old = node("1", "");
    get(&old);
    let new = node("2", old.announced["peers"].as_str().unwrap());
    get(&new);
    let (_, metrics) = common::get(new.admin, "/metrics");
    let metrics = String::from_utf8(metrics).unwrap();
    assert!(
        metrics.contains("\nfloe_object_peer_bytes_total 700000\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("\nfloe_object_fetches_total 0\n"),
        "{metrics}"
    );
}
