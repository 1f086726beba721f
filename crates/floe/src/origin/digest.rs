//! Entity tags of bytes, as in S3: the MD5 of an object, or of the MD5s of its parts.

use md5::{Digest, Md5};

use crate::origin::hexadecimal;

/// The entity tag of an object that was uploaded in one piece.
pub(crate) fn of_bytes(digest: Md5) -> String {
    format!("\"{}\"", hexadecimal::encode(&digest.finalize()))
}

/// The entity tag of an object whose parts have these; `None` if one is no tag of bytes.
pub(crate) fn of_parts<'a>(tags: impl Iterator<Item = &'a str>) -> Option<String> {
    let (mut all, mut count) = (Md5::new(), 0);
    for tag in tags {
        all.update(bytes(tag)?);
        count += 1;
    }
    Some(format!(
        "\"{}-{count}\"",
        hexadecimal::encode(&all.finalize())
    ))
}

/// The 16 bytes of a tag.
fn bytes(tag: &str) -> Option<[u8; 16]> {
    let text = tag.strip_prefix('"')?.strip_suffix('"')?;
    if !hexadecimal::has_digits(text, 32) {
        return None;
    }
    let mut bytes = [0; 16];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_those_of_s3() {
        let tag = |bytes: &[u8]| of_bytes(Md5::new_with_prefix(bytes));
        assert_eq!(tag(b""), "\"d41d8cd98f00b204e9800998ecf8427e\"");
        let parts = [tag(b"one"), tag(b"two")];
        let whole = of_parts(parts.iter().map(String::as_str)).unwrap();
        assert_eq!(whole, "\"1397b7ee3222e3980d0d20f23a871b02-2\"");
        for other in [
            "",
            "\"\"",
            "\"1-2-3-4\"",
            "d41d8cd98f00b204e9800998ecf8427e",
        ] {
            assert_eq!(of_parts([other].into_iter()), None);
        }
    }
}
