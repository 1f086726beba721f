//! Rules: how objects are cached, by bucket and prefix.

use std::collections::HashMap;

use super::config::{ChunkAdmission, Consistency, ObjectConfig};
use crate::origin::ObjectKey;

/// The settings that differ from object to object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Policy {
    pub(super) cache: bool,
    pub(super) admission: ChunkAdmission,
    pub(super) consistency: Consistency,
    pub(super) ttl_seconds: u64,
    /// The session of notifications in mode `events`, the era in others.
    pub(super) session: u64,
    pub(super) serve_stale: bool,
    pub(super) negative_ttl_seconds: u64,
    pub(super) chunk_size: u64,
    pub(super) fetch_parallelism: usize,
}

impl Policy {
    fn of(config: &ObjectConfig) -> Self {
        Policy {
            cache: true,
            admission: ChunkAdmission::default(),
            consistency: config.consistency,
            ttl_seconds: config.ttl_seconds,
            session: 0,
            serve_stale: config.serve_stale,
            negative_ttl_seconds: config.negative_ttl_seconds,
            chunk_size: config.chunk_size.bytes(),
            fetch_parallelism: config.fetch_parallelism,
        }
    }
}

/// The policies of all objects.
#[derive(Debug)]
pub(super) struct Rules {
    others: Policy,
    /// Prefixes of a bucket with their policies, longer ones first.
    buckets: HashMap<Box<str>, Vec<(Box<str>, Policy)>>,
}

impl Rules {
    pub(super) fn new(config: &ObjectConfig) -> Self {
        let mut buckets: HashMap<Box<str>, Vec<(Box<str>, Policy)>> = HashMap::new();
        for rule in &config.rules {
            let (bucket, prefix) = rule.bucket_and_prefix();
            let policy = Policy {
                cache: rule.cache.unwrap_or(true),
                admission: rule.admission.unwrap_or_default(),
                ..Policy::of(&rule.applied_to(config))
            };
            let rules = buckets.entry(bucket.into()).or_default();
            rules.push((prefix.into(), policy));
        }
        for rules in buckets.values_mut() {
            rules.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        }
        Rules {
            others: Policy::of(config),
            buckets,
        }
    }

    pub(super) fn policy(&self, key: &ObjectKey) -> Policy {
        if self.buckets.is_empty() {
            return self.others;
        }
        let rules = self.buckets.get(key.bucket()).into_iter().flatten();
        let mut rules = rules.filter(|(prefix, _)| key.key().starts_with(&**prefix));
        rules.next().map_or(self.others, |(_, policy)| *policy)
    }
}

#[cfg(test)]
mod tests {
    use floe_core::ByteSize;

    use super::*;
    use crate::object::ObjectRule;

    fn rule(objects: &str, ttl_seconds: u64) -> ObjectRule {
        ObjectRule {
            objects: objects.into(),
            ttl_seconds: Some(ttl_seconds),
            ..ObjectRule::default()
        }
    }

    #[test]
    fn the_rule_with_the_longest_prefix_counts() {
        let config = ObjectConfig {
            ttl_seconds: 1,
            rules: vec![
                rule("b", 2),
                rule("b/x/", 3),
                rule("b/x/y", 4),
                rule("c/", 5),
            ],
            ..ObjectConfig::default()
        };
        config.validate().unwrap();
        let rules = Rules::new(&config);
        let ttl = |bucket: &str, key: &str| rules.policy(&ObjectKey::new(bucket, key)).ttl_seconds;
        for (bucket, key, expected) in [
            ("a", "x/y", 1),
            ("b", "x", 2),
            ("b", "x/", 3),
            ("b", "x/yz", 4),
            ("c", "x", 5),
        ] {
            assert_eq!(ttl(bucket, key), expected, "{bucket}/{key}");
        }
    }

    #[test]
    fn wrong_rules_are_named_with_their_cure() {
        let objects = |objects: &str| ObjectRule {
            objects: objects.into(),
            ..ObjectRule::default()
        };
        let small = ObjectRule {
            chunk_size: Some(ByteSize(1)),
            ..objects("b/small")
        };
        let many = (0..300).map(|number| objects(&format!("b/{number}")));
        for (rules, named) in [
            (vec![objects("")], "BUCKET/PREFIX"),
            (vec![objects("/x")], "BUCKET/PREFIX"),
            (vec![objects("b"), objects("b/")], "two rules"),
            (vec![small], "b/small"),
            (many.collect(), "256"),
        ] {
            let config = ObjectConfig {
                rules,
                ..ObjectConfig::default()
            };
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
