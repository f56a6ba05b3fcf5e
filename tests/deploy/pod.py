"""A pod as the chart makes it, in a folder: what the kubelet mounts is there, and the program runs as its
user, with its environment and its arguments.

What the settings name below /etc/tollgate and /var/lib/tollgate is below the folder, and what listens to all
addresses does so on loopback, at a port that is free.
"""

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import yaml

from helm import ROOT, of_kind

sys.path[:0] = [str(ROOT / "tests" / name) for name in ("httpbin", "edge")]
from certificates import Authority
from harness import free_port

# The folders of the image that pods mount into.
MOUNTED = re.compile(r"(?<![\w.])/(?:etc|var/lib)/tollgate")
LISTENS = re.compile(r"(?<=address: |metrics: )(?:0\.0\.0\.0|127\.0\.0\.1):(\d+)")


class Pod:
    """The pod of the one workload among these objects."""

    def __init__(self, objects, folder):
        workloads = [one for one in objects if one["kind"] in ("Deployment", "StatefulSet")]
        if len(workloads) != 1:
            raise RuntimeError(f"{len(workloads)} workloads")
        self.workload = workloads[0]
        self.template = self.workload["spec"]["template"]
        self.spec = self.template["spec"]
        self.container = self.spec["containers"][0]
        self.config_maps = of_kind(objects, "ConfigMap")
        self.folder = folder

    def volumes(self):
        """What each folder in the container shows, by the folder's path."""
        claims = self.workload["spec"].get("volumeClaimTemplates", [])
        volumes = {claim["metadata"]["name"]: {"claim": claim} for claim in claims}
        volumes |= {volume["name"]: volume for volume in self.spec["volumes"]}
        return {mount["mountPath"]: volumes[mount["name"]] for mount in self.container["volumeMounts"]}

    def settings_file(self):
        """Where the program finds its settings, in the container."""
        named = {one["name"]: one.get("value") for one in self.container["env"]}
        return named["TOLLGATE_CONFIG"]

    def settings(self):
        """The settings that the chart has written; none where they are somebody else's."""
        folder, name = os.path.split(self.settings_file())
        content = self.content(self.volumes()[folder])
        return yaml.safe_load(content[name]) if content else None

    def content(self, volume):
        """The files of a volume that is a ConfigMap of the chart."""
        config_map = self.config_maps.get(volume.get("configMap", {}).get("name"))
        return config_map["data"] if config_map else {}

    def lay_out(self, others, ports=None):
        """Makes the folder. `others` are the files of volumes whose objects the chart does not make, by the
        path of the volume; a function that gives the text for a name, if it is one of Secrets."""
        authority = Authority()
        site = authority.issue("api.example.com")
        known = {"tls.crt": site.certificate, "tls.key": site.key, "ca.crt": authority.pem}
        for path, volume in self.volumes().items():
            folder = self.at(path)
            folder.mkdir(parents=True)
            if "claim" in volume or "persistentVolumeClaim" in volume:
                # As `fsGroup` leaves it.
                self.give(folder, 0o2770, owner=0)
                continue
            content = self.content(volume) or others.get(path)
            if content is None:
                names = re.findall(rf"{re.escape(path)}/([\w.-]+)", str(self.settings()))
                content = {name: known.get(name, secrets.token_hex(32).encode()) for name in names}
            mount(folder, content, lambda text: self.here(text, ports), self.give)
        return self

    def at(self, path):
        """Where a path of the container is here."""
        return self.folder / path.lstrip("/")

    def here(self, text, ports):
        """A text of a file, for the place where it is here."""
        text = MOUNTED.sub(lambda found: f"{self.folder}{found.group()}", text)
        if ports is None:
            return text
        return LISTENS.sub(lambda found: f"127.0.0.1:{ports.setdefault(int(found[1]), free_port())}", text)

    def give(self, path, mode, owner=0):
        """The owner and the mode that something has in a pod, where this process may set them."""
        path.chmod(mode)
        if os.geteuid() == 0:
            os.chown(path, owner, self.spec["securityContext"]["fsGroup"])

    def environment(self):
        """What the program finds in its environment."""
        return {"TOLLGATE_CONFIG": str(self.at(self.settings_file())), "PATH": "/usr/bin:/bin"}

    def identity(self):
        """The user that it runs as, if this process may choose it."""
        if os.geteuid() != 0:
            return {}
        user = self.spec["securityContext"]
        return {"user": user["runAsUser"], "group": user["runAsGroup"], "extra_groups": [user["fsGroup"]]}

    def run(self, program, *arguments):
        """Runs the program in the pod until it ends, as `kubectl exec` does."""
        return subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env=self.environment(),
            **self.identity(),
        )


def mount(folder, content, here, give):
    """Files as the kubelet shows them: links into a folder that is replaced as a whole."""
    real = folder / "..2026_11_28"
    real.mkdir()
    (folder / "..data").symlink_to(real.name)
    for name, text in content.items():
        file = real / name
        file.write_bytes(here(text).encode() if isinstance(text, str) else text)
        give(file, 0o440)
        (folder / name).symlink_to(Path("..data") / name)
