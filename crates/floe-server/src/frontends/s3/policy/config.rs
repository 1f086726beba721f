//! `[[s3.policies]]`.

use s3s::path::check_bucket_name;
use serde::{Deserialize, Serialize};

use crate::config::{ServerConfigError, problem};

/// The name of requests without a signature.
pub(crate) const ANONYMOUS: &str = "anonymous";

/// The name of all buckets.
pub(super) const ALL_BUCKETS: &str = "*";

/// A part of the rights of an access key. A key without a policy may do everything; one with
/// policies may do what one of them allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyPolicy {
    /// An access key of `s3.keys`, or `anonymous` for requests without a signature.
    pub key: String,
    /// Names of buckets; `*` is all buckets.
    pub buckets: Vec<String>,
    /// Beginnings of the keys of objects; an empty list allows all keys.
    #[serde(default)]
    pub prefixes: Vec<String>,
    /// The allowed requests.
    pub access: KeyAccess,
}

/// The requests that a policy allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyAccess {
    /// Reads and listings.
    Read,
    /// Reads, listings, writes and deletes.
    Write,
}

/// Checks policies. `is_key` tells access keys; `anonymous` says that unsigned requests are
/// served.
pub(crate) fn validate(
    policies: &[KeyPolicy],
    is_key: impl Fn(&str) -> bool,
    anonymous: bool,
) -> Result<(), ServerConfigError> {
    for (index, policy) in policies.iter().enumerate() {
        let setting = format!("s3.policies[{index}]");
        match (policy.key == ANONYMOUS, is_key(&policy.key)) {
            (true, true) => {
                return Err(problem(
                    &setting,
                    "`anonymous` is an access key of s3.keys and the name of unsigned requests",
                    "give that access key another name",
                ));
            }
            (true, false) if !anonymous => {
                return Err(problem(
                    &setting,
                    "it allows unsigned requests, and s3.anonymous is false",
                    "set s3.anonymous = true, or remove the policy",
                ));
            }
            (false, false) => {
                return Err(problem(
                    &setting,
                    &format!("`{}` is no access key of s3.keys", policy.key),
                    "name an access key, or `anonymous` for unsigned requests",
                ));
            }
            _ => {}
        }
        validate_names(&setting, policy)?;
    }
    Ok(())
}

fn validate_names(setting: &str, policy: &KeyPolicy) -> Result<(), ServerConfigError> {
    if policy.buckets.is_empty() {
        return Err(problem(
            setting,
            "buckets is empty",
            "name at least one bucket, or `*` for all",
        ));
    }
    let is_name = |bucket: &&String| *bucket == ALL_BUCKETS || check_bucket_name(bucket);
    if let Some(bucket) = policy.buckets.iter().find(|bucket| !is_name(bucket)) {
        return Err(problem(
            setting,
            &format!("`{bucket}` is no name of a bucket"),
            "write whole names, or `*` for all buckets",
        ));
    }
    if policy.prefixes.iter().any(String::is_empty) {
        return Err(problem(
            setting,
            "a prefix is empty",
            "leave prefixes out to allow all keys",
        ));
    }
    Ok(())
}
