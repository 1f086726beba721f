//! Attacks on the S3 frontend.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::blackbox::http::{Connection, Response};
use crate::blackbox::origin::{Behaviour, Origin};
use crate::blackbox::scenario::Place;
use crate::blackbox::server::Server;
use crate::blackbox::signature::{ACCESS_KEY, SECRET_KEY, presign_v4, sign_v2};

const SECRET: &[u8] = b"nobody may copy this";

/// A server for signed requests only, over a directory with `demo/secret`.
fn signed_server(place: &Place) -> Result<Server> {
    let bucket = place.folder.join("origin/demo");
    fs::create_dir_all(&bucket)?;
    fs::write(bucket.join("secret"), SECRET)?;
    Server::start(&place.setup(vec![format!("--s3-keys={ACCESS_KEY}:{SECRET_KEY}")]))
}

/// An anonymous server over a directory.
fn open_server(place: &Place, more: &[&str]) -> Result<Server> {
    fs::create_dir_all(place.folder.join("origin/demo"))?;
    Server::start(&place.setup(more.iter().map(|&flag| flag.to_owned()).collect()))
}

/// A presigned URL for an upload permits only the upload.
pub(super) fn presigned_copy(place: &Place) -> Result<()> {
    let server = signed_server(place)?;
    let url = presign_v4("PUT", server.s3, "/demo/target", 300);
    let spelled = url.replace("X-Amz-SignedHeaders", "X%2DAmz-SignedHeaders");
    let source = ("x-amz-copy-source", "/demo/secret".to_owned());
    let fake = "x SignedHeaders=host;x-amz-copy-source".to_owned();
    let attempts = [
        ("a header", &url, vec![source.clone()]),
        ("a spelled parameter", &spelled, vec![source.clone()]),
        (
            "an Authorization header beside it",
            &url,
            vec![source.clone(), ("Authorization", fake.clone())],
        ),
        (
            "both",
            &spelled,
            vec![source.clone(), ("authorization", fake)],
        ),
    ];
    for (name, url, headers) in attempts {
        let response = Connection::open(server.s3)?.request("PUT", url, &headers, b"")?;
        let copied = fs::read(place.folder.join("origin/demo/target")).ok();
        ensure!(
            copied.as_deref() != Some(SECRET),
            "{name}: the object was copied"
        );
        ensure!(
            response.status >= 400,
            "{name}: answered with {}",
            response.status
        );
    }
    let response = Connection::open(server.s3)?.request("PUT", &url, &[], b"uploaded")?;
    ensure!(
        response.status == 200,
        "an honest upload: {}",
        shown(&response)
    );
    server.stop()
}

/// Version 2 is rejected in every spelling.
pub(super) fn old_signatures(place: &Place) -> Result<()> {
    let server = signed_server(place)?;
    let (expires, signature) = sign_v2("GET", "/demo/secret");
    for key in ["AWSAccessKeyId", "AWSAccessKeyI%64", "%41WSAccessKeyId"] {
        let url =
            format!("/demo/secret?{key}={ACCESS_KEY}&Expires={expires}&Signature={signature}");
        assert_rejected(server.s3, &url).with_context(|| key.to_owned())?;
    }
    server.stop()
}

/// Seven days are the limit, as at Amazon.
pub(super) fn long_presign(place: &Place) -> Result<()> {
    const WEEK_S: u64 = 7 * 24 * 3600;
    let server = signed_server(place)?;
    let url = presign_v4("GET", server.s3, "/demo/secret", WEEK_S + 1);
    assert_rejected(server.s3, &url)?;
    let url = presign_v4("GET", server.s3, "/demo/secret", WEEK_S);
    let response = Connection::open(server.s3)?.request("GET", &url, &[], b"")?;
    ensure!(response.status == 200, "a week: {}", shown(&response));
    server.stop()
}

fn assert_rejected(s3: SocketAddr, url: &str) -> Result<()> {
    let response = Connection::open(s3)?.request("GET", url, &[], b"")?;
    ensure!(
        (400..500).contains(&response.status) && response.body != SECRET,
        "not rejected: {}",
        shown(&response)
    );
    Ok(())
}

/// RFC 9112, section 3.2: exactly one.
pub(super) fn host_headers(place: &Place) -> Result<()> {
    let server = open_server(place, &[])?;
    for hosts in ["", "Host: a\r\nHost: b\r\n"] {
        let mut stream = TcpStream::connect(server.s3)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(format!("GET / HTTP/1.1\r\n{hosts}\r\n").as_bytes())?;
        let status = status(&mut stream)?;
        ensure!(status == 400, "{hosts:?}: status {status}");
    }
    server.stop()
}

/// A condition is honoured or rejected; if it fails, the object stays.
pub(super) fn conditional_deletes(place: &Place) -> Result<()> {
    let server = open_server(place, &[])?;
    let object = place.folder.join("origin/demo/kept");
    let conditions = [
        "<ETag>\"0123456789abcdef0123456789abcdef\"</ETag>",
        "<Size>1</Size>",
        "<LastModifiedTime>Thu, 01 Jan 1970 00:00:00 GMT</LastModifiedTime>",
    ];
    for condition in conditions {
        fs::write(&object, b"still here")?;
        let body =
            format!("<Delete><Object><Key>kept</Key>{condition}</Object></Delete>").into_bytes();
        let headers = [("Content-MD5", md5(&body))];
        let response =
            Connection::open(server.s3)?.request("POST", "/demo?delete", &headers, &body)?;
        ensure!(
            object.exists(),
            "{condition}: deleted, {}",
            shown(&response)
        );
        ensure!(
            response.status >= 400 || shown(&response).contains("<Error>"),
            "{condition}: no error: {}",
            shown(&response)
        );
    }
    server.stop()
}

fn md5(bytes: &[u8]) -> String {
    use base64::Engine as _;
    use md5::Digest as _;
    base64::engine::general_purpose::STANDARD.encode(md5::Md5::digest(bytes))
}

/// A form is rejected before its file is read.
pub(super) fn form_uploads(place: &Place) -> Result<()> {
    const FILE_MIB: usize = 96;
    const GROWTH_MIB_MAX: u64 = 32;
    let server = open_server(place, &[])?;
    let before = server.peak_rss_bytes()? >> 20;
    for content_type in [
        "Multipart/Form-Data; boundary=x",
        "MULTIPART/FORM-DATA;boundary=x",
        "multipart/form-data; boundary=x",
    ] {
        let mut stream = TcpStream::connect(server.s3)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        let head = format!(
            "POST /demo HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\n\
             Content-Length: {}\r\n\r\n--x\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\n\
             k\r\n--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n",
            (FILE_MIB << 20) + 1000
        );
        stream.write_all(head.as_bytes())?;
        let piece = vec![b'f'; 1 << 20];
        // The server may close the connection after the rejection.
        let _ = (0..FILE_MIB).try_for_each(|_| stream.write_all(&piece));
        if let Ok(status) = status(&mut stream) {
            ensure!(status >= 400, "{content_type}: status {status}");
        }
    }
    let grown = (server.peak_rss_bytes()? >> 20).saturating_sub(before);
    ensure!(
        grown <= GROWTH_MIB_MAX,
        "{grown} MiB of memory for forms of {FILE_MIB} MiB that are rejected"
    );
    server.stop()
}

/// Uploads that stall do not block reads of other clients.
pub(super) fn stalled_uploads(place: &Place) -> Result<()> {
    const UPLOADS: usize = 300;
    const PATIENCE: Duration = Duration::from_secs(5);
    // In `etag` mode every read sends a request to the origin.
    let mut setup = place.setup(Vec::new());
    setup.consistency = "etag";
    let bucket = place.folder.join("origin/demo");
    fs::create_dir_all(&bucket)?;
    fs::write(bucket.join("read"), b"a hit")?;
    let server = Server::start(&setup)?;
    let get = || -> Result<()> {
        let mut connection = Connection::open_with_patience(server.s3, PATIENCE)?;
        let response = connection.request("GET", "/demo/read", &[], b"")?;
        ensure!(response.body == b"a hit", "{}", shown(&response));
        Ok(())
    };
    get()?;
    let mut uploads = Vec::new();
    for number in 0..UPLOADS {
        let mut stream = TcpStream::connect(server.s3)?;
        let head = format!(
            "PUT /demo/stalled-{number} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nx"
        );
        stream.write_all(head.as_bytes())?;
        uploads.push(stream);
    }
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..20 {
        get().context("a read while uploads stall")?;
    }
    let mut connection = Connection::open_with_patience(server.s3, PATIENCE)?;
    let response = connection.request("PUT", "/demo/honest", &[], b"whole")?;
    ensure!(
        response.status == 200,
        "an honest upload while others stall: {}",
        shown(&response)
    );
    drop(uploads);
    server.stop()
}

/// A redirect to another port is not followed.
pub(super) fn redirects(place: &Place) -> Result<()> {
    let origin = Origin::start()?;
    let server = Server::start(&place.setup(origin.flags()))?;
    origin.be(Behaviour::Elsewhere(server.admin));
    let response = Connection::open(server.s3)?.request("GET", "/bucket/a", &[], b"")?;
    ensure!(
        response.status >= 400 && !shown(&response).contains("floe_"),
        "the metrics were served as an object: {}",
        response.status
    );
    server.stop()
}

fn status(stream: &mut TcpStream) -> Result<u16> {
    let began = Instant::now();
    let mut received = Vec::new();
    let mut piece = [0; 1024];
    while !received.windows(2).any(|end| end == b"\r\n") && began.elapsed().as_secs() < 20 {
        let read = stream.read(&mut piece)?;
        if read == 0 {
            break;
        }
        received.extend_from_slice(&piece[..read]);
    }
    let line = String::from_utf8_lossy(&received).into_owned();
    match line.split(' ').nth(1).and_then(|code| code.parse().ok()) {
        Some(status) => Ok(status),
        None => bail!("no status line: {line:?}"),
    }
}

fn shown(response: &Response) -> String {
    format!(
        "{} {}",
        response.status,
        String::from_utf8_lossy(&response.body)
    )
}
