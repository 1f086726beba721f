use http::Uri;
use proptest::prelude::*;

use super::*;

fn named(document: &str) -> Result<Vec<String>, String> {
    let found = of_delete_objects("b", document.as_bytes());
    let found = found.map_err(|error| error.message().unwrap_or_default().to_owned())?;
    Ok(found.iter().map(|key| key.key().to_owned()).collect())
}

#[test]
fn deleted_keys_are_read_as_a_parser_of_xml_reads_them() {
    let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    let open = "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
    let keys = "<Object><Key>a&amp;b&#x41;&lt;</Key><VersionId>v</VersionId></Object>\
        <Object>\n<Key><![CDATA[<c>]]></Key></Object><Quiet>true</Quiet>";
    let document = format!("{head}{open}{keys}</Delete>");
    assert_eq!(named(&document).unwrap(), ["<c>", "a&bA<"]);
    let spaced = named("<Delete><Object><Key> d\r\ne </Key></Object></Delete>").unwrap();
    assert_eq!(spaced, [" d\ne ", " d\r\ne ", "d\ne", "d\r\ne"]);
}

#[test]
fn documents_that_another_parser_could_read_otherwise_are_rejected() {
    let key = |text: &str| format!("<Delete><Object><Key>{text}</Key></Object></Delete>");
    for (document, reason) in [
        ("<Delete></Delete>".to_owned(), "between 1 and 1000"),
        (key("x").repeat(1001), "between 1 and 1000"),
        (format!("<!DOCTYPE a>{}", key("x")), "a document type"),
        (key("&own;"), "an entity"),
        (key("<b>x</b>"), "within a Key"),
        (key("a<!-- b -->c"), "within a Key"),
        (key("a<?b?>c"), "within a Key"),
        (key("<Key>x</Key>"), "within a Key"),
        (
            format!("<?xml version=\"1.0\" encoding=\"utf-7\"?>{}", key("x")),
            "an encoding",
        ),
        (format!("<?xml version=\"1.1\"?>{}", key("x")), "a version"),
        ("<Delete><Object>".to_owned(), "between 1 and 1000"),
        ("<a></b>".to_owned(), "well-formed"),
    ] {
        let error = named(&document).unwrap_err();
        assert!(error.contains(reason), "{document:.60}: {error}");
    }
    assert!(of_delete_objects("b", b"\xff\xfe<").is_err());
}

#[test]
fn requests_change_what_they_may_change() {
    let of = |method: Method, query: &str, source: Option<&'static str>| {
        let uri: Uri = format!("/b/k?{query}").parse().unwrap();
        let mut headers = HeaderMap::new();
        if let Some(source) = source {
            headers.insert("x-amz-rename-source", source.parse().unwrap());
        }
        let changed = of_object(&method, "b", "k", &Query::of(&uri), &headers).unwrap();
        let keys: Vec<String> = changed.iter().map(|key| key.key().to_owned()).collect();
        keys.join(" ")
    };
    assert_eq!(of(Method::GET, "acl", None), "");
    assert_eq!(of(Method::HEAD, "", None), "");
    for (method, query, expected) in [
        (Method::PUT, "", "k"),
        (Method::PUT, "tagging", "k"),
        // Servers take these for uploads and deletes.
        (Method::PUT, "select", "k"),
        (Method::PUT, "uploads", "k"),
        (Method::DELETE, "uploads", "k"),
        (Method::DELETE, "select&select-type=2", "k"),
        (Method::PUT, "uploadId=u", "k"),
        (Method::PUT, "partNumber=x&uploadId=u", "k"),
        (Method::PUT, "partNumber=0&uploadId=u", "k"),
        (Method::PUT, "partNumber=%2B1&uploadId=u", "k"),
        (Method::PUT, "partNumber=1&partNumber=x&uploadId=u", "k"),
        (Method::PUT, "partNumber=1&uploadId=&uploadId=u", "k"),
        (Method::DELETE, "uploadId=u&uploadId=", "k"),
        (Method::PUT, "partNumber=1", "k"),
        (Method::PUT, "partNumber=1&uploadId=", "k"),
        (Method::DELETE, "uploadId=", "k"),
        (Method::POST, "uploads&uploadId=u", "k"),
        (Method::POST, "select", "k"),
        (Method::PUT, "partNumber=1&uploadId=u", ""),
        (Method::POST, "uploads", ""),
        (Method::POST, "uploadId=u", "k"),
        (Method::POST, "select&select-type=2", ""),
        (Method::POST, "restore", "k"),
        (Method::DELETE, "", "k"),
        (Method::DELETE, "versionId=v", "k"),
        (Method::DELETE, "uploadId=u", ""),
        (Method::PATCH, "", "k"),
    ] {
        assert_eq!(of(method, query, None), expected, "{query}");
    }
    let renamed = of(Method::PUT, "renameObject", Some("/b/old%20key"));
    assert_eq!(
        renamed,
        "k b/old key /b/old key /b/old key b/old key old key"
    );
    let unstable = of_object(
        &Method::PUT,
        "b",
        "x/..//k",
        &Query::default(),
        &HeaderMap::new(),
    );
    let keys: Vec<ObjectKey> = unstable.unwrap();
    let expected = ["k", "/k", "x/..//k"].map(|key| ObjectKey::new("b", key));
    assert_eq!(keys, expected);
}

proptest! {
    #[test]
    fn any_document_names_keys_or_is_rejected(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        key in ".{1,20}",
    ) {
        let _ = of_delete_objects("b", &bytes);
        let escaped = key.replace('&', "&amp;").replace('<', "&lt;").replace("]]>", "]]&gt;");
        let document = format!("<Delete><Object><Key>{escaped}</Key></Object></Delete>");
        // A key that XML cannot hold is rejected; otherwise the list contains the key itself.
        if let Ok(found) = of_delete_objects("b", document.as_bytes()) {
            prop_assert!(found.contains(&ObjectKey::new("b", key)));
        }
    }
}
