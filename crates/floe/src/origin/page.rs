//! Pages of a listing.

use super::error::OriginError;
use super::types::{ListPage, ListRequest, ListedObject};

/// Collects one page of a listing from objects in the byte order of their keys.
pub(crate) struct Pager<'a> {
    request: &'a ListRequest,
    /// The page has only keys after this one.
    after: String,
    /// The last common prefix of the page before; keys below it are skipped.
    folded: Option<String>,
    page: ListPage,
    full: bool,
}

impl<'a> Pager<'a> {
    /// A continuation is `k` and the last key, or `p` and the last common prefix.
    pub(crate) fn new(request: &'a ListRequest) -> Result<Self, OriginError> {
        let mut after = request.start_after.clone().unwrap_or_default();
        let mut folded = None;
        if let Some(continuation) = &request.continuation {
            if let Some(prefix) = continuation.strip_prefix('p') {
                folded = Some(prefix.to_owned());
                after = after.max(prefix.to_owned());
            } else if let Some(key) = continuation.strip_prefix('k') {
                after = after.max(key.to_owned());
            } else {
                return Err(OriginError::Rejected {
                    status: 400,
                    message: "the continuation token is not one of this origin's".into(),
                });
            }
        }
        Ok(Pager {
            request,
            after,
            folded,
            page: ListPage::default(),
            full: false,
        })
    }

    /// True if the page may have keys that begin with `below`.
    pub(crate) fn wants_below(&self, below: &[u8]) -> bool {
        let (prefix, after) = (self.request.prefix.as_bytes(), self.after.as_bytes());
        let folded = self.folded.as_ref().map(String::as_bytes);
        (below.starts_with(prefix) || prefix.starts_with(below))
            && (below > after || after.starts_with(below))
            && !folded.is_some_and(|folded| below.starts_with(folded))
    }

    pub(crate) fn wants_key(&self, key: &str) -> bool {
        key.starts_with(&self.request.prefix) && key > self.after.as_str() && !self.is_folded(key)
    }

    /// Ends the page before it is full: the next one begins after `key`.
    pub(crate) fn end_after(&mut self, key: &str) {
        self.full = true;
        self.page.next = Some(format!("k{key}"));
    }

    /// The last common prefix: the page wants no further key that begins with it.
    pub(crate) fn folded(&self) -> Option<&str> {
        self.folded.as_deref()
    }

    /// Keys up to this one are of no use to the page.
    pub(crate) fn after(&self) -> &str {
        &self.after
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    pub(crate) fn into_page(self) -> ListPage {
        self.page
    }

    fn is_folded(&self, path: &str) -> bool {
        self.folded
            .as_ref()
            .is_some_and(|folded| path.starts_with(folded))
    }

    pub(crate) fn offer(&mut self, object: ListedObject) {
        if self.page.objects.len() + self.page.common_prefixes.len() == self.request.max_keys {
            self.full = true;
            self.page.next = Some(self.continuation());
            return;
        }
        match self.common_prefix(&object.key) {
            Some(prefix) => {
                self.folded = Some(prefix.clone());
                self.page.common_prefixes.push(prefix);
            }
            None => {
                self.after.clone_from(&object.key);
                self.page.objects.push(object);
            }
        }
    }

    fn common_prefix(&self, key: &str) -> Option<String> {
        let delimiter = self
            .request
            .delimiter
            .as_deref()
            .filter(|d| !d.is_empty())?;
        let behind = key.get(self.request.prefix.len()..)?;
        let end = self.request.prefix.len() + behind.find(delimiter)? + delimiter.len();
        key.get(..end).map(str::to_owned)
    }

    /// Keys and prefixes are in order, so the greater of the two is the last.
    fn continuation(&self) -> String {
        let key = self.page.objects.last().map(|object| object.key.as_str());
        match (key, self.page.common_prefixes.last()) {
            (Some(key), Some(prefix)) if key < prefix.as_str() => format!("p{prefix}"),
            (None, Some(prefix)) => format!("p{prefix}"),
            (key, _) => format!("k{}", key.unwrap_or_default()),
        }
    }
}
