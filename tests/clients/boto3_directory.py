"""boto3 against Floe in front of a folder: what only such an origin can."""

import hashlib
import os

from _floe import BUCKET, check, pattern, refused, run_parts

MIB = 1 << 20


def buckets(rig):
    """Buckets are made."""
    rig.floe.create_bucket(Bucket="made-here")
    check("a bucket is a folder", os.path.isdir(os.path.join(rig.origin_folder, "made-here")))
    rig.floe.head_bucket(Bucket="made-here")
    names = [bucket["Name"] for bucket in rig.floe.list_buckets()["Buckets"]]
    check("  and listed", names == sorted([BUCKET, "made-here"]), names)
    rig.floe.put_object(Bucket="made-here", Key="key", Body=b"x")
    check("  and used", rig.floe.get_object(Bucket="made-here", Key="key")["Body"].read() == b"x")
    got = refused(rig.floe.create_bucket, Bucket="made-here")
    check("  once", got == (409, "BucketAlreadyOwnedByYou"), got)


def uploads(rig):
    """Uploads under way and their parts are listed."""
    key, body = "multi", pattern(3, 3 * MIB)
    rig.floe.put_object(Bucket=BUCKET, Key="source", Body=body)
    upload = rig.floe.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
    listed = rig.floe.list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    check("an upload is listed", [(u["Key"], u["UploadId"]) for u in listed] == [(key, upload)], listed)
    for number, first in enumerate(range(0, len(body), MIB), 1):
        rig.floe.upload_part_copy(
            Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=number,
            CopySource={"Bucket": BUCKET, "Key": "source"},
            CopySourceRange=f"bytes={first}-{first + MIB - 1}",
        )
    pages = rig.floe.get_paginator("list_parts").paginate(
        Bucket=BUCKET, Key=key, UploadId=upload, PaginationConfig={"PageSize": 2}
    )
    parts = [part for page in pages for part in page["Parts"]]
    check("its parts are listed in pages", [(p["PartNumber"], p["Size"]) for p in parts]
          == [(1, MIB), (2, MIB), (3, MIB)], parts)
    rig.floe.complete_multipart_upload(
        Bucket=BUCKET, Key=key, UploadId=upload,
        MultipartUpload={"Parts": [{k: p[k] for k in ("PartNumber", "ETag")} for p in parts]},
    )
    check("they make the whole", rig.floe.get_object(Bucket=BUCKET, Key=key)["Body"].read() == body)
    check("and the upload is over",
          not rig.floe.list_multipart_uploads(Bucket=BUCKET).get("Uploads"))


def keys(rig):
    """Every key is an object: markers, empty and dotted parts, a file and a folder of one name."""
    long = "long/" + "x" * 300
    names = sorted(["m/", "m/a", "m", "m//", "m/../n", "/lead", long, "m/a/b", "é/", "tab\there"])
    for name in names:
        rig.floe.put_object(Bucket="made-here", Key=name, Body=name.encode())
    check("ordinary keys are files", os.path.isfile(os.path.join(rig.origin_folder, "made-here/m")))
    for turn in ("first", "second"):
        read = [rig.floe.get_object(Bucket="made-here", Key=name)["Body"].read().decode() for name in names]
        check(f"  {turn} read of each", read == names, read)
    listed = [o["Key"] for o in rig.floe.list_objects_v2(Bucket="made-here")["Contents"]]
    check("they are listed in order", listed == sorted(names + ["key"]), listed)
    pages = list(rig.floe.get_paginator("list_objects_v2").paginate(
        Bucket="made-here", Delimiter="/", PaginationConfig={"PageSize": 1}
    ))
    found = [o["Key"] for page in pages for o in page.get("Contents", [])]
    folders = [p["Prefix"] for page in pages for p in page.get("CommonPrefixes", [])]
    check("and folded", found == ["key", "m", "tab\there"] and folders == ["/", "long/", "m/", "é/"],
          (found, folders))
    got = refused(rig.floe.delete_bucket, Bucket="made-here")
    check("their bucket stays", got == (409, "BucketNotEmpty"), got)
    deleted = rig.floe.delete_objects(
        Bucket="made-here", Delete={"Objects": [{"Key": name} for name in names + ["key"]]}
    )
    check("they are deleted", len(deleted["Deleted"]) == len(names) + 1, deleted)
    rig.floe.delete_bucket(Bucket="made-here")
    check("then their bucket", not os.path.exists(os.path.join(rig.origin_folder, "made-here")))


def tags(rig):
    """Entity tags, conditions and checksums are S3's."""
    name = {"Bucket": BUCKET, "Key": "tag"}
    body = pattern(5, 100_000)
    put = rig.floe.put_object(**name, Body=body, IfNoneMatch="*", ChecksumAlgorithm="SHA256")
    tag = f'"{hashlib.md5(body).hexdigest()}"'
    check("the tag is the MD5 of the bytes", put["ETag"] == tag, put)
    got = refused(rig.floe.put_object, **name, Body=b"x", IfNoneMatch="*")
    check("an object is not replaced", got == (412, "PreconditionFailed"), got)
    got = refused(rig.floe.put_object, **name, Body=b"x", IfMatch='"another"')
    check("nor one with another tag", got == (412, "PreconditionFailed"), got)
    listed = rig.floe.list_objects_v2(Bucket=BUCKET, Prefix="tag")["Contents"][0]
    check("the tag is listed", listed["ETag"] == tag, listed)
    head = rig.floe.head_object(**name, ChecksumMode="ENABLED")
    check("the checksum is kept", head["ChecksumSHA256"] == put["ChecksumSHA256"], head)
    asked = rig.floe.get_object_attributes(**name, ObjectAttributes=["Checksum", "ETag", "ObjectSize"])
    check("and an attribute", asked["Checksum"]["ChecksumSHA256"] == put["ChecksumSHA256"], asked)
    with open(os.path.join(rig.origin_folder, BUCKET, "tag"), "r+b") as file:
        file.write(b"past Floe")
    read = rig.floe.get_object(**name, ChecksumMode="ENABLED")
    check("a program's write is seen", read["Body"].read() == b"past Floe" + body[9:])
    check("  with another tag and no checksum", read["ETag"] != tag and "ChecksumSHA256" not in read, read)
    got = refused(rig.floe.delete_object, **name, IfMatch=tag)
    check("a delete compares the tag", got == (412, "PreconditionFailed"), got)
    rig.floe.delete_object(**name, IfMatch=read["ETag"])
    got = refused(rig.floe.head_object, **name)
    check("  and deletes", got[0] == 404, got)


run_parts(buckets, keys, tags, uploads, origin="directory")
