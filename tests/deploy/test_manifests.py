"""Manifests fit the schemas of Kubernetes, and what they say of each other is true.

There is no schema of KubeRay's own kind in a package: the pods that it makes are checked by that of
Kubernetes, and the fields around them against those that `ray.io/v1` has.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from penstock.cli.serve import serve
from tests.deploy.manifests import DEPLOY, FILES, documents, pod_templates, resource

# The oldest release with the label that a pod has its index in, and one of today.
RELEASES = ["1.28", "1.37"]
STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
COUNT = {"type": "integer", "minimum": 0}
GROUP = {"rayStartParams": STRINGS, "template": {"type": "object"}}
RAY_CLUSTER: dict[str, Any] = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "ray.io/v1"},
        "kind": {"const": "RayCluster"},
        "metadata": {"type": "object", "required": ["name"]},
        "spec": {
            "type": "object",
            "required": ["headGroupSpec", "workerGroupSpecs"],
            "additionalProperties": False,
            "properties": {
                "rayVersion": {"type": "string"},
                "suspend": {"type": "boolean"},
                "enableInTreeAutoscaling": {"type": "boolean"},
                "headServiceAnnotations": STRINGS,
                "headGroupSpec": {
                    "type": "object",
                    "required": ["rayStartParams", "template"],
                    "additionalProperties": False,
                    "properties": {**GROUP, "serviceType": {"type": "string"}},
                },
                "workerGroupSpecs": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": [
                            "groupName",
                            "minReplicas",
                            "maxReplicas",
                            "rayStartParams",
                            "template",
                        ],
                        "properties": {
                            **GROUP,
                            "groupName": {"type": "string"},
                            "replicas": COUNT,
                            "minReplicas": COUNT,
                            "maxReplicas": COUNT,
                            "numOfHosts": COUNT,
                        },
                    },
                },
            },
        },
    },
}

ALL = [
    pytest.param(each, id=f"{file.name}-{each['kind']}")
    for file in FILES
    for each in documents(file)
]
PODS = [
    pytest.param(template["spec"], id=f"{file.name}-{number}")
    for file in FILES
    for each in documents(file)
    for number, template in enumerate(pod_templates(each))
]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("document", ALL)
def test_every_resource_fits_its_schema(document: dict[str, Any], release: str) -> None:
    if document["kind"] != "RayCluster":
        kubernetes_validate.validate(document, release, strict=True)
        return
    jsonschema.validate(document, RAY_CLUSTER)
    for template in pod_templates(document):
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "a"}}
        kubernetes_validate.validate({**pod, "template": template}, release, strict=True)


def test_a_field_that_does_not_exist_is_found() -> None:
    cluster = resource("raycluster.yaml", "RayCluster")
    pods = resource("statefulset.yaml", "StatefulSet")
    pods["spec"]["template"]["spec"]["graceSeconds"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="graceSeconds"):
        kubernetes_validate.validate(pods, RELEASES[-1], strict=True)
    cluster["spec"]["workerGroupSpecs"][0]["replica"] = 1
    with pytest.raises(jsonschema.ValidationError, match="replica"):
        jsonschema.validate(cluster, RAY_CLUSTER)


@pytest.mark.parametrize("pod", PODS)
def test_what_a_pod_mounts_and_probes_is_there(pod: dict[str, Any]) -> None:
    volumes = {each["name"] for each in pod["volumes"]}
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        assert {each["name"] for each in container["volumeMounts"]} <= volumes
        ports = {each["name"] for each in container.get("ports", [])}
        probes = [each for name, each in container.items() if name.endswith("Probe")]
        assert {probe["httpGet"]["port"] for probe in probes} <= ports
    claims = [
        each["persistentVolumeClaim"] for each in pod["volumes"] if "persistentVolumeClaim" in each
    ]
    made = resource("volume.yaml", "PersistentVolumeClaim")["metadata"]["name"]
    assert [each["claimName"] for each in claims] == [made]


@pytest.mark.parametrize("pod", PODS)
def test_pods_have_no_rights_that_they_do_not_need(pod: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] > 0
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        assert not container["securityContext"]["allowPrivilegeEscalation"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["requests"]
        assert container["resources"]["limits"]["memory"]


def test_servers_write_to_their_volumes_alone() -> None:
    pod = resource("statefulset.yaml", "StatefulSet")["spec"]["template"]["spec"]
    assert not pod["automountServiceAccountToken"]
    for container in [*pod["containers"], *pod["initContainers"]]:
        assert container["securityContext"]["readOnlyRootFilesystem"]
        mounts = {each["name"]: each for each in container["volumeMounts"]}
        assert {name for name, each in mounts.items() if not each.get("readOnly")} == {
            "parts",
            "scratch",
        }
        assert mounts["scratch"]["mountPath"] == "/tmp"
    (keys,) = (each["secret"] for each in pod["volumes"] if "secret" in each)
    assert not keys["defaultMode"] & 0o007  # a private key that others may read is refused


def test_the_parts_of_the_statefulset_fit_together() -> None:
    pods, service, budget, settings = (
        resource("statefulset.yaml", kind)
        for kind in ("StatefulSet", "Service", "PodDisruptionBudget", "ConfigMap")
    )
    spec, labels = pods["spec"], pods["spec"]["template"]["metadata"]["labels"]
    assert spec["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    for selector in (
        spec["selector"]["matchLabels"],
        budget["spec"]["selector"]["matchLabels"],
        service["spec"]["selector"],
    ):
        assert selector.items() <= labels.items()
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    data = settings["data"]
    assert spec["replicas"] % int(data["NUM_PARTS"]) == 0
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > float(data["GRACE"])
    name = pods["metadata"]["name"]
    (server,) = spec["template"]["spec"]["containers"]
    given = [each["name"] for each in server["env"]]
    (store,) = (each["value"] for each in server["env"] if each["name"] == "STORE")
    assert given.index("STORE") > max(map(given.index, re.findall(r"\$\((\w+)\)", store)))
    assert store.split(",") == [
        f"tls://{pod}.{spec['serviceName']}.$(NAMESPACE).svc:7070"
        for pod in (f"{name}-0", f"{name}-1", "$(NAME)")
    ]
    for port in service["spec"]["ports"]:
        assert {"name": port["targetPort"], "containerPort": port["port"]} in server["ports"]
    assert f":{server['ports'][0]['containerPort']}" in data["BIND"]
    assert f":{server['ports'][1]['containerPort']}" in data["PAGES"]


def test_every_option_of_the_command_exists() -> None:
    pod = resource("statefulset.yaml", "StatefulSet")["spec"]["template"]["spec"]
    (line,) = pod["containers"][0]["args"]
    known = {name for parameter in serve.params for name in parameter.opts}
    used = set(re.findall(r"(?<=\s)--[\w-]+", line))
    assert {"--bind", "--store", "--tokens", "--http"} <= used <= known


def test_the_version_of_ray_is_that_of_the_image_and_of_the_tests() -> None:
    cluster = resource("raycluster.yaml", "RayCluster")["spec"]["rayVersion"]
    assert f"rayproject/ray:{cluster}-" in (DEPLOY / "Dockerfile").read_text()
    assert cluster == version("ray")


def test_servers_on_ray_do_not_give_way_to_everything_else() -> None:
    for template in pod_templates(resource("raycluster.yaml", "RayCluster")):
        (container,) = template["spec"]["containers"]
        assert {"name": "RAY_worker_niceness", "value": "0"} in container["env"]


def test_the_readme_names_every_file() -> None:
    text = (DEPLOY / "README.md").read_text()
    assert all(
        f"]({path.name})" in text for path in Path(DEPLOY).iterdir() if path.name != "README.md"
    )
