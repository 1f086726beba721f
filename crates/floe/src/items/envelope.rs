//! The encoding of an item in a value of the store: a short head, then its
//! bytes. `docs/format.md` has the table.

use bytes::{Buf, Bytes};

use super::item::{HEAD_BYTES_MAX, Item, ItemState, NewItem};

/// The upper half of the first byte: the form of the head.
const FORM: u8 = 0x10;
const FORM_MASK: u8 = 0xf0;
const HAS_FLAGS: u8 = 0x01;
const HAS_EXPIRY: u8 = 0x02;
const IS_STALE: u8 = 0x04;
const IS_CLAIMED: u8 = 0x08;

/// The head of an item in a value of the store.
pub(super) struct EncodedHead {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
}

impl EncodedHead {
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Encodes the head of `item`.
pub(super) fn encode_head<V>(item: &NewItem<V>, version: u64, expiry_unix_s: u32) -> EncodedHead {
    let mut head = [0; HEAD_BYTES_MAX];
    let mut len = 9;
    head[0] = FORM;
    head[1..9].copy_from_slice(&version.to_le_bytes());
    let optional = [(item.flags, HAS_FLAGS), (expiry_unix_s, HAS_EXPIRY)];
    for (number, mark) in optional.into_iter().filter(|(number, _)| *number != 0) {
        head[0] |= mark;
        head[len..len + 4].copy_from_slice(&number.to_le_bytes());
        len += 4;
    }
    if item.state.is_stale {
        head[0] |= IS_STALE;
    }
    if item.state.is_claimed {
        head[0] |= IS_CLAIMED;
    }
    EncodedHead { bytes: head, len }
}

/// Encodes `item` with `version` as a value of the store.
pub(super) fn encode(item: NewItem, version: u64, expiry_unix_s: u32) -> Bytes {
    let head = encode_head(&item, version, expiry_unix_s);
    let start = HEAD_BYTES_MAX - head.len;
    let mut bytes = item.value.bytes;
    bytes[start..HEAD_BYTES_MAX].copy_from_slice(head.as_slice());
    bytes.freeze().slice(start..)
}

/// Decodes an item; `None` if `value` is not one.
pub(super) fn decode(mut value: Bytes) -> Option<Item> {
    let (&form, mut rest) = value.split_first()?;
    if form & FORM_MASK != FORM {
        return None;
    }
    let (version, after) = rest.split_first_chunk::<8>()?;
    rest = after;
    let mut number = |mark: u8| -> Option<u32> {
        if form & mark == 0 {
            return Some(0);
        }
        let (number, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        // A zero is never encoded, so a stored zero is damage or another record.
        Some(u32::from_le_bytes(*number)).filter(|&number| number != 0)
    };
    let flags = number(HAS_FLAGS)?;
    let expiry_unix_s = number(HAS_EXPIRY)?;
    let version = u64::from_le_bytes(*version);
    let start = value.len() - rest.len();
    value.advance(start);
    Some(Item {
        flags,
        version,
        expiry_unix_s,
        state: ItemState {
            is_stale: form & IS_STALE != 0,
            is_claimed: form & IS_CLAIMED != 0,
        },
        value,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::items::Expiry;
    use crate::items::ItemBuffer;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            flags: u32, version: u64, expiry: u32, is_stale: bool, is_claimed: bool,
            value in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let state = ItemState { is_stale, is_claimed };
            let new = NewItem {
                flags,
                expiry: Expiry::Never,
                state,
                value: ItemBuffer::from(&value[..]),
            };
            let encoded = encode(new, version, expiry);
            let item = decode(encoded).unwrap();
            prop_assert_eq!((item.flags, item.version, item.expiry_unix_s), (flags, version, expiry));
            prop_assert_eq!(item.state, state);
            prop_assert_eq!(&item.value[..], &value[..]);
        }

        #[test]
        fn a_buffer_takes_what_it_has_room_for(
            value in prop::collection::vec(any::<u8>(), 0..300), first in 0..50_usize, step in 1..90_usize,
        ) {
            let mut buffer = ItemBuffer::growing(value.len(), first);
            let mut taken = 0;
            while buffer.missing() > 0 {
                if buffer.room() == 0 {
                    buffer.grow(step);
                }
                let room = buffer.room();
                let now = buffer.fill(&value[taken..]);
                prop_assert!(now == room && now > 0);
                taken += now;
            }
            prop_assert_eq!(buffer.bytes(), &value[..]);
        }

        #[test]
        fn any_bytes_decode_or_are_rejected(value in prop::collection::vec(any::<u8>(), 0..40)) {
            let value = Bytes::from(value);
            if let Some(item) = decode(value.clone()) {
                prop_assert!(value.ends_with(&item.value));
            }
        }
    }
}
