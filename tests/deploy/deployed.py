"""What lies in deploy/, read: the compose file, the Kubernetes manifests, the gateway's configuration in each."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from gateway.config import Config, Loaded, load_config

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
CONTAINERFILE = DEPLOY / "Containerfile"
SECRET = "c0ffee"


@dataclass(frozen=True)
class Place:
    """One way in which the gateway is deployed."""

    name: str
    config: Path
    environment: frozenset[str]
    """Names of the variables that the process is given."""
    kill_s: float
    """How long after SIGTERM it is killed."""
    looks_s: float
    """How long it may take until whoever balances has seen that a replica is not ready."""
    mounts: frozenset[str]
    """Folders that it may write to."""
    redis: tuple[str, ...]
    """Arguments of its redis-server."""

    def loaded(self) -> Loaded:
        return load_config(self.config, dict.fromkeys(self.environment, SECRET))

    def served(self) -> Config:
        return self.loaded().config

    def __str__(self) -> str:
        return self.name


def read_yaml(path: Path) -> dict:
    [document] = yaml.safe_load_all(path.read_text())
    return document


@cache
def compose() -> dict:
    return read_yaml(DEPLOY / "compose.yaml")


@cache
def objects() -> dict[tuple[str, str], dict]:
    """The Kubernetes objects by kind and name."""
    listed = read_yaml(KUBERNETES / "kustomization.yaml")["resources"]
    found = [each for name in listed for each in yaml.safe_load_all((KUBERNETES / name).read_text())]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def pod(kind: str, name: str) -> dict:
    return objects()[kind, name]["spec"]["template"]["spec"]


def container(kind: str, name: str) -> dict:
    [found] = pod(kind, name)["containers"]
    return found


def options(arguments: tuple[str, ...]) -> dict[str, str]:
    """Arguments of a redis-server as names and values."""
    return {
        name.removeprefix("--"): value for name, value in zip(arguments[::2], arguments[1::2], strict=True)
    }


def haproxy() -> str:
    return (DEPLOY / "compose" / "haproxy.cfg").read_text()


def found(pattern: str, text: str) -> str:
    """What the one group of a pattern has matched."""
    match = re.search(pattern, text)
    assert match is not None, f"{pattern} is not in:\n{text}"
    return match[1]


def seconds(text: str) -> float:
    return float(found(r"^(\d+)s$", text))


def version() -> str:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def by_compose() -> Place:
    service = compose()["services"]["gateway-1"]
    checks = haproxy()
    writable = [text.split(":")[1] for text in service["volumes"] if not text.endswith(":ro")]
    return Place(
        name="compose",
        config=DEPLOY / "compose" / "gateway.yaml",
        environment=frozenset(service["environment"]),
        kill_s=seconds(service["stop_grace_period"]),
        looks_s=float(found(r" inter (\d+)s ", checks)) * float(found(r" fall (\d+) ", checks)),
        mounts=frozenset(writable),
        redis=tuple(compose()["services"]["redis"]["command"]),
    )


def by_kubernetes() -> Place:
    gateway, spec = container("Deployment", "sluicegate"), pod("Deployment", "sluicegate")
    probe = gateway["readinessProbe"]
    volumes = {each["name"] for each in spec["volumes"] if "emptyDir" in each}
    return Place(
        name="kubernetes",
        config=KUBERNETES / "gateway.yaml",
        environment=frozenset(each["name"] for each in gateway["env"]),
        kill_s=spec["terminationGracePeriodSeconds"],
        looks_s=probe["periodSeconds"] * probe["failureThreshold"],
        mounts=frozenset(each["mountPath"] for each in gateway["volumeMounts"] if each["name"] in volumes),
        redis=tuple(container("StatefulSet", "sluicegate-redis")["args"]),
    )


PLACES = [by_compose(), by_kubernetes()]
