"""Which addresses webhooks may be at."""

from __future__ import annotations

import pytest

from eruca_txn_checker.core.reach import Reach, is_within

PUBLIC = ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"]
PRIVATE = [
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "fd00::1",
    "::ffff:10.1.2.3",
    "64:ff9b::10.1.2.3",
    "2002:a01:203::1",
]
MACHINE = ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"]
NEVER = [
    "0.0.0.0",
    "::",
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "fe80::1%eth0",
    "224.0.0.1",
    "ff02::1",
    "64:ff9b::169.254.169.254",
]


@pytest.mark.parametrize("address", PUBLIC)
@pytest.mark.parametrize("reach", Reach)
def test_public_addresses_are_always_within_reach(address: str, reach: Reach) -> None:
    assert is_within(address, reach)


@pytest.mark.parametrize("address", PRIVATE)
def test_private_networks_are_reached_if_that_is_set(address: str) -> None:
    assert [is_within(address, reach) for reach in Reach] == [False, True, True]


@pytest.mark.parametrize("address", MACHINE)
def test_the_machine_itself_is_reached_if_that_is_set(address: str) -> None:
    assert [is_within(address, reach) for reach in Reach] == [False, False, True]


@pytest.mark.parametrize("address", NEVER)
@pytest.mark.parametrize("reach", Reach)
def test_some_addresses_are_never_reached(address: str, reach: Reach) -> None:
    assert not is_within(address, reach)
