"""`aws s3` and `aws s3api` against Floe, with each kind of origin."""

import functools
import json
import os
import subprocess

from _floe import BUCKET, FLOE_KEYS, ORIGINS, by_url, check, pattern, run_parts

MIB = 1 << 20
ROOT = f"s3://{BUCKET}"
BIG = 12 * MIB + 3
SIZES = (0, 100_000, BIG)

# Parts are of 5 MiB. Without the second setting, presigned URLs have signatures of Version 2.
SETTINGS = """[default]
s3 =
  multipart_threshold = 6MB
  multipart_chunksize = 5MB
  signature_version = s3v4
"""


def aws(rig, *arguments, keys=FLOE_KEYS, expect=0):
    """Runs the command line client; returns what it printed."""
    settings = os.path.join(rig.folder, "aws.config")
    with open(settings, "w", encoding="utf-8") as file:
        file.write(SETTINGS)
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": keys[0],
        "AWS_SECRET_ACCESS_KEY": keys[1],
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_CONFIG_FILE": settings,
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    done = subprocess.run(
        ["aws", "--endpoint-url", rig.endpoint, *arguments],
        env=environment, capture_output=True, timeout=120, check=False,
    )
    output = done.stdout.decode() + done.stderr.decode()
    check(f"aws {' '.join(arguments[:2])} ends with {expect}", done.returncode == expect, output)
    return output


def api(rig, operation, *arguments):
    """The answer to an operation of `s3api` on the bucket."""
    output = aws(rig, "s3api", operation, "--bucket", BUCKET, *arguments)
    return json.loads(output) if output.strip() else {}


def refused(rig, code, operation, *arguments, **more):
    """Checks that an operation of `s3api` is refused with a code."""
    output = aws(
        rig, "s3api", operation, "--bucket", BUCKET, *arguments,
        expect=254 if aws_version() >= 2 else 255, **more,
    )
    check(f"  by {code}", f"({code})" in output, output)


@functools.cache
def aws_version():
    """The client's major version, which decides its exit codes."""
    text = subprocess.run(["aws", "--version"], capture_output=True, check=True).stdout.decode()
    return int(text.split("/")[1].split(".")[0])


def write(rig, name, body):
    """The path of a new file."""
    path = os.path.join(rig.folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(body)
    return path


def read(path):
    with open(path, "rb") as file:
        return file.read()


def files(rig):
    """Uploads and downloads of files, small and in parts."""
    for size in SIZES:
        body = pattern(size, size)
        aws(rig, "s3", "cp", "--quiet", write(rig, f"up-{size}", body), f"{ROOT}/cli/{size}")
        check(f"  {size} bytes are at the origin", rig.stored(f"cli/{size}") == body)
        down = os.path.join(rig.folder, f"down-{size}")
        for turn in ("first", "second"):
            aws(rig, "s3", "cp", "--quiet", f"{ROOT}/cli/{size}", down)
            check(f"  {size} bytes come back, {turn} time", read(down) == body)


def listing(rig):
    """What `ls` prints, and pages of `s3api`."""
    names = sorted(map(str, SIZES))
    output = aws(rig, "s3", "ls", f"{ROOT}/cli/")
    check("  all are listed", [line.split()[-1] for line in output.splitlines()] == names, output)
    check("  buckets as well", BUCKET in aws(rig, "s3", "ls"))
    for operation in ("list-objects", "list-objects-v2"):
        query = (operation, "--prefix", "cli/")
        whole = api(rig, *query, "--page-size", "1")["Contents"]
        check("  all in pages of one", [one["Key"] for one in whole] == [f"cli/{name}" for name in names], whole)
    first = api(rig, *query, "--max-items", "2")
    rest = api(rig, *query, "--starting-token", first["NextToken"])
    check("  from where another listing ended", first["Contents"] + rest["Contents"] == whole, rest)
    folded = api(rig, "list-objects-v2", "--delimiter", "/")["CommonPrefixes"]
    check("  folders", folded == [{"Prefix": "cli/"}], folded)


def ranges(rig):
    """Ranges by `s3api`."""
    target = os.path.join(rig.folder, "range")
    for size, first, last in ((100_000, 1000, 1999), (BIG, 5 * MIB - 1, 10 * MIB)):
        answer = api(rig, "get-object", "--key", f"cli/{size}", "--range", f"bytes={first}-{last}", target)
        check("  its bytes", read(target) == pattern(size, size)[first : last + 1])
        check("  and where they lie", answer["ContentRange"] == f"bytes {first}-{last}/{size}", answer)
    refused(rig, "InvalidRange", "get-object", "--key", "cli/100000", "--range", "bytes=100000-", target)


def parts(rig):
    """An upload in parts by `s3api`."""
    key, body = "api/parts", pattern(5, 5 * MIB + 7)
    chunks = [body[: 5 * MIB], body[5 * MIB :]]
    name = ("--key", key, "--upload-id", api(rig, "create-multipart-upload", "--key", key)["UploadId"])
    uploads = api(rig, "list-multipart-uploads")["Uploads"]
    check("  it is listed", [one["Key"] for one in uploads] == [key], uploads)
    for number, chunk in enumerate(chunks, 1):
        api(rig, "upload-part", *name, "--part-number", str(number), "--body", write(rig, "part", chunk))
    listed = api(rig, "list-parts", *name)["Parts"]
    check("  its parts as well", [one["Size"] for one in listed] == [len(chunk) for chunk in chunks], listed)
    refused(rig, "NoSuchKey", "get-object", "--key", key, os.devnull)
    whole = {"Parts": [{field: one[field] for field in ("PartNumber", "ETag")} for one in listed]}
    api(rig, "complete-multipart-upload", *name, "--multipart-upload", json.dumps(whole))
    check("  they make the whole", rig.stored(key) == body)
    target = os.path.join(rig.folder, "parts")
    for turn in ("first", "second"):
        api(rig, "get-object", "--key", key, target)
        check(f"  {turn} read", read(target) == body)
    name = ("--key", key, "--upload-id", api(rig, "create-multipart-upload", "--key", key)["UploadId"])
    api(rig, "abort-multipart-upload", *name)
    refused(rig, "NoSuchUpload", "list-parts", *name)


def copies(rig):
    """Copies and a move within the bucket."""
    for size in (100_000, BIG):
        aws(rig, "s3", "cp", "--quiet", f"{ROOT}/cli/{size}", f"{ROOT}/copy/{size}")
        check(f"  a copy of {size} bytes", rig.stored(f"copy/{size}") == pattern(size, size))
    api(rig, "copy-object", "--copy-source", f"{BUCKET}/cli/0", "--key", "copy/0")
    check("  a copy of nothing", rig.stored("copy/0") == b"")
    aws(rig, "s3", "mv", "--quiet", f"{ROOT}/copy/100000", f"{ROOT}/copy/moved")
    check("  a moved object is at its new place", rig.stored("copy/moved") == pattern(100_000, 100_000))
    aws(rig, "s3", "cp", "--quiet", f"{ROOT}/copy/100000", os.devnull, expect=1)


def markers(rig):
    """Directory markers, one beside the object of its name, one with bytes."""
    for key, body in (("mark/", b""), ("mark/er/", b"bytes"), ("mark/er", b"object"), ("mark/er/in", b"in")):
        api(rig, "put-object", "--key", key, "--body", write(rig, "marker", body))
    target = os.path.join(rig.folder, "marker")
    for key, body in (("mark/", b""), ("mark/er/", b"bytes"), ("mark/er", b"object")):
        api(rig, "get-object", "--key", key, target)
        check(f"  {key} has its bytes", read(target) == body)
    check("  and at the origin", rig.stored("mark/") == b"" and rig.stored("mark/er/") == b"bytes")
    page = api(rig, "list-objects-v2", "--prefix", "mark/", "--delimiter", "/")
    check("  they are listed", [one["Key"] for one in page["Contents"]] == ["mark/", "mark/er"]
          and page["CommonPrefixes"] == [{"Prefix": "mark/er/"}], page)
    api(rig, "delete-object", "--key", "mark/er/")
    refused(rig, "404", "head-object", "--key", "mark/er/")
    api(rig, "head-object", "--key", "mark/er/in")


def conditions(rig):
    """Conditional writes and reads."""
    one, two, key = write(rig, "one", b"one"), write(rig, "two", b"two"), ("--key", "if")
    tag = api(rig, "put-object", *key, "--body", one, "--if-none-match", "*")["ETag"]
    refused(rig, "PreconditionFailed", "put-object", *key, "--body", two, "--if-none-match", "*")
    refused(rig, "PreconditionFailed", "put-object", *key, "--body", two, "--if-match", '"other"')
    check("  nothing has changed", rig.stored("if") == b"one")
    api(rig, "put-object", *key, "--body", two, "--if-match", tag)
    check("  the tag's object is replaced", rig.stored("if") == b"two")
    refused(rig, "PreconditionFailed", "get-object", *key, "--if-match", tag, os.devnull)
    now = api(rig, "head-object", *key, "--if-none-match", tag)["ETag"]
    refused(rig, "304", "head-object", *key, "--if-none-match", now)


def presigned(rig):
    """Presigned URLs; this client writes them for reads only."""
    for size in (100_000, BIG):
        url = aws(rig, "s3", "presign", f"{ROOT}/cli/{size}").strip()
        check("  of Version 4", "X-Amz-Signature=" in url, url)
        check("  a read", by_url(url) == (200, pattern(size, size)))
    status, _ = by_url(url.replace(f"cli/{BIG}", "cli/0"))
    check("  of its object only", status == 403, status)


def trees(rig):
    """A folder there and back, twice, and its removal."""
    source, back = (os.path.join(rig.folder, name) for name in ("tree", "back"))
    bodies = {f"{index % 3}/file {index}": pattern(index, 1000 * index) for index in range(20)}
    for name, body in bodies.items():
        write(rig, f"tree/{name}", body)

    def there_and_back(*options):
        aws(rig, "s3", "sync", "--quiet", *options, source, f"{ROOT}/tree")
        aws(rig, "s3", "sync", "--quiet", *options, f"{ROOT}/tree", back)
        found = {
            os.path.relpath(os.path.join(folder, name), back): read(os.path.join(folder, name))
            for folder, _, names in os.walk(back) for name in names
        }
        check("  every file came back", found == bodies, sorted(found))
        check("  and is at the origin", all(rig.stored(f"tree/{name}") == bodies[name] for name in bodies))

    there_and_back()
    bodies["0/file 3"] = b"changed"
    write(rig, "tree/0/file 3", b"changed")
    os.remove(os.path.join(source, "1/file 4"))
    del bodies["1/file 4"]
    there_and_back("--delete")
    aws(rig, "s3", "rm", "--quiet", "--recursive", f"{ROOT}/tree")
    left = rig.floe.list_objects_v2(Bucket=BUCKET, Prefix="tree/")["KeyCount"]
    check("  a removed folder is gone", left == 0, left)


def wrong_keys(rig):
    """A wrong key is refused."""
    target = os.path.join(rig.folder, "forbidden")
    keys = (FLOE_KEYS[0], "not the secret")
    refused(rig, "SignatureDoesNotMatch", "get-object", "--key", "cli/100000", target, keys=keys)
    check("  and nothing was written", not os.path.exists(target) or os.path.getsize(target) == 0)


run_parts(
    files, listing, ranges, parts, copies, markers, conditions, presigned, trees, wrong_keys,
    origin=ORIGINS,
)
