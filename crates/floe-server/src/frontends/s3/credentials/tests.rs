//! Accepted credentials are those that `s3s` verifies: compares this reader,
//! for generated requests, with an independent model of the library's choice of
//! a signature.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use proptest::prelude::*;

use super::*;
use crate::frontends::s3::head;

/// How `s3s` 0.14.1 finds the signature: `ops/signature.rs`, `check`.
#[derive(Debug, PartialEq)]
enum Verified {
    Form,
    Version2,
    None,
    /// The headers that version 4 covers.
    Version4(Vec<String>),
    /// Malformed, so rejected.
    Rejected,
}

/// How the library reads a request.
fn verified(request: &Request<()>) -> Verified {
    let mut pairs: Vec<(String, String)> =
        form_urlencoded::parse(request.uri().query().unwrap_or("").as_bytes())
            .into_owned()
            .collect();
    pairs.sort();
    let unique = |name: &str| {
        let mut found = pairs.iter().filter(|(other, _)| other == name);
        match (found.next(), found.next()) {
            (Some((_, value)), None) => Some(value.clone()),
            _ => None,
        }
    };
    let has = |name: &str| pairs.iter().any(|(other, _)| other == name);
    let header = |name: &str| {
        let mut found = request
            .headers()
            .get_all(name)
            .iter()
            .filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
        match (found.next(), found.next()) {
            (Some(value), None) => Some(value),
            _ => None,
        }
    };
    let is_form = header("content-type")
        .map(str::to_ascii_lowercase)
        .is_some_and(|value| value.starts_with("multipart/form-data"));
    if is_form && request.method() == Method::POST {
        return Verified::Form;
    }
    let line = header("authorization");
    if has("Signature") || line.is_some_and(|line| line.starts_with("AWS ")) {
        return Verified::Version2;
    }
    if has("X-Amz-Signature") {
        return match unique("X-Amz-SignedHeaders") {
            Some(signed) => Verified::Version4(signed.split(';').map(str::to_owned).collect()),
            None => Verified::Rejected,
        };
    }
    let Some(line) = line else {
        return Verified::None;
    };
    // After the scope, whatever the access key contains.
    let signed = line
        .split_once("/aws4_request,")
        .and_then(|(_, rest)| rest.trim_start().strip_prefix("SignedHeaders="))
        .and_then(|rest| rest.split_once(','));
    match signed {
        Some((signed, _)) => Verified::Version4(signed.split(';').map(str::to_owned).collect()),
        None => Verified::Rejected,
    }
}

const SIGNATURE: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const SCOPE: &str = "KEY/20260101/us-east-1/s3/aws4_request";

/// Lists of signed headers, from complete to incomplete.
fn signed_headers() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("host".to_owned()),
        2 => Just("host;x-amz-copy-source;x-amz-date;x-amz-meta-a".to_owned()),
        1 => Just("Host;X-Amz-Copy-Source".to_owned()),
        1 => Just("x-amz-copy-source".to_owned()),
    ]
}

/// Escapes some letters or changes their case.
fn spelled(name: &'static str) -> impl Strategy<Value = String> {
    let escapes = prop_oneof![
        6 => Just(vec![]),
        3 => prop::collection::vec((any::<prop::sample::Index>(), Just(true)), 1..3),
        1 => prop::collection::vec((any::<prop::sample::Index>(), Just(false)), 1..3),
    ];
    escapes.prop_map(move |changes| {
        let mut letters: Vec<String> = name.chars().map(String::from).collect();
        for (index, escape) in changes {
            let letter = &mut letters[index.index(name.len())];
            *letter = match (escape, letter.chars().next()) {
                (true, Some(c)) => format!("%{:02x}", c as u32),
                (_, Some(c)) if c.is_ascii_lowercase() => c.to_ascii_uppercase().to_string(),
                (_, Some(c)) => c.to_ascii_lowercase().to_string(),
                (_, None) => continue,
            };
        }
        letters.concat()
    })
}

fn pair(name: &'static str, value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (spelled(name), value).prop_map(|(name, value)| format!("{name}={value}"))
}

/// The six parameters of a presigned URL in any order, with at most one extra.
fn presigned_query() -> impl Strategy<Value = String> {
    let whole = (
        pair("X-Amz-Algorithm", Just(ALGORITHM.to_owned())),
        pair("X-Amz-Credential", Just(SCOPE.to_owned())),
        pair("X-Amz-Date", Just("20260101T000000Z".to_owned())),
        pair(
            "X-Amz-Expires",
            prop_oneof![8 => Just("60"), 1 => Just("604801"), 1 => Just("-1")]
                .prop_map(str::to_owned),
        ),
        pair("X-Amz-SignedHeaders", signed_headers()),
        pair("X-Amz-Signature", Just(SIGNATURE.to_owned())),
    );
    (
        whole,
        prop_oneof![3 => Just(String::new()), 1 => stray_parameter()],
    )
        .prop_map(|((a, b, c, d, e, f), stray)| vec![a, b, c, d, e, f, stray])
        .prop_shuffle()
        .prop_map(|pairs| pairs.join("&"))
}

fn stray_parameter() -> impl Strategy<Value = String> {
    prop_oneof![
        pair("X-Amz-SignedHeaders", signed_headers()),
        pair("X-Amz-Signature", Just(SIGNATURE.to_owned())),
        pair("AWSAccessKeyId", Just("KEY".to_owned())),
        pair("Signature", Just("x".to_owned())),
        pair("Expires", Just("9999999999".to_owned())),
        pair("partNumber", Just("1".to_owned())),
    ]
}

fn authorization_line() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => signed_headers().prop_map(|signed| format!(
            "{ALGORITHM} Credential={SCOPE}, SignedHeaders={signed}, Signature={SIGNATURE}"
        )),
        1 => signed_headers().prop_map(|signed| format!(
            "{ALGORITHM} Credential=SignedHeaders=host;x-amz-copy-source,/20260101/r/s3/\
             aws4_request,SignedHeaders={signed},Signature={SIGNATURE}"
        )),
        1 => signed_headers().prop_map(|signed| format!("x SignedHeaders={signed}")),
        1 => Just("AWS KEY:c2ln".to_owned()),
        1 => Just("aws KEY:c2ln".to_owned()),
    ]
}

fn request() -> impl Strategy<Value = Request<()>> {
    let query = prop_oneof![
        2 => Just(String::new()),
        5 => presigned_query(),
        1 => stray_parameter(),
    ];
    let authorizations = prop_oneof![
        4 => Just(vec![]),
        4 => prop::collection::vec(authorization_line(), 1),
        1 => prop::collection::vec(authorization_line(), 2),
    ];
    let extra = prop::collection::vec(
        prop_oneof![
            Just(("x-amz-copy-source", "/bucket/secret")),
            Just(("x-amz-date", "20260101T000000Z")),
            Just(("x-amz-meta-a", "1")),
            Just(("x-amz-meta-a", "\u{e4}")),
            Just(("content-type", "Multipart/Form-Data; boundary=x")),
            Just(("content-type", "text/plain")),
            Just(("range", "bytes=0-1")),
        ],
        0..3,
    );
    let methods = prop_oneof![Just(Method::GET), Just(Method::PUT), Just(Method::POST)];
    (methods, query, authorizations, extra).prop_map(|(method, query, authorizations, extra)| {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("floe"));
        for line in authorizations {
            headers.append(AUTHORIZATION, line.parse().unwrap());
        }
        for (name, value) in extra {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = format!("/bucket/key?{query}").parse().unwrap();
        *request.headers_mut() = headers;
        request
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    #[test]
    fn what_is_accepted_is_what_is_verified(request in request()) {
        let verified = verified(&request);
        let (parts, ()) = request.into_parts();
        let Ok(credentials) = head::admit(&parts) else {
            return Ok(());
        };
        let signed = match (&credentials, verified) {
            (Credentials::Anonymous, Verified::None) => return Ok(()),
            (Credentials::Header(signed) | Credentials::Presigned(signed), Verified::Version4(found)) => {
                prop_assert_eq!(signed, &found);
                found
            }
            (credentials, verified) => {
                return Err(TestCaseError::fail(format!("{credentials:?} for {verified:?}")));
            }
        };
        let covered = |name: &str| signed.iter().any(|member| member == name);
        prop_assert!(covered("host"));
        let of_s3 = parts.headers.keys().filter(|name| name.as_str().starts_with("x-amz-"));
        for name in of_s3 {
            prop_assert!(covered(name.as_str()), "{} is not signed", name);
        }
        prop_assert!(parts.headers.get_all(AUTHORIZATION).iter().count() <= 1);
    }
}

/// Guards against a reader that rejects everything, for which the property would hold.
#[test]
fn well_formed_credentials_are_accepted() {
    let of = |uri: String, authorization: Option<String>| {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("floe"));
        if let Some(line) = authorization {
            headers.insert(AUTHORIZATION, line.parse().unwrap());
        }
        Credentials::of(&uri.parse().unwrap(), &headers)
    };
    let presigned = format!(
        "/b/k?X-Amz-Algorithm={ALGORITHM}&X%2DAmz-Credential={}&X-Amz-Date=20260101T000000Z\
         &X-Amz-Expires=604800&X-Amz-SignedHeaders=host%3brange&X-Amz-Signature={SIGNATURE}",
        SCOPE.replace('/', "%2F")
    );
    let signed = vec!["host".to_owned(), "range".to_owned()];
    assert_eq!(of(presigned, None).unwrap(), Credentials::Presigned(signed));
    let line = format!("{ALGORITHM} Credential={SCOPE},SignedHeaders=host,Signature={SIGNATURE}");
    assert_eq!(
        of("/b/k".into(), Some(line)).unwrap(),
        Credentials::Header(vec!["host".to_owned()])
    );
    assert_eq!(of("/b/k?a=b".into(), None).unwrap(), Credentials::Anonymous);
}
