#!/usr/bin/env python3
"""Checks the chart: helm lint and helm template for several values, the Kubernetes schemas of an
old and a recent version, `floe config check`, `floe ring check`, `haproxy -c`, and what must agree
between the parts. `cargo xtask chart` runs it.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import kubernetes_validate
import yaml

VERSIONS = ["1.27", "1.37"]
# Kubernetes has no schema for these; what they name is checked here.
FOREIGN = {"ServiceMonitor"}
SECRETS = {
    "secrets.peersSecret": "0123456789abcdef0123456789abcdef",
    "secrets.originAccessKey": "origin-key",
    "secrets.originSecretKey": "origin-secret",
    "secrets.s3Keys": "reader:change-me-please",
}
NO_KEYS = {"origin": {"auth": "workload"}, "s3": {"access": "anonymous"}}
ANY = [{"namespaceSelector": {}}]
# Name, values, whether the secrets are given.
GOOD = [
    ("default", {}, True),
    ("existing secret", {"secrets": {"existingSecret": "mine"}}, False),
    ("one node", {"replicas": 1}, True),
    ("20 nodes by rendezvous", {"replicas": 20, "peers": {"order": "rendezvous"},
     "haproxy": {"enabled": False}, "networkPolicy": {"s3From": ANY}}, True),
    ("20 nodes", {"replicas": 20}, True),
    ("no peers", {"peers": {"enabled": False}}, True),
    ("ipv6", {"ipv6": True}, True),
    ("leases", {"etcd": ["http://etcd:2379"], "readyPath": "/ready/member"}, True),
    ("gcs", {"origin": {"kind": "gcs", "auth": "workload"}, "serviceAccountName": "floe"}, True),
    ("azure", {"origin": {"kind": "azure"}}, True),
    ("http", {"origin": {"kind": "http", "endpoint": "http://store:8080", "allowHttp": True,
     "auth": "anonymous"}, "s3": {"access": "anonymous"}}, True),
    ("clients' keys", {"s3": {"access": "client"}, "origin": {"auth": "anonymous"}}, True),
    ("minio", {"origin": {"endpoint": "http://minio:9000", "allowHttp": True, "region": "eu"}}, True),
    ("no secret at all", {**NO_KEYS, "peers": {"enabled": False}}, False),
    ("everything", {"imagePullSecrets": [{"name": "pull"}], "priorityClassName": "high",
     "nodeSelector": {"disk": "nvme"}, "tolerations": [{"operator": "Exists"}],
     "podAnnotations": {"a": "b"}, "podLabels": {"team": "x"}, "antiAffinity": "preferred",
     "persistence": {"storageClassName": "local-path", "whenScaled": "Delete"},
     "extraEnv": [{"name": "FLOE_CHUNK_WRITE_BUFFER", "value": "128MiB"}],
     "extraVolumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
     "extraVolumeMounts": [{"name": "tls", "mountPath": "/tls"}],
     "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "p"}}},
     "haproxy": {"service": {"type": "LoadBalancer", "port": 80, "annotations": {"a": "b"}},
                 "podAnnotations": {"a": "b"}, "nodeSelector": {"a": "b"},
                 "tolerations": [{"operator": "Exists"}]},
     "networkPolicy": {"s3From": ANY}}, True),
    ("nothing optional", {"metrics": {"annotations": False}, "networkPolicy": {"enabled": False},
     "podDisruptionBudget": {"enabled": False}, "topologySpreadConstraints": []}, True),
]
# Values, and a part of the message.
BAD = [
    ({"consistency": "ttl"}, "/consistency"),
    ({"replica": 3}, "replica"),
    ({"replicas": 0}, "/replicas"),
    ({"secrets": {"peersSecret": "short"}}, "peersSecret"),
    ({"secrets": {"s3Keys": "reader"}}, "s3Keys"),
    ({"origin": {"kind": "gcs"}}, "origin.auth"),
    ({"origin": {"kind": "http", "auth": "anonymous"}}, "origin.endpoint"),
    ({"readyPath": "/ready/member"}, "set etcd"),
    ({"persistence": {"accessModes": ["ReadWriteMany"]}}, "accessModes"),
]


class Loader(yaml.SafeLoader):
    """Rejects a key that comes twice, which YAML parsers would let win silently."""


def mapping(loader, node):
    keys = [loader.construct_object(key) for key, _ in node.value]
    twice = {key for key in keys if keys.count(key) > 1}
    assert not twice, f"twice: {twice} at {node.start_mark}"
    return loader.construct_mapping(node, deep=True)


Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)


def run(*command, env=None):
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    return done.returncode, done.stdout + done.stderr


class Checks:
    def __init__(self, options):
        self.options, self.notes = options, set()
        # It is removed at the end.
        self.place = tempfile.TemporaryDirectory(prefix="floe-chart-")
        self.folder = Path(self.place.name)

    def helm(self, verb, values, secrets, *more):
        file = self.folder / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        where = ["--namespace", "cache", "--values", str(file), "--kube-version", "1.37.0"]
        # `,` separates settings on helm's command line.
        for key, value in (secrets or {}).items():
            where += ["--set-string", f"{key}={value}".replace(",", "\\,")]
        names = ["floe"] if verb == "template" else ["--strict"]
        home = {f"HELM_{part}_HOME": str(self.folder) for part in ("CACHE", "CONFIG", "DATA")}
        return run(self.options.helm, verb, *names, self.options.chart, *where, *more,
                   env={**os.environ, **home})

    def good(self, values, secrets):
        status, text = self.helm("lint", values, secrets)
        assert status == 0, text
        status, text = self.helm("template", values, secrets)
        assert status == 0, text
        documents = [d for d in yaml.load_all(text, Loader) if d]
        for document in documents:
            if document["kind"] in FOREIGN:
                self.notes.add(f"no schema for {document['kind']}")
                continue
            for version in VERSIONS:
                kubernetes_validate.validate(document, version, strict=True)
        assert all_unique((d["kind"], d["metadata"]["name"]) for d in documents)
        self.agree({(d["kind"], d["metadata"]["name"]): d for d in documents})
        return len(documents)

    def agree(self, objects):
        nodes = objects["StatefulSet", "floe"]["spec"]
        pod = nodes["template"]["spec"]
        floe = pod["containers"][0]
        toml = objects["ConfigMap", "floe"]["data"]["floe.toml"]
        settings = tomllib.loads(toml)
        self.config_check(toml, floe, objects)

        drain = settings["server"]["drain_timeout_seconds"]
        assert pod["terminationGracePeriodSeconds"] > drain
        service = objects["Service", nodes["serviceName"]]["spec"]
        assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"]
        domain = f"{nodes['serviceName']}.cache.svc.cluster.local"
        hosts = [f"floe-{i}.{domain}" for i in range(nodes["replicas"])]

        ports = {p["name"]: p["containerPort"] for p in floe["ports"]}
        for name in ports:
            listen = settings[name]["listen"]
            assert listen.endswith(f":{ports[name]}"), (listen, ports)
        assert ("peers" in ports) == ("peers" in settings)
        self.selectors_and_ports(objects)

        if "peers" in settings:
            peers = settings["peers"]
            if peers["order"] == "haproxy":
                assert peers["nodes"] == [f"{host}:9095" for host in hosts]
                assert peers["weight"] == 16
            else:
                assert peers["nodes"] == [f"{domain}:9095"]
                assert peers["asked"] == min(len(hosts) - 1, 16)
            assert 1 <= peers["asked"] <= 16
        if ("ConfigMap", "floe-haproxy") in objects:
            self.haproxy(objects["ConfigMap", "floe-haproxy"]["data"]["haproxy.cfg"], hosts, settings)

        for kind, name in objects:
            if kind not in ("StatefulSet", "Deployment"):
                continue
            spec = objects[kind, name]["spec"]["template"]["spec"]
            assert spec["securityContext"]["runAsNonRoot"]
            assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
            for container in spec["containers"]:
                context = container["securityContext"]
                assert context["readOnlyRootFilesystem"]
                assert context["allowPrivilegeEscalation"] is False
                assert context["capabilities"] == {"drop": ["ALL"]}
                assert container["resources"]["limits"]["memory"]
                names = [variable["name"] for variable in container.get("env", [])]
                assert all_unique(names)
                mounts = {mount["name"] for mount in container["volumeMounts"]}
                volumes = {volume["name"] for volume in spec["volumes"]}
                claims = objects[kind, name]["spec"].get("volumeClaimTemplates", [])
                assert mounts == volumes | {claim["metadata"]["name"] for claim in claims}

    def selectors_and_ports(self, objects):
        pods = []
        for (kind, _), document in objects.items():
            if kind in ("StatefulSet", "Deployment"):
                spec = document["spec"]
                labels = spec["template"]["metadata"]["labels"]
                assert within(spec["selector"]["matchLabels"], labels)
                names = {p["name"] for c in spec["template"]["spec"]["containers"] for p in c["ports"]}
                pods.append((labels, names))
                for container in spec["template"]["spec"]["containers"]:
                    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                        for way in ("httpGet", "tcpSocket"):
                            port = container.get(probe, {}).get(way, {}).get("port")
                            assert port is None or port in names

        def chosen(selector):
            found = [names for labels, names in pods if within(selector, labels)]
            assert len(found) == 1, (selector, found)
            return found[0]

        services = []
        for (kind, _), document in objects.items():
            spec = document.get("spec", {})
            if kind == "Service":
                names = chosen(spec["selector"])
                assert all_unique(spec["ports"]) and all(p["targetPort"] in names for p in spec["ports"])
                services.append((document["metadata"]["labels"], {p["name"] for p in spec["ports"]}))
            elif kind == "PodDisruptionBudget":
                chosen(spec["selector"]["matchLabels"])
                assert spec["maxUnavailable"] == 1
            elif kind == "NetworkPolicy":
                names = chosen(spec["podSelector"]["matchLabels"])
                for rule in spec["ingress"]:
                    # An empty `from` would admit all.
                    assert rule["from"] and all(p["port"] in names for p in rule["ports"])
                    for source in rule["from"]:
                        if "podSelector" in source:
                            chosen(source["podSelector"]["matchLabels"])
        for (kind, _), document in objects.items():
            if kind == "ServiceMonitor":
                wanted = document["spec"]["selector"]["matchLabels"]
                found = [names for labels, names in services if within(wanted, labels)]
                assert len(found) == 1, found
                assert all(e["port"] in found[0] for e in document["spec"]["endpoints"])

    def config_check(self, toml, container, objects):
        env = {"PATH": os.environ["PATH"], "FLOE_DATA_DIR": str(self.folder / "data")}
        secret = objects.get(("Secret", "floe"), {}).get("stringData")
        for variable in container["env"]:
            source = variable.get("valueFrom", {})
            if "secretKeyRef" in source:
                key = source["secretKeyRef"]["key"]
                if secret is not None:
                    env[variable["name"]] = secret[key]
                else:
                    env[variable["name"]] = "reader:change-me-please" if key == "s3-keys" else "x" * 32
            elif "fieldRef" in source:
                env[variable["name"]] = "floe-0"
            elif variable["name"] not in ("FLOE_CONFIG", "FLOE_DATA_DIR"):
                env[variable["name"]] = variable["value"]
        if secret is not None:
            used = {v["valueFrom"]["secretKeyRef"]["key"] for v in container["env"]
                    if "secretKeyRef" in v.get("valueFrom", {})}
            assert used == set(secret), (used, set(secret))
        file = self.folder / "floe.toml"
        file.write_text(toml)
        status, text = run(self.options.floe, "config", "check", str(file), env=env)
        assert status == 0, text
        for line in text.splitlines():
            if line.startswith("warning"):
                self.notes.add("floe config check: " + line)

    def haproxy(self, text, hosts, settings):
        file = self.folder / "haproxy.cfg"
        file.write_text(text + "\n")
        status, told = run(self.options.haproxy, "-c", "-f", str(file))
        assert status == 0, told
        for line in told.splitlines():
            # No name is known here.
            if "WARNING" in line and "could not resolve address" not in line:
                self.notes.add("haproxy -c: " + re.sub(r"^\[|\(\d+\)|/tmp/\S*/", "", line))
        mode = settings["object"]["consistency"]
        status, told = run(self.options.floe, "ring", "check", "--consistency", mode, str(file))
        assert status == 0, told
        servers = re.findall(r"^ +server (\S+) (\S+):9000 id (\d+)$", text, re.M)
        assert [(n, h, int(i)) for n, h, i in servers] == [
            (host.split(".")[0], host, number) for number, host in enumerate(hosts, 1)]
        # What decides about the order, and about retries, is that of packaging/ring.
        shipped = Path(self.options.root, "packaging/ring/haproxy-s3.cfg").read_text()
        ours, theirs = backend(text), backend(shipped)
        assert ours == theirs, (ours, theirs)


def backend(text):
    """The lines of the backend, without servers, ports and the ways of looking names up."""
    lines = text.split("\nbackend floe\n")[1].splitlines()
    lines = [line.strip() for line in lines if line.strip() and line.strip()[0] != "#"]
    lines = [re.sub(r" resolvers cluster .*$", "", line) for line in lines]
    lines = [re.sub(r"\bport \d+", "port P", line) for line in lines]
    return [line for line in lines if not line.startswith("server ")]


def within(some, labels):
    return some.items() <= labels.items()


def all_unique(items):
    items = list(map(str, items))
    return len(items) == len(set(items))


def main():
    root = Path(__file__).resolve().parent.parent.parent
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--chart", default=str(root / "packaging/chart"))
    parser.add_argument("--root", default=str(root), help="of the clone")
    for program in ("floe", "helm", "haproxy"):
        parser.add_argument(f"--{program}", default=program)
    checks = Checks(parser.parse_args())
    failed = 0
    for name, values, given in GOOD:
        try:
            count = checks.good(values, SECRETS if given else None)
            print(f"ok    {name}: {count} objects")
        except Exception as error:
            failed += 1
            print(f"FAIL  {name}: {type(error).__name__}: {str(error)[:3000]}")
    bad = [(values, SECRETS, part) for values, part in BAD]
    # Each secret is needed, and none has a default.
    for left_out in SECRETS:
        rest = {key: value for key, value in SECRETS.items() if key != left_out}
        bad.append(({}, rest, f"{left_out} is needed"))
    for values, secrets, part in bad:
        # A value of the file would lose to the command line's.
        for key in values.get("secrets", {}):
            secrets = {k: v for k, v in secrets.items() if k != f"secrets.{key}"}
        status, text = checks.helm("template", values, secrets)
        fine = status != 0 and part in text
        failed += not fine
        print("ok   " if fine else "FAIL ", "refused:", part, "" if fine else text[:800])
    for note in sorted(checks.notes):
        print("note ", note)
    print("failed:", failed)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
