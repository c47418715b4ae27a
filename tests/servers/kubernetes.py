"""Kubernetes' own schemas, and the operators': objects that a cluster would reject are rejected here, without a cluster.

Those of Kubernetes come with ``kubernetes-validate`` (PyPI), in an environment of their own; those of the operators' resources
are read from their Go modules, as published.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from tests.servers.go import module, obstacle
from tests.servers.server import cache_dir

__all__ = ["VERSION", "install", "installed", "refused"]

VERSION = "1.37"
_PACKAGE = "kubernetes-validate==1.37.0"
_OPERATORS = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
_COREOS = "example/prometheus-operator-crd/monitoring.coreos.com"
_KEDA = "github.com/kedacore/keda/v2@v2.20.2"
_CRDS: Mapping[str, str] = {
    f"{_COREOS}_podmonitors.yaml": _OPERATORS,
    f"{_COREOS}_prometheusrules.yaml": _OPERATORS,
    "config/crd/bases/opentelemetry.io_opentelemetrycollectors.yaml": (
        "github.com/open-telemetry/opentelemetry-operator@v0.142.0"
    ),
    "config/crd/bases/keda.sh_scaledobjects.yaml": _KEDA,
    "config/crd/bases/keda.sh_triggerauthentications.yaml": _KEDA,
}
"""File of a custom resource's definition → Go module with its version."""
_VALIDATE = """
import json, sys
import jsonschema, kubernetes_validate
version, crds, objects = json.load(sys.stdin)
for one in objects:
    kind = f"{one['apiVersion']} {one['kind']}"
    try:
        if kind in crds:
            jsonschema.Draft202012Validator(crds[kind]).validate(one)
        else:
            kubernetes_validate.validate(one, version, strict=True)
    except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as error:
        print(f"{kind}: {error.message} at {'/'.join(map(str, error.path))}")
"""


def installed() -> bool:
    """Whether the schemas are there."""
    return (_home() / ".ready").is_file() and all((_home() / Path(file).name).is_file() for file in _CRDS)


def install() -> None:
    """Fetch them (some 30 MB) unless they are there.

    Raises:
        RuntimeError: there is no Go here.
    """
    if installed():
        return
    if why := obstacle("the operators' resources"):
        raise RuntimeError(why)
    home = _home()
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    subprocess.run([str(_python()), "-m", "pip", "install", "--quiet", _PACKAGE], check=True)
    for file, of in _CRDS.items():
        shutil.copy(module(of) / file, home)
    (home / ".ready").touch()


def refused(objects: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the faults for which a cluster would reject these objects, and the fields it would drop: those in no schema."""
    asked = json.dumps([VERSION, dict(map(_crd, _CRDS)), objects])
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        [str(_python()), "-c", _VALIDATE], input=asked, capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.splitlines()


@cache
def _crd(file: str) -> tuple[str, dict[str, Any]]:
    spec = yaml.safe_load((_home() / Path(file).name).read_text(encoding="utf-8"))["spec"]
    newest = next(version for version in spec["versions"] if version["storage"])
    schema = newest["schema"]["openAPIV3Schema"]
    schema["properties"]["metadata"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return f"{spec['group']}/{newest['name']} {spec['names']['kind']}", _strict(schema)


def _strict(schema: Any) -> Any:
    """Return a schema without further fields, because a cluster would drop them silently."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _strict(one) for name, one in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
    return made


def _home() -> Path:
    return cache_dir() / f"kubernetes-{VERSION}"


def _python() -> Path:
    return _home() / "bin" / "python"
