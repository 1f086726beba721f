"""boto3 against Floe, compared with the origin."""

import io

from boto3.s3.transfer import TransferConfig
from botocore import UNSIGNED

from _floe import (
    BUCKET, FLOE_KEYS, by_url, check, in_time, pattern, refused, run_parts, s3_client,
)

MIB = 1 << 20


def reads(rig):
    """Objects of the origin through the cache, twice."""
    sizes = [0, 1, 1000, 65536, 65537, 3 * MIB + 17, 20 * MIB]
    for seed, size in enumerate(sizes):
        body = pattern(seed, size)
        rig.origin.put_object(
            Bucket=BUCKET,
            Key=f"read/{size}",
            Body=body,
            ContentType="text/x",
            Metadata={"colour": "blue"},
        )
        for turn in ("first", "second"):
            got = rig.floe.get_object(Bucket=BUCKET, Key=f"read/{size}")
            check(f"{turn} read of {size} bytes", got["Body"].read() == body)
            check("  with its type and metadata",
                  got["ContentType"] == "text/x" and got["Metadata"] == {"colour": "blue"})
        head = rig.floe.head_object(Bucket=BUCKET, Key=f"read/{size}")
        theirs = rig.origin.head_object(Bucket=BUCKET, Key=f"read/{size}")
        check("  HEAD as at the origin", all(
            head[field] == theirs[field]
            for field in ("ContentLength", "ETag", "LastModified", "ContentType", "Metadata")
        ), f"{head} {theirs}")


def ranges(rig):
    """Parts of an object."""
    size = 3 * MIB + 17
    body = pattern(5, size)
    for first, last in [(0, 0), (0, size - 1), (65535, 65536), (MIB - 1, 2 * MIB), (size - 1, size - 1)]:
        got = rig.floe.get_object(Bucket=BUCKET, Key=f"read/{size}", Range=f"bytes={first}-{last}")
        check(f"bytes {first} to {last}", got["Body"].read() == body[first : last + 1])
        check("  and where they lie", got["ContentRange"] == f"bytes {first}-{last}/{size}")
    for text, expected in [("bytes=100-", body[100:]), ("bytes=-100", body[-100:])]:
        got = rig.floe.get_object(Bucket=BUCKET, Key=f"read/{size}", Range=text)
        check(text, got["Body"].read() == expected)
    past = refused(rig.floe.get_object, Bucket=BUCKET, Key=f"read/{size}", Range=f"bytes={size}-")
    check("a range past the end is refused", past == (416, "InvalidRange"), past)
    target = io.BytesIO()
    config = TransferConfig(multipart_threshold=MIB, multipart_chunksize=MIB, max_concurrency=8)
    rig.floe.download_fileobj(BUCKET, f"read/{20 * MIB}", target, Config=config)
    check("20 MiB in parallel ranges", target.getvalue() == pattern(6, 20 * MIB))


def conditions(rig):
    """Conditional reads."""
    key = "read/1000"
    head = rig.floe.head_object(Bucket=BUCKET, Key=key)
    etag, modified = head["ETag"], head["LastModified"]
    for arguments, status in [
        ({"IfMatch": etag}, 200),
        ({"IfMatch": '"other"'}, 412),
        ({"IfNoneMatch": etag}, 304),
        ({"IfNoneMatch": '"other"'}, 200),
        ({"IfModifiedSince": modified}, 304),
        ({"IfUnmodifiedSince": modified}, 200),
    ]:
        got = refused(rig.floe.get_object, Bucket=BUCKET, Key=key, **arguments)[0]
        check(f"{next(iter(arguments))} gives {status}", got == status, got)


def writes(rig):
    """Uploads, overwrites, deletes."""
    for size in (0, 1, 100_000, 5 * MIB):
        body = pattern(size, size)
        key = f"write/{size} ä+&"
        put = rig.floe.put_object(
            Bucket=BUCKET, Key=key, Body=body, ContentType="text/y", Metadata={"a": "1"}
        )
        check(f"an upload of {size} bytes is at the origin", rig.at_origin(key) == body)
        check("  with its ETag", rig.origin.head_object(Bucket=BUCKET, Key=key)["ETag"] == put["ETag"])
        got = rig.floe.get_object(Bucket=BUCKET, Key=key)
        check("  and is read back", got["Body"].read() == body and got["Metadata"] == {"a": "1"})
    key = "write/over"
    for version in range(3):
        body = pattern(version, 200_000)
        rig.floe.put_object(Bucket=BUCKET, Key=key, Body=body)
        check(f"version {version} is read after it was written",
              rig.floe.get_object(Bucket=BUCKET, Key=key)["Body"].read() == body)
    body = pattern(99, 200_001)
    rig.origin.put_object(Bucket=BUCKET, Key=key, Body=body)
    check("a version written past the cache is read",
          rig.floe.get_object(Bucket=BUCKET, Key=key)["Body"].read() == body)
    for wrong in ({"ContentMD5": "A" * 22 + "=="}, {"ChecksumSHA256": "A" * 43 + "="}):
        bad, alone = [
            refused(client.put_object, Bucket=BUCKET, Key="write/bad", Body=b"x", **wrong)
            for client in (rig.floe, rig.origin)
        ]
        check("a wrong checksum is judged by the origin", bad == alone, (bad, alone))
    exists = refused(rig.floe.put_object, Bucket=BUCKET, Key=key, Body=b"x", IfNoneMatch="*")
    check("If-None-Match: * does not overwrite", exists == (412, "PreconditionFailed"), exists)
    check("  and nothing changed", rig.at_origin(key) == body)
    rig.floe.delete_object(Bucket=BUCKET, Key=key)
    check("a deleted object is gone through Floe",
          refused(rig.floe.get_object, Bucket=BUCKET, Key=key) == (404, "NoSuchKey"))
    check("  and at the origin",
          refused(rig.origin.get_object, Bucket=BUCKET, Key=key) == (404, "NoSuchKey"))


def multipart(rig):
    """Uploads in parts."""
    body = pattern(7, 20 * MIB + 5)
    config = TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=8 * MIB)
    rig.floe.upload_fileobj(
        io.BytesIO(body), BUCKET, "multi/part", Config=config, ExtraArgs={"ContentType": "text/z"}
    )
    check("20 MiB in parts are at the origin", rig.at_origin("multi/part") == body)
    for turn in ("first", "second"):
        got = rig.floe.get_object(Bucket=BUCKET, Key="multi/part")
        check(f"  {turn} read", got["Body"].read() == body and got["ContentType"] == "text/z")
    upload = rig.floe.create_multipart_upload(Bucket=BUCKET, Key="multi/aborted")["UploadId"]
    rig.floe.upload_part(
        Bucket=BUCKET, Key="multi/aborted", UploadId=upload, PartNumber=1, Body=b"x" * 1000
    )
    rig.floe.abort_multipart_upload(Bucket=BUCKET, Key="multi/aborted", UploadId=upload)
    check("an aborted upload leaves nothing",
          refused(rig.floe.get_object, Bucket=BUCKET, Key="multi/aborted")[0] == 404)


def copied_parts(rig):
    """Uploads in parts that are copied from other objects."""
    key, size = "multi/copied", 20 * MIB
    upload = rig.floe.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
    source = {"Bucket": BUCKET, "Key": f"read/{size}"}
    parts = []
    for number, (first, last) in enumerate([(0, 8 * MIB - 1), (8 * MIB, size - 1)], 1):
        answer = rig.floe.upload_part_copy(
            Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=number,
            CopySource=source, CopySourceRange=f"bytes={first}-{last}",
        )
        parts.append({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]})
    rig.floe.complete_multipart_upload(
        Bucket=BUCKET, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}
    )
    check("parts copied by ranges make the whole", rig.at_origin(key) == pattern(6, size))


def left_to_the_origin(rig):
    """What the origin answers itself, and keys that only it can judge."""
    location = rig.floe.get_bucket_location(Bucket=BUCKET)
    check("the bucket has a location", location["LocationConstraint"] in (None, "us-east-1"), location)
    upload = rig.floe.create_multipart_upload(Bucket=BUCKET, Key="multi/open")["UploadId"]
    rig.floe.upload_part(
        Bucket=BUCKET, Key="multi/open", UploadId=upload, PartNumber=7, Body=b"x" * 1000
    )
    parts = rig.floe.list_parts(Bucket=BUCKET, Key="multi/open", UploadId=upload)["Parts"]
    check("parts are listed", [part["PartNumber"] for part in parts] == [7], parts)
    uploads = rig.floe.list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    check("uploads are listed", [one["Key"] for one in uploads] == ["multi/open"], uploads)
    rig.floe.abort_multipart_upload(Bucket=BUCKET, Key="multi/open", UploadId=upload)
    other = "another-bucket"
    rig.floe.create_bucket(Bucket=other)
    rig.floe.put_bucket_versioning(Bucket=other, VersioningConfiguration={"Status": "Enabled"})
    versions = [
        rig.floe.put_object(Bucket=other, Key="k", Body=body)["VersionId"] for body in (b"1", b"2")
    ]
    for version, body in zip(versions, (b"1", b"2")):
        got = rig.floe.get_object(Bucket=other, Key="k", VersionId=version)["Body"].read()
        check(f"version {body.decode()} is read", got == body, got)
    for turn in ("first", "second"):
        got = rig.floe.get_object(Bucket=other, Key="k")
        check(f"the newest version is named in the {turn} read", got["VersionId"] == versions[1], got)
    rig.floe.delete_object(Bucket=other, Key="k", VersionId=versions[1])
    got = rig.floe.get_object(Bucket=other, Key="k")["Body"].read()
    check("a version is deleted, and the one before it is read", got == b"1", got)
    rig.floe.delete_object(Bucket=other, Key="k", VersionId=versions[0])
    rig.floe.delete_bucket(Bucket=other)
    check("a bucket is deleted", refused(rig.origin.head_bucket, Bucket=other)[0] == 404)
    key = "left/tagged"
    rig.floe.put_object(Bucket=BUCKET, Key=key, Body=b"x", Tagging="a=b", StorageClass="STANDARD_IA")
    tags = rig.floe.get_object_tagging(Bucket=BUCKET, Key=key)["TagSet"]
    check("tags are kept", tags == [{"Key": "a", "Value": "b"}], tags)
    acl = rig.floe.get_object_acl(Bucket=BUCKET, Key=key)
    check("access control lists are the origin's",
          acl["Owner"] == rig.origin.get_object_acl(Bucket=BUCKET, Key=key)["Owner"], acl)
    for index, key in enumerate(("a//b", "a/", "/a", "c%20+&=?#", "x" * 1024, "tab\tkey")):
        body = pattern(index, 70_000)
        rig.floe.put_object(Bucket=BUCKET, Key=key, Body=body)
        check(f"the key {key[:20]!r} is at the origin", rig.at_origin(key) == body)
        for turn in ("first", "second"):
            got = rig.floe.get_object(Bucket=BUCKET, Key=key)
            check(f"  and in the {turn} read", got["Body"].read() == body)
        rig.floe.delete_object(Bucket=BUCKET, Key=key)
        check("  and deleted", refused(rig.floe.get_object, Bucket=BUCKET, Key=key)[0] == 404)


def listings(rig):
    """Listings as at the origin."""
    for index in range(25):
        rig.origin.put_object(Bucket=BUCKET, Key=f"list/{index % 5}/ö {index}&", Body=b"x")
    for operation in ("list_objects", "list_objects_v2"):
        for arguments in (
            {"Prefix": "list/"},
            {"Prefix": "list/", "Delimiter": "/"},
            {"Prefix": "list/3/", "Delimiter": "/"},
            {"Prefix": "nothing/"},
        ):
            for page_size in (1, 4, 1000):
                names = [
                    entries(client, operation, arguments, page_size)
                    for client in (rig.floe, rig.origin)
                ]
                check(f"{operation} {arguments} in pages of {page_size}",
                      names[0] == names[1], f"{names[0]} {names[1]}")
    buckets = [bucket["Name"] for bucket in rig.floe.list_buckets()["Buckets"]]
    check("the bucket is listed", buckets == [BUCKET], buckets)
    check("the bucket is there", rig.floe.head_bucket(Bucket=BUCKET)["ResponseMetadata"]["HTTPStatusCode"] == 200)
    check("another is not", refused(rig.floe.head_bucket, Bucket="no-such-bucket")[0] == 404)
    location = rig.floe.get_bucket_location(Bucket=BUCKET)
    check("its location", location["LocationConstraint"] in (None, "us-east-1"), location)


def entries(client, operation, arguments, page_size):
    """Everything that a paginated listing names."""
    found = []
    paginator = client.get_paginator(operation)
    for page in paginator.paginate(Bucket=BUCKET, PaginationConfig={"PageSize": page_size}, **arguments):
        found += [(entry["Key"], entry["Size"], entry["ETag"]) for entry in page.get("Contents", [])]
        found += [entry["Prefix"] for entry in page.get("CommonPrefixes", [])]
    return sorted(found, key=str)


def copies_and_deletes(rig):
    """CopyObject and DeleteObjects."""
    body = rig.at_origin("read/65537")
    rig.floe.copy_object(Bucket=BUCKET, Key="copy", CopySource={"Bucket": BUCKET, "Key": "read/65537"})
    check("a copy is at the origin", rig.at_origin("copy") == body)
    got = rig.floe.get_object(Bucket=BUCKET, Key="copy")
    check("  with its metadata", got["Body"].read() == body and got["Metadata"] == {"colour": "blue"})
    keys = [{"Key": f"list/{index % 5}/ö {index}&"} for index in range(25)]
    answer = rig.floe.delete_objects(Bucket=BUCKET, Delete={"Objects": keys})
    check("25 objects are deleted at once",
          len(answer["Deleted"]) == 25 and not answer.get("Errors"), answer)
    left = rig.origin.list_objects_v2(Bucket=BUCKET, Prefix="list/")["KeyCount"]
    check("  and gone at the origin", left == 0, left)


def signatures(rig):
    """Who is let in."""
    key = "read/1000"
    for name, keys, code in [
        ("a wrong secret", (FLOE_KEYS[0], "not the secret"), "SignatureDoesNotMatch"),
        ("an unknown key", ("NOBODY", FLOE_KEYS[1]), "InvalidAccessKeyId"),
    ]:
        client = s3_client(rig.endpoint, keys)
        got = refused(client.get_object, Bucket=BUCKET, Key=key)
        check(f"{name} is refused for reading", got == (403, code), got)
        got = refused(client.put_object, Bucket=BUCKET, Key=key, Body=b"forged")
        check("  and for writing", got == (403, code), got)
    unsigned = s3_client(rig.endpoint, FLOE_KEYS, signature_version=UNSIGNED)
    got = refused(unsigned.get_object, Bucket=BUCKET, Key=key)
    check("an unsigned request is refused", got == (403, "AccessDenied"), got)
    check("nothing was forged", rig.at_origin(key) == pattern(2, 1000))
    signed = s3_client(rig.endpoint, FLOE_KEYS, signature_version="s3v4")
    url = signed.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": key})
    check("a presigned URL works", by_url(url) == (200, pattern(2, 1000)))
    status, _ = by_url(url.replace("read/1000", "read/65536"))
    check("  for its object only", status == 403, status)
    put = signed.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "presigned"})
    status, answer = by_url(put, b"put by URL")
    check("  and for uploads", status == 200 and rig.at_origin("presigned") == b"put by URL", answer)


def metrics(rig):
    """One miss, then one hit."""
    rig.origin.put_object(Bucket=BUCKET, Key="counted", Body=pattern(8, 100_000))
    counts = lambda: [
        rig.metric("floe_object_reads_total", result=result) for result in ("miss", "hit")
    ]
    before = counts()
    for turn, expected in (("a miss", [1, 0]), ("then a hit", [1, 1])):
        got = rig.floe.get_object(Bucket=BUCKET, Key="counted")
        got["Body"].read()
        header = got["ResponseMetadata"]["HTTPHeaders"]["x-floe-cache"]
        # A read counts when the server has ended it, a moment after its last byte.
        after = in_time(lambda: [new - old for new, old in zip(counts(), before)], expected)
        check(f"the metrics show {turn} (x-floe-cache: {header})", after == expected, after)
        rig.settle()


run_parts(
    reads, ranges, conditions, writes, multipart, copied_parts, left_to_the_origin, listings,
    copies_and_deletes, signatures, metrics,
)
