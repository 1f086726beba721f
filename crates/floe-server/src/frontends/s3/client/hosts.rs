//! The host names that clients sign.

use http::{HeaderMap, Uri};
use s3s::{S3ErrorCode, S3Result};

use crate::config::{ServerConfigError, problem};
use crate::frontends::s3::error::with;
use crate::frontends::s3::target::{self, Domains};

/// Names by which clients address the origin.
pub(super) struct Hosts {
    /// Without a port, in lower case. Requests to these have the bucket in the path.
    names: Vec<String>,
    domains: Domains,
}

impl Hosts {
    /// # Errors
    /// One name lies below another, so that it would also name a bucket.
    pub(super) fn new(
        of_origin: &str,
        others: &[String],
        domains: &[String],
    ) -> Result<Self, ServerConfigError> {
        let own = [of_origin.to_owned()];
        let all = own.iter().chain(others).chain(domains);
        let names: Vec<String> = all.map(|name| name.to_ascii_lowercase()).collect();
        for name in &names {
            let is_above = |other: &&String| {
                let rest = name.strip_suffix(&***other);
                rest.is_some_and(|rest| rest.ends_with('.'))
            };
            if let Some(other) = names.iter().find(is_above) {
                return Err(problem(
                    "s3.client_hosts",
                    &format!(
                        "`{name}` is below `{other}`: servers may take its first part for a bucket"
                    ),
                    "keep one of the two in origin.endpoint, s3.client_hosts and s3.domains",
                ));
            }
        }
        Ok(Hosts {
            names,
            domains: Domains::new(domains),
        })
    }

    /// The host of a request, as its client wrote it.
    ///
    /// # Errors
    /// It is no name of the origin.
    pub(super) fn of<'a>(&self, uri: &'a Uri, headers: &'a HeaderMap) -> S3Result<&'a str> {
        let host = target::host(uri, headers).unwrap_or_default();
        let name = target::without_port(host);
        let is_named = self.names.iter().any(|one| one.eq_ignore_ascii_case(name));
        // Servers differ in names that are not in lower case, and in ports that are none.
        let port = host.get(name.len()..).unwrap_or_default();
        let is_plain = !host.bytes().any(|byte| byte.is_ascii_uppercase())
            && (port.is_empty() || port[1..].parse::<u16>().is_ok());
        match is_plain && (is_named || self.domains.names_bucket(host)) {
            true => Ok(host),
            false => Err(with(
                S3ErrorCode::InvalidRequest,
                format!(
                    "The request names the host `{host}`, and the origin verifies its signature: \
                     address the origin's own host name, or list this one in s3.client_hosts"
                ),
            )),
        }
    }
}
