//! Verifies Signature Version 4 in the headers of plain reads. Only what is certainly right
//! passes here; `s3s` judges everything else, and words the errors.

use std::time::{Duration, SystemTime};

use floe::origin::PayloadHash;
use hmac::{Hmac, KeyInit, Mac};
use httparse::Header;
use percent_encoding::{percent_decode_str, percent_encode};
use sha2::{Digest, Sha256};

use crate::frontends::s3::auth::Keys;
use crate::frontends::s3::date;
use crate::frontends::s3::list::KEPT;

/// Longest difference between the client's clock and this one, as in S3.
const SKEW_MAX: Duration = Duration::from_secs(15 * 60);

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The SHA-256 of no bytes, and the word for an unsigned body.
const NO_BODY: [&str; 2] = [PayloadHash::EMPTY, "UNSIGNED-PAYLOAD"];

/// A request as it is signed.
pub(super) struct Signed<'a> {
    pub(super) method: &'a str,
    /// As it came.
    pub(super) path: &'a str,
    /// In its canonical form.
    pub(super) query: &'a str,
    pub(super) headers: &'a [Header<'a>],
    pub(super) authorization: &'a str,
}

/// `Authorization`, taken apart.
struct Authorization<'a> {
    access_key: &'a str,
    date: &'a str,
    region: &'a str,
    scope: &'a str,
    signed: &'a str,
    signature: &'a str,
}

impl<'a> Signed<'a> {
    /// The known access key that has signed this request, at this time.
    pub(super) fn verified_key(&self, keys: &Keys, now: SystemTime) -> Option<&'a str> {
        let authorization = parse(self.authorization)?;
        let time = self.only("x-amz-date")?;
        if !time.starts_with(authorization.date) || skew(time, now)? > SKEW_MAX {
            return None;
        }
        let payload = self.only("x-amz-content-sha256")?;
        if !NO_BODY.contains(&payload) {
            return None;
        }
        let canonical = self.canonical(authorization.signed, payload)?;
        let hash = Sha256::digest(&canonical);
        let mut text = format!("{ALGORITHM}\n{time}\n{}\n", authorization.scope).into_bytes();
        text.extend(hash.iter().flat_map(|byte| hex_digits(*byte)));
        let signature = bytes_of(authorization.signature)?;
        let derive = |secret: &str| {
            let secret = format!("AWS4{secret}");
            let parts = [
                authorization.date,
                authorization.region,
                "s3",
                "aws4_request",
            ];
            parts.iter().fold(secret.into_bytes(), |key, part| {
                hmac(&key, part.as_bytes()).finalize().into_bytes().to_vec()
            })
        };
        // In constant time.
        let verify = |key: &[u8]| hmac(key, &text).verify_slice(&signature).is_ok();
        let (access_key, scope) = (authorization.access_key, authorization.scope);
        let is_valid = keys.verified_by(access_key, scope, derive, verify);
        is_valid.then_some(access_key)
    }

    fn canonical(&self, signed: &str, payload: &str) -> Option<Vec<u8>> {
        let path: Vec<u8> = percent_decode_str(self.path).collect();
        let path = percent_encode(&path, KEPT);
        let mut out = format!("{}\n{path}\n{}\n", self.method, self.query).into_bytes();
        let mut before = "";
        let mut has_host = false;
        for name in signed.split(';') {
            let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
            if name <= before || !is_lower {
                return None;
            }
            before = name;
            has_host |= name == "host";
            out.extend_from_slice(name.as_bytes());
            out.push(b':');
            out.extend_from_slice(self.only(name)?.as_bytes());
            out.push(b'\n');
        }
        // An unsigned header must have no meaning.
        let is_covered = |name: &str| {
            let is_of_s3 = name.len() > 6 && name[..6].eq_ignore_ascii_case("x-amz-");
            !is_of_s3
                || signed
                    .split(';')
                    .any(|member| name.eq_ignore_ascii_case(member))
        };
        if !has_host || !self.headers.iter().all(|header| is_covered(header.name)) {
            return None;
        }
        out.extend_from_slice(format!("\n{signed}\n{payload}").as_bytes());
        Some(out)
    }

    /// The value of a header that is there once, in its canonical form.
    fn only(&self, name: &str) -> Option<&str> {
        let mut values = self
            .headers
            .iter()
            .filter(|header| header.name.eq_ignore_ascii_case(name));
        let value = std::str::from_utf8(values.next()?.value)
            .ok()?
            .trim_matches(' ');
        let is_canonical = !value.contains("  ") && !value.contains('\t');
        (is_canonical && values.next().is_none()).then_some(value)
    }
}

/// Parses the form that `credentials` takes as well.
fn parse(line: &str) -> Option<Authorization<'_>> {
    let rest = line.strip_prefix(ALGORITHM)?.strip_prefix(' ')?;
    let rest = rest.trim_start_matches(' ').strip_prefix("Credential=")?;
    let (credential, rest) = rest.split_once(',')?;
    let rest = rest
        .trim_start_matches(' ')
        .strip_prefix("SignedHeaders=")?;
    let (signed, rest) = rest.split_once(',')?;
    let signature = rest.trim_start_matches(' ').strip_prefix("Signature=")?;
    let (access_key, scope) = credential.split_once('/')?;
    let mut parts = scope.split('/');
    let (date, region) = (parts.next()?, parts.next()?);
    let is_scope = parts.eq(["s3", "aws4_request"]);
    let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let is_region = (1..=64).contains(&region.len()) && region.bytes().all(is_plain);
    let is_date = date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit());
    (is_scope && is_region && is_date && !access_key.is_empty()).then_some(Authorization {
        access_key,
        date,
        region,
        scope,
        signed,
        signature,
    })
}

fn skew(time: &str, now: SystemTime) -> Option<Duration> {
    let time: SystemTime = date::parse(time)?.into();
    let (earlier, later) = (time.min(now), time.max(now));
    later.duration_since(earlier).ok()
}

fn hmac(key: &[u8], text: &[u8]) -> Hmac<Sha256> {
    // A key of any length is valid.
    #[allow(clippy::expect_used)]
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("a key of any length");
    mac.update(text);
    mac
}

/// The bytes of a signature in lower-case hexadecimal.
fn bytes_of(signature: &str) -> Option<[u8; 32]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 32];
    if signature.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(signature.as_bytes().chunks(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn hex_digits(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessKey, S3Config};

    /// The GET of an object in S3's documentation.
    const EXAMPLE: [(&str, &str); 4] = [
        ("Host", "examplebucket.s3.amazonaws.com"),
        ("Range", "bytes=0-9"),
        ("x-amz-content-sha256", NO_BODY[0]),
        ("x-amz-date", "20130524T000000Z"),
    ];
    const LINE: &str = "AWS4-HMAC-SHA256 \
        Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
        SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
        Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
    const AT_SECONDS: u64 = 1_369_353_600;

    fn keys() -> Keys {
        Keys::new(&S3Config {
            keys: vec![AccessKey::new(
                "AKIAIOSFODNN7EXAMPLE",
                "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            )],
            ..S3Config::default()
        })
    }

    fn is_valid(path: &str, headers: &[(&str, &str)], line: &str, at_seconds: u64) -> bool {
        let headers: Vec<Header<'_>> = headers
            .iter()
            .map(|(name, value)| Header {
                name,
                value: value.as_bytes(),
            })
            .collect();
        let signed = Signed {
            method: "GET",
            path,
            query: "",
            headers: &headers,
            authorization: line,
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(at_seconds);
        let keys = keys();
        // The second time with the derived key that is kept.
        let first = signed.verified_key(&keys, now);
        assert_eq!(signed.verified_key(&keys, now), first);
        first.is_some()
    }

    #[test]
    fn the_example_of_the_documentation_is_valid() {
        for at in [AT_SECONDS - 900, AT_SECONDS, AT_SECONDS + 900] {
            assert!(is_valid("/test.txt", &EXAMPLE, LINE, at));
        }
        assert!(is_valid("/test%2Etxt", &EXAMPLE, LINE, AT_SECONDS));
        let spaced = LINE.replace(',', ", ");
        assert!(is_valid("/test.txt", &EXAMPLE, &spaced, AT_SECONDS));
    }

    #[test]
    fn everything_else_is_left_to_another_judge() {
        assert!(!is_valid("/test.txt", &EXAMPLE, LINE, AT_SECONDS + 901));
        assert!(!is_valid("/test.txt", &EXAMPLE, LINE, AT_SECONDS - 901));
        assert!(!is_valid("/other.txt", &EXAMPLE, LINE, AT_SECONDS));
        for index in 0..EXAMPLE.len() {
            let mut changed = EXAMPLE.to_vec();
            changed[index].1 = "x";
            assert!(!is_valid("/test.txt", &changed, LINE, AT_SECONDS));
            let mut twice = EXAMPLE.to_vec();
            twice.push(EXAMPLE[index]);
            assert!(!is_valid("/test.txt", &twice, LINE, AT_SECONDS));
            let mut without = EXAMPLE.to_vec();
            without.remove(index);
            assert!(!is_valid("/test.txt", &without, LINE, AT_SECONDS));
        }
        let mut unsigned = EXAMPLE.to_vec();
        unsigned.push(("X-AMZ-Acl", "public-read"));
        assert!(!is_valid("/test.txt", &unsigned, LINE, AT_SECONDS));
        // Every change of one byte of the line.
        for at in 0..LINE.len() {
            let mut changed = LINE.as_bytes().to_vec();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).unwrap();
            assert!(
                !is_valid("/test.txt", &EXAMPLE, &changed, AT_SECONDS),
                "{changed}"
            );
        }
    }
}
