//! A request has one kind of credentials, and only that kind is used.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::robustness::raw;
use crate::support::signer::{Payload, Signer};
use crate::support::{Reply, Rig, rig_holding, send, strict_rig};

async fn strict() -> Rig {
    let rig = strict_rig().await;
    rig.origin.store("bucket", "secret", "secret bytes");
    rig
}

/// Every spelling of a presigned upload that requests a copy is rejected and copies nothing.
#[tokio::test]
async fn a_presigned_upload_never_copies_in_any_spelling() {
    let rig = strict().await;
    let host = rig.s3().to_string();
    let url = Signer::known().presign("PUT", &host, "/bucket/key", 60);
    let copy = ("x-amz-copy-source", "/bucket/secret");
    let extra_header = ("authorization", "x SignedHeaders=host;x-amz-copy-source");
    let escaped = url.replace("X-Amz-SignedHeaders", "X%2DAmz-SignedHeaders");
    let twice = format!("{url}&X-Amz-SignedHeaders=host%3Bx-amz-copy-source");
    let lower = format!("{url}&x-amz-signedheaders=host%3Bx-amz-copy-source");
    let attempts: [(&str, &[(&str, &str)]); 5] = [
        (&url, &[copy]),
        (&url, &[copy, extra_header]),
        (&escaped, &[copy]),
        (&twice, &[copy]),
        (&lower, &[copy]),
    ];
    for (url, headers) in attempts {
        let response = rig.send("PUT", url, headers, "").await;
        assert!(
            matches!(response.status, 400 | 403),
            "{url} {headers:?}: {} {}",
            response.status,
            response.text()
        );
        assert_eq!(rig.origin.bytes("bucket", "key").unwrap(), "bytes");
    }
    // The escaped spelling is the same URL, with the same signature.
    assert_eq!(rig.send("PUT", &escaped, &[], "new").await.status, 200);
    assert_eq!(rig.origin.bytes("bucket", "key").unwrap(), "new");
}

#[tokio::test]
async fn signature_version_2_is_rejected_in_any_spelling() {
    let rig = strict().await;
    let query = Signer::known().presign_v2("/bucket/key");
    for query in [
        query.clone(),
        query.replace("AWSAccessKeyId", "AWSAccessKeyI%64"),
        query.replace("&Signature", "&Signatur%65"),
        query
            .replace("AWSAccessKeyId", "AWS%41ccessKeyId")
            .replace("&Signature", "&%53ignature"),
    ] {
        let response = rig.get(&format!("/bucket/key?{query}"), &[]).await;
        assert_eq!(
            (response.status, response.code()),
            (400, "InvalidRequest"),
            "{query}: {}",
            response.text()
        );
    }
}

#[tokio::test]
async fn two_kinds_of_credentials_are_rejected() {
    let rig = strict().await;
    let host = rig.s3().to_string();
    let url = Signer::known().presign("GET", &host, "/bucket/key", 60);
    let signed = || Signer::known().sign("GET", &host, "/bucket/key", &[], b"", Payload::Signed);

    let mut both = signed();
    *both.uri_mut() = url.parse().unwrap();
    assert_rejected(&send(rig.s3(), both).await);

    let mut twice = signed();
    let value = twice.headers()["authorization"].clone();
    twice.headers_mut().append("authorization", value);
    assert_rejected(&send(rig.s3(), twice).await);

    for value in ["Basic eDp5", "AWS FLOETESTKEY:c2lnbmF0dXJl", "\u{fc}"] {
        assert_rejected(&rig.get(&url, &[("authorization", value)]).await);
    }
    assert_eq!(rig.get(&url, &[]).await.text(), "bytes");
}

fn assert_rejected(response: &Reply) {
    assert_eq!(response.status, 400, "{}", response.text());
}

#[tokio::test]
async fn a_presigned_url_lasts_seven_days_at_most() {
    let rig = strict().await;
    let host = rig.s3().to_string();
    let week = 7 * 24 * 3600;
    let url = Signer::known().presign("GET", &host, "/bucket/key", week);
    assert_eq!(rig.get(&url, &[]).await.text(), "bytes");
    let url = Signer::known().presign("GET", &host, "/bucket/key", week + 1);
    let response = rig.get(&url, &[]).await;
    assert_eq!(
        (response.status, response.code()),
        (400, "AuthorizationQueryParametersError")
    );
}

/// The library would drop an unreadable header from the signature and the request.
#[tokio::test]
async fn an_unreadable_authorization_is_not_anonymous() {
    let rig = rig_holding("bucket", "key", "bytes").await;
    let request =
        b"GET /bucket/key HTTP/1.1\r\nhost: x\r\nauthorization: \xff\r\nconnection: close\r\n\r\n";
    let response = raw(&rig, request).await;
    assert!(response.starts_with(b"HTTP/1.1 400"), "{}", text(&response));
}

/// Without a signature the chunks' framing would stay in the body.
#[tokio::test]
async fn an_unsigned_chunked_upload_is_rejected() {
    let rig = rig_holding("bucket", "other", "").await;
    let body = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32c:mnG7TA==\r\n\r\n";
    let kind = ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    let coding = ("content-encoding", "aws-chunked");
    let attempts: [&[(&str, &str)]; 3] = [&[kind, coding], &[kind], &[coding]];
    for headers in attempts {
        let response = rig.send("PUT", "/bucket/key", headers, body).await;
        assert!(matches!(response.status, 400 | 501), "{}", response.status);
        assert_eq!(rig.origin.bytes("bucket", "key"), None);
    }
}

#[tokio::test]
async fn a_request_names_one_host() {
    let rig = rig_holding("bucket", "key", "bytes").await;
    for (head, status) in [
        ("GET /bucket/key HTTP/1.1\r\n", "400"),
        ("GET /bucket/key HTTP/1.1\r\nhost: a\r\nhost: a\r\n", "400"),
        ("GET /bucket/key HTTP/1.1\r\nhost: a\r\nhost: b\r\n", "400"),
        ("GET http://b/bucket/key HTTP/1.1\r\nhost: a\r\n", "400"),
        ("GET http://a/bucket/key HTTP/1.1\r\nhost: a\r\n", "200"),
        ("GET /bucket/key HTTP/1.1\r\nhost: a\r\n", "200"),
        ("GET /bucket/key HTTP/1.0\r\n", "200"),
    ] {
        let request = format!("{head}connection: close\r\n\r\n");
        let response = raw(&rig, request.as_bytes()).await;
        let response_text = text(&response);
        assert_eq!(
            response_text.split(' ').nth(1),
            Some(status),
            "{head}: {response_text}"
        );
    }
}

/// The response comes although the body is never sent.
#[tokio::test]
async fn forms_are_rejected_before_their_body() {
    let rig = rig_holding("bucket", "other", "").await;
    for content_type in [
        "multipart/form-data; boundary=x",
        "Multipart/Form-Data; boundary=x",
        "MULTIPART/FORM-DATA;boundary=\"x\"",
        " multipart/form-data ; boundary=x",
        "multipart/form-data",
    ] {
        let head = format!(
            "POST /bucket HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\
             content-type: {content_type}\r\nexpect: 100-continue\r\n\r\n"
        );
        let response = raw(&rig, head.as_bytes()).await;
        let response_text = text(&response).to_ascii_lowercase();
        assert!(
            response_text.starts_with("http/1.1 501"),
            "{content_type}: {response_text}"
        );
        assert!(
            response_text.contains("connection: close"),
            "{response_text}"
        );
    }
}

/// A client that waits for a 100 (Continue) gets none if there is nothing to send. Some then
/// mistake the answer for that of the next request on the connection.
#[tokio::test]
async fn an_answer_that_was_not_waited_for_ends_its_connection() {
    let rig = rig_holding("bucket", "other", "").await;
    for (length, closes) in [(0, true), (1, false)] {
        let head = format!(
            "PUT /bucket/key HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\
             expect: 100-continue\r\n\r\n"
        );
        let mut stream = TcpStream::connect(rig.s3()).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).await.unwrap();
        let status = if closes {
            "HTTP/1.1 200"
        } else {
            "HTTP/1.1 100"
        };
        assert_eq!(begin, status.as_bytes());
        if closes {
            let mut rest = String::new();
            stream.read_to_string(&mut rest).await.unwrap();
            assert!(rest.contains("connection: close"), "{rest}");
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
