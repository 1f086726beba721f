"""boto3 against Floe in front of a folder: what only such an origin can."""

import os

from _floe import BUCKET, check, pattern, refused, run

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


def everything(rig):
    """All of it."""
    for part in (buckets, keys, uploads):
        print(f"-- {part.__doc__}")
        part(rig)


run(everything, origin="directory")
