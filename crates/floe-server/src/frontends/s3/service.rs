//! The library's service of S3, built from the parts of this frontend.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use floe::object::ObjectCache;
use s3s::service::{S3Service, S3ServiceBuilder};

use super::answer::Answers;
use super::attributes::ObjectAttributes;
use super::auth::{Access, Keys};
use super::config::S3Config;
use super::forward::Forwards;
use super::read::Reads;
use super::route::Route;
use super::target::Domains;
use super::upload::XML_BYTES_MAX;
use super::write::Writes;

pub(super) fn service(
    config: &S3Config,
    cache: ObjectCache,
    keys: Keys,
    upload_limit_bytes: Arc<AtomicU64>,
) -> S3Service {
    let domains = Domains::new(&config.domains);
    let access = Access {
        keys: keys.clone(),
        domains: domains.clone(),
        anonymous: config.anonymous.is_served(),
    };
    let forwards = cache.origin().forwards(Some("")).then(|| Forwards {
        cache: cache.clone(),
        domains: domains.clone(),
        keys: keys.clone(),
        upload_limit_bytes: Arc::clone(&upload_limit_bytes),
    });
    let mut builder = S3ServiceBuilder::new(Writes {
        keys: keys.clone(),
        cache: cache.clone(),
        region: config.region.clone(),
        upload_limit_bytes,
    });
    builder.set_host(domains.clone());
    builder.set_auth(keys);
    builder.set_access(access.clone());
    builder.set_route(Route {
        access,
        reads: Reads {
            answers: Answers::new(&cache),
            domains: domains.clone(),
        },
        attributes: ObjectAttributes { cache, domains },
        forwards,
    });
    let mut limits = s3s::config::S3Config::default();
    limits.xml_max_body_size = XML_BYTES_MAX;
    builder.set_config(Arc::new(s3s::config::StaticConfigProvider::new(Arc::new(
        limits,
    ))));
    builder.build()
}
