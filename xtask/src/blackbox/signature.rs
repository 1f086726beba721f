//! Signatures of versions 4 and 2 for S3, after Amazon's description.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};

pub(crate) const ACCESS_KEY: &str = "reader";
pub(crate) const SECRET_KEY: &str = "attack-secret-key";

/// A path and query, presigned with version 4; only the host is signed.
pub(crate) fn presign_v4(method: &str, host: SocketAddr, path: &str, expires_s: u64) -> String {
    presign_v4_by(SECRET_KEY, method, host, path, expires_s)
}

/// As [`presign_v4`], with the caller's secret.
pub(crate) fn presign_v4_by(
    secret: &str,
    method: &str,
    host: SocketAddr,
    path: &str,
    expires_s: u64,
) -> String {
    let scope = Scope::now();
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={ACCESS_KEY}%2F{}&X-Amz-Date={}\
         &X-Amz-Expires={expires_s}&X-Amz-SignedHeaders=host",
        scope.text.replace('/', "%2F"),
        scope.time,
    );
    let canonical = format!("{method}\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD");
    let signature = scope.signature(secret, &canonical);
    format!("{path}?{query}&X-Amz-Signature={signature}")
}

/// The headers that sign a request with version 4: its host, time and body.
pub(crate) fn sign_v4(
    secret: &str,
    method: &str,
    host: SocketAddr,
    path: &str,
    body: &[u8],
) -> [(&'static str, String); 3] {
    let scope = Scope::now();
    let (text, time) = (&scope.text, &scope.time);
    let hash = hex(&Sha256::digest(body));
    let names = "host;x-amz-content-sha256;x-amz-date";
    let canonical = format!(
        "{method}\n{path}\n\nhost:{host}\nx-amz-content-sha256:{hash}\nx-amz-date:{time}\n\n\
         {names}\n{hash}"
    );
    let signature = scope.signature(secret, &canonical);
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{text}, SignedHeaders={names}, \
         Signature={signature}"
    );
    [
        ("authorization", authorization),
        ("x-amz-date", scope.time),
        ("x-amz-content-sha256", hash),
    ]
}

/// The time of a signature of version 4, and what its key is good for.
struct Scope {
    date: String,
    time: String,
    text: String,
}

impl Scope {
    fn now() -> Self {
        let (date, time) = date_and_time(unix_seconds());
        let text = format!("{date}/us-east-1/s3/aws4_request");
        Scope { date, time, text }
    }

    fn signature(&self, secret: &str, canonical: &str) -> String {
        let to_sign = format!(
            "AWS4-HMAC-SHA256\n{}\n{}\n{}",
            self.time,
            self.text,
            hex(&Sha256::digest(canonical))
        );
        let secret = format!("AWS4{secret}");
        let key = [self.date.as_str(), "us-east-1", "s3", "aws4_request"]
            .iter()
            .fold(secret.into_bytes(), |key, word| mac_sha256(&key, word));
        hex(&mac_sha256(&key, &to_sign))
    }
}

/// The parameters of version 2 for `path`: expiry and signature.
pub(crate) fn sign_v2(method: &str, path: &str) -> (u64, String) {
    use base64::Engine as _;
    let expires = unix_seconds() + 600;
    let to_sign = format!("{method}\n\n\n{expires}\n{path}");
    let mac = Hmac::<Sha1>::new_from_slice(SECRET_KEY.as_bytes());
    // HMAC accepts keys of every length.
    let signature = mac.map(|mac| mac.chain_update(to_sign).finalize().into_bytes());
    let signature = signature.map(|bytes| base64::engine::general_purpose::STANDARD.encode(bytes));
    let escaped = signature
        .unwrap_or_default()
        .replace('+', "%2B")
        .replace('/', "%2F")
        .replace('=', "%3D");
    (expires, escaped)
}

fn mac_sha256(key: &[u8], data: &str) -> Vec<u8> {
    // HMAC accepts keys of every length.
    Hmac::<Sha256>::new_from_slice(key)
        .map(|mac| mac.chain_update(data).finalize().into_bytes().to_vec())
        .unwrap_or_default()
}

fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// `YYYYMMDD` and `YYYYMMDDThhmmssZ` of a Unix time, by Hinnant's algorithm for
/// days of the proleptic Gregorian calendar.
fn date_and_time(seconds: u64) -> (String, String) {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let date = format!("{year:04}{month:02}{day:02}");
    let time = format!(
        "{date}T{:02}{:02}{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    (date, time)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::date_and_time;

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(date_and_time(0).1, "19700101T000000Z");
        assert_eq!(date_and_time(951_782_400).0, "20000229");
        assert_eq!(date_and_time(1_798_761_599).1, "20261231T235959Z");
    }
}
