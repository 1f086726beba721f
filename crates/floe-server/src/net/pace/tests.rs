use futures::stream;
use http_body_util::{BodyExt, StreamBody};

use super::*;
use crate::metrics::FrontendStatistics;

type Piece = Result<Frame<Bytes>, std::io::Error>;

fn body(
    pieces: Vec<Piece>,
    announced: u64,
) -> PacedBody<StreamBody<stream::Iter<std::vec::IntoIter<Piece>>>> {
    PacedBody::new(
        StreamBody::new(stream::iter(pieces)),
        Pace::new(Clock::real(), Duration::from_secs(60)),
        Some(announced),
        meter(&FrontendStatistics::default()),
    )
}

fn meter(statistics: &FrontendStatistics) -> RequestMeter {
    let counters = Arc::clone(&statistics.requests);
    RequestMeter::begin(counters, Clock::real(), &http::Method::GET)
}

fn piece(len: usize) -> Piece {
    Ok(Frame::data(Bytes::from(vec![7; len])))
}

#[tokio::test]
async fn exact_bodies_pass_in_bounded_pieces() {
    let statistics = FrontendStatistics::default();
    let counters = &statistics.requests;
    let mut body = PacedBody::new(
        StreamBody::new(stream::iter(vec![piece(600 << 10), piece(0), piece(1)])),
        Pace::new(Clock::real(), Duration::from_secs(60)),
        Some((600 << 10) + 1),
        meter(&statistics),
    );
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        let len = frame.unwrap().into_data().unwrap().len();
        assert!(len <= PIECE_BYTES);
        total += len;
    }
    assert_eq!(total, (600 << 10) + 1);
    let pace = Arc::clone(&body.pace);
    drop(body);
    assert_eq!(counters.sent_bytes.get(), total as u64);
    assert_eq!(counters.ended.get(), 1);
    assert!(pace.waiting.lock().is_empty());
}

#[tokio::test]
async fn short_long_and_failing_bodies_are_errors() {
    let short = body(vec![piece(3)], 4).collect().await;
    assert!(matches!(short, Err(BodyError::Short(1))));
    let long = body(vec![piece(3), piece(2)], 4).collect().await;
    assert!(matches!(long, Err(BodyError::Long)));
    let failed = body(vec![piece(3), Err(std::io::Error::other("gone"))], 4)
        .collect()
        .await;
    assert!(matches!(failed, Err(BodyError::Source(_))));
}

#[tokio::test]
async fn a_stalled_piece_is_noticed_and_a_slow_one_is_not() {
    let pace = Pace::new(Clock::real(), Duration::from_millis(20));
    let mut body = PacedBody::new(
        StreamBody::new(stream::iter(vec![piece(1), piece(1)])),
        Arc::clone(&pace),
        Some(2),
        meter(&FrontendStatistics::default()),
    );
    body.frame().await.unwrap().unwrap();
    pace.stalled().await;
    body.frame().await.unwrap().unwrap();
    assert!(body.frame().await.is_none());
    assert!(pace.waiting.lock().is_empty());
}
