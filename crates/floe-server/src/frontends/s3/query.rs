//! The parameters of a request's URL, decoded as in `s3s`.
//!
//! All checks read them here, so that a parameter cannot pass a check in one
//! spelling and take effect in another.

use http::Uri;

/// Names and values in the order of the URL.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn of(uri: &Uri) -> Self {
        let encoded = uri.query().unwrap_or_default();
        Query(
            form_urlencoded::parse(encoded.as_bytes())
                .into_owned()
                .collect(),
        )
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.iter().any(|(other, _)| other == name)
    }

    /// The value of a parameter that is there once.
    pub(crate) fn only(&self, name: &str) -> Option<&str> {
        let mut values = self.iter().filter(|(other, _)| *other == name);
        let (_, value) = values.next()?;
        values.next().is_none().then_some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// Parameters of a presigned URL.
const OF_SIGNATURE: [&str; 8] = [
    "X-Amz-Algorithm",
    "X-Amz-Content-Sha256",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Security-Token",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
];

/// True for the name of a parameter of a presigned URL's signature.
pub(super) fn is_of_signature(name: &str) -> bool {
    OF_SIGNATURE.contains(&name)
}
