"""Tell a RocketMQ slave where its master is, by a request of RocketMQ's own protocol.

RocketMQ 5 reads ``haMasterAddress`` from its configuration before the part exists that needs it,
and drops it. Otherwise it learns the address from a RocketMQ name server at which a master is
registered. But it also accepts the address in a request, the one by which masters and slaves
exchange theirs; a restart forgets it.

A request and its answer are a size (4 bytes), the size of a header (4 bytes, of which the first is
0 for JSON), the header, and a body, which is empty here.

Source: RocketMQ 5.3, ``BrokerController.initializeBrokerScheduledTasks``,
``AdminBrokerProcessor.updateBrokerHaInfo``, ``RemotingCommand``.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import closing
from typing import Any, Final

import msgspec

from eruca.cli.slaves.protocol import SlaveError

_EXCHANGE_HA_INFO: Final = 906  # RocketMQ's RequestCode.EXCHANGE_BROKER_HA_INFO
_SUCCESS: Final = 0
_SIZES: Final = struct.Struct(">II")
_SIZE_MAX: Final = 64 * 1024  # bytes of an answer
_ANSWER_SECONDS: Final = 5.0


async def introduce(slave: tuple[str, int], port: int) -> None:
    """Tell the broker at *slave* that its master serves slaves at *port* of this machine.

    The host is the one by which this machine reaches the broker.

    Raises:
        SlaveError: It cannot be reached, or refuses.
    """
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(*slave)
            with closing(writer):
                host = writer.get_extra_info("sockname")[0]
                writer.write(request(f"[{host}]:{port}" if ":" in host else f"{host}:{port}"))
                size, header_size = _SIZES.unpack(await reader.readexactly(_SIZES.size))
                if not header_size <= size - 4 <= _SIZE_MAX:
                    raise SlaveError("it does not answer as a RocketMQ broker")
                answer = await reader.readexactly(size - 4)
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        raise SlaveError(f"it cannot be reached: {error or 'it does not answer'}") from error
    check_answer(answer[:header_size])


def request(master: str) -> bytes:
    """Return the request with the address of a slave's master."""
    fields = {"masterHaAddress": master, "masterFlushOffset": "0"}
    header = msgspec.json.encode(
        {
            "code": _EXCHANGE_HA_INFO,
            "language": "PYTHON",
            "version": 0,
            "opaque": 1,
            "flag": 0,
            "extFields": fields,
        }
    )
    return _SIZES.pack(4 + len(header), len(header)) + header


def check_answer(header: bytes) -> None:
    """Check the header of an answer.

    Raises:
        SlaveError: The broker has refused.
    """
    try:
        answer: dict[str, Any] = msgspec.json.decode(header, type=dict[str, Any])
    except msgspec.DecodeError:
        raise SlaveError("it does not answer as a RocketMQ broker") from None
    if answer.get("code") != _SUCCESS:
        raise SlaveError(f"it refuses the address of its master: {answer.get('remark')}")
