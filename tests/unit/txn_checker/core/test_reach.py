"""The addresses that webhooks may have."""

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
MACHINE = ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "2002:7f00:1::1"]
METADATA = [
    "100.100.100.200",
    "168.63.129.16",
    "169.254.169.254",
    "169.254.170.2",
    "192.0.0.192",
    "fd00:42::42",
    "fd00:a9fe:a9fe::1",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd20:ce::254",
    "fe80::a9fe:a9fe",
]
NEVER = [
    "0.0.0.0",
    "::",
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "fe80::1%eth0",
    "224.0.0.1",
    "ff02::1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::93.184.216.34",
    "64:ff9b:1:7f00:0:100::",
    "::ffff:0:10.1.2.3",
    "::ffff:0:127.0.0.1",
    "::ffff:0:93.184.216.34",
    "::93.184.216.34",
    "::127.0.0.1",
    "fec0::1",
    "feff::1",
    "2001::1",
    "2001:0:5db8:d822::f5ff:fefe",
    "2001:db8::1",
    "2606:2800:220:1:0:5efe:169.254.169.254",
    "3fff::1",
    "4000::1",
    "100::1",
    "5f00::1",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "203.0.113.9",
    "240.0.0.1",
    "255.255.255.255",
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


@pytest.mark.parametrize("address", [*NEVER, *METADATA])
@pytest.mark.parametrize("reach", Reach)
def test_some_addresses_are_never_reached(address: str, reach: Reach) -> None:
    assert not is_within(address, reach)


@pytest.mark.parametrize("form", ["::ffff:{}", "64:ff9b::{}", "2606:2800:220:1:200:5efe:{}"])
@pytest.mark.parametrize("address", [text for text in METADATA if ":" not in text])
def test_metadata_is_not_reached_in_another_form(form: str, address: str) -> None:
    assert not is_within(form.format(address), Reach.MACHINE)


@pytest.mark.parametrize("prefix", ["2606:2800:220:1:0:5efe:", "2606:2800:220:1:200:5efe:"])
def test_a_tunnel_is_reached_no_further_than_its_end(prefix: str) -> None:
    ends = ["93.184.216.34", "10.1.2.3", "127.0.0.1"]

    reached = [[is_within(prefix + end, reach) for reach in Reach] for end in ends]

    assert reached == [[True, True, True], [False, True, True], [False, False, True]]
