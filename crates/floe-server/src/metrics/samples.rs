//! Samples: named and labelled numbers at one moment, rendered for Prometheus and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use super::HistogramSnapshot;

/// A label's name and value.
pub(crate) type Label<'a> = (&'static str, &'a str);

/// A list of samples.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    families: BTreeMap<String, Family>,
}

#[derive(Debug)]
struct Family {
    help: String,
    kind: MetricType,
    members: Vec<(Vec<(&'static str, String)>, Number)>,
}

#[derive(Debug)]
enum Number {
    Count(u64),
    Total(f64),
    Level(f64),
    Histogram(HistogramSnapshot),
}

impl Samples {
    /// A count that only grows; its name gets the suffix `_total`.
    pub(crate) fn counter(&mut self, name: &str, help: &str, labels: &[Label<'_>], value: u64) {
        let number = Number::Count(value);
        self.add(name, help, MetricType::Counter, labels, number);
    }

    /// A quantity that only grows; its name gets the suffix `_total`.
    pub(crate) fn total(&mut self, name: &str, help: &str, labels: &[Label<'_>], value: f64) {
        let number = Number::Total(value);
        self.add(name, help, MetricType::Counter, labels, number);
    }

    /// A quantity that rises and falls.
    pub(crate) fn gauge(&mut self, name: &str, help: &str, labels: &[Label<'_>], value: f64) {
        self.add(name, help, MetricType::Gauge, labels, Number::Level(value));
    }

    /// A distribution of durations; the name ends in `_seconds`.
    pub(crate) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: &[Label<'_>],
        value: HistogramSnapshot,
    ) {
        let number = Number::Histogram(value);
        self.add(name, help, MetricType::Histogram, labels, number);
    }

    fn add(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        labels: &[Label<'_>],
        number: Number,
    ) {
        let family = self
            .families
            .entry(name.to_owned())
            .or_insert_with(|| Family {
                help: help.to_owned(),
                kind,
                members: Vec::new(),
            });
        let labels = labels
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        family.members.push((labels, number));
    }

    /// The text that Prometheus scrapes.
    pub(crate) fn into_text(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }

    /// The same as JSON: names to lists of labels and values.
    pub(crate) fn to_json(&self) -> Value {
        self.families
            .iter()
            .map(|(name, family)| {
                let members: Vec<Value> = family
                    .members
                    .iter()
                    .map(|(labels, number)| member_json(labels, number))
                    .collect();
                let is_counter = matches!(family.kind, MetricType::Counter);
                let name = match is_counter {
                    true => format!("{name}_total"),
                    false => name.clone(),
                };
                (name, Value::from(members))
            })
            .collect()
    }
}

fn member_json(labels: &[(&'static str, String)], number: &Number) -> Value {
    let labels: BTreeMap<&str, &str> = labels.iter().map(|(n, v)| (*n, v.as_str())).collect();
    match number {
        Number::Count(value) => json!({ "labels": labels, "value": value }),
        Number::Total(value) | Number::Level(value) => json!({ "labels": labels, "value": value }),
        Number::Histogram(histogram) => json!({
            "labels": labels,
            "count": histogram.count(),
            "sum_seconds": histogram.sum_seconds,
        }),
    }
}

impl Collector for Samples {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, family) in &self.families {
            let mut metric = encoder.encode_descriptor(name, &family.help, None, family.kind)?;
            for (labels, number) in &family.members {
                if labels.is_empty() {
                    encode_number(&mut metric, number)?;
                } else {
                    encode_number(&mut metric.encode_family(labels)?, number)?;
                }
            }
        }
        Ok(())
    }
}

fn encode_number(metric: &mut MetricEncoder<'_>, number: &Number) -> Result<(), fmt::Error> {
    match number {
        Number::Count(value) => metric.encode_counter::<NoLabelSet, _, u64>(value, None),
        Number::Total(value) => metric.encode_counter::<NoLabelSet, _, f64>(value, None),
        Number::Level(value) => metric.encode_gauge(value),
        Number::Histogram(histogram) => metric.encode_histogram::<NoLabelSet>(
            histogram.sum_seconds,
            histogram.count(),
            &histogram.buckets,
            None,
        ),
    }
}

#[cfg(test)]
mod tests;
