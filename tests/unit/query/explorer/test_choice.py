"""The explorer lets choose every service that has an address, and tells of those that have none."""

from __future__ import annotations

from datetime import UTC, datetime

from eruca.contract.routes import BrokerAddress, BrokerGroup
from eruca_chassis.explorer.routes import Explored, ExploredServices
from eruca_query.explorer.choice import EXPLORED_MAX, services_to_explore

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def group(name: str, **urls_by_id: dict[str, str]) -> BrokerGroup:
    addresses = [
        BrokerAddress(
            broker_id=int(broker_id.removeprefix("id")),
            role="master" if broker_id == "id0" else "standby",
            urls=urls,
            store_host="127.0.0.1:10911",
            data_version=1,
            last_seen_at=NOW,
            expires_at=NOW,
        )
        for broker_id, urls in urls_by_id.items()
    ]
    return BrokerGroup(cluster="c", broker_name=name, brokers=addresses)


def explore(
    *brokers: BrokerGroup,
    namesrv_urls: tuple[str, ...] = ("http://n:1",),
    checkers: dict[str, str] | None = None,
    controllers: dict[str, str] | None = None,
    network: str = "default",
    missing: tuple[str, ...] = (),
) -> ExploredServices:
    return services_to_explore(
        brokers=brokers,
        namesrv_urls=namesrv_urls,
        checkers=checkers or {},
        controllers=controllers or {},
        network=network,
        missing=missing,
    )


def test_every_service_is_there_brokers_first_and_the_query_service_last() -> None:
    explored = explore(
        group("broker-b", id0={"default": "http://b:1"}),
        group("broker-a", id1={"default": "http://a:2"}, id0={"default": "http://a:1"}),
        namesrv_urls=("http://n:1", "http://n:2/"),
        checkers={"checker-2": "http://c:2", "checker-1": "http://c:1"},
        controllers={"controller-1": "http://d:1"},
    )

    assert explored.services == [
        Explored("broker-a", "http://a:1"),
        Explored("broker-a/1", "http://a:2"),
        Explored("broker-b", "http://b:1"),
        Explored("namesrv-1", "http://n:1"),
        Explored("namesrv-2", "http://n:2"),
        Explored("checker-1", "http://c:1"),
        Explored("checker-2", "http://c:2"),
        Explored("controller-1", "http://d:1"),
        Explored("query", ""),
    ]
    assert explored.note == ""


def test_a_brokers_url_is_that_of_the_network_if_it_has_one() -> None:
    urls = {"default": "http://inside:1", "public": "https://outside"}

    def url_in(network: str) -> str:
        return explore(group("broker-a", id0=urls), network=network).services[0].url

    assert (url_in("public"), url_in("default"), url_in("other")) == (
        "https://outside",
        "http://inside:1",
        "http://inside:1",
    )


def test_what_is_no_address_is_left_out_and_told() -> None:
    explored = explore(
        group("broker-a", id0={"default": "http://a;script-src *"}), missing=("Some are away.",)
    )

    assert [service.name for service in explored.services] == ["namesrv", "query"]
    assert explored.note == (
        "Some are away. The URL of broker-a cannot be called from a page: http://a;script-src *."
    )


def test_no_more_services_than_a_header_has_room_for() -> None:
    brokers = [group(f"b{n:03}", id0={"default": f"http://b{n}"}) for n in range(EXPLORED_MAX)]

    explored = explore(*brokers)

    assert len(explored.services) == EXPLORED_MAX + 1
    assert explored.services[-1].name == "query"
    assert explored.note == "1 more services are left out."
