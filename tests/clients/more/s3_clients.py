"""Clients of S3 that others wrote, each through an S3 origin, a folder and a cache-only bucket:
put, get, ranges, listings, uploads in parts, copies, directory markers, presigned URLs,
synchronised folders. Every byte is compared."""

import filecmp
import io
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from datetime import timedelta

from _floe import BUCKET, FLOE_KEYS, Rig, Failure, check, pattern

MIB = 1 << 20
BIG = pattern(1, 17 * MIB + 3)
SMALL = pattern(2, 1000)


def host(rig):
    return rig.endpoint.removeprefix("http://")


def stored(rig, key):
    """The bytes of an object at the origin, past the cache, unless they are there alone."""
    if rig.is_cache_only:
        return rig.floe.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    if rig.origin_server is None:
        with open(os.path.join(rig.origin_folder, BUCKET, key), "rb") as file:
            return file.read()
    return rig.at_origin(key)


def fetch(url, data=None):
    """A request with nothing but the URL."""
    request = urllib.request.Request(url, data=data, method="PUT" if data else "GET")
    if data:
        request.add_header("Content-Type", "application/octet-stream")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def minio_py(rig):
    """minio-py"""
    from minio import Minio
    from minio.commonconfig import ComposeSource, CopySource
    from minio.deleteobjects import DeleteObject

    client = Minio(host(rig), *FLOE_KEYS, secure=False, region="us-east-1")
    check("the bucket exists", client.bucket_exists(BUCKET))
    for name, body in (("small", SMALL), ("big", BIG)):
        key = f"minio/{name}"
        client.put_object(
            BUCKET, key, io.BytesIO(body), len(body), part_size=5 * MIB, content_type="text/x",
            metadata={"colour": "blue"},
        )
        check(f"{name} is at the origin", stored(rig, key) == body)
        for turn in ("first", "second"):
            got = client.get_object(BUCKET, key)
            check(f"  {turn} read", got.read() == body)
            got.close()
        part = client.get_object(BUCKET, key, offset=500, length=200)
        check("  a range", part.read() == body[500:700])
        part.close()
        stat = client.stat_object(BUCKET, key)
        check("  its metadata", stat.size == len(body) and stat.content_type == "text/x"
              and stat.metadata["x-amz-meta-colour"] == "blue", stat.metadata)
    client.copy_object(BUCKET, "minio/copy", CopySource(BUCKET, "minio/small"))
    check("a copy", stored(rig, "minio/copy") == SMALL)
    names = [one.object_name for one in client.list_objects(BUCKET, "minio/", recursive=True)]
    check("the listing", names == [f"minio/{n}" for n in ("big", "copy", "small")], names)
    sources = [ComposeSource(BUCKET, "minio/big"), ComposeSource(BUCKET, "minio/small")]
    client.compose_object(BUCKET, "minio/both", sources)
    check("two objects composed", client.get_object(BUCKET, "minio/both").read() == BIG + SMALL)
    url = client.presigned_get_object(BUCKET, "minio/small", expires=timedelta(minutes=5))
    check("a presigned read", fetch(url) == SMALL)
    url = client.presigned_put_object(BUCKET, "minio/signed", expires=timedelta(minutes=5))
    fetch(url, b"by URL")
    check("a presigned upload", stored(rig, "minio/signed") == b"by URL")
    errors = client.remove_objects(BUCKET, [DeleteObject(name) for name in names])
    check("deletes of many", not list(errors))


def s3fs(rig):
    """s3fs"""
    import s3fs as library

    fs = library.S3FileSystem(
        key=FLOE_KEYS[0], secret=FLOE_KEYS[1], endpoint_url=rig.endpoint, use_listings_cache=False,
        config_kwargs={"signature_version": "s3v4"},
    )
    root = f"{BUCKET}/s3fs"
    fs.pipe(f"{root}/small", SMALL)
    with fs.open(f"{root}/big", "wb", block_size=5 * MIB) as file:
        file.write(BIG)
    check("both are at the origin", stored(rig, "s3fs/small") == SMALL and stored(rig, "s3fs/big") == BIG)
    for turn in ("first", "second"):
        check(f"  {turn} read", fs.cat(f"{root}/small") == SMALL and fs.cat(f"{root}/big") == BIG)
    with fs.open(f"{root}/big", "rb") as file:
        file.seek(10 * MIB)
        check("  a part of a file", file.read(1000) == BIG[10 * MIB : 10 * MIB + 1000])
    fs.copy(f"{root}/big", f"{root}/copy")
    check("a copy", stored(rig, "s3fs/copy") == BIG)
    fs.touch(f"{root}/folder/")
    check("a directory marker", fs.exists(f"{root}/folder/"))
    found = sorted(fs.find(root))
    expected = [f"{root}/{n}" for n in ("big", "copy", "small")]
    check("the listing", [f for f in found if not f.endswith("/")] == expected, found)
    check("a presigned read", fetch(fs.url(f"{root}/small")) == SMALL)
    fs.rm(root, recursive=True)
    check("deletes of a tree", not fs.find(root), fs.find(root))


def pyarrow(rig):
    """pyarrow"""
    import pyarrow as pa
    import pyarrow.parquet as parquet
    from pyarrow import fs as arrow

    fs = arrow.S3FileSystem(
        access_key=FLOE_KEYS[0], secret_key=FLOE_KEYS[1], endpoint_override=host(rig),
        scheme="http", region="us-east-1",
    )
    root = f"{BUCKET}/arrow"
    fs.create_dir(root, recursive=True)
    check("a folder is made", fs.get_file_info(root).type == arrow.FileType.Directory)
    with fs.open_output_stream(f"{root}/big") as file:
        file.write(BIG)
    check("a file is at the origin", stored(rig, "arrow/big") == BIG)
    for turn in ("first", "second"):
        with fs.open_input_file(f"{root}/big") as file:
            check(f"  {turn} read of parts", file.read_at(1000, 12 * MIB) == BIG[12 * MIB : 12 * MIB + 1000])
            check(f"  {turn} read of all", file.read() == BIG)
    table = pa.table({"a": list(range(50_000)), "b": [str(n % 97) for n in range(50_000)]})
    parquet.write_table(table, f"{root}/table.parquet", filesystem=fs)
    for turn in ("first", "second"):
        got = parquet.read_table(f"{root}/table.parquet", columns=["b"], filesystem=fs)
        check(f"  {turn} read of a column of Parquet", got == table.select(["b"]))
    fs.copy_file(f"{root}/big", f"{root}/copy")
    check("a copy", stored(rig, "arrow/copy") == BIG)
    fs.move(f"{root}/copy", f"{root}/moved")
    check("a move", stored(rig, "arrow/moved") == BIG)
    names = sorted(info.base_name for info in fs.get_file_info(arrow.FileSelector(root)))
    check("the listing", names == ["big", "moved", "table.parquet"], names)
    fs.delete_dir(root)
    check("deletes of a tree", fs.get_file_info(root).type == arrow.FileType.NotFound)


def duckdb(rig):
    """DuckDB"""
    import duckdb as library

    connection = library.connect()
    try:
        connection.execute("INSTALL httpfs; LOAD httpfs;")
    except library.Error as error:
        print(f"SKIPPED DuckDB: its extension httpfs cannot be installed: {str(error)[:120]}")
        return
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{FLOE_KEYS[0]}', SECRET '{FLOE_KEYS[1]}', "
        f"ENDPOINT '{host(rig)}', URL_STYLE 'path', USE_SSL false, REGION 'us-east-1')"
    )
    path = f"s3://{BUCKET}/duck/t.parquet"
    connection.execute(f"COPY (SELECT range AS n, range % 7 AS r FROM range(300000)) TO '{path}'")
    for turn in ("first", "second"):
        got = connection.execute(f"SELECT count(*), sum(n) FROM '{path}' WHERE r = 3").fetchone()
        check(f"a query of Parquet, {turn} time", got == (42857, 6428571429 - 21429), got)
    found = connection.execute(f"SELECT file FROM glob('s3://{BUCKET}/duck/*')").fetchall()
    check("a listing", found == [(path,)], found)


def call(rig, *words, **more):
    done = subprocess.run(words, capture_output=True, timeout=120, **more)
    if done.returncode:
        raise Failure(f"{' '.join(words)}: {done.stderr.decode()[-600:]}")
    return done.stdout.decode()


def trees(rig):
    """A folder of files, and an empty one."""
    one = os.path.join(rig.folder, "tree")
    two = os.path.join(rig.folder, "back")
    shutil.rmtree(one, ignore_errors=True)
    shutil.rmtree(two, ignore_errors=True)
    os.makedirs(os.path.join(one, "deep/er"))
    os.makedirs(two)
    for name, body in (("a", SMALL), ("deep/b & c", SMALL[:7]), ("deep/er/big", BIG)):
        with open(os.path.join(one, name), "wb") as file:
            file.write(body)
    return one, two


def same_trees(one, two):
    compared = filecmp.dircmp(one, two)
    queue = [compared]
    while queue:
        found = queue.pop()
        same, differ, errors = filecmp.cmpfiles(found.left, found.right, found.common_files, False)
        if found.left_only or found.right_only or differ or errors:
            return False
        queue += found.subdirs.values()
    return True


def s3cmd(rig):
    """s3cmd"""
    program = os.path.join(os.path.dirname(sys.executable), "s3cmd")
    base = [
        program, f"--access_key={FLOE_KEYS[0]}", f"--secret_key={FLOE_KEYS[1]}", "--no-ssl",
        f"--host={host(rig)}", f"--host-bucket={host(rig)}", "--region=us-east-1",
        "--multipart-chunk-size-mb=5", "--no-progress", "--config=/dev/null",
    ]
    one, two = trees(rig)
    call(rig, *base, "sync", f"{one}/", f"s3://{BUCKET}/cmd/")
    check("a folder is synchronised", stored(rig, "cmd/deep/er/big") == BIG)
    listing = call(rig, *base, "ls", "--recursive", f"s3://{BUCKET}/cmd/")
    check("the listing", listing.count("s3://") == 3, listing)
    call(rig, *base, "sync", f"s3://{BUCKET}/cmd/", f"{two}/")
    check("  and back", same_trees(one, two))
    call(rig, *base, "cp", f"s3://{BUCKET}/cmd/a", f"s3://{BUCKET}/cmd/copy")
    check("a copy", stored(rig, "cmd/copy") == SMALL)
    call(rig, *base, "mv", f"s3://{BUCKET}/cmd/copy", f"s3://{BUCKET}/cmd/moved")
    check("a move", stored(rig, "cmd/moved") == SMALL)
    call(rig, *base, "del", "--recursive", "--force", f"s3://{BUCKET}/cmd/")
    check("deletes of a tree", "s3://" not in call(rig, *base, "ls", f"s3://{BUCKET}/cmd/"))


def rclone(rig):
    """rclone"""
    if not shutil.which("rclone"):
        print("SKIPPED rclone: it is not installed (apt-get install rclone)")
        return
    environment = {
        **os.environ,
        "RCLONE_CONFIG": "/dev/null", "RCLONE_CONFIG_FLOE_TYPE": "s3",
        "RCLONE_CONFIG_FLOE_PROVIDER": "Other", "RCLONE_CONFIG_FLOE_REGION": "us-east-1",
        "RCLONE_CONFIG_FLOE_ACCESS_KEY_ID": FLOE_KEYS[0],
        "RCLONE_CONFIG_FLOE_SECRET_ACCESS_KEY": FLOE_KEYS[1],
        "RCLONE_CONFIG_FLOE_ENDPOINT": rig.endpoint,
        # It cannot load one.
        "AWS_CA_BUNDLE": "",
        # moto refuses its uploads in parts, alone as well.
        "RCLONE_S3_UPLOAD_CUTOFF": "200M" if rig.origin_server else "8M",
        "RCLONE_S3_CHUNK_SIZE": "5M", "RCLONE_RETRIES": "1",
    }
    one, two = trees(rig)
    remote = f"floe:{BUCKET}/clone"
    run = lambda *words: call(rig, "rclone", *words, env=environment)
    run("sync", one, remote)
    check("a folder is synchronised", stored(rig, "clone/deep/er/big") == BIG)
    run("check", one, remote)
    run("sync", remote, two)
    check("  and back", same_trees(one, two))
    with open(os.path.join(one, "a"), "ab") as file:
        file.write(b"more")
    run("sync", one, remote)
    check("  again, after a change", stored(rig, "clone/a") == SMALL + b"more")
    part = run("cat", "--offset", "1000", "--count", "4", f"{remote}/a")
    check("a part of an object", part == "more", part)
    run("copyto", f"{remote}/a", f"{remote}/copy")
    check("a copy", stored(rig, "clone/copy") == SMALL + b"more")
    run("mkdir", f"floe:{BUCKET}")
    names = sorted(run("lsf", "-R", "--files-only", remote).split("\n"))
    check("the listing", names == ["", "a", "copy", "deep/b & c", "deep/er/big"], names)
    run("purge", remote)
    check("deletes of a tree", run("lsf", f"floe:{BUCKET}").find("clone") < 0)


def s5cmd(rig):
    """s5cmd"""
    program = os.path.join(os.path.dirname(sys.executable), "s5cmd")
    environment = {
        **os.environ, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": FLOE_KEYS[0],
        "AWS_SECRET_ACCESS_KEY": FLOE_KEYS[1], "AWS_CA_BUNDLE": "",
    }
    run = lambda *words: call(rig, program, "--endpoint-url", rig.endpoint, *words, env=environment)
    one, two = trees(rig)
    root = f"s3://{BUCKET}/five"
    run("sync", "--part-size", "5", f"{one}/", f"{root}/")
    check("a folder is synchronised", stored(rig, "five/deep/er/big") == BIG)
    check("the listing", run("ls", f"{root}/*").count("\n") == 3)
    run("sync", f"{root}/*", f"{two}/")
    check("  and back", same_trees(one, two))
    run("cp", f"{root}/a", f"{root}/copy")
    check("a copy", stored(rig, "five/copy") == SMALL)
    run("mv", f"{root}/copy", f"{root}/moved")
    check("a move", stored(rig, "five/moved") == SMALL)
    url = run("presign", f"{root}/a").strip()
    check("a presigned read", fetch(url) == SMALL)
    run("rm", f"{root}/*")
    empty = subprocess.run([program, "--endpoint-url", rig.endpoint, "ls", f"{root}/*"],
                           capture_output=True, env=environment)
    check("deletes of a tree", b"no object found" in empty.stderr, empty.stderr)


def minio_client(rig):
    """MinIO's mc"""

    def is_minios(name):
        # Midnight Commander has the same name.
        program = shutil.which(name)
        return program and b"RELEASE." in subprocess.run([program, "--version"], capture_output=True).stdout

    program = next(filter(is_minios, ("mcli", "mc")), None)
    if program is None:
        print("SKIPPED mc: no index of packages has MinIO's client, and it is not on the path")
        return
    with tempfile.TemporaryDirectory() as config:
        run = lambda *words: call(rig, program, "--config-dir", config, "--quiet", *words)
        run("alias", "set", "floe", rig.endpoint, *FLOE_KEYS)
        one, two = trees(rig)
        root = f"floe/{BUCKET}/mini"
        run("mirror", one, root)
        check("a folder is mirrored", stored(rig, "mini/deep/er/big") == BIG)
        check("the listing", run("ls", "--recursive", root).count("\n") == 3)
        run("mirror", root, two)
        check("  and back", same_trees(one, two))
        run("cp", f"{root}/a", f"{root}/copy")
        check("a copy", stored(rig, "mini/copy") == SMALL)
        run("rm", "--recursive", "--force", root)
        check("deletes of a tree", run("ls", "--recursive", root) == "")


def object_store(rig):
    """object_store"""
    import obstore
    from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError
    from obstore.store import S3Store

    store = S3Store(
        BUCKET, endpoint=rig.endpoint, region="us-east-1", access_key_id=FLOE_KEYS[0],
        secret_access_key=FLOE_KEYS[1], client_options={"allow_http": True},
    )
    obstore.put(store, "rust/small", SMALL)
    obstore.put(store, "rust/big", BIG, use_multipart=True, chunk_size=5 * MIB)
    check("both are at the origin", stored(rig, "rust/small") == SMALL and stored(rig, "rust/big") == BIG)
    for turn in ("first", "second"):
        got = [bytes(obstore.get(store, f"rust/{name}").bytes()) for name in ("small", "big")]
        check(f"  {turn} read", got == [SMALL, BIG])
    part = obstore.get_range(store, "rust/big", start=9 * MIB, length=1000)
    check("  a range", bytes(part) == BIG[9 * MIB : 9 * MIB + 1000])
    parts = obstore.get_ranges(store, "rust/big", starts=[0, 16 * MIB], lengths=[5, 7])
    check("  ranges", [bytes(part) for part in parts] == [BIG[:5], BIG[16 * MIB : 16 * MIB + 7]])
    head = obstore.head(store, "rust/small")
    check("  its metadata", head["size"] == len(SMALL), head)
    try:
        obstore.put(store, "rust/small", b"other", mode="create", use_multipart=False)
        raise Failure("an object was overwritten by a create")
    except AlreadyExistsError:
        check("a create of what exists is refused", stored(rig, "rust/small") == SMALL)
    update = {"e_tag": head["e_tag"]}
    obstore.put(store, "rust/small", SMALL[:9], mode=update, use_multipart=False)
    check("an update by its tag", stored(rig, "rust/small") == SMALL[:9])
    try:
        obstore.put(store, "rust/small", b"other", mode=update, use_multipart=False)
        raise Failure("an object was updated by an old tag")
    except PreconditionError:
        check("  and by an old one is refused", stored(rig, "rust/small") == SMALL[:9])
    obstore.copy(store, "rust/big", "rust/copy")
    check("a copy", stored(rig, "rust/copy") == BIG)
    obstore.rename(store, "rust/copy", "rust/moved")
    check("a move", stored(rig, "rust/moved") == BIG)
    names = [one["path"] for page in obstore.list(store, "rust") for one in page]
    check("the listing", names == [f"rust/{n}" for n in ("big", "moved", "small")], names)
    check("a presigned read", fetch(obstore.sign(store, "GET", "rust/moved", timedelta(minutes=5))) == BIG)
    fetch(obstore.sign(store, "PUT", "rust/signed", timedelta(minutes=5)), b"by URL")
    check("a presigned upload", stored(rig, "rust/signed") == b"by URL")
    obstore.delete(store, [*names, "rust/signed"])
    try:
        obstore.head(store, "rust/big")
        raise Failure("a deleted object is there")
    except (NotFoundError, FileNotFoundError):
        check("deletes of many", not [one for page in obstore.list(store, "rust") for one in page])


def aws_crt(rig):
    """AWS CRT"""
    # As LMCache's store of key-value caches in S3 uses it: HEAD, then GETs or PUTs of chunks
    # that the library splits.
    from awscrt import auth, io as crt, s3
    from awscrt.http import HttpHeaders, HttpRequest

    bootstrap = crt.ClientBootstrap(group := crt.EventLoopGroup(2), crt.DefaultHostResolver(group))
    credentials = auth.AwsCredentialsProvider.new_static(*FLOE_KEYS)
    client = s3.S3Client(bootstrap=bootstrap, region="us-east-1", tls_mode=s3.S3RequestTlsMode.DISABLED)

    def send(kind, method, key, body=None, **more):
        headers = HttpHeaders([("Host", host(rig))])
        if body is not None:
            headers.add("Content-Length", str(len(body)))
            headers.add("Content-Type", "application/octet-stream")
        request = HttpRequest(method, f"/{BUCKET}/{key}", headers, body_stream=body and io.BytesIO(body))
        got, seen = {}, []
        s3.S3Request(
            client=client, type=kind, request=request, credential_provider=credentials,
            region="us-east-1", on_body=lambda chunk, offset, **_: got.update({offset: chunk}),
            on_headers=lambda status_code, headers, **_: seen.append((status_code, dict(headers))), **more,
        ).finished_future.result(60)
        return b"".join(got[offset] for offset in sorted(got)), *seen[-1]

    def head(key):
        return send(s3.S3RequestType.DEFAULT, "HEAD", key, operation_name="HeadObject")

    for name, body in (("small", SMALL), ("big", BIG)):
        key = f"crt/model%40{name}"
        send(s3.S3RequestType.PUT_OBJECT, "PUT", key, body)
        _, status, headers = head(key)
        lower = {name.lower(): value for name, value in headers.items()}
        check(f"{name} has its size", status == 200 and int(lower["content-length"]) == len(body), headers)
        for turn in ("first", "second"):
            check(f"  {turn} read", send(s3.S3RequestType.GET_OBJECT, "GET", key)[0] == body)
    try:
        head("crt/none")
        raise Failure("a missing object is there")
    except Exception as error:
        check("a missing object", getattr(error, "status_code", 404) == 404, error)


CLIENTS = [aws_crt, minio_py, s3fs, pyarrow, duckdb, s3cmd, s5cmd, minio_client, object_store, rclone]


def main():
    wanted = sys.argv[2:]
    failed = []
    # No client looks for the metadata service of a machine in the cloud.
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    for origin in ("s3", "directory", "cache-only"):
        rig = Rig(origin)
        try:
            for client in CLIENTS:
                if wanted and client.__name__ not in wanted:
                    continue
                print(f"-- {client.__doc__}, origin: {origin}", flush=True)
                try:
                    client(rig)
                except Exception as error:  # Every client says what it has to say.
                    print(f"FAILED {client.__doc__}, origin {origin}: {type(error).__name__}: {str(error)[:500]}")
                    failed.append((client.__name__, origin))
        finally:
            rig.close()
    if failed:
        sys.exit(f"FAILED: {failed}")
    print("all checks passed")


main()
