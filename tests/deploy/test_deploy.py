"""What deploy/ ships fits together, as far as that shows without an engine that runs it."""

import re
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from deployed import (
    CONTAINERFILE,
    DEPLOY,
    KUBERNETES,
    PLACES,
    ROOT,
    Place,
    compose,
    container,
    found,
    haproxy,
    objects,
    options,
    pod,
    read_yaml,
    version,
)

from gateway.cli.check_config import check_config
from gateway.config.schema import FileSink
from gateway.http.admin import ROUTES
from gateway.http.admin_guard import OPEN_ROUTES

OPEN_PATHS = {route.template for route in ROUTES if route.name in OPEN_ROUTES}
SERVICES = list(compose()["services"])
WORKLOADS = [("Deployment", "sluicegate"), ("StatefulSet", "sluicegate-redis")]
UNITS = {"mb": 2**20, "gb": 2**30}


@pytest.fixture(params=PLACES, ids=str)
def place(request) -> Place:
    return request.param


# ------------------------------------------------------------------------------------------------ configuration


@pytest.mark.parametrize(
    "path", ["gateway.redis.example.yaml", "compose/gateway.yaml", "kubernetes/gateway.yaml"]
)
def test_deploy_configuration_is_valid(path):
    """check-config accepts each shipped configuration without a warning, given the variables that it names (GW-1)."""
    given = {"REDIS_PASSWORD": "c0ffee", "SLUICEGATE_ADMIN_TOKEN": "c0ffee"}
    result = CliRunner().invoke(check_config, [str(DEPLOY / path)], env=given)
    assert (result.exit_code, result.stderr) == (0, "")


def test_deploy_replicas_are_given_their_secrets(place):
    """A replica's environment holds every secret that its configuration names, and its URL of Redis the password."""
    loaded = place.loaded()
    loaded.require_secrets()
    assert loaded.config.coordination == "redis"
    assert urlsplit(loaded.config.redis.url).password == "c0ffee"


def test_deploy_two_replicas():
    """There are two replicas, and those of the compose file differ only in their volume and their admin port."""
    first, second = (dict(compose()["services"][name]) for name in ("gateway-1", "gateway-2"))
    for each in (first, second):
        del each["volumes"], each["ports"]
    assert first == second
    assert objects()["Deployment", "sluicegate"]["spec"]["replicas"] == 2


def test_deploy_replicas_write_where_they_may(place):
    """The root is read-only: audit file and spool lie below a folder that is mounted for writing."""
    audit = place.served().audit
    paths = [audit.spool_dir, *(sink.path for sink in audit.sinks if isinstance(sink, FileSink))]
    for path in paths:
        assert any(path.is_relative_to(mount) for mount in place.mounts), path


def test_deploy_configuration_is_where_the_image_looks():
    """The configuration is mounted where the image's command reads it."""
    path = found(r'"--config", "(.*?)"', CONTAINERFILE.read_text())
    service = compose()["services"]["gateway-1"]
    assert f"./compose/gateway.yaml:{path}:ro" in service["volumes"]
    gateway = container("Deployment", "sluicegate")
    [mount] = [each["mountPath"] for each in gateway["volumeMounts"] if each["name"] == "config"]
    assert gateway["args"] == ["serve", "--config", path]
    [generated] = read_yaml(KUBERNETES / "kustomization.yaml")["configMapGenerator"]
    assert [f"{mount}/{name}" for name in generated["files"]] == [path]
    [volume] = [each for each in pod("Deployment", "sluicegate")["volumes"] if each["name"] == "config"]
    assert volume["configMap"]["name"] == generated["name"]


# --------------------------------------------------------------------------------------------------------- ports


def test_deploy_compose_ports_agree():
    """Who calls whom in the compose file calls the port that the other one listens on."""
    services, config = compose()["services"], PLACES[0].served()
    public, admin = config.server.bind.port, config.server.admin_bind.port
    servers = re.findall(r"^    server (\S+) (\S+):(\d+)$", haproxy(), re.MULTILINE)
    assert servers == [(name, name, str(public)) for name in services if name.startswith("gateway-")]
    assert found(r"check port (\d+)", haproxy()) == str(admin)
    [published] = services["balancer"]["ports"]
    assert published.endswith(":" + found(r"bind :(\d+)", haproxy()))
    for name, *_ in servers:
        [published] = services[name]["ports"]
        assert published.startswith("127.0.0.1:")
        assert published.endswith(f":{admin}")
    assert urlsplit(config.redis.url).hostname in services
    [endpoint] = config.upstreams[0].endpoints
    stub = found(r"listen (\d+);", (DEPLOY / "compose" / "stub.conf").read_text())
    assert endpoint.url == f"http://stub:{stub}"
    assert "stub" in services


def test_deploy_kubernetes_ports_agree():
    """Containers name the ports that the configuration binds; services and the URL of Redis lead to them."""
    config = PLACES[1].served()
    gateway, redis = (container(*workload) for workload in WORKLOADS)
    named = {each["name"]: each["containerPort"] for each in gateway["ports"]}
    assert named == {"public": config.server.bind.port, "admin": config.server.admin_bind.port}
    [service_port] = objects()["Service", "sluicegate"]["spec"]["ports"]
    assert service_port["targetPort"] == "public"
    where = urlsplit(config.redis.url)
    [redis_port] = objects()["Service", where.hostname]["spec"]["ports"]
    assert redis_port["port"] == where.port
    assert redis_port["targetPort"] in {each["name"] for each in redis["ports"]}


def test_deploy_selectors_meet_their_pods():
    """Services, the disruption budget and the workloads select the pods that they are about."""
    labels = {
        name: objects()[kind, name]["spec"]["template"]["metadata"]["labels"] for kind, name in WORKLOADS
    }
    for (kind, name), each in objects().items():
        spec = each["spec"]
        wanted = spec["selector"] if kind == "Service" else spec["selector"]["matchLabels"]
        assert wanted.items() <= labels[name].items(), (kind, name)


def test_deploy_probes_are_routes():
    """Every probe, the balancer's too, asks a route of the admin side that wants no token."""
    gateway = container("Deployment", "sluicegate")
    probes = [gateway[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert {probe["port"] for probe in probes} == {"admin"}
    assert {probe["path"] for probe in probes} | {found(r" uri (\S+)", haproxy())} == OPEN_PATHS
    assert gateway["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert gateway["readinessProbe"]["httpGet"]["path"] == "/readyz"


# --------------------------------------------------------------------------------------------------------- drain


def test_deploy_drain_ends_before_the_kill(place):
    """drain_lag_s + drain_timeout_s + 10 s are less than the time until the process is killed (GW-10)."""
    server = place.served().server
    assert server.drain_lag_s + server.drain_timeout_s + 10 < place.kill_s


def test_deploy_balancers_look_within_the_lag(place):
    """Whoever balances has seen that a replica drains before the replica refuses anything (GW-10)."""
    assert place.looks_s < place.served().server.drain_lag_s


def test_deploy_disruptions_leave_a_replica():
    """Neither an update nor an emptied node takes both replicas at once."""
    deployment = objects()["Deployment", "sluicegate"]["spec"]
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    budget = objects()["PodDisruptionBudget", "sluicegate"]["spec"]
    assert budget["maxUnavailable"] < deployment["replicas"]


# --------------------------------------------------------------------------------------------------------- Redis


def test_deploy_redis_keeps_what_it_took(place):
    """Redis writes an AOF, evicts nothing, and has the memory that docs/scaling.md asks for."""
    redis = options(place.redis)
    assert redis["appendonly"] == "yes"
    assert redis["appendfsync"] in {"everysec", "always"}
    assert redis["maxmemory-policy"] == "noeviction"
    number, unit = re.fullmatch(r"(\d+)(mb|gb)", redis["maxmemory"]).groups()
    config = place.served()
    kept = config.jobs.max_queued + config.jobs.max_finished
    assert int(number) * UNITS[unit] >= 1.2 * (config.max_stored_bytes + 4096 * kept)


def test_deploy_redis_data_is_on_a_volume():
    """The folder of the AOF is a named volume, or a claim."""
    service = compose()["services"]["redis"]
    volume, folder = service["volumes"][0].split(":")
    assert volume in compose()["volumes"]
    assert options(tuple(service["command"]))["dir"] == folder
    redis = container("StatefulSet", "sluicegate-redis")
    [claim] = objects()["StatefulSet", "sluicegate-redis"]["spec"]["volumeClaimTemplates"]
    mounts = {each["name"]: each["mountPath"] for each in redis["volumeMounts"]}
    assert mounts[claim["metadata"]["name"]] == options(tuple(redis["args"]))["dir"]


def test_deploy_redis_has_memory_beyond_its_data():
    """The limit of the Redis container is above maxmemory: buffers and a rewrite of the AOF come on top."""
    redis = container("StatefulSet", "sluicegate-redis")
    limit = int(found(r"^(\d+)Gi$", redis["resources"]["limits"]["memory"]))
    assert limit > int(found(r"^(\d+)gb$", options(tuple(redis["args"]))["maxmemory"]))


# -------------------------------------------------------------------------------------------------------- images


def images() -> list[str]:
    compose_images = [service["image"] for service in compose()["services"].values()]
    replaced = {each["name"]: each for each in read_yaml(KUBERNETES / "kustomization.yaml")["images"]}
    manifests = []
    for workload in WORKLOADS:
        image = container(*workload)["image"]
        other = replaced.get(image)
        manifests.append(f"{other['newName']}:{other['newTag']}" if other else image)
    bases = re.findall(r"^FROM (\S+)", CONTAINERFILE.read_text(), re.MULTILINE)
    return [*compose_images, *manifests, *bases]


def test_deploy_images_are_pinned():
    """Every image has a tag that says its version; ours is that of the project."""
    for image in images():
        name, _, tag = image.rpartition(":")
        assert re.match(r"\d+\.\d+", tag), image
        if name == "sluicegate":
            assert tag == version()
    tags = re.findall(r"sluicegate:(\S+)", CONTAINERFILE.read_text() + (DEPLOY / "compose.yaml").read_text())
    assert set(tags) == {version()}


def test_deploy_compose_services_are_confined():
    """Every service has a number for its user, a read-only root and no capabilities."""
    for name, service in compose()["services"].items():
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"]), name
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload[1])
def test_deploy_pods_are_confined(workload):
    """Every pod runs as a user who is not root, with a read-only root, no capabilities, no account of the cluster."""
    spec = pod(*workload)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert container(*workload)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_deploy_image_runs_as_the_user_that_is_named():
    """The image ends with a user who is not root, and whoever runs it names the same one."""
    users = re.findall(r"^USER (\S+)", CONTAINERFILE.read_text(), re.MULTILINE)
    assert users[-1] == "10001:10001"
    assert compose()["services"]["gateway-1"]["user"] == users[-1]
    context = pod("Deployment", "sluicegate")["securityContext"]
    assert f"{context['runAsUser']}:{context['runAsGroup']}" == users[-1]


def test_deploy_image_is_built_of_what_is_there():
    """What the Containerfile copies exists and is let through to the build; packages come from the lock, by hash."""
    text = CONTAINERFILE.read_text()
    allowed = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in allowed, source
    assert "--require-hashes -r requirements/runtime.lock" in text
