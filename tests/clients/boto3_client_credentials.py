"""boto3 with users of the origin's own: the origin verifies their signatures through the cache."""

import urllib.error
import urllib.request

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from _floe import BUCKET, check, pattern, refused, run, s3_client

MIB = 1 << 20

USERS = {
    "writer": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}],
    "reader": [
        {
            "Effect": "Allow",
            "Action": ["s3:GetObject", "s3:ListBucket", "s3:HeadObject"],
            "Resource": [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/open/*"],
        }
    ],
}


def read(client, key, **arguments):
    """The bytes of an object, and what the cache had of it."""
    got = client.get_object(Bucket=BUCKET, Key=key, **arguments)
    headers = got["ResponseMetadata"]["HTTPHeaders"]
    return got["Body"].read(), headers.get("x-floe-cache")


def objects(rig, writer, reader):
    """Objects of all sizes and odd names are read from the cache by those who may."""
    for key in ("open/a", "open/ \u00fc+%&=#?~", "open/a/b//c", "open/d.e/"):
        for size in (0, 4096, 3 * MIB + 5):
            body = pattern(size, size)
            writer.put_object(Bucket=BUCKET, Key=key, Body=body, Metadata={"colour": "blue"})
            check(f"{key} with {size} bytes is at the origin", rig.at_origin(key) == body)
            check("  and is read", read(reader, key)[0] == body)
            check("  again, too", read(reader, key)[0] == body)
            check("  and by its writer", read(writer, key)[0] == body)
    check("a range", read(reader, "open/a", Range="bytes=1000-2000000")[0] == body[1000:2000001])
    rig.settle()
    result = read(reader, "open/a")[1]
    check("the cache answers", result == "hit", result)
    head = reader.head_object(Bucket=BUCKET, Key="open/a")
    check("HEAD", head["ContentLength"] == len(body) and head["Metadata"] == {"colour": "blue"})


def rights(rig, writer, reader):
    """The origin's rights hold for what is in the cache."""
    writer.put_object(Bucket=BUCKET, Key="closed/a", Body=b"secret")
    check("its writer reads it", read(writer, "closed/a")[0] == b"secret")
    rig.settle()
    check("  from the cache", read(writer, "closed/a") == (b"secret", "hit"))
    got = refused(reader.get_object, Bucket=BUCKET, Key="closed/a")
    check("another user does not", got == (403, "AccessDenied"), got)
    got = refused(reader.put_object, Bucket=BUCKET, Key="open/a", Body=b"other")
    check("nor write", got == (403, "AccessDenied"), got)
    forger = s3_client(rig.endpoint, (rig.keys["writer"][0], "not the secret"))
    got = refused(forger.get_object, Bucket=BUCKET, Key="closed/a")
    check("nor by a forged signature", got == (403, "SignatureDoesNotMatch"), got)
    stranger = s3_client(rig.endpoint, ("AKIASTRANGER00000000", "a secret"))
    got = refused(stranger.get_object, Bucket=BUCKET, Key="closed/a")
    check("nor by an unknown key", got == (403, "InvalidAccessKeyId"), got)


def changes(rig, writer, reader):
    """What changes is read at once."""
    for body in (b"one", b"two", b"three"):
        writer.put_object(Bucket=BUCKET, Key="open/c", Body=body)
        check("a new version is read at once", read(reader, "open/c")[0] == body)
    rig.origin.put_object(Bucket=BUCKET, Key="open/c", Body=b"past the cache")
    check("one past the cache, too", read(reader, "open/c")[0] == b"past the cache")
    writer.copy_object(Bucket=BUCKET, Key="open/copy", CopySource=f"{BUCKET}/open/c")
    check("a copy", read(reader, "open/copy")[0] == b"past the cache")
    writer.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "open/c"}]})
    got = refused(reader.get_object, Bucket=BUCKET, Key="open/c")
    check("a deleted object is gone", got == (404, "NoSuchKey"), got)
    parts = [pattern(1, 5 * MIB), pattern(2, 1000)]
    upload = writer.create_multipart_upload(Bucket=BUCKET, Key="open/parts")["UploadId"]
    sent = [
        {
            "PartNumber": number,
            "ETag": writer.upload_part(
                Bucket=BUCKET, Key="open/parts", UploadId=upload, PartNumber=number, Body=part
            )["ETag"],
        }
        for number, part in enumerate(parts, 1)
    ]
    writer.complete_multipart_upload(
        Bucket=BUCKET, Key="open/parts", UploadId=upload, MultipartUpload={"Parts": sent}
    )
    check("an upload in parts", read(reader, "open/parts")[0] == b"".join(parts))
    keys = [one["Key"] for one in reader.list_objects_v2(Bucket=BUCKET, Prefix="open/p")["Contents"]]
    check("a listing", keys == ["open/parts"], keys)


def remembered(rig, writer, _):
    """A request that the origin accepted is answered without it for a time."""
    writer.put_object(Bucket=BUCKET, Key="open/again", Body=b"twice")
    url = f"{rig.endpoint}/{BUCKET}/open/again"
    request = AWSRequest("GET", url)
    S3SigV4Auth(Credentials(*rig.keys["writer"]), "s3", "us-east-1").add_auth(request)
    headers = dict(request.headers.items())

    def answer(url):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, None, headers), timeout=10) as got:
                return got.status, got.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    before = rig.metric("floe_s3_client_reads_total", source="remembered")
    for _ in range(3):
        got = answer(url)
        check("one signed request", got == (200, b"twice"), got)
    rise = rig.metric("floe_s3_client_reads_total", source="remembered") - before
    check("  is judged once", rise == 2, rise)
    status, _ = answer(url.replace("/open/again", "/closed/a"))
    check("  and names one object", status == 403, status)


def body(rig):
    writer, reader = (s3_client(rig.endpoint, rig.keys[name]) for name in ("writer", "reader"))
    for part in (objects, rights, changes, remembered):
        part(rig, writer, reader)


if __name__ == "__main__":
    run(body, users=USERS)
