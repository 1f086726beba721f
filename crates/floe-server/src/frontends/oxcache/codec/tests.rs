use proptest::prelude::*;

use super::*;

fn get(key: &str, offset: u64, size: u64) -> Request {
    Request::Get {
        key: key.into(),
        offset,
        size,
    }
}

/// Frames written by hand from the format's description, not by this codec.
#[test]
fn known_frames() {
    let frame = encode_request(&get("7", 0, 65536)).unwrap();
    // length 9: variant 0, string of 1 byte, 0, then 65536 as a 32-bit varint (252).
    assert_eq!(&frame[..], [0, 0, 0, 9, 0, 1, b'7', 0, 252, 0, 0, 1, 0]);
    assert_eq!(
        &encode_request(&Request::Close).unwrap()[..],
        [0, 0, 0, 1, 1]
    );
    // 300 bytes of data: variant 1, then 300 as a 16-bit varint (251).
    assert_eq!(
        &response_head(300).unwrap()[..],
        [0, 0, 1, 48, 1, 251, 44, 1]
    );
    assert_eq!(&error_frame("no")[..], [0, 0, 0, 4, 0, 2, b'n', b'o']);
}

#[test]
fn a_partial_frame_waits_for_the_rest() {
    let frame = encode_request(&get("key", 1 << 40, 7)).unwrap();
    for cut in 0..frame.len() {
        assert_eq!(decode(&frame[..cut]), Ok(None), "cut at {cut}");
    }
    let decoded = decode(&frame).unwrap().unwrap();
    assert_eq!(decoded.consumed, frame.len());
    assert_eq!(decoded.request, get("key", 1 << 40, 7));
}

#[test]
fn invalid_frames_are_rejected() {
    assert_eq!(decode(&[0, 0, 0, 0]), Err(FrameError::Length { len: 0 }));
    assert!(matches!(
        decode(b"GET / HTTP/1.1"),
        Err(FrameError::Length { .. })
    ));
    // An unknown variant.
    assert!(matches!(
        decode(&[0, 0, 0, 1, 9]),
        Err(FrameError::Encoding(_))
    ));
    // A string with an announced length of 2^63 bytes.
    let mut claim = vec![0, 0, 0, 10, 0, 253];
    claim.extend((1u64 << 63).to_le_bytes());
    assert!(matches!(decode(&claim), Err(FrameError::Encoding(_))));
    // Not UTF-8.
    assert!(matches!(
        decode(&[0, 0, 0, 5, 0, 1, 0xff, 0, 0]),
        Err(FrameError::Encoding(_))
    ));
    assert_eq!(decode(&[0, 0, 0, 2, 1, 1]), Err(FrameError::Trailing(1)));
    assert!(encode_request(&get(&"k".repeat(9000), 0, 0)).is_err());
}

#[test]
fn responses_with_a_wrong_length_are_rejected() {
    let mut claim = vec![1, 253];
    claim.extend(u64::MAX.to_le_bytes());
    for (body, what) in [
        (&claim[..], "2^64 bytes"),
        (&[1, 2, b'a'], "one byte more"),
        (&[7, 1, b'a'], "an unknown answer"),
        (&[0, 1, 0xff], "a text that is not UTF-8"),
        (&[], "nothing"),
    ] {
        assert!(
            matches!(decode_response(body), Err(FrameError::Encoding(_))),
            "{what}"
        );
    }
    assert_eq!(decode_response(&[1, 0, 1]), Err(FrameError::Trailing(1)));
}

#[test]
fn responses_too_long_for_their_length_field_have_no_head() {
    assert!(response_head(u64::from(u32::MAX) - 6).is_some());
    assert!(response_head(u64::from(u32::MAX) - 5).is_none());
    assert!(response_head(u64::MAX).is_none());
}

proptest! {
    #[test]
    fn requests_round_trip(key in "\\PC{0,200}", offset: u64, size: u64, tail: Vec<u8>) {
        let request = get(&key, offset, size);
        let frame = encode_request(&request).unwrap();
        let mut bytes = frame.to_vec();
        bytes.extend(tail);
        prop_assert_eq!(decode(&bytes), Ok(Some(Decoded { request, consumed: frame.len() })));
    }

    #[test]
    fn answers_round_trip(data: Vec<u8>, message in "\\PC{0,2000}") {
        let head = response_head(data.len() as u64).unwrap();
        let mut frame = head.to_vec();
        frame.extend(&data);
        let (len, body) = frame.split_at(LENGTH_BYTES);
        prop_assert_eq!(u32::from_be_bytes(len.try_into().unwrap()) as usize, body.len());
        prop_assert_eq!(decode_response(body), Ok(Response::Response(data)));

        let frame = error_frame(&message);
        let Ok(Response::Error(text)) = decode_response(&frame[LENGTH_BYTES..]) else {
            panic!("not an error frame");
        };
        prop_assert!(message.starts_with(&text));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        if let Ok(Some(decoded)) = decode(&bytes) {
            prop_assert!(decoded.consumed <= bytes.len());
        }
    }
}
