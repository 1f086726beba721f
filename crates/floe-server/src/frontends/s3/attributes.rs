//! `GetObjectAttributes`. Its entity tag has no quotes, unlike every tag that `s3s` writes.

use std::fmt::Write as _;

use floe::object::{ObjectCache, ObjectKey, ObjectMeta};
use floe::origin::PartSizes;
use http::header::{CONTENT_TYPE, HeaderValue, LAST_MODIFIED};
use http::{HeaderMap, Method, Uri};
use s3s::{Body, S3Request, S3Response, S3Result};

use super::checksums;
use super::error::{invalid_argument, s3_error};
use super::kept::reject_dropped;
use super::query::Query;
use super::read::reject_versions;
use super::target::Domains;

const NAMES: [&str; 5] = [
    "Checksum",
    "ETag",
    "ObjectParts",
    "ObjectSize",
    "StorageClass",
];

/// Most parts of a page, as in S3.
const PAGE_PARTS_MAX: u32 = 1000;

/// Answers requests for attributes of objects.
pub(crate) struct ObjectAttributes {
    pub(crate) cache: ObjectCache,
    pub(crate) domains: Domains,
}

impl ObjectAttributes {
    pub(super) fn is_asked(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
        method == Method::GET
            && Query::of(uri).has("attributes")
            && self.domains.object(uri, headers).is_some()
    }

    pub(super) async fn call(&self, request: &S3Request<Body>) -> S3Result<S3Response<Body>> {
        let query = Query::of(&request.uri);
        reject_dropped("GetObjectAttributes", &query, &request.headers)?;
        reject_versions(&query)?;
        let asked = asked(&request.headers)?;
        let object = self.domains.object(&request.uri, &request.headers);
        let (bucket, key) = object.ok_or_else(|| invalid_argument("no object is named"))?;
        let found = self.cache.head(&ObjectKey::new(bucket, key)).await;
        let meta = found.map_err(s3_error)?.meta;
        let page = match asked.contains(&"ObjectParts") {
            true => Some(Page::asked(&request.headers)?),
            false => None,
        };
        let mut response = S3Response::new(Body::from(document(&meta, &asked, page)));
        let xml = HeaderValue::from_static("application/xml");
        response.headers.insert(CONTENT_TYPE, xml);
        if let Some(time) = meta.last_modified
            && let Ok(date) = HeaderValue::from_str(&httpdate::fmt_http_date(time))
        {
            response.headers.insert(LAST_MODIFIED, date);
        }
        Ok(response)
    }
}

/// The names in `x-amz-object-attributes`.
fn asked(headers: &HeaderMap) -> S3Result<Vec<&str>> {
    let lines = headers.get_all("x-amz-object-attributes").iter();
    let texts = lines.map(|line| line.to_str().unwrap_or_default());
    let names: Vec<&str> = texts
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .collect();
    match names.is_empty() || names.iter().any(|name| !NAMES.contains(name)) {
        true => Err(invalid_argument(format!(
            "x-amz-object-attributes must name some of {}",
            NAMES.join(", ")
        ))),
        false => Ok(names),
    }
}

/// A page of the list of parts.
#[derive(Clone, Copy)]
struct Page {
    after: u32,
    parts_max: u32,
}

impl Page {
    fn asked(headers: &HeaderMap) -> S3Result<Self> {
        let number = |name, default| match headers.get(name) {
            None => Ok(default),
            Some(value) => {
                let number = value
                    .to_str()
                    .ok()
                    .and_then(|text| text.trim().parse().ok());
                number.ok_or_else(|| invalid_argument(format!("{name} is no number")))
            }
        };
        Ok(Page {
            after: number("x-amz-part-number-marker", 0)?,
            parts_max: number("x-amz-max-parts", PAGE_PARTS_MAX)?.min(PAGE_PARTS_MAX),
        })
    }
}

/// The parts that the object was uploaded in. Of parts of too many sizes only the number is
/// known, from the entity tag.
fn parts(xml: &mut String, meta: &ObjectMeta, page: Page) {
    let tag = meta.client_etag().unwrap_or_default().trim_matches('"');
    let of_tag = tag.rsplit_once('-').filter(|_| meta.content_etag.is_some());
    let Some(sizes) = PartSizes::of(&meta.attributes.headers, meta.size) else {
        if let Some((_, count)) = of_tag {
            xml.push_str("<ObjectParts>");
            element(xml, "PartsCount", count);
            xml.push_str("</ObjectParts>");
        }
        return;
    };
    let count = u32::try_from(sizes.count()).unwrap_or(u32::MAX);
    let listed = (page.after.saturating_add(1)..=count)
        .take(page.parts_max as usize)
        .map_while(|number| Some((number, sizes.range(number)?)));
    let mut last = page.after;
    let mut rows = String::new();
    for (number, range) in listed {
        rows.push_str("<Part>");
        element(&mut rows, "PartNumber", &number.to_string());
        element(&mut rows, "Size", &(range.end - range.start).to_string());
        rows.push_str("</Part>");
        last = number;
    }
    let is_truncated = u64::from(last) < sizes.count() && page.parts_max > 0;
    xml.push_str("<ObjectParts>");
    element(xml, "IsTruncated", &is_truncated.to_string());
    element(xml, "MaxParts", &page.parts_max.to_string());
    element(xml, "NextPartNumberMarker", &last.to_string());
    element(xml, "PartNumberMarker", &page.after.to_string());
    xml.push_str(&rows);
    element(xml, "PartsCount", &sizes.count().to_string());
    xml.push_str("</ObjectParts>");
}

fn document(meta: &ObjectMeta, asked: &[&str], page: Option<Page>) -> String {
    let mut xml = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <GetObjectAttributesResponse xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">",
    );
    let tag = meta.client_etag().unwrap_or_default().trim_matches('"');
    if asked.contains(&"ETag") {
        element(&mut xml, "ETag", tag);
    }
    if asked.contains(&"Checksum")
        && let Some(sums) = checksums::of(&meta.attributes.headers)
    {
        xml.push_str("<Checksum>");
        for (name, value) in [
            ("ChecksumCRC32", sums.checksum_crc32),
            ("ChecksumCRC32C", sums.checksum_crc32c),
            ("ChecksumCRC64NVME", sums.checksum_crc64nvme),
            ("ChecksumSHA1", sums.checksum_sha1),
            ("ChecksumSHA256", sums.checksum_sha256),
        ] {
            if let Some(value) = value {
                element(&mut xml, name, &value);
            }
        }
        if let Some(kind) = sums.checksum_type {
            element(&mut xml, "ChecksumType", kind.as_str());
        }
        xml.push_str("</Checksum>");
    }
    if let Some(page) = page {
        parts(&mut xml, meta, page);
    }
    if asked.contains(&"StorageClass") {
        let class = meta.attributes.storage_class.as_deref();
        element(&mut xml, "StorageClass", class.unwrap_or("STANDARD"));
    }
    if asked.contains(&"ObjectSize") {
        element(&mut xml, "ObjectSize", &meta.size.to_string());
    }
    xml.push_str("</GetObjectAttributesResponse>");
    xml
}

fn element(xml: &mut String, name: &str, text: &str) {
    let text = quick_xml::escape::escape(text);
    // Writing to a string cannot fail.
    let _ = write!(xml, "<{name}>{text}</{name}>");
}
