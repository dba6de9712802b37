"""Change a topic on several brokers, so that all of them store the same order config.

The order config divides an ordered topic's sharding keys over queues. Every broker of the topic
stores it. So if one broker's settings change, the others get the new order config.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from eruca.aio.cluster.masters import Masters, known_by, on_each
from eruca.contract.errors import ErucaError, TopicNotFoundError, ValidationError
from eruca.contract.routes import TopicRoute
from eruca.contract.topics import TopicConfig, TopicSettings
from eruca.core.checked_names import check_topic
from eruca.core.routing.order_config import latest_order_config, order_config_of

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext

_SETTINGS: Final = set(TopicSettings.model_fields) - {"order_config"}


class TopicChanges:
    """Changes topics of one cluster."""

    def __init__(self, context: ClientContext, masters: Masters) -> None:
        self._context = context
        self._masters = masters

    async def change(
        self,
        topic: str,
        settings: Mapping[str, TopicSettings],
        without: Collection[str] = (),
        *,
        is_forced: bool = False,
    ) -> dict[str, TopicConfig]:
        """Change a topic; :meth:`eruca.aio.admin.AsyncAdmin.change_topic` has the contract."""
        check_topic(topic)
        live = await self._masters.all()
        for name in settings.keys() - live.keys():
            live[name] = await self._masters.of_broker(name)
        api = self._context.broker_api
        silent: dict[str, ErucaError] = {}  # treated as away: their keys wait for them
        held = await known_by(
            live, lambda url: api.get_topic(url, topic), TopicNotFoundError, silent
        )
        for name in without:
            _check_given_up(topic, name, live, held)
        named = {name: _with_what_is_held(its, held.get(name)) for name, its in settings.items()}
        topics: dict[str, TopicConfig | TopicSettings] = {**held, **named}
        order = order_config_of(
            topics,
            latest_order_config(held),
            live=live.keys() - silent.keys(),
            without=without,
        )
        wanted = {
            name: TopicSettings(
                **its.model_dump(include=_SETTINGS), order_config=order if its.ordered else None
            )
            for name, its in topics.items()
            if name in settings or (its.ordered and its.order_config != order)
        }

        async def put(name: str) -> TopicConfig:
            return await api.put_topic(live[name], topic, wanted[name], is_forced=is_forced)

        configs = await on_each({name: name for name in wanted}, put)
        await self._context.routes.wait_until(topic, lambda route: _shows(route, configs))
        return {name: config for name, config in configs.items() if name in settings}


def _with_what_is_held(settings: TopicSettings, held: TopicConfig | None) -> TopicSettings:
    """Return a broker's stored settings of a topic, with *settings* replacing the given fields."""
    if held is None:
        return settings.with_fitting_counts()
    kept = held.model_dump(include=_SETTINGS - settings.model_fields_set)
    return settings.model_copy(update=kept)


def _check_given_up(
    topic: str, name: str, live: Collection[str], held: Mapping[str, TopicConfig]
) -> None:
    """Raise ValidationError if a broker's keys of *topic* cannot be moved."""
    if name in live:
        raise ValidationError(
            f"without: broker {name} is live",
            fix=f"move its keys: eruca topic create {topic} --broker {name} --permission r",
        )
    orders = [its.order_config for its in held.values() if its.order_config is not None]
    if not any(name in order.queues for order in orders):
        raise ValidationError(
            f"without: no keys of {topic} are assigned to {name}",
            fix=f"list the brokers of the keys: eruca topic show {topic}",
        )


def _shows(route: TopicRoute, configs: Mapping[str, TopicConfig]) -> bool:
    """Tell whether a topic's route shows the brokers' new settings."""
    shown = {
        data.broker_name: (data.read_queue_count, data.write_queue_count, data.permission)
        for data in route.queues
    }
    order = latest_order_config(configs)
    return (order is None or order.text == route.order_config) and all(
        shown.get(name) == (config.read_queue_count, config.write_queue_count, config.permission)
        for name, config in configs.items()
    )
