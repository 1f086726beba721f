use floe_device::virtual_time;
use http_body_util::{BodyExt, StreamBody};

use super::*;

type Piece = Result<Frame<Bytes>, std::io::Error>;

/// `count` pieces of `bytes` each, with a pause before each.
fn pieces(
    clock: &Clock,
    bytes: usize,
    pause: Duration,
    count: usize,
) -> impl futures::Stream<Item = Piece> + Unpin + use<> {
    let clock = clock.clone();
    Box::pin(futures::stream::unfold(0, move |sent| {
        let clock = clock.clone();
        async move {
            if sent == count {
                return None;
            }
            clock.sleep(pause).await;
            Some((Ok(Frame::data(vec![7; bytes].into())), sent + 1))
        }
    }))
}

/// The bytes that arrive before the body ends or fails, and the time of failure.
fn received(rate: u64, bytes: usize, pause: Duration, count: usize) -> (usize, Option<Duration>) {
    virtual_time::run(1, |clock| async move {
        let pace = UploadPace {
            stall_timeout: Duration::from_secs(60),
            min_bytes_per_second: rate,
        };
        let begun = clock.now();
        let inner = StreamBody::new(pieces(&clock, bytes, pause, count));
        let mut body = TimedBody::new(inner, clock.clone(), pace);
        let mut received = 0;
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => received += frame.into_data().unwrap().len(),
                Err(_) => return (received, Some(clock.now().since(begun))),
            }
        }
        (received, None)
    })
}

#[test]
fn an_upload_below_the_least_rate_is_cut_off_after_the_timeout() {
    let (bytes, when) = received(1000, 1, Duration::from_secs(10), 1000);
    assert!(bytes < 10, "{bytes}");
    let seconds = when.unwrap().as_secs_f64();
    assert!((60.0..61.0).contains(&seconds), "{seconds}");
}

/// A fast start gains at most one timeout.
#[test]
fn a_fast_beginning_earns_at_most_one_timeout() {
    let (_, when) = received(1000, 10 << 20, Duration::from_secs(61), 1);
    assert_eq!(when, Some(Duration::from_secs(60)));
}

#[test]
fn clients_at_the_least_rate_are_served() {
    let second = Duration::from_secs(1);
    assert_eq!(received(1000, 1000, second, 500), (500_000, None));
    // In bursts that are less than the timeout apart.
    assert_eq!(received(1000, 50_000, 50 * second, 20), (1_000_000, None));
    assert_eq!(received(0, 1, 59 * second, 20), (20, None));
    assert!(received(0, 1, 61 * second, 2).1.is_some());
}
