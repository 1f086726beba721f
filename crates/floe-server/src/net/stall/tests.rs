use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

#[tokio::test]
async fn a_write_that_the_client_does_not_read_fails() {
    let (near, far) = tokio::io::duplex(16);
    let mut guarded = StallGuard::new(near, Clock::real(), Duration::from_millis(20));
    let error = guarded.write_all(&[0; 64]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(far);
}

#[tokio::test]
async fn a_slow_reader_is_served_while_it_makes_progress() {
    let (near, mut far) = tokio::io::duplex(16);
    let mut guarded = StallGuard::new(near, Clock::real(), Duration::from_secs(30));
    let writer = async {
        guarded.write_all(&[7; 4096]).await.unwrap();
        guarded.shutdown().await.unwrap();
    };
    let reader = async {
        let mut all = Vec::new();
        let mut piece = [0; 3];
        loop {
            let n = far.read(&mut piece).await.unwrap();
            if n == 0 {
                return all;
            }
            all.extend_from_slice(&piece[..n]);
            tokio::task::yield_now().await;
        }
    };
    let ((), all) = tokio::join!(writer, reader);
    assert_eq!(all, [7; 4096]);
}

/// While the HTTP library waits to detect the version, the guard limits the time.
#[tokio::test]
async fn a_connection_must_begin_in_time() {
    for (begin, ends) in [
        (&b""[..], true),
        (b"PRI * HTTP/2.0\r\n", true),
        (b"P", true),
        (b"GET", false),
        (PREFACE, false),
    ] {
        let (near, mut far) = tokio::io::duplex(64);
        let limit = Duration::from_millis(20);
        let mut guarded = StallGuard::new(near, Clock::real(), limit).with_opening_limit(limit);
        far.write_all(begin).await.unwrap();
        let mut received = vec![0; begin.len()];
        guarded.read_exact(&mut received).await.unwrap();
        assert_eq!(guarded.opening.is_some(), ends, "{begin:?}");
        if ends {
            let error = guarded.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        } else {
            far.write_all(b"x").await.unwrap();
            assert_eq!(guarded.read_u8().await.unwrap(), b'x');
        }
    }
}
