//! Reads the credentials of a request once, as `s3s` reads them when it
//! verifies the signature.
//!
//! A request is rejected if two readers could take different credentials from
//! it: what is executed is what was verified.

use http::header::{AUTHORIZATION, DATE, HOST, HeaderValue};
use http::{HeaderMap, Uri};
use s3s::{S3Error, S3ErrorCode};

use super::date;
use super::error::with;
use super::query::Query;

/// The longest life of a presigned URL, as in S3.
const EXPIRES_MAX_SECONDS: u32 = 7 * 24 * 3600;

/// The parameters of a presigned URL, each required exactly once.
const PRESIGNED: [&str; 6] = [
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
];

/// Optional parameters, each allowed once.
const PRESIGNED_OPTIONAL: [&str; 2] = ["X-Amz-Security-Token", "X-Amz-Content-Sha256"];

/// The parameters by which `s3s` recognises Signature Version 2, in lower case.
const VERSION_2: [&str; 2] = ["awsaccesskeyid", "signature"];

const X_AMZ_DATE: &str = "x-amz-date";

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Header names exactly as the signature lists them.
pub(crate) type SignedHeaders = Vec<String>;

/// The credentials of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    Anonymous,
    /// Signature Version 4 in the `Authorization` header.
    Header(SignedHeaders),
    /// Signature Version 4 in the URL.
    Presigned(SignedHeaders),
}

impl Credentials {
    /// Reads the credentials.
    ///
    /// # Errors
    /// There are several kinds of credentials, an unsupported or malformed one,
    /// or an S3 header that the signature does not cover.
    pub(crate) fn of(uri: &Uri, headers: &HeaderMap) -> Result<Self, S3Error> {
        let query = Query::of(uri);
        reject_version_2(&query, headers)?;
        let credentials = match (presigned(&query)?, authorization(headers)?) {
            (None, None) => Credentials::Anonymous,
            (Some(signed), None) => Credentials::Presigned(signed),
            (None, Some(signed)) => Credentials::Header(signed),
            (Some(_), Some(_)) => {
                return Err(with(
                    S3ErrorCode::InvalidArgument,
                    "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter \
                     or the Authorization header should be specified"
                        .into(),
                ));
            }
        };
        credentials.reject_unsigned_headers(headers)?;
        Ok(credentials)
    }

    /// The names of the headers that the signature covers.
    pub(crate) fn signed_headers(&self) -> impl Iterator<Item = &str> {
        let names = match self {
            Credentials::Anonymous => &[][..],
            Credentials::Header(signed) | Credentials::Presigned(signed) => signed,
        };
        names.iter().map(String::as_str)
    }

    pub(crate) fn is_signed(&self) -> bool {
        *self != Credentials::Anonymous
    }

    /// Gives a request whose signature has the time of `Date` that of `x-amz-date`, which the
    /// library takes.
    pub(crate) fn date(&self, headers: &mut HeaderMap) {
        let Credentials::Header(signed) = self else {
            return;
        };
        let is_signed = signed.iter().any(|name| *name == DATE.as_str());
        if is_signed
            && !headers.contains_key(X_AMZ_DATE)
            && let Some(date) = headers.get(DATE)
            && let Some(date) = date.to_str().ok().and_then(date::of_http)
            && let Ok(date) = HeaderValue::try_from(date)
        {
            headers.insert(X_AMZ_DATE, date);
        }
    }

    /// Rejects S3 headers that the signature does not cover, as Amazon does: an
    /// extra header could turn a presigned upload into a copy of any object.
    fn reject_unsigned_headers(&self, headers: &HeaderMap) -> Result<(), S3Error> {
        let (signed, is_presigned) = match self {
            Credentials::Anonymous => return Ok(()),
            Credentials::Header(signed) => (signed, false),
            Credentials::Presigned(signed) => (signed, true),
        };
        let unsigned = headers
            .keys()
            .filter(|name| name.as_str().starts_with("x-amz-"))
            // The payload's hash is compared with the body, signed or not.
            .filter(|name| !(is_presigned && *name == "x-amz-content-sha256"))
            .chain([&HOST])
            .find(|name| !signed.iter().any(|member| member == name.as_str()));
        match unsigned {
            None => Ok(()),
            Some(name) => Err(with(
                S3ErrorCode::AccessDenied,
                format!("There were headers present in the request which were not signed: {name}"),
            )),
        }
    }
}

/// Rejects Signature Version 2, which does not cover the uploaded bytes.
fn reject_version_2(query: &Query, headers: &HeaderMap) -> Result<(), S3Error> {
    let in_query = query
        .iter()
        .any(|(name, _)| VERSION_2.iter().any(|v2| name.eq_ignore_ascii_case(v2)));
    let in_header = headers.get_all(AUTHORIZATION).iter().any(|value| {
        let scheme = value.as_bytes().trim_ascii_start();
        scheme.len() >= 4 && scheme[..4].eq_ignore_ascii_case(b"AWS ")
    });
    if in_query || in_header {
        return Err(with(
            S3ErrorCode::InvalidRequest,
            format!(
                "The authorization mechanism you have provided is not supported. \
                 Please use {ALGORITHM}: many clients call it `s3v4`."
            ),
        ));
    }
    Ok(())
}

/// The signed headers of a presigned URL; `None` if the URL is not presigned.
fn presigned(query: &Query) -> Result<Option<SignedHeaders>, S3Error> {
    let known = || PRESIGNED.into_iter().chain(PRESIGNED_OPTIONAL);
    let mut is_presigned = false;
    for (name, _) in query.iter() {
        let Some(expected) = known().find(|known| name.eq_ignore_ascii_case(known)) else {
            continue;
        };
        if name != expected {
            return Err(malformed_query(format!("`{name}` is spelled {expected}")));
        }
        // `X-Amz-Content-Sha256` alone does not presign a URL.
        is_presigned |= name != "X-Amz-Content-Sha256";
    }
    if !is_presigned {
        return Ok(None);
    }
    for name in PRESIGNED_OPTIONAL {
        if query.iter().filter(|(other, _)| *other == name).count() > 1 {
            return Err(malformed_query(format!("{name} is there twice")));
        }
    }
    let mut values = [""; PRESIGNED.len()];
    for (value, name) in values.iter_mut().zip(PRESIGNED) {
        let mut found = query.iter().filter(|(other, _)| *other == name);
        *value = match (found.next(), found.next()) {
            (Some((_, value)), None) => value,
            (None, _) => return Err(malformed_query(format!("{name} is missing"))),
            (Some(_), Some(_)) => return Err(malformed_query(format!("{name} is there twice"))),
        };
    }
    let [algorithm, credential, _, expires, signed, signature] = values;
    if algorithm != ALGORITHM {
        return Err(malformed_query(format!(
            "X-Amz-Algorithm must be {ALGORITHM}"
        )));
    }
    require_expiry(expires)?;
    if !is_scope(credential) {
        return Err(malformed_query("X-Amz-Credential is malformed".into()));
    }
    if !is_signature(signature) {
        return Err(malformed_query("X-Amz-Signature is malformed".into()));
    }
    Ok(Some(names(signed)))
}

fn require_expiry(text: &str) -> Result<(), S3Error> {
    if !is_number(text) {
        return Err(malformed_query("X-Amz-Expires should be a number".into()));
    }
    match text.parse::<u32>() {
        Ok(seconds) if seconds <= EXPIRES_MAX_SECONDS => Ok(()),
        _ => Err(malformed_query(format!(
            "X-Amz-Expires must be less than a week (in seconds); \
             that is {EXPIRES_MAX_SECONDS} at most"
        ))),
    }
}

/// The signed headers of the `Authorization` header, if there is one.
fn authorization(headers: &HeaderMap) -> Result<Option<SignedHeaders>, S3Error> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(malformed_header("there is more than one".into()));
    }
    let parsed = std::str::from_utf8(line.as_bytes()).ok().and_then(parse);
    match parsed {
        Some(signed) => Ok(Some(signed)),
        None => Err(malformed_header(format!(
            "it must be `{ALGORITHM} Credential=…, SignedHeaders=…, Signature=…`"
        ))),
    }
}

/// Parses the only form that `s3s` and this reader interpret alike.
fn parse(line: &str) -> Option<SignedHeaders> {
    let rest = line.strip_prefix(ALGORITHM)?;
    let rest = rest.strip_prefix(' ')?.trim_start_matches(' ');
    let (credential, rest) = rest.strip_prefix("Credential=")?.split_once(',')?;
    let rest = rest.trim_start_matches(' ');
    let (signed, rest) = rest.strip_prefix("SignedHeaders=")?.split_once(',')?;
    let signature = rest.trim_start_matches(' ').strip_prefix("Signature=")?;
    (is_scope(credential) && is_signature(signature)).then(|| names(signed))
}

/// `key/date/region/s3/aws4_request`.
fn is_scope(credential: &str) -> bool {
    let parts: Vec<&str> = credential.split('/').collect();
    matches!(parts[..], [key, date, _, "s3", "aws4_request"]
        if !key.is_empty() && date.len() == 8 && is_number(date))
}

fn is_signature(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn names(signed: &str) -> SignedHeaders {
    signed.split(';').map(str::to_owned).collect()
}

fn malformed_query(message: String) -> S3Error {
    with(S3ErrorCode::AuthorizationQueryParametersError, message)
}

fn malformed_header(problem: String) -> S3Error {
    with(
        S3ErrorCode::InvalidRequest,
        format!("The Authorization header is invalid: {problem}"),
    )
}

#[cfg(test)]
mod tests;
