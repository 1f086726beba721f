"""Clients of S3 that others wrote, each through an S3 origin, a folder and a cache-only bucket:
put, get, ranges, listings, uploads in parts, copies, directory markers, conditional writes,
presigned URLs, synchronised folders, as far as the client has them. Every byte is compared."""

import filecmp
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from _floe import BUCKET, FLOE_KEYS, ORIGINS, Failure, Rig, by_url, check, pattern

MIB = 1 << 20
BIG = pattern(1, 17 * MIB + 3)
SMALL = pattern(2, 1000)


def host(rig):
    return rig.endpoint.removeprefix("http://")


def fetch(url, body=None):
    """The answer's body to a request with nothing but the URL."""
    status, answer = by_url(url, body)
    if status != 200:
        raise Failure(f"{status} {answer[:300]} for {url}")
    return answer


def fails(error, call, *arguments, **more):
    """Whether a call raises an exception of this kind; returns it."""
    try:
        call(*arguments, **more)
    except error as raised:
        return raised
    return None


def minio_py(rig):
    """minio-py"""
    from minio import Minio
    from minio.commonconfig import ComposeSource, CopySource
    from minio.deleteobjects import DeleteObject
    from minio.error import S3Error

    client = Minio(host(rig), *FLOE_KEYS, secure=False, region="us-east-1")
    check("the bucket exists", client.bucket_exists(BUCKET))
    for name, body in (("small", SMALL), ("big", BIG)):
        key = f"minio/{name}"
        client.put_object(
            BUCKET, key, io.BytesIO(body), len(body), part_size=5 * MIB, content_type="text/x",
            metadata={"colour": "blue"},
        )
        check(f"{name} is at the origin", rig.stored(key) == body)
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
    check("a copy", rig.stored("minio/copy") == SMALL)
    names = [one.object_name for one in client.list_objects(BUCKET, "minio/", recursive=True)]
    check("the listing", names == [f"minio/{n}" for n in ("big", "copy", "small")], names)
    client.put_object(BUCKET, "minio/folder/", io.BytesIO(), 0)
    client.put_object(BUCKET, "minio/folder/in", io.BytesIO(SMALL), len(SMALL))
    check("a directory marker", rig.stored("minio/folder/") == b"" and client.stat_object(BUCKET, "minio/folder/").size == 0)
    found = [(one.object_name, one.is_dir) for one in client.list_objects(BUCKET, "minio/folder")]
    check("  is listed as a folder", found == [("minio/folder/", True)], found)
    found = [one.object_name for one in client.list_objects(BUCKET, "minio/folder/", recursive=True)]
    check("  and as an object", found == ["minio/folder/", "minio/folder/in"], found)
    tag = client.stat_object(BUCKET, "minio/small").etag
    source = CopySource(BUCKET, "minio/small", not_match_etag=tag)
    error = fails(S3Error, client.copy_object, BUCKET, "minio/copy", source)
    check("a copy unless the tag is the same", error and error.code == "PreconditionFailed", error)
    sources = [ComposeSource(BUCKET, "minio/big"), ComposeSource(BUCKET, "minio/small")]
    client.compose_object(BUCKET, "minio/both", sources)
    check("two objects composed", client.get_object(BUCKET, "minio/both").read() == BIG + SMALL)
    url = client.presigned_get_object(BUCKET, "minio/small", expires=timedelta(minutes=5))
    check("a presigned read", fetch(url) == SMALL)
    url = client.presigned_put_object(BUCKET, "minio/signed", expires=timedelta(minutes=5))
    fetch(url, b"by URL")
    check("a presigned upload", rig.stored("minio/signed") == b"by URL")
    errors = client.remove_objects(BUCKET, [DeleteObject(name) for name in names])
    check("deletes of many", not list(errors))


def s3fs(rig):
    """s3fs"""
    import s3fs as library
    from fsspec.generic import GenericFileSystem, rsync

    fs = library.S3FileSystem(
        key=FLOE_KEYS[0], secret=FLOE_KEYS[1], endpoint_url=rig.endpoint, use_listings_cache=False,
        config_kwargs={"signature_version": "s3v4"},
    )
    root = f"{BUCKET}/s3fs"
    fs.pipe(f"{root}/small", SMALL)
    with fs.open(f"{root}/big", "wb", block_size=5 * MIB) as file:
        file.write(BIG)
    check("both are at the origin", rig.stored("s3fs/small") == SMALL and rig.stored("s3fs/big") == BIG)
    for turn in ("first", "second"):
        check(f"  {turn} read", fs.cat(f"{root}/small") == SMALL and fs.cat(f"{root}/big") == BIG)
    with fs.open(f"{root}/big", "rb") as file:
        file.seek(10 * MIB)
        check("  a part of a file", file.read(1000) == BIG[10 * MIB : 10 * MIB + 1000])
    fs.copy(f"{root}/big", f"{root}/copy")
    check("a copy", rig.stored("s3fs/copy") == BIG)
    fs.touch(f"{root}/folder/")
    check("a directory marker", rig.stored("s3fs/folder/") == b"" and fs.isdir(f"{root}/folder"))
    found = sorted(fs.find(root))
    expected = [f"{root}/{n}" for n in ("big", "copy", "small")]
    check("the listing", [f for f in found if not f.endswith("/")] == expected, found)
    for name, body in (("small", SMALL), ("big", BIG), ("fresh", SMALL), ("great", BIG)):
        # In parts from twice the size of a part on.
        error = fails(FileExistsError, fs.pipe, f"{root}/{name}", body[::-1], mode="create", chunksize=5 * MIB)
        is_new = name in ("fresh", "great")
        check(f"a create of {name}", (error is None) == is_new, error)
        check("  and its bytes", rig.stored(f"s3fs/{name}") == (body[::-1] if is_new else body))
    check("a presigned read", fetch(fs.url(f"{root}/small")) == SMALL)
    fetch(fs.url(f"{root}/signed", client_method="put_object"), b"by URL")
    check("a presigned upload", rig.stored("s3fs/signed") == b"by URL" == fetch(fs.sign(f"{root}/signed")))
    one, two = trees(rig)
    fs.put(f"{one}/", f"{root}/tree", recursive=True)
    check("a folder of files", rig.stored("s3fs/tree/deep/er/big") == BIG)
    fs.get(f"{root}/tree/", two, recursive=True)
    check("  and back", same_trees(one, two))
    rsync(f"file://{one}", f"s3://{root}/synced", fs=GenericFileSystem(default_method="current"))
    check("a folder is synchronised", rig.stored("s3fs/synced/deep/er/big") == BIG)
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
    check("  by a marker", rig.stored("arrow/") == b"")
    with fs.open_output_stream(f"{root}/big") as file:
        file.write(BIG)
    check("a file is at the origin", rig.stored("arrow/big") == BIG)
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
    check("a copy", rig.stored("arrow/copy") == BIG)
    fs.move(f"{root}/copy", f"{root}/moved")
    check("a move", rig.stored("arrow/moved") == BIG)
    names = sorted(info.base_name for info in fs.get_file_info(arrow.FileSelector(root)))
    check("the listing", names == ["big", "moved", "table.parquet"], names)
    one, two = trees(rig)
    arrow.copy_files(one, f"{root}/tree", destination_filesystem=fs, chunk_size=5 * MIB)
    check("a folder of files", rig.stored("arrow/tree/deep/b & c") == SMALL[:7])
    arrow.copy_files(f"{root}/tree", two, source_filesystem=fs)
    check("  and back", same_trees(one, two))
    fs.delete_dir(root)
    check("deletes of a tree", fs.get_file_info(root).type == arrow.FileType.NotFound)


def httpfs():
    """The statement that loads DuckDB's extension, which a package may hold."""
    package = importlib.util.find_spec("duckdb_extension_httpfs")
    files = package and list(Path(package.origin).parent.glob("extensions/*/httpfs.duckdb_extension"))
    return f"LOAD '{files[0]}'" if files else "INSTALL httpfs; LOAD httpfs;"


def duckdb(rig):
    """DuckDB"""
    import duckdb as library

    connection = library.connect()
    try:
        connection.execute(httpfs())
    except library.Error as error:
        print(f"SKIPPED DuckDB: its extension httpfs cannot be installed: {str(error)[:120]}")
        return
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{FLOE_KEYS[0]}', SECRET '{FLOE_KEYS[1]}', "
        f"ENDPOINT '{host(rig)}', URL_STYLE 'path', USE_SSL false, REGION 'us-east-1')"
    )
    connection.execute("SET s3_uploader_max_filesize = '50GB'")
    path = lambda name: f"s3://{BUCKET}/duck/{name}.parquet"
    # 24 MB of random numbers are uploaded in parts.
    for name, rows in (("small", "range(300000)"), ("big", "range(3000000)")):
        values = f"SELECT range AS n, range % 7 AS r, hash(range) AS h FROM {rows}"
        connection.execute(f"COPY ({values}) TO '{path(name)}' (COMPRESSION uncompressed)")
        expected = connection.execute(f"SELECT count(*), sum(n), bit_xor(h) FROM ({values}) WHERE r = 3").fetchone()
        for turn in ("first", "second"):
            # It reads the file's end, and ranges of the columns.
            got = connection.execute(f"SELECT count(*), sum(n), bit_xor(h) FROM '{path(name)}' WHERE r = 3").fetchone()
            check(f"a query of {name}, {turn} time", got == expected, got)
        read = connection.execute(f"SELECT content FROM read_blob('{path(name)}')").fetchone()[0]
        check("  its bytes", read == rig.stored(f"duck/{name}.parquet"))
        check("  in parts", name == "small" or len(read) > 20 * MIB, len(read))
    connection.execute(f"COPY (FROM '{path('big')}') TO '{path('copy')}'")
    got = connection.execute(f"SELECT count(*) FROM (FROM '{path('big')}' EXCEPT FROM '{path('copy')}')").fetchone()
    check("a copy of a table", got == (0,), got)
    found = connection.execute(f"SELECT file FROM glob('s3://{BUCKET}/duck/*') ORDER BY file").fetchall()
    check("a listing", found == [(path(name),) for name in ("big", "copy", "small")], found)


def call(rig, *words, **more):
    done = subprocess.run(words, capture_output=True, timeout=120, **more)
    if done.returncode:
        raise Failure(f"{' '.join(words)}: {done.stderr.decode()[-600:]}")
    return done.stdout.decode("utf-8", "surrogateescape")


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
    root = f"s3://{BUCKET}/cmd"
    run = lambda *words: call(rig, *base, *words)
    run("sync", f"{one}/", f"{root}/")
    check("a folder is synchronised", rig.stored("cmd/deep/er/big") == BIG)
    listing = run("ls", "--recursive", f"{root}/")
    check("the listing", listing.count("s3://") == 3, listing)
    run("sync", f"{root}/", f"{two}/")
    check("  and back", same_trees(one, two))
    part = os.path.join(rig.folder, "part")
    with open(part, "wb") as file:
        file.write(BIG[: 9 * MIB])
    run("get", "--continue", f"{root}/deep/er/big", part)
    with open(part, "rb") as file:
        check("a range that completes a file", file.read() == BIG)
    run("cp", f"{root}/a", f"{root}/copy")
    check("a copy", rig.stored("cmd/copy") == SMALL)
    run("mv", f"{root}/copy", f"{root}/moved")
    check("a move", rig.stored("cmd/moved") == SMALL)
    run("put", "--recursive", "--keep-dirs", os.path.join(one, "deep"), f"{root}/dirs/")
    check("a directory marker", rig.stored("cmd/dirs/deep/er/") == b"")
    check("  is listed", " " + f"{root}/dirs/deep/er/\n" in run("ls", "--recursive", f"{root}/dirs/"))
    create = ("put", "--add-header=If-None-Match:*", os.path.join(one, "deep/b & c"))
    run(*create, f"{root}/new")
    check("a create", rig.stored("cmd/new") == SMALL[:7])
    error = fails(Failure, run, *create, f"{root}/a")
    check("  of what exists is refused", "PreconditionFailed" in str(error) and rig.stored("cmd/a") == SMALL, error)
    run("del", "--recursive", "--force", f"{root}/")
    check("deletes of a tree", "s3://" not in run("ls", f"{root}/"))


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
    check("a folder is synchronised", rig.stored("clone/deep/er/big") == BIG)
    run("check", one, remote)
    run("sync", remote, two)
    check("  and back", same_trees(one, two))
    with open(os.path.join(one, "a"), "ab") as file:
        file.write(b"more")
    run("sync", one, remote)
    check("  again, after a change", rig.stored("clone/a") == SMALL + b"more")
    part = run("cat", "--offset", "1000", "--count", "4", f"{remote}/a")
    check("a part of an object", part == "more", part)
    run("copyto", f"{remote}/a", f"{remote}/copy")
    check("a copy", rig.stored("clone/copy") == SMALL + b"more")
    run("copyto", "--s3-copy-cutoff", "6M", f"{remote}/deep/er/big", f"{remote}/copy")
    check("  in parts", rig.stored("clone/copy") == BIG)
    check("a presigned read", fetch(run("link", "--expire", "5m", f"{remote}/copy").strip()) == BIG)
    run("mkdir", f"floe:{BUCKET}")
    names = sorted(run("lsf", "-R", "--files-only", remote).split("\n"))
    check("the listing", names == ["", "a", "copy", "deep/b & c", "deep/er/big"], names)
    if "--s3-directory-markers" in run("help", "flags"):
        run("mkdir", "--s3-directory-markers", f"{remote}/marked/er")
        check("a directory marker", rig.stored("clone/marked/er/") == b"")
        check("  is listed", "marked/er/" in run("lsf", "-R", "--s3-directory-markers", remote).split("\n"))
        run("rmdirs", "--s3-directory-markers", f"{remote}/marked")
        check("  is removed", "marked/" not in run("lsf", "-R", remote))
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
    check("a folder is synchronised", rig.stored("five/deep/er/big") == BIG)
    check("the listing", run("ls", f"{root}/*").count("\n") == 3)
    run("sync", "--part-size", "5", f"{root}/*", f"{two}/")
    check("  and back, in ranges", same_trees(one, two))
    run("cp", f"{root}/a", f"{root}/copy")
    check("a copy", rig.stored("five/copy") == SMALL)
    run("mv", f"{root}/copy", f"{root}/moved")
    check("a move", rig.stored("five/moved") == SMALL)
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
        check("a folder is mirrored", rig.stored("mini/deep/er/big") == BIG)
        check("the listing", run("ls", "--recursive", root).count("\n") == 3)
        run("mirror", root, two)
        check("  and back", same_trees(one, two))
        run("cp", f"{root}/a", f"{root}/copy")
        check("a copy", rig.stored("mini/copy") == SMALL)
        part = run("cat", "--offset", "500", f"{root}/a")
        check("a range", part.encode("utf-8", "surrogateescape") == SMALL[500:])
        url = json.loads(run("--json", "share", "download", "--expire", "5m", f"{root}/deep/er/big"))["share"]
        check("a presigned read", fetch(url) == BIG)
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
        # By an upload in parts with a condition.
        copy_if_not_exists="multipart",
    )
    obstore.put(store, "rust/small", SMALL)
    obstore.put(store, "rust/big", BIG, use_multipart=True, chunk_size=5 * MIB)
    check("both are at the origin", rig.stored("rust/small") == SMALL and rig.stored("rust/big") == BIG)
    for turn in ("first", "second"):
        got = [bytes(obstore.get(store, f"rust/{name}").bytes()) for name in ("small", "big")]
        check(f"  {turn} read", got == [SMALL, BIG])
    part = obstore.get_range(store, "rust/big", start=9 * MIB, length=1000)
    check("  a range", bytes(part) == BIG[9 * MIB : 9 * MIB + 1000])
    parts = obstore.get_ranges(store, "rust/big", starts=[0, 16 * MIB], lengths=[5, 7])
    check("  ranges", [bytes(part) for part in parts] == [BIG[:5], BIG[16 * MIB : 16 * MIB + 7]])
    head = obstore.head(store, "rust/small")
    check("  its metadata", head["size"] == len(SMALL), head)
    error = fails(AlreadyExistsError, obstore.put, store, "rust/small", b"other", mode="create", use_multipart=False)
    check("a create of what exists is refused", error and rig.stored("rust/small") == SMALL)
    update = {"e_tag": head["e_tag"]}
    obstore.put(store, "rust/small", SMALL[:9], mode=update, use_multipart=False)
    check("an update by its tag", rig.stored("rust/small") == SMALL[:9])
    error = fails(PreconditionError, obstore.put, store, "rust/small", b"other", mode=update, use_multipart=False)
    check("  and by an old one is refused", error and rig.stored("rust/small") == SMALL[:9])
    obstore.copy(store, "rust/big", "rust/copy")
    check("a copy", rig.stored("rust/copy") == BIG)
    error = fails(AlreadyExistsError, obstore.copy, store, "rust/small", "rust/copy", overwrite=False)
    check("  over what exists is refused", error and rig.stored("rust/copy") == BIG)
    obstore.copy(store, "rust/small", "rust/new", overwrite=False)
    check("  over nothing", rig.stored("rust/new") == SMALL[:9])
    obstore.rename(store, "rust/copy", "rust/moved")
    check("a move", rig.stored("rust/moved") == BIG)
    names = [one["path"] for page in obstore.list(store, "rust") for one in page]
    check("the listing", names == [f"rust/{n}" for n in ("big", "moved", "new", "small")], names)
    folded = obstore.list_with_delimiter(store)["common_prefixes"]
    check("  folded", "rust" in folded, folded)
    check("a presigned read", fetch(obstore.sign(store, "GET", "rust/moved", timedelta(minutes=5))) == BIG)
    fetch(obstore.sign(store, "PUT", "rust/signed", timedelta(minutes=5)), b"by URL")
    check("a presigned upload", rig.stored("rust/signed") == b"by URL")
    obstore.delete(store, [*names, "rust/signed"])
    gone = fails((NotFoundError, FileNotFoundError), obstore.head, store, "rust/big")
    check("deletes of many", gone and not [one for page in obstore.list(store, "rust") for one in page])


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
    for origin in ORIGINS:
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
