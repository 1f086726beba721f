//! OxCache's frames: requests read as the server does, responses as a client does.
//!
//! An input is read unchanged as a stream of frames, and once more as the payload
//! of one frame with the right length, so that the payload's decoder is reached.

use floe_server::oxcache::codec::{
    Decoded, LENGTH_BYTES, REQUEST_BYTES_MAX, Request, Response, decode, decode_response,
    encode_request, error_frame, response_head,
};

pub(crate) fn oxcache_frames(data: &[u8]) {
    requests(data);
    let payload = &data[..data.len().min(REQUEST_BYTES_MAX)];
    requests(&[&(payload.len() as u32).to_be_bytes(), payload].concat());
    oxcache_response(data);
}

/// Reads frames as a connection does, up to an invalid or incomplete one.
fn requests(mut stream: &[u8]) {
    while let Ok(Some(Decoded { request, consumed })) = decode(stream) {
        assert!(consumed > LENGTH_BYTES && consumed <= LENGTH_BYTES + REQUEST_BYTES_MAX);
        let (frame, rest) = stream.split_at(consumed);
        for cut in [0, LENGTH_BYTES - 1, LENGTH_BYTES, consumed - 1] {
            assert_eq!(decode(&frame[..cut]), Ok(None), "cut at {cut}");
        }
        assert_eq!(decode(frame).as_ref(), decode(stream).as_ref());
        written_again(&request, consumed);
        stream = rest;
    }
}

/// Numbers have several encodings; the encoder chooses the shortest.
fn written_again(request: &Request, read_bytes: usize) {
    let Ok(frame) = encode_request(request) else {
        panic!("a request that was read cannot be written");
    };
    assert!(frame.len() <= read_bytes);
    let expected = Decoded {
        request: request.clone(),
        consumed: frame.len(),
    };
    assert_eq!(decode(&frame), Ok(Some(expected)));
}

fn oxcache_response(payload: &[u8]) {
    let Ok(response) = decode_response(payload) else {
        return;
    };
    match &response {
        Response::Response(bytes) => {
            let head = response_head(bytes.len() as u64).unwrap_or_default();
            let frame = [&head, &bytes[..]].concat();
            assert_eq!(decode_response(announced(&frame)), Ok(response));
        }
        Response::Error(message) => {
            let frame = error_frame(message);
            let Ok(Response::Error(sent)) = decode_response(announced(&frame)) else {
                panic!("an error frame cannot be read");
            };
            assert!(message.starts_with(&sent));
            assert!(sent.len() == message.len() || sent.len() > 1000);
        }
    }
}

/// A frame with the rest of the input as its payload.
fn announced(frame: &[u8]) -> &[u8] {
    let Some((length, payload)) = frame.split_first_chunk::<LENGTH_BYTES>() else {
        panic!("a frame has no length");
    };
    assert_eq!(u32::from_be_bytes(*length) as usize, payload.len());
    payload
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let get = |key: &str, offset, size| Request::Get {
        key: key.into(),
        offset,
        size,
    };
    let requests = [
        get("7", 0, 65536),
        get("a/longer/key-é", 1 << 40, 300),
        get(&"k".repeat(1024), u64::MAX, u64::MAX),
        Request::Close,
    ];
    let frames: Vec<Vec<u8>> = requests
        .iter()
        .filter_map(|request| encode_request(request).ok())
        .map(|frame| frame.to_vec())
        .collect();
    let mut seeds = vec![frames.concat()];
    for frame in &frames {
        seeds.push(frame.clone());
        seeds.push(frame[LENGTH_BYTES..].to_vec());
    }
    let data = [7; 300];
    let head = response_head(data.len() as u64).unwrap_or_default();
    seeds.push([&head[LENGTH_BYTES..], &data].concat());
    seeds.push(error_frame("there is no such object")[LENGTH_BYTES..].to_vec());
    seeds
}
