//! Reads the configurations of proxies before Floe nodes, and finds what makes their ring
//! return stale values. It must not depend on settings, files or sockets.
//!
//! A node keeps its content over a restart. If a proxy sends a key to another node for a
//! while, writes go there, and the first node still has the value from before. A node that
//! knows the ring refuses the keys of other nodes instead.

mod finding;
mod haproxy;
mod nodes;
mod nutcracker;
mod shares;

use finding::TEXT_BYTES_MAX;
pub(crate) use finding::{Finding, Severity, Unreadable};
pub(crate) use nodes::{Consistency, Nodes, RingHash};
pub(crate) use shares::PoolShares;

/// The configuration of one proxy.
#[derive(Debug)]
pub(crate) struct Config {
    name: String,
    proxy: Proxy,
}

#[derive(Debug)]
enum Proxy {
    Nutcracker(Vec<nutcracker::Pool>),
    Haproxy(haproxy::Sections),
}

/// The findings in one configuration, the worst first.
///
/// # Errors
/// The text is neither a nutcracker nor an HAProxy configuration.
#[cfg(test)]
fn check(text: &str, name: &str, nodes: &Nodes) -> Result<Vec<Finding>, Unreadable> {
    Ok(check_all(&[Config::parse(text, name)?], nodes))
}

/// The findings in each configuration and between them, the worst first.
pub(crate) fn check_all(configs: &[Config], nodes: &Nodes) -> Vec<Finding> {
    let mut findings: Vec<Finding> = configs
        .iter()
        .flat_map(|config| config.findings(nodes))
        .collect();
    findings.extend(compare(configs, nodes));
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// The findings between configurations: one server in two rings.
fn compare(configs: &[Config], nodes: &Nodes) -> Vec<Finding> {
    let pools: Vec<_> = configs.iter().flat_map(Config::pools).collect();
    let backends: Vec<_> = configs.iter().flat_map(Config::backends).collect();
    let mut findings = nutcracker::conflicts(&pools, nodes);
    findings.extend(haproxy::conflicts(&backends, nodes));
    findings.extend(haproxy::detours(&backends, &pools));
    findings
}

impl Config {
    /// Reads a configuration. Its content tells the format.
    ///
    /// # Errors
    /// The text is neither a nutcracker nor an HAProxy configuration.
    pub(crate) fn parse(text: &str, name: &str) -> Result<Self, Unreadable> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Unreadable::TooLong {
                name: name.to_owned(),
                bytes: text.len(),
            });
        }
        let proxy = if haproxy::recognizes(text) {
            haproxy::parse(text).map(Proxy::Haproxy)
        } else if nutcracker::recognizes(text) {
            nutcracker::parse(text).map(Proxy::Nutcracker)
        } else {
            return Err(Unreadable::Unknown {
                name: name.to_owned(),
            });
        };
        Ok(Config {
            name: name.to_owned(),
            proxy: proxy.map_err(|bad| bad.of(name))?,
        })
    }

    /// The shares of keys in nutcracker's pools whose distribution is ketama.
    pub(crate) fn shares(&self) -> Vec<PoolShares> {
        let pools = self.pools().into_iter();
        pools.filter_map(|(_, pool)| pool.shares()).collect()
    }

    fn findings(&self, nodes: &Nodes) -> Vec<Finding> {
        match &self.proxy {
            Proxy::Nutcracker(pools) => pools
                .iter()
                .flat_map(|pool| nutcracker::findings(pool, &self.name, nodes))
                .collect(),
            Proxy::Haproxy(sections) => haproxy::findings(sections, &self.name, nodes),
        }
    }

    /// nutcracker's pools, each with the name of its file.
    fn pools(&self) -> Vec<(&str, &nutcracker::Pool)> {
        let pools = match &self.proxy {
            Proxy::Nutcracker(pools) => pools.as_slice(),
            Proxy::Haproxy(_) => &[],
        };
        pools.iter().map(|pool| (self.name(), pool)).collect()
    }

    /// HAProxy's backends, each with the name of its file.
    fn backends(&self) -> Vec<(&str, &haproxy::Backend)> {
        let backends = match &self.proxy {
            Proxy::Nutcracker(_) => &[],
            Proxy::Haproxy(sections) => sections.backends.as_slice(),
        };
        backends.iter().map(|one| (self.name(), one)).collect()
    }

    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
