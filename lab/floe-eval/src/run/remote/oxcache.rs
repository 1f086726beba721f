//! OxCache's protocol: frames with a 4-byte big-endian length, and in them
//! bincode 2's "standard" encoding of
//!
//! ```text
//! enum Request     { Get { key: String, offset: u64, size: u64 }, Close }
//! enum GetResponse { Error(String), Response(Bytes) }
//! ```
//!
//! Numbers, lengths and the numbers of variants have variable length: one byte
//! below 251, otherwise a byte with the length of the following little-endian
//! number.

use floe::origin::ObjectKey;

use super::ask::Ask;
use super::pipe::{Broken, Input, Output, Wire, junk};
use crate::metrics::Served;
use crate::run::response::{Failure, Response};

const GET: u64 = 0;
const ERROR: u64 = 0;
const RESPONSE: u64 = 1;

/// Longest error message that is read.
const MESSAGE_BYTES_MAX: u64 = 64 << 10;

/// The protocol.
#[derive(Clone)]
pub(super) struct OxCache;

impl Wire for OxCache {
    async fn encode(
        &self,
        output: &mut Output,
        name: &ObjectKey,
        ask: &Ask,
    ) -> Result<Result<(), Failure>, Broken> {
        let Ask::Get { offset, length, .. } = ask else {
            return Ok(Err(Failure::Failed(
                "OxCache's protocol has no writes and no deletes".into(),
            )));
        };
        output.put(&get_frame(name.key(), *offset, *length));
        Ok(Ok(()))
    }

    async fn decode(
        &self,
        input: &mut Input,
        _name: &ObjectKey,
        ask: Ask,
    ) -> Result<Result<Response, Failure>, Broken> {
        let frame_bytes = u64::from(u32::from_be_bytes(input.exact().await?));
        let (variant, variant_bytes) = number(input).await?;
        let (length, length_bytes) = number(input).await?;
        let expected = variant_bytes + length_bytes;
        if frame_bytes.checked_sub(expected) != Some(length) {
            return Err(junk(format!(
                "a frame of {frame_bytes} bytes holds {length} bytes and {expected} before them"
            )));
        }
        match (variant, ask) {
            (RESPONSE, Ask::Get { mut check, .. }) => {
                let checked = input.value(length, &mut check).await?;
                Ok(checked.and_then(|()| check.finish(Served::Read)))
            }
            (ERROR, _) if length <= MESSAGE_BYTES_MAX => {
                let message = message(input, length).await?;
                Ok(Err(Failure::Failed(format!("the server says: {message}"))))
            }
            (variant, _) => Err(junk(format!("response {variant} of {length} bytes"))),
        }
    }

    async fn greet(&self, _output: &mut Output, _input: &mut Input) -> Result<(), Broken> {
        Ok(())
    }
}

/// The frame that requests bytes of an object.
fn get_frame(key: &str, offset: u64, size: u64) -> Vec<u8> {
    let mut frame = vec![0; 4];
    put_number(GET, &mut frame);
    put_number(key.len() as u64, &mut frame);
    frame.extend_from_slice(key.as_bytes());
    put_number(offset, &mut frame);
    put_number(size, &mut frame);
    // A key is far shorter than 4 GiB.
    let length = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

fn put_number(number: u64, into: &mut Vec<u8>) {
    let bytes = number.to_le_bytes();
    match number {
        0..=250 => into.push(bytes[0]),
        251..=0xffff => {
            into.push(251);
            into.extend_from_slice(&bytes[..2]);
        }
        0x1_0000..=0xffff_ffff => {
            into.push(252);
            into.extend_from_slice(&bytes[..4]);
        }
        _ => {
            into.push(253);
            into.extend_from_slice(&bytes);
        }
    }
}

/// A number, and its encoded length in bytes.
async fn number(input: &mut Input) -> Result<(u64, u64), Broken> {
    let [first] = input.exact().await?;
    Ok(match first {
        0..=250 => (u64::from(first), 1),
        251 => (u64::from(u16::from_le_bytes(input.exact().await?)), 3),
        252 => (u64::from(u32::from_le_bytes(input.exact().await?)), 5),
        253 => (u64::from_le_bytes(input.exact().await?), 9),
        _ => return Err(junk(format!("{first} begins no number"))),
    })
}

async fn message(input: &mut Input, length: u64) -> Result<String, Broken> {
    let mut text = Vec::new();
    for _ in 0..length {
        text.extend(input.exact::<1>().await?);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_bytes_of_the_protocol() {
        // Written by bincode 2.0.1, standard configuration.
        let key = "12345";
        let mut expected = vec![0, 0, 0, 13, 0, 5];
        expected.extend(key.as_bytes());
        expected.extend([251, 0xe8, 0x03, 252, 0, 0, 1, 0]);
        expected[3] = (expected.len() - 4) as u8;
        assert_eq!(get_frame(key, 1000, 65_536), expected);
        assert_eq!(
            &get_frame("k", 0, 1 << 32)[8..],
            [253, 0, 0, 0, 0, 1, 0, 0, 0]
        );
    }
}
