"""The Helm chart for three sets of values: valid, with settings that services know, least rights.

Rendered manifests are kept in ``tests/contract/helm``; ``support/helm_chart.py`` writes them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, Final

import kubernetes_validate
import pytest

from eruca_deploy.keys import ROLES
from eruca_deploy.plan import MODULES
from support import custom_resources
from support.containerfile import stages
from support.documents import ROOT
from support.helm_chart import KEPT, SETS, digest_line, helm, kept, of_kind, pods, rendered
from support.settings_of_services import SETTINGS, unknown_settings

KUBERNETES: Final = ("1.31.0", "1.37.0")  # the oldest that the chart takes, and the newest known
MANIFESTS: Final = {name: kept(name) for name in SETS}
STAGES: Final = stages(ROOT / "deploy" / "images" / "Containerfile")
CONFIGURED: Final = [
    pytest.param(name, stateful, id=f"{name}-{stateful['metadata']['name']}")
    for name in SETS
    for stateful in of_kind(MANIFESTS[name], "StatefulSet")
]
each_set = pytest.mark.parametrize("name", SETS)
each_service = pytest.mark.parametrize(("name", "stateful"), CONFIGURED)
needs_helm = pytest.mark.skipif(helm() is None, reason="needs helm: see support/helm_chart.py")


def module_of(stateful: dict[str, Any]) -> str:
    component = stateful["metadata"]["labels"]["app.kubernetes.io/component"]
    return f"eruca_{component.replace('-', '_')}"


def pod_of(stateful: dict[str, Any]) -> dict[str, Any]:
    template: dict[str, Any] = stateful["spec"]["template"]["spec"]
    return template


def container_of(stateful: dict[str, Any]) -> dict[str, Any]:
    [container] = pod_of(stateful)["containers"]
    return dict(container)


@each_set
def test_what_is_kept_was_rendered_from_the_chart_as_it_is(name: str) -> None:
    assert (KEPT / f"{name}.yaml").read_text().startswith(digest_line()), (
        "run: python tests/support/helm_chart.py"
    )


@needs_helm
@each_set
def test_helm_renders_what_is_kept(name: str) -> None:
    result = rendered(name)

    assert (result.stderr, digest_line() + result.stdout) == (
        "",
        (KEPT / f"{name}.yaml").read_text(),
    )


@needs_helm
@pytest.mark.parametrize(
    ("option", "fault"),
    [
        ("controller.replicas=0", "brokers with replicas need a controller"),
        ("database.secret=", "several share a PostgreSQL"),
        ("auth.keysSecret=", "name the Secret with the services' keys"),
        ("query.replicas=20", "/query/replicas"),
        ("broker.settings.ERUCA_QUERY_X=a", "ERUCA_QUERY_X"),
        ("brokr.replicas=1", "brokr"),
        (f"auth.rules=eruca_abcdefgh23_{'a' * 43}", "/auth/rules"),  # a key, not a digest
    ],
)
def test_values_that_cannot_be_are_refused(option: str, fault: str) -> None:
    how = "--set-string" if option.startswith("auth") else "--set"
    result = rendered("production", how, option)

    assert result.returncode != 0
    assert fault in result.stderr


@each_set
def test_kubernetes_allows_every_manifest(name: str) -> None:
    for manifest in MANIFESTS[name]:
        if manifest["kind"] in custom_resources.KINDS:
            assert custom_resources.faults_of(manifest) == []
            continue
        for version in KUBERNETES:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_a_manifest_that_is_not_allowed_would_be_found() -> None:
    [service, *_] = of_kind(kept("small"), "Service")
    service["spec"]["port"] = 1

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(service, KUBERNETES[0], strict=True)
    [monitor, *_] = of_kind(kept("secure"), "ServiceMonitor")
    monitor["spec"]["endpoints"][0]["tlsConfigs"] = {}
    assert "tlsConfigs" in custom_resources.faults_of(monitor)[0]


@each_set
def test_no_two_manifests_have_one_name(name: str) -> None:
    names = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in MANIFESTS[name]]

    assert sorted({*names}) == sorted(names)


@each_service
def test_a_container_runs_the_image_of_its_service(name: str, stateful: dict[str, Any]) -> None:
    target = container_of(stateful)["image"].removeprefix("eruca-").partition(":")[0]

    assert STAGES[target].entrypoint == (module_of(stateful).replace("_", "-"),)
    assert container_of(stateful)["ports"] == [
        {"name": "http", "containerPort": STAGES[target].ports[0]}
    ]


@each_service
def test_a_container_takes_its_settings(
    name: str, stateful: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = module_of(stateful)
    image = STAGES[module.removeprefix("eruca_").replace("_", "-")].environment
    for _, environment in pods(stateful):
        own = {k: v for k, v in environment.items() if k != "POD_NAME"}
        assert unknown_settings(module, own) == []
        monkeypatch.setattr(os, "environ", {**image, **environment})

        settings = SETTINGS[module].load()

        assert settings.scheme == ("https" if name == "secure" else "http")
        assert settings.has_rules == (name != "small")


@each_service
def test_no_value_of_a_container_is_a_secret(name: str, stateful: dict[str, Any]) -> None:
    for variable in container_of(stateful)["env"]:
        secret = variable["name"] in ("DATABASE_URL", "ERUCA_CONTROLLER_ETCD_PASSWORD")
        assert secret == ("secretKeyRef" in variable.get("valueFrom", {}))
    for volume in pod_of(stateful)["volumes"]:
        if volume["name"] == "key":
            role = ROLES[module_of(stateful)]
            assert volume["secret"]["items"] == [{"key": f"{role}.key", "path": "api.key"}]


@each_service
def test_a_container_can_do_little(name: str, stateful: dict[str, Any]) -> None:
    pod, container = pod_of(stateful), container_of(stateful)
    uid, gid = map(int, STAGES["eruca"].user.split(":"))

    security = pod["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"], security["fsGroup"]) == (uid, gid, gid)
    assert security["runAsNonRoot"]
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not pod["automountServiceAccountToken"]
    assert not pod["enableServiceLinks"]  # their variables would be taken for settings


@each_service
def test_a_container_s_mounts_and_volumes_are_the_same(name: str, stateful: dict[str, Any]) -> None:
    claims = stateful["spec"].get("volumeClaimTemplates", ())
    volumes = [v["name"] for v in pod_of(stateful)["volumes"]]
    volumes += [claim["metadata"]["name"] for claim in claims]

    assert sorted(volumes) == sorted(m["name"] for m in container_of(stateful)["volumeMounts"])


@each_service
def test_probes_ask_what_the_service_answers(name: str, stateful: dict[str, Any]) -> None:
    container = container_of(stateful)
    paths = {
        **{"startupProbe": "/healthz", "livenessProbe": "/healthz"},
        "readinessProbe": "/readyz",
    }
    for probe, path in paths.items():
        assert container[probe]["httpGet"] == {
            "path": path,
            "port": "http",
            "scheme": "HTTPS" if name == "secure" else "HTTP",
        }


@each_service
def test_a_pod_has_longer_to_stop_than_its_service_takes(
    name: str, stateful: dict[str, Any]
) -> None:
    seconds = pod_of(stateful)["terminationGracePeriodSeconds"]
    before = container_of(stateful).get("lifecycle", {}).get("preStop", {}).get("sleep", {})
    service = SETTINGS[module_of(stateful)].model_fields["stop_seconds"].default

    assert seconds > 2 * service + before.get("seconds", 0)


@pytest.mark.parametrize("name", ["production", "secure"])
def test_replicas_of_a_broker_are_apart_and_leave_one_at_a_time(name: str) -> None:
    brokers = [s for s in of_kind(MANIFESTS[name], "StatefulSet") if "broker" in module_of(s)]
    budgets = {
        str(b["spec"]["selector"]): b["spec"]
        for b in of_kind(MANIFESTS[name], "PodDisruptionBudget")
    }
    assert len(brokers) == 3
    for stateful in brokers:
        [term] = pod_of(stateful)["affinity"]["podAntiAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        assert term["labelSelector"] == stateful["spec"]["selector"]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        assert budgets[str(stateful["spec"]["selector"])]["maxUnavailable"] == 1
        assert [e["ERUCA_BROKER_REPLICA_ID"] for _, e in pods(stateful)] == [
            str(n) for n in range(1, stateful["spec"]["replicas"] + 1)
        ]


@each_set
def test_every_url_names_a_pod_that_there_is(name: str) -> None:
    manifests = MANIFESTS[name]
    there = {
        f"{pod}.{s['spec']['serviceName']}.messaging.svc.cluster.local:{port['containerPort']}"
        for s in of_kind(manifests, "StatefulSet")
        for pod, _ in pods(s)
        for port in container_of(s)["ports"]
    }
    services = {s["metadata"]["name"]: s["spec"] for s in of_kind(manifests, "Service")}
    named = {*urls_in(manifests)}

    assert {host.split(".")[1] for host in there} == {*services}
    assert named <= there
    for host in named:  # only such a Service gives its pods names
        assert services[host.split(".")[1]]["clusterIP"] == "None"


def urls_in(manifests: list[dict[str, Any]]) -> Iterator[str]:
    for stateful in of_kind(manifests, "StatefulSet"):
        for _, environment in pods(stateful):
            for value in environment.values():
                yield from re.findall(r"https?://([^;/]+\.svc\.cluster\.local:\d+)", value)


@pytest.mark.parametrize("name", ["secure"])
def test_a_certificate_has_the_names_by_which_it_is_reached(name: str) -> None:
    certificates = {c["spec"]["secretName"]: c for c in of_kind(MANIFESTS[name], "Certificate")}
    for stateful in of_kind(MANIFESTS[name], "StatefulSet"):
        [secret] = [v["secret"] for v in pod_of(stateful)["volumes"] if v["name"] == "tls"]
        names = certificates[secret["secretName"]]["spec"]["dnsNames"]
        service = stateful["spec"]["serviceName"]
        assert f"*.{service}.messaging.svc.cluster.local" in names
        assert service in names
    for monitor in of_kind(MANIFESTS[name], "ServiceMonitor"):
        for endpoint in monitor["spec"]["endpoints"]:
            tls = endpoint["tlsConfig"]
            certificate = certificates[tls["ca"]["secret"]["name"]]
            assert tls["serverName"] in certificate["spec"]["dnsNames"]


@each_set
def test_who_reaches_a_service_is_named(name: str) -> None:
    policies = {
        policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: policy["spec"]
        for policy in of_kind(MANIFESTS[name], "NetworkPolicy")
    }
    reached = {
        component: {
            peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
            for rule in spec["ingress"]
            for peer in rule["from"]
            if peer.get("podSelector", {}).get("matchLabels")
        }
        for component, spec in policies.items()
    }

    assert {*policies} == {m.removeprefix("eruca_").replace("_", "-") for m in MODULES}
    assert reached["controller"] == {"broker", "console"}
    assert reached["console"] == set()
    assert reached["namesrv"] == {"broker", "console", "controller", "query", "txn-checker"}
    for stateful in of_kind(MANIFESTS[name], "StatefulSet"):
        caller = stateful["metadata"]["labels"]["app.kubernetes.io/component"]
        for _, environment in pods(stateful):
            for variable, target in (
                ("NAMESRV_URLS", "namesrv"),
                ("CONTROLLER_URLS", "controller"),
            ):
                if any(key.endswith(variable) for key in environment):
                    assert caller in reached[target]


@each_set
def test_metrics_have_the_jobs_that_alerts_expect(name: str) -> None:
    services = {
        str(service["spec"]["selector"]): service["metadata"]["labels"]["eruca/job"]
        for service in of_kind(MANIFESTS[name], "Service")
    }

    assert {*services.values()} <= {module.replace("_", "-") for module in MODULES}
    for monitor in of_kind(MANIFESTS[name], "ServiceMonitor"):
        assert monitor["spec"]["jobLabel"] == "eruca/job"
