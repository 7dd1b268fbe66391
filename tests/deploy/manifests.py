"""The manifests of deploy/, as plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
FILES: Final = sorted(DEPLOY.glob("*.yaml"))


def documents(file: Path) -> list[dict[str, Any]]:
    """All resources of a file."""
    return [each for each in yaml.safe_load_all(file.read_text()) if each]


def resource(name: str, kind: str) -> dict[str, Any]:
    """The only resource of this kind in a file of deploy/."""
    (found,) = (each for each in documents(DEPLOY / name) if each["kind"] == kind)
    return found


def pod_templates(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The templates of all pods that a resource makes."""
    match document["kind"]:
        case "StatefulSet":
            return [document["spec"]["template"]]
        case "RayCluster":
            spec = document["spec"]
            groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
            return [group["template"] for group in groups]
    return []
