"""What the scripts share: an origin, Floe in front of it, checks."""

import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from urllib.parse import quote

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

# The origin's log of requests would hide the checks.
logging.getLogger("werkzeug").setLevel(logging.ERROR)

ORIGIN_KEYS = ("ORIGINKEY", "a secret of the origin")
FLOE_KEYS = ("FLOECLIENT", "a secret of the clients")
BUCKET = "shelf"
# The kinds of origin that a rig has.
ORIGINS = ("s3", "directory", "cache-only")
START_SECONDS = 30
STOP_SECONDS = 30


class Failure(Exception):
    """A check that did not hold."""


def refused(call, **arguments):
    """The status and code with which a call is refused; (200, "") where it is not."""
    try:
        call(**arguments)
    except ClientError as error:
        response = error.response
        return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]
    return 200, ""


def check(what, holds, detail=""):
    """Prints what is checked; fails where it does not hold."""
    print(("ok    " if holds else "WRONG ") + what, flush=True)
    if not holds:
        raise Failure(f"{what}: {detail}" if detail else what)


def in_time(get, expected, seconds=5):
    """The last answer of `get`, which is asked for so long until it is what is expected."""
    deadline = time.monotonic() + seconds
    while (got := get()) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return got


def until(what, is_so):
    """Waits for what takes its time; fails if it does not come true within 30 s."""
    check(what, in_time(lambda: bool(is_so()), True, 30))


def pattern(seed, length):
    """Bytes that differ everywhere and from seed to seed."""
    return random.Random(seed).randbytes(length)


def by_url(url, body=None):
    """The status and body of the answer to a request with nothing but a URL: a PUT with a body,
    otherwise a GET."""
    request = urllib.request.Request(url, data=body, method="GET" if body is None else "PUT")
    if body is not None:
        # urllib would name the type of a form, which the signature may cover.
        request.add_header("Content-Type", "application/octet-stream")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def s3_client(endpoint, keys, **config):
    """A boto3 client."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=keys[0],
        aws_secret_access_key=keys[1],
        region_name="us-east-1",
        config=Config(
            retries={"total_max_attempts": 1},
            s3={"addressing_style": "path"},
            **config,
        ),
    )


class Rig:
    """An origin with one bucket, Floe in front of it, and clients of both.

    The origin is an S3 server, or a folder, which then has no client. With "cache-only" the
    bucket is in the cache alone, beside an empty folder. With `users`, the policies of IAM by
    user, the S3 server verifies signatures, and clients have the keys of these users."""

    def __init__(self, origin="s3", settings=None, users=None):
        self.folder = tempfile.mkdtemp(prefix="floe-clients-")
        self.settings = ""
        self.origin_server = None
        self.users = users
        self.keys = {}
        self.is_cache_only = origin == "cache-only"
        if origin == "s3":
            self._start_origin()
        else:
            self.origin_folder = os.path.join(self.folder, "origin")
            os.makedirs(self.origin_folder)
            if self.is_cache_only:
                self.settings += f'\n[object]\ncache_only = [{{ bucket = "{BUCKET}" }}]\n'
            else:
                os.mkdir(os.path.join(self.origin_folder, BUCKET))
            self.origin_config = f"""
kind = "directory"
root = "{self.origin_folder}"
"""
        self.process = None
        try:
            if settings:
                self.settings += settings(self)
            self._start_floe()
        except BaseException:
            # Why it did not start matters, not how it then ended.
            self.close(started=False)
            raise
        self.floe = s3_client(self.endpoint, FLOE_KEYS)

    def _make_users(self):
        """Makes the users, and one for Floe, and has the server verify signatures from then on."""
        iam = boto3.client(
            "iam",
            endpoint_url=self.origin_endpoint,
            aws_access_key_id=ORIGIN_KEYS[0],
            aws_secret_access_key=ORIGIN_KEYS[1],
            region_name="us-east-1",
        )
        everything = [{"Effect": "Allow", "Action": "*", "Resource": "*"}]
        for name, statements in {"floe": everything, **self.users}.items():
            document = json.dumps({"Version": "2012-10-17", "Statement": statements})
            iam.create_user(UserName=name)
            iam.put_user_policy(UserName=name, PolicyName="own", PolicyDocument=document)
            key = iam.create_access_key(UserName=name)["AccessKey"]
            self.keys[name] = (key["AccessKeyId"], key["SecretAccessKey"])
        verify = urllib.request.Request(f"{self.origin_endpoint}/moto-api/reset-auth", b"0")
        verify.add_header("Content-Type", "text/plain")
        urllib.request.urlopen(verify, timeout=10).close()

    def _start_origin(self):
        self.origin_server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.origin_server.start()
        host, port = self.origin_server.get_host_and_port()
        self.origin_endpoint = f"http://{host}:{port}"
        self.origin = s3_client(self.origin_endpoint, ORIGIN_KEYS)
        self.origin.create_bucket(Bucket=BUCKET)
        keys = ORIGIN_KEYS
        if self.users is not None:
            self._make_users()
            keys = self.keys["floe"]
            self.origin = s3_client(self.origin_endpoint, keys)
        self.origin_config = f"""
kind = "s3"
endpoint = "{self.origin_endpoint}"
allow_http = true
access_key = "{keys[0]}"
secret_key = "{keys[1]}"
"""

    def _start_floe(self):
        binary = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("FLOE_BINARY")
        if not binary:
            sys.exit("name the floe binary as the first argument or in FLOE_BINARY")
        config = os.path.join(self.folder, "floe.toml")
        self.oxcache_path = os.path.join(self.folder, "oxcache.sock")
        credentials = 'credentials = "client"'
        if self.users is None:
            credentials = f"""
[[s3.keys]]
access_key = "{FLOE_KEYS[0]}"
secret_key = "{FLOE_KEYS[1]}"
"""
        with open(config, "w", encoding="utf-8") as file:
            file.write(
                f"""
[device]
kind = "file"
path = "{self.folder}/cache.floe"
size = "1GiB"

[origin]
{self.origin_config}
[s3]
listen = "127.0.0.1:0"
anonymous = false
{credentials}
[oxcache]
path = "{self.oxcache_path}"
bucket = "{BUCKET}"

[memcached]
listen = "127.0.0.1:0"
path = "{self.folder}/memcached.sock"

[nbd]
listen = "127.0.0.1:0"
path = "{self.folder}/nbd.sock"
exports = [
    {{ name = "disk", kind = "memory", size = "64MiB" }},
    {{ name = "fixed", kind = "memory", size = "1MiB", read_only = true }},
    {{ name = "null", kind = "null", size = "1TiB" }},
]

[admin]
listen = "127.0.0.1:0"
{self.settings}
"""
            )
        self.log = open(os.path.join(self.folder, "floe.log"), "wb")
        self.process = subprocess.Popen(
            [binary, "serve", "--json", "--config", config, "--data-dir", f"{self.folder}/data"],
            stdout=subprocess.PIPE,
            stderr=self.log,
        )
        started = self._read_start()
        self.endpoint = f"http://{started['s3']}"
        self.admin = f"http://{started['admin']}"
        self.memcached = started["memcached"]
        self.memcached_path = started["memcached_path"]
        self.nbd = started["nbd"]
        self.nbd_path = started["nbd_path"]

    def _read_start(self):
        """The JSON object that Floe prints when it serves."""
        found = []

        def read():
            text = ""
            for line in self.process.stdout:
                if found:
                    continue
                text += line.decode("utf-8", "replace")
                try:
                    found.append(json.JSONDecoder().raw_decode(text.lstrip())[0])
                except json.JSONDecodeError:
                    continue

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        deadline = time.monotonic() + START_SECONDS
        while not found:
            if self.process.poll() is not None:
                raise Failure(f"floe ended with {self.process.returncode}: {self.log_text()}")
            if time.monotonic() > deadline:
                raise Failure(f"floe did not start in {START_SECONDS} s: {self.log_text()}")
            time.sleep(0.02)
        return found[0]

    def log_text(self):
        """What Floe wrote to its log, to explain a failure."""
        self.log.flush()
        with open(self.log.name, encoding="utf-8", errors="replace") as file:
            return file.read()[-4000:]

    def metric(self, name, **labels):
        """The sum of a metric's samples that have these labels."""
        with urllib.request.urlopen(f"{self.admin}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        total = 0.0
        for line in text.splitlines():
            head, _, value = line.rpartition(" ")
            if head.split("{")[0] == name and all(
                f'{label}="{wanted}"' in head for label, wanted in labels.items()
            ):
                total += float(value)
        return total

    def settle(self):
        """Waits until fetched bytes are stored: answers leave before."""
        last = None
        while (puts := self.metric("floe_object_chunk_puts_total")) != last:
            last = puts
            time.sleep(0.3)

    def at_origin(self, key):
        """The bytes of an object at the origin, past the cache."""
        return self.origin.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def stored(self, key):
        """The bytes of an object past the cache, or through Floe where they are in the cache alone."""
        if self.is_cache_only:
            return self.floe.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        if self.origin_server is not None:
            return self.at_origin(key)
        folder = os.path.join(self.origin_folder, BUCKET)
        if key.endswith("/"):
            # The file of a key that is no path, as docs/s3.md describes it.
            folder = os.path.join(self.origin_folder, ".floe", "keys", BUCKET)
            key = "".join(f"+{quote(part, safe='')}/" for part in key.split("/")[:-1]) + "="
        with open(os.path.join(folder, key), "rb") as file:
            return file.read()

    def close(self, started=True):
        """Stops everything."""
        if self.process is not None:
            self.process.terminate()
            try:
                code = self.process.wait(STOP_SECONDS)
                if started:
                    check("floe stops cleanly when it is told to", code in (0, -15), f"exit {code}")
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise Failure(f"floe did not stop in {STOP_SECONDS} s") from None
            finally:
                self.log.close()
        if self.origin_server is not None:
            self.origin_server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def run(body, origin="s3", settings=None, users=None):
    """Runs a script's body on a rig, or on one for each of several origins, and exits with what
    became of it.

    `settings` returns further settings for the rig, in whose folder it may make files."""
    for kind in (origin,) if isinstance(origin, str) else origin:
        print(f"-- Origin: {kind}")
        rig = Rig(kind, settings, users)
        try:
            try:
                body(rig)
            except Failure as failure:
                print(rig.log_text(), file=sys.stderr)
                sys.exit(f"FAILED: {failure}")
            except BaseException:
                print(rig.log_text(), file=sys.stderr)
                raise
        finally:
            rig.close()
    print("all checks passed")


def run_parts(*parts, **options):
    """As `run`, for parts of which later ones use the objects of earlier ones."""

    def in_turn(rig):
        for part in parts:
            print(f"-- {part.__doc__}")
            part(rig)

    run(in_turn, **options)
