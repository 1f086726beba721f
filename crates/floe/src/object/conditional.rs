//! Conditional requests (RFC 9110 §13), in its order of precedence.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::origin::ObjectMeta;

/// One of `If-Match`, `If-None-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtagCondition {
    /// `*`: any object.
    Any,
    /// These entity tags, in HTTP syntax.
    Tags(Vec<String>),
}

/// `If-Range`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeCondition {
    /// An entity tag, in HTTP syntax.
    Tag(String),
    /// A date.
    Date(SystemTime),
}

/// The conditions of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// `If-Match`.
    pub if_match: Option<EtagCondition>,
    /// `If-Unmodified-Since`; ignored when there is an `If-Match`.
    pub if_unmodified_since: Option<SystemTime>,
    /// `If-None-Match`.
    pub if_none_match: Option<EtagCondition>,
    /// `If-Modified-Since`; ignored when there is an `If-None-Match`.
    pub if_modified_since: Option<SystemTime>,
    /// `If-Range`: if it fails, the response is the whole object.
    pub if_range: Option<RangeCondition>,
}

/// The result of evaluating conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Serve the request.
    Proceed,
    /// Respond with 304.
    NotModified,
    /// Respond with 412.
    PreconditionFailed,
}

impl Conditions {
    /// Evaluates the conditions of a GET or HEAD (RFC 9110 §13.2.2).
    pub fn evaluate(&self, meta: &ObjectMeta) -> Verdict {
        match (&self.if_match, self.if_unmodified_since) {
            (Some(condition), _) if !condition.matches(meta, strong_match) => {
                return Verdict::PreconditionFailed;
            }
            (None, Some(date)) if modified_after(meta, date) => {
                return Verdict::PreconditionFailed;
            }
            _ => {}
        }
        match (&self.if_none_match, self.if_modified_since) {
            (Some(condition), _) if condition.matches(meta, weak_match) => Verdict::NotModified,
            (None, Some(date)) if meta.last_modified.is_some() && !modified_after(meta, date) => {
                Verdict::NotModified
            }
            _ => Verdict::Proceed,
        }
    }

    /// True if a `Range` header applies, false if an `If-Range` fails.
    pub fn range_applies(&self, meta: &ObjectMeta) -> bool {
        match &self.if_range {
            None => true,
            Some(RangeCondition::Tag(tag)) => {
                meta.client_etag().is_some_and(|own| strong_match(tag, own))
            }
            Some(RangeCondition::Date(date)) => meta
                .last_modified
                .is_some_and(|own| unix_seconds(own) == unix_seconds(*date)),
        }
    }
}

impl EtagCondition {
    fn matches(&self, meta: &ObjectMeta, equal: fn(&str, &str) -> bool) -> bool {
        match self {
            EtagCondition::Any => true,
            EtagCondition::Tags(tags) => meta
                .client_etag()
                .is_some_and(|own| tags.iter().any(|tag| equal(tag, own))),
        }
    }
}

fn strong_match(one: &str, other: &str) -> bool {
    !is_weak(one) && !is_weak(other) && one == other
}

fn weak_match(one: &str, other: &str) -> bool {
    opaque(one) == opaque(other)
}

pub(crate) fn is_weak(tag: &str) -> bool {
    tag.starts_with("W/")
}

fn opaque(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// HTTP dates have whole seconds, so this ignores fractions of a second.
fn modified_after(meta: &ObjectMeta, date: SystemTime) -> bool {
    meta.last_modified
        .is_some_and(|own| unix_seconds(own) > unix_seconds(date))
}

fn unix_seconds(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i128::from(after.as_secs()),
        Err(before) => {
            let before = before.duration();
            -i128::from(before.as_secs()) - i128::from(before.subsec_nanos() > 0)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn tags(tag: &str) -> Option<EtagCondition> {
        Some(EtagCondition::Tags(vec!["\"other\"".into(), tag.into()]))
    }

    #[test]
    fn precedence_is_that_of_rfc_9110() {
        let meta = ObjectMeta {
            size: 1,
            etag: Some("\"a\"".into()),
            last_modified: Some(at(100) + Duration::from_millis(500)),
            ..ObjectMeta::default()
        };
        let none = Conditions::default;
        let cases = [
            (none(), Verdict::Proceed),
            (
                Conditions {
                    if_match: tags("\"a\""),
                    ..none()
                },
                Verdict::Proceed,
            ),
            (
                Conditions {
                    if_match: tags("\"b\""),
                    ..none()
                },
                Verdict::PreconditionFailed,
            ),
            // If-Match compares strongly.
            (
                Conditions {
                    if_match: tags("W/\"a\""),
                    ..none()
                },
                Verdict::PreconditionFailed,
            ),
            (
                Conditions {
                    if_match: Some(EtagCondition::Any),
                    ..none()
                },
                Verdict::Proceed,
            ),
            (
                // If-Match takes precedence over If-Unmodified-Since.
                Conditions {
                    if_match: tags("\"a\""),
                    if_unmodified_since: Some(at(1)),
                    ..none()
                },
                Verdict::Proceed,
            ),
            (
                Conditions {
                    if_unmodified_since: Some(at(99)),
                    ..none()
                },
                Verdict::PreconditionFailed,
            ),
            // An HTTP date has no fractions.
            (
                Conditions {
                    if_unmodified_since: Some(at(100)),
                    ..none()
                },
                Verdict::Proceed,
            ),
            (
                Conditions {
                    if_none_match: tags("\"a\""),
                    ..none()
                },
                Verdict::NotModified,
            ),
            (
                Conditions {
                    if_none_match: tags("W/\"a\""),
                    ..none()
                },
                Verdict::NotModified,
            ),
            (
                Conditions {
                    if_none_match: Some(EtagCondition::Any),
                    ..none()
                },
                Verdict::NotModified,
            ),
            (
                // If-None-Match takes precedence over If-Modified-Since.
                Conditions {
                    if_none_match: tags("\"b\""),
                    if_modified_since: Some(at(200)),
                    ..none()
                },
                Verdict::Proceed,
            ),
            (
                Conditions {
                    if_modified_since: Some(at(100)),
                    ..none()
                },
                Verdict::NotModified,
            ),
            (
                Conditions {
                    if_modified_since: Some(at(99)),
                    ..none()
                },
                Verdict::Proceed,
            ),
            (
                // A failed If-Match decides before If-None-Match is evaluated.
                Conditions {
                    if_match: tags("\"b\""),
                    if_none_match: tags("\"a\""),
                    ..none()
                },
                Verdict::PreconditionFailed,
            ),
        ];
        for (conditions, verdict) in cases {
            assert_eq!(conditions.evaluate(&meta), verdict, "{conditions:?}");
        }
        let ranged = |condition| Conditions {
            if_range: Some(condition),
            ..none()
        };
        for (condition, applies) in [
            (RangeCondition::Tag("\"a\"".into()), true),
            (RangeCondition::Tag("W/\"a\"".into()), false),
            (RangeCondition::Tag("\"b\"".into()), false),
            (RangeCondition::Date(at(100)), true),
            (RangeCondition::Date(at(101)), false),
        ] {
            assert_eq!(ranged(condition).range_applies(&meta), applies);
        }
        let bare = ObjectMeta::default();
        let dated = Conditions {
            if_modified_since: Some(at(1)),
            ..none()
        };
        assert_eq!(dated.evaluate(&bare), Verdict::Proceed);
    }
}
