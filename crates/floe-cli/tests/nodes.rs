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
