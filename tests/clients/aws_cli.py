"""`aws s3` and `aws s3api` against Floe, compared with the origin."""

import json
import os
import subprocess

from _floe import BUCKET, FLOE_KEYS, check, pattern, run

MIB = 1 << 20


def aws(rig, *arguments, keys=FLOE_KEYS, expect=0):
    """Runs the command line client; returns what it printed."""
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": keys[0],
        "AWS_SECRET_ACCESS_KEY": keys[1],
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_CONFIG_FILE": "/dev/null",
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


def files(rig):
    """Uploads and downloads of files, small and in parts."""
    for size in (0, 10, 100_000, 30 * MIB + 3):
        body = pattern(size, size)
        up, down = (os.path.join(rig.folder, f"{way}-{size}") for way in ("up", "down"))
        with open(up, "wb") as file:
            file.write(body)
        aws(rig, "s3", "cp", "--quiet", up, f"s3://{BUCKET}/cli/{size}")
        check(f"  {size} bytes are at the origin", rig.at_origin(f"cli/{size}") == body)
        for _ in range(2):
            aws(rig, "s3", "cp", "--quiet", f"s3://{BUCKET}/cli/{size}", down)
            with open(down, "rb") as file:
                check(f"  {size} bytes come back", file.read() == body)


def listing(rig):
    """What `ls` prints."""
    output = aws(rig, "s3", "ls", f"s3://{BUCKET}/cli/")
    names = sorted(line.split()[-1] for line in output.splitlines())
    check("  all four are listed", names == sorted(["0", "10", "100000", str(30 * MIB + 3)]), output)
    check("  buckets as well", BUCKET in aws(rig, "s3", "ls"))


def ranges(rig):
    """A range by `s3api`."""
    target = os.path.join(rig.folder, "range")
    output = aws(
        rig, "s3api", "get-object", "--bucket", BUCKET, "--key", "cli/100000",
        "--range", "bytes=1000-1999", target,
    )
    with open(target, "rb") as file:
        check("  its bytes", file.read() == pattern(100_000, 100_000)[1000:2000])
    check("  and where they lie", json.loads(output)["ContentRange"] == "bytes 1000-1999/100000")


def trees(rig):
    """A folder there and back, a move, a removal."""
    source, back = (os.path.join(rig.folder, name) for name in ("tree", "back"))
    for index in range(20):
        path = os.path.join(source, str(index % 3), f"file {index}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(pattern(index, 1000 * index))
    aws(rig, "s3", "sync", "--quiet", source, f"s3://{BUCKET}/tree")
    aws(rig, "s3", "sync", "--quiet", f"s3://{BUCKET}/tree", back)
    for index in range(20):
        with open(os.path.join(back, str(index % 3), f"file {index}"), "rb") as file:
            check(f"  file {index} came back", file.read() == pattern(index, 1000 * index))
    aws(rig, "s3", "mv", "--quiet", f"s3://{BUCKET}/cli/10", f"s3://{BUCKET}/cli/moved")
    check("  a moved object is at its new place", rig.at_origin("cli/moved") == pattern(10, 10))
    aws(rig, "s3", "rm", "--quiet", "--recursive", f"s3://{BUCKET}/tree")
    left = rig.origin.list_objects_v2(Bucket=BUCKET, Prefix="tree/")["KeyCount"]
    check("  a removed folder is gone at the origin", left == 0, left)
    aws(rig, "s3", "cp", "--quiet", f"s3://{BUCKET}/cli/10", os.devnull, expect=1)


def wrong_keys(rig):
    """A wrong key is refused."""
    target = os.path.join(rig.folder, "forbidden")
    output = aws(
        rig, "s3api", "get-object", "--bucket", BUCKET, "--key", "cli/100000", target,
        keys=(FLOE_KEYS[0], "not the secret"), expect=254 if aws_version() >= 2 else 255,
    )
    check("  by its signature", "SignatureDoesNotMatch" in output, output)
    check("  and nothing was written", not os.path.exists(target) or os.path.getsize(target) == 0)


def aws_version():
    """The client's major version, which decides its exit codes."""
    text = subprocess.run(["aws", "--version"], capture_output=True, check=True).stdout.decode()
    return int(text.split("/")[1].split(".")[0])


def everything(rig):
    """All of it, in an order in which later parts use earlier ones' objects."""
    for part in (files, listing, ranges, trees, wrong_keys):
        print(f"-- {part.__doc__}")
        part(rig)


run(everything)
