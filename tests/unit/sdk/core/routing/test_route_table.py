"""Routes: what producers and consumers may use of them, and for how long."""

from __future__ import annotations

import pytest

from eruca.contract.errors import NoRouteError
from eruca.contract.fields import Permission
from eruca.contract.records import Host
from eruca.contract.routes import QueueData, RouteBroker, TopicRoute
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.routing.route_table import RouteTable, publish_view, subscribe_view


def queue_data(
    name: str, *, read: int = 1, write: int = 1, permission: Permission = "rw"
) -> QueueData:
    return QueueData(
        broker_name=name,
        read_queue_count=read,
        write_queue_count=write,
        permission=permission,
    )


def broker(name: str, *ids: int) -> RouteBroker:
    return RouteBroker(
        cluster="eruca",
        broker_name=name,
        urls={n: {"default": f"http://{name}:{n}"} for n in ids},
        store_hosts={n: f"10.0.0.{n + 1}:10911" for n in ids},
    )


def route(
    *queues: QueueData,
    brokers: list[RouteBroker] | None = None,
    order_config: str | None = None,
) -> TopicRoute:
    masters = [broker(data.broker_name, 0) for data in queues]
    return TopicRoute(
        topic="orders",
        queues=list(queues),
        brokers=masters if brokers is None else brokers,
        order_config=order_config,
    )


def places(queues: tuple[MessageQueue, ...]) -> list[tuple[str, int]]:
    assert all(queue.topic == "orders" for queue in queues)
    return [(queue.broker_name, queue.queue_id) for queue in queues]


def test_producers_see_the_writable_queues_by_broker_name() -> None:
    view = publish_view(route(queue_data("b", write=1), queue_data("a", write=2, read=9)))

    assert places(view.queues) == [("a", 0), ("a", 1), ("b", 0)]
    assert view.key_queues == view.queues


@pytest.mark.parametrize("permission", ["r", "none"])
def test_producers_do_not_see_brokers_that_may_not_be_written(permission: Permission) -> None:
    assert publish_view(route(queue_data("a", permission=permission))).queues == ()


def test_producers_do_not_see_a_broker_without_its_master() -> None:
    view = publish_view(route(queue_data("a"), brokers=[broker("a", 1, 2)]))

    assert view.queues == ()
    assert view.urls == {}


def test_consumers_see_the_readable_queues_by_broker_name() -> None:
    view = subscribe_view(route(queue_data("b"), queue_data("a", read=2, write=9)))

    assert places(view.queues) == [("a", 0), ("a", 1), ("b", 0)]


def test_consumers_need_no_master() -> None:
    view = subscribe_view(route(queue_data("a", permission="r"), brokers=[broker("a", 1, 2)]))

    assert places(view.queues) == [("a", 0)]


@pytest.mark.parametrize("permission", ["w", "none"])
def test_consumers_do_not_see_brokers_that_may_not_be_read(permission: Permission) -> None:
    assert subscribe_view(route(queue_data("a", permission=permission))).queues == ()


def test_queues_of_a_broker_nobody_can_reach_are_left_out() -> None:
    nowhere = RouteBroker(cluster="eruca", broker_name="a", urls={0: {}}, store_hosts={})

    assert subscribe_view(route(queue_data("a"), brokers=[])).queues == ()
    assert subscribe_view(route(queue_data("a"), brokers=[nowhere])).queues == ()
    assert publish_view(route(queue_data("a"), brokers=[nowhere])).queues == ()


def test_an_order_config_fixes_the_queues_of_keys_and_of_nothing_else() -> None:
    view = publish_view(route(queue_data("a", write=1), order_config="b:1; a:2;"))

    assert places(view.key_queues) == [("b", 0), ("a", 0), ("a", 1)]
    assert places(view.queues) == [("a", 0)]


def test_an_order_config_may_hold_as_many_queues_as_a_topic() -> None:
    assert len(publish_view(route(queue_data("a"), order_config="a:1024")).key_queues) == 1_024


@pytest.mark.parametrize("config", ["a", "a:", ":4", "a:x", "a:-1", "a:²", "a:1025", "a:99999999"])
def test_an_order_config_that_cannot_be_read_is_told(config: str) -> None:
    with pytest.raises(NoRouteError, match="order config of orders"):
        publish_view(route(queue_data("a"), order_config=config))


def test_messages_go_to_the_master() -> None:
    view = publish_view(route(queue_data("a"), brokers=[broker("a", 2, 0)]))

    assert view.url_of(view.queues[0]) == "http://a:0"
    assert view.store_hosts == {"a": Host.parse("10.0.0.1", 10911)}


def test_an_ordered_queue_whose_broker_is_away_is_missed() -> None:
    view = publish_view(route(queue_data("a"), order_config="a:1;gone:1"))
    here, away = view.key_queues

    assert (view.is_missed(here), view.is_missed(away)) == (False, True)
    with pytest.raises(NoRouteError, match="broker gone of queue 0 of orders is away") as refused:
        view.url_of(away)
    assert "--without gone" in str(refused.value.fix)


def test_a_queue_that_only_the_caller_names_is_not_missed() -> None:
    view = publish_view(route(queue_data("a"), order_config="a:1"))
    unknown = MessageQueue("orders", "gone", 0)

    assert not view.is_missed(unknown)
    with pytest.raises(NoRouteError, match="broker gone of queue 0 of orders is away"):
        view.url_of(unknown)


def test_a_master_may_keep_its_store_host_to_itself() -> None:
    master = broker("a", 0).model_copy(update={"store_hosts": {}})

    assert publish_view(route(queue_data("a"), brokers=[master])).store_hosts == {}


def test_a_consumer_reads_from_the_process_it_wants_or_another() -> None:
    view = subscribe_view(route(queue_data("a"), brokers=[broker("a", 2, 1)]))
    (queue,) = view.queues

    assert view.url_of(queue) == "http://a:1"
    assert view.url_of(queue, 2) == "http://a:2"
    with pytest.raises(NoRouteError, match="not in the route"):
        view.url_of(queue._replace(broker_name="gone"))


def test_a_client_takes_the_address_of_its_own_network() -> None:
    urls = {0: {"lan": "http://lan", "default": "http://default"}, 1: {"wan": "http://wan"}}
    node = broker("a").model_copy(update={"urls": urls})
    where = route(queue_data("a"), brokers=[node])

    assert publish_view(where, network="lan").urls == {"a": "http://lan"}
    assert publish_view(where, network="wan").urls == {"a": "http://default"}
    assert subscribe_view(where).urls == {"a": {0: "http://default", 1: "http://wan"}}


def test_a_route_is_stale_from_its_age_on() -> None:
    table = RouteTable(age_ms_max=100)
    assert table.is_stale("orders", 0)

    table.put(route(queue_data("a")), etag='"1"', now_ms=1_000)

    assert not table.is_stale("orders", 1_099)
    assert table.is_stale("orders", 1_100)


def test_a_confirmed_route_is_fresh_again() -> None:
    table = RouteTable(age_ms_max=100)
    table.put(route(queue_data("a")), etag='"1"', now_ms=1_000)

    table.confirm("orders", now_ms=1_100)

    cached = table.get("orders")
    assert not table.is_stale("orders", 1_199)
    assert cached is not None
    assert cached.etag == '"1"'


def test_a_route_that_differs_is_noticed() -> None:
    table = RouteTable()

    assert table.put(route(queue_data("a")), etag=None, now_ms=0)
    assert not table.put(route(queue_data("a")), etag=None, now_ms=1)
    assert table.put(route(queue_data("a", write=2)), etag=None, now_ms=2)


def test_a_route_that_cannot_be_read_leaves_the_one_before() -> None:
    table = RouteTable()
    table.put(route(queue_data("a")), etag=None, now_ms=0)

    with pytest.raises(NoRouteError):
        table.put(route(queue_data("b"), order_config="?"), etag=None, now_ms=1)

    cached = table.get("orders")
    assert cached is not None
    assert places(cached.publish.queues) == [("a", 0)]
    assert places(cached.subscribe.queues) == [("a", 0)]


def test_the_table_knows_its_topics_and_their_brokers() -> None:
    table = RouteTable()
    table.put(route(queue_data("b"), queue_data("a")), etag=None, now_ms=0)
    assert table.topics() == ["orders"]
    assert table.broker_names() == {"a", "b"}

    table.forget("orders")
    table.forget("orders")

    assert table.get("orders") is None
    assert table.broker_names() == frozenset()


def replicas(name: str, epoch: int, *ids: int) -> RouteBroker:
    return broker(name, *ids).model_copy(update={"epoch": epoch})


def test_a_broker_whose_master_is_away_takes_no_messages_and_is_awaited() -> None:
    where = route(queue_data("a"), queue_data("b"), brokers=[replicas("a", 7, 1), broker("b", 0)])
    view = publish_view(where)

    assert places(view.queues) == [("b", 0)]
    assert view.epochs == {"a": 7}
    assert view.awaits_master
    assert view.has_successor("a")
    assert not view.has_successor("b")
    assert view.is_missed(MessageQueue("orders", "a", 0))
    assert not view.is_missed(MessageQueue("orders", "b", 0))
    assert places(subscribe_view(where).queues) == [("a", 0), ("b", 0)]


def test_a_broker_without_replicas_is_not_awaited() -> None:
    view = publish_view(route(queue_data("a"), brokers=[broker("a", 1)]))

    assert not view.awaits_master
    assert not view.is_missed(MessageQueue("orders", "a", 0))


def test_a_route_with_a_master_is_fuller_than_one_without() -> None:
    table = RouteTable()
    table.put(route(queue_data("a"), brokers=[replicas("a", 7, 0, 1)]), etag=None, now_ms=0)

    assert table.is_fuller(route(queue_data("a"), brokers=[replicas("a", 7, 1)]))
    assert not table.is_fuller(route(queue_data("a"), brokers=[replicas("a", 8, 0)]))


def test_topics_are_found_by_the_url_of_any_replica() -> None:
    table = RouteTable()
    table.put(route(queue_data("a"), brokers=[replicas("a", 7, 0, 1)]), etag=None, now_ms=0)

    assert table.topics_at("http://a:0") == table.topics_at("http://a:1") == ["orders"]
    assert table.topics_at("http://a:2") == []
