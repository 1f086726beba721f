"""boto3 against a cache-only bucket beside the buckets of an S3 origin."""

import hashlib
import os
import signal

from _floe import BUCKET, FLOE_KEYS, Failure, by_url, check, pattern, refused, run_parts, s3_client

MIB = 1 << 20
KEPT = "kept"
SMALL = "small-bucket"


def settings(_):
    """A bucket without limits, and one of a megabyte."""
    return f"""
[object]
cache_only = [
    {{ bucket = "{KEPT}" }},
    {{ bucket = "{SMALL}", capacity = "1MiB" }},
]
"""


def read(rig, key, bucket=KEPT, **arguments):
    return rig.floe.get_object(Bucket=bucket, Key=key, **arguments)["Body"].read()


def listed(rig, bucket=KEPT, **arguments):
    pages = rig.floe.get_paginator("list_objects_v2").paginate(Bucket=bucket, **arguments)
    return [one["Key"] for page in pages for one in page.get("Contents", [])]


def buckets(rig):
    """Both kinds of buckets are listed, and the settings alone make one cache-only."""
    rig.origin.create_bucket(Bucket=KEPT)
    names = [bucket["Name"] for bucket in rig.floe.list_buckets()["Buckets"]]
    check("all buckets are listed", names == sorted([BUCKET, KEPT, SMALL]), names)
    rig.floe.head_bucket(Bucket=KEPT)
    got = refused(rig.floe.create_bucket, Bucket=KEPT)
    check("a cache-only bucket exists", got == (409, "BucketAlreadyOwnedByYou"), got)
    got = refused(rig.floe.delete_bucket, Bucket=KEPT)
    check("and stays", got == (501, "NotImplemented"), got)


def objects(rig):
    """Objects of all sizes are what was written last."""
    for size in (0, 1, 4096, 256 << 10, 3 * MIB + 5):
        body = pattern(size, size)
        put = rig.floe.put_object(
            Bucket=KEPT, Key="a/object", Body=body, ContentType="text/x", Metadata={"colour": "blue"},
        )
        check(f"{size} bytes have their MD5 as tag", put["ETag"].strip('"') == hashlib.md5(body).hexdigest())
        got = rig.floe.get_object(Bucket=KEPT, Key="a/object")
        check("  and are read", got["Body"].read() == body and got["ETag"] == put["ETag"])
        check("  with their headers", got["ContentType"] == "text/x" and got["Metadata"] == {"colour": "blue"})
        head = rig.floe.head_object(Bucket=KEPT, Key="a/object")
        check("  and metadata", head["ContentLength"] == size and head["Metadata"] == {"colour": "blue"})
    check("a range", read(rig, "a/object", Range="bytes=1000-2000000") == body[1000:2000001])
    check("a suffix", read(rig, "a/object", Range="bytes=-10") == body[-10:])
    got = refused(rig.floe.get_object, Bucket=KEPT, Key="none")
    check("a missing object", got == (404, "NoSuchKey"), got)
    attributes = rig.floe.get_object_attributes(
        Bucket=KEPT, Key="a/object", ObjectAttributes=["ObjectSize", "ETag"]
    )
    check("attributes", attributes["ObjectSize"] == len(body))
    got = refused(rig.origin.get_object, Bucket=KEPT, Key="a/object")
    check("the origin has nothing of it", got == (404, "NoSuchKey"), got)


def conditions(rig):
    """Conditional requests."""
    tag = rig.floe.put_object(Bucket=KEPT, Key="if", Body=b"one", IfNoneMatch="*")["ETag"]
    got = refused(rig.floe.put_object, Bucket=KEPT, Key="if", Body=b"two", IfNoneMatch="*")
    check("a second creation fails", got == (412, "PreconditionFailed"), got)
    got = refused(rig.floe.put_object, Bucket=KEPT, Key="if", Body=b"two", IfMatch='"0"')
    check("so does a replacement of another object", got == (412, "PreconditionFailed"), got)
    rig.floe.put_object(Bucket=KEPT, Key="if", Body=b"two", IfMatch=tag)
    check("that of the object succeeds", read(rig, "if") == b"two")
    got = refused(rig.floe.get_object, Bucket=KEPT, Key="if", IfMatch=tag)
    check("a read of the old object fails", got[0] == 412, got)


def listings(rig):
    """Listings are ordered, paged and folded."""
    names = sorted(["m/", "m/a", "m", "m//b", "é/x", "n/1", "n/2", "n/3", "z"])
    for name in names:
        rig.floe.put_object(Bucket=KEPT, Key=f"list/{name}", Body=name.encode())
    for size in (1, 2, 100):
        found = listed(rig, Prefix="list/", PaginationConfig={"PageSize": size})
        check(f"all keys in pages of {size}", found == [f"list/{name}" for name in names], found)
    page = rig.floe.list_objects_v2(Bucket=KEPT, Prefix="list/", Delimiter="/")
    folded = [one["Prefix"] for one in page["CommonPrefixes"]]
    check("folders", folded == ["list/m/", "list/n/", "list/é/"], folded)
    deleted = [{"Key": f"list/{name}"} for name in names]
    rig.floe.delete_objects(Bucket=KEPT, Delete={"Objects": deleted})
    check("deletes of many", listed(rig, Prefix="list/") == [])


def uploads(rig):
    """Uploads in parts."""
    body = pattern(7, 12 * MIB + 17)
    upload = rig.floe.create_multipart_upload(Bucket=KEPT, Key="big")["UploadId"]
    parts = []
    for number, first in enumerate(range(0, len(body), 5 * MIB), 1):
        tag = rig.floe.upload_part(
            Bucket=KEPT, Key="big", UploadId=upload, PartNumber=number, Body=body[first : first + 5 * MIB]
        )["ETag"]
        parts.append({"PartNumber": number, "ETag": tag})
    check("an object under way is none", refused(rig.floe.head_object, Bucket=KEPT, Key="big")[0] == 404)
    complete = {"Bucket": KEPT, "Key": "big", "UploadId": upload, "MultipartUpload": {"Parts": parts}}
    first = rig.floe.complete_multipart_upload(**complete)["ETag"]
    check("its tag counts parts", first.strip('"').endswith("-3"), first)
    check("a repeated completion has the same answer", rig.floe.complete_multipart_upload(**complete)["ETag"] == first)
    check("the parts make the whole", read(rig, "big") == body)
    check("no upload is left", not rig.floe.list_multipart_uploads(Bucket=KEPT).get("Uploads"))
    upload = rig.floe.create_multipart_upload(Bucket=KEPT, Key="gone")["UploadId"]
    rig.floe.upload_part(Bucket=KEPT, Key="gone", UploadId=upload, PartNumber=1, Body=b"x")
    rig.floe.abort_multipart_upload(Bucket=KEPT, Key="gone", UploadId=upload)
    check("an aborted one leaves no object", refused(rig.floe.head_object, Bucket=KEPT, Key="gone")[0] == 404)


def copies(rig):
    """Copies within the bucket, and to and from the origin's."""
    body = pattern(8, MIB)
    rig.floe.put_object(Bucket=KEPT, Key="from", Body=body, Metadata={"a": "b"})
    rig.floe.copy_object(Bucket=KEPT, Key="to", CopySource={"Bucket": KEPT, "Key": "from"})
    check("a copy within", read(rig, "to") == body)
    rig.floe.copy_object(Bucket=BUCKET, Key="out", CopySource={"Bucket": KEPT, "Key": "from"})
    check("a copy to the origin", rig.at_origin("out") == body)
    rig.origin.put_object(Bucket=BUCKET, Key="in", Body=body[:1000])
    rig.floe.copy_object(Bucket=KEPT, Key="in", CopySource={"Bucket": BUCKET, "Key": "in"})
    check("a copy from the origin", read(rig, "in") == body[:1000])


def presigned(rig):
    """Presigned URLs, both ways."""
    client = s3_client(rig.endpoint, FLOE_KEYS, signature_version="s3v4")
    url = client.generate_presigned_url("put_object", {"Bucket": KEPT, "Key": "url"})
    status, answer = by_url(url, b"by URL")
    check("a presigned upload", status == 200, answer)
    url = client.generate_presigned_url("get_object", {"Bucket": KEPT, "Key": "url"})
    check("  is read by a presigned URL", by_url(url) == (200, b"by URL"))


def capacity(rig):
    """A bucket keeps to its capacity."""
    for number in range(8):
        rig.floe.put_object(Bucket=SMALL, Key=f"{number}", Body=pattern(number, 300_000))
    check("the newest objects stay", listed(rig, SMALL) == ["5", "6", "7"], listed(rig, SMALL))
    check("whole", all(read(rig, f"{n}", SMALL) == pattern(n, 300_000) for n in (5, 6, 7)))
    got = refused(rig.floe.put_object, Bucket=SMALL, Key="huge", Body=pattern(1, 2 * MIB))
    check("an object beyond it is refused", got[0] == 400, got)


def restart(rig):
    """What was acknowledged before a kill is there after it, or missing; never older."""
    bodies = {}
    for number in range(200):
        key = f"crash/{number % 50}"
        bodies[key] = pattern(number, 20_000)
        rig.floe.put_object(Bucket=KEPT, Key=key, Body=bodies[key])
    rig.floe.delete_object(Bucket=KEPT, Key="crash/7")
    del bodies["crash/7"]
    os.kill(rig.process.pid, signal.SIGKILL)
    rig.process.wait()
    rig._start_floe()
    rig.floe = s3_client(rig.endpoint, FLOE_KEYS)
    found = 0
    for key, body in bodies.items():
        status, _ = refused(rig.floe.head_object, Bucket=KEPT, Key=key)
        if status == 200:
            if read(rig, key) != body:
                raise Failure(f"{key} has other bytes after a kill")
            found += 1
    check("no object is older after a kill", True)
    print(f"      {found} of {len(bodies)} objects were kept")
    check("a deleted one stays deleted", refused(rig.floe.head_object, Bucket=KEPT, Key="crash/7")[0] == 404)
    whole = [key for key in bodies if refused(rig.floe.head_object, Bucket=KEPT, Key=key)[0] == 200]
    check("the listing has those that are left", listed(rig, Prefix="crash/") == sorted(whole))


if __name__ == "__main__":
    run_parts(
        buckets, objects, conditions, listings, uploads, copies, presigned, capacity, restart,
        settings=settings,
    )
