//! Crowds of clients that hold on to resources, and signals while clients are busy.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::blackbox::http::Connection;
use crate::blackbox::memcached::Client;
use crate::blackbox::scenario::{Place, USAGE};
use crate::blackbox::server::Server;
use crate::blackbox::signature::{ACCESS_KEY, presign_v4_by};

/// Timeout of a well-behaved client beside a crowd.
const PATIENCE: Duration = Duration::from_secs(5);

fn connections(address: SocketAddr, count: usize) -> Result<Vec<TcpStream>> {
    (0..count)
        .map(|_| TcpStream::connect(address).context("connecting"))
        .collect()
}

fn in_time(began: Instant, what: &str) -> Result<()> {
    let took = began.elapsed();
    ensure!(took < PATIENCE, "{what} took {took:?}");
    Ok(())
}

fn ready(server: &Server) -> Result<()> {
    let mut connection = Connection::open_with_patience(server.admin, PATIENCE)?;
    let response = connection.request("GET", "/ready", &[], b"")?;
    ensure!(response.status == 200, "/ready: {}", response.status);
    Ok(())
}

/// Health checks have their own connections.
pub(super) fn idle_admin(place: &Place) -> Result<()> {
    let server = Server::start(&place.setup(Vec::new()))?;
    let crowd = connections(server.admin, 200)?;
    ready(&server).context("beside 200 idle connections")?;
    drop(crowd);
    server.stop()
}

/// Idle connections are closed for new ones at the limit.
pub(super) fn idle_s3(place: &Place) -> Result<()> {
    std::fs::create_dir_all(place.folder.join("origin/demo"))?;
    let server = Server::start(&place.setup(vec!["--s3-max-connections=64".to_owned()]))?;
    let crowd = connections(server.s3, 128)?;
    for _ in 0..10 {
        let mut connection = Connection::open_with_patience(server.s3, PATIENCE)?;
        let response = connection
            .request("GET", "/demo?list-type=2", &[], b"")
            .context("beside idle connections")?;
        ensure!(response.status == 200, "status {}", response.status);
    }
    drop(crowd);
    server.stop()
}

/// Memory is taken as bytes arrive, not when they are announced.
pub(super) fn announced_sets(place: &Place) -> Result<()> {
    let server = Server::start(&place.setup(Vec::new()))?;
    let mut crowd = connections(server.memcached, 200)?;
    for (number, stream) in crowd.iter_mut().enumerate() {
        stream.write_all(format!("set held-{number} 0 0 1000000\r\nabc").as_bytes())?;
    }
    std::thread::sleep(Duration::from_millis(300));
    let mut client = Client::open(server.memcached)?;
    for number in 0..50 {
        let key = format!("key-{number}");
        let began = Instant::now();
        let response = client.store("set", &key, &vec![b'v'; 10_000], None)?;
        ensure!(response == "STORED", "a set beside the crowd: {response}");
        ensure!(client.get(&key)?.is_some(), "what was set is not found");
        in_time(began, "a set and a get")?;
    }
    drop(crowd);
    server.stop()
}

/// Clients that do not read their responses block no other client's reads of flash.
pub(super) fn silent_readers(place: &Place) -> Result<()> {
    const ITEMS: usize = 64;
    let server = Server::start(&place.setup(Vec::new()))?;
    let mut client = Client::open(server.memcached)?;
    let key = |number: usize| format!("key-{number}");
    for number in 0..ITEMS {
        let response = client.store("set", &key(number), &vec![b'v'; 500_000], None)?;
        ensure!(response == "STORED", "{response}");
    }
    let request: String = (0..ITEMS)
        .map(|number| format!("get {}\r\n", key(number)))
        .collect();
    let mut crowd = connections(server.memcached, 300)?;
    for stream in &mut crowd {
        stream.write_all(request.as_bytes())?;
    }
    std::thread::sleep(Duration::from_millis(300));
    let mut client = Client::open(server.memcached)?;
    for number in 0..ITEMS {
        let began = Instant::now();
        // The item may have been evicted, but a response must come.
        client.get(&key(number)).context("a get beside the crowd")?;
        in_time(began, "a get")?;
    }
    drop(crowd);
    server.stop()
}

/// At shutdown, connections are closed between requests.
pub(super) fn busy_stop(place: &Place) -> Result<()> {
    const CLIENTS: usize = 50;
    const STOP_MAX: Duration = Duration::from_secs(5);
    let server = Server::start(&place.setup(Vec::new()))?;
    let address = server.memcached;
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let stopped = &stopped;
            scope.spawn(move || -> std::io::Result<()> {
                let mut client = Client::open(address)?;
                let key = format!("key-{number}");
                let burst: Vec<(&str, Vec<u8>)> = vec![(&key, vec![b'v'; 1_000]); 100];
                while !stopped.load(Ordering::Relaxed) {
                    client.set_all(&burst)?;
                    client.get_all(&[key.as_str(); 100])?;
                }
                Ok(())
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        let began = Instant::now();
        let result = server.stop();
        stopped.store(true, Ordering::Relaxed);
        result?;
        ensure!(
            began.elapsed() < STOP_MAX,
            "it took {:?} to stop",
            began.elapsed()
        );
        Ok(())
    })
}

/// SIGHUP ends no connection and replaces the keys; an invalid configuration changes nothing.
pub(super) fn hang_up(place: &Place) -> Result<()> {
    const FIRST: &str = "first-secret-key";
    const SECOND: &str = "second-secret-key";
    let setup = place.setup(Vec::new());
    let file = setup.data_dir.join("rotated.toml");
    let rotate = |secret: &str, rest: &str| {
        let key = format!("access_key = \"{ACCESS_KEY}\"\nsecret_key = \"{secret}\"");
        std::fs::write(&file, format!("[[s3.keys]]\n{key}\n{rest}"))
    };
    rotate(FIRST, "")?;
    let more = vec![format!("--config={}", file.display())];
    let server = Server::start(&place.setup(more))?;
    let is_known = |secret: &str| -> Result<bool> {
        let url = presign_v4_by(secret, "GET", server.s3, "/demo/none", 300);
        let response = Connection::open(server.s3)?.request("GET", &url, &[], b"")?;
        ensure!([403, 404].contains(&response.status), "{}", response.status);
        Ok(response.status == 404)
    };
    ensure!(is_known(FIRST)? && !is_known(SECOND)?, "before the change");
    for (secret, rest) in [(SECOND, ""), (FIRST, "[nonsense]\n"), ("short", "")] {
        rotate(secret, rest)?;
        server.signal("HUP")?;
        let began = Instant::now();
        while !is_known(SECOND)? && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(100));
        ensure!(is_known(SECOND)?, "the new key is rejected");
        ensure!(!is_known(FIRST)?, "the old key is taken");
        ready(&server)?;
    }
    server.stop()
}

/// Without authentication, public addresses need explicit permission.
pub(super) fn open_to_the_network(place: &Place) -> Result<()> {
    let small = ["--device-size=64MiB", "--device-zone-size=4MiB"];
    for (flag, word) in [
        ("--memcached-listen=0.0.0.0:0", "memcached"),
        ("--admin-listen=0.0.0.0:0", "admin"),
    ] {
        let mut arguments = vec!["serve", flag];
        arguments.extend(small);
        place.assert_fails(&arguments, USAGE, &[word])?;
    }
    Ok(())
}
